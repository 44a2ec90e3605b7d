// The addresses of this host that other hosts may reach. Sockets can be bound to each of them.
#include "transport/socket.h"

#include <gtest/gtest.h>

#include "common/descriptor.h"

namespace farandole {
namespace {

TEST(HostAddresses, EachBelongsToThisHostAndHasAPrefixLength) {
  std::vector<std::string> addresses;
  ASSERT_TRUE(HostAddresses(&addresses).ok());
  for (const std::string& text : addresses) {
    const size_t slash = text.find('/');
    ASSERT_NE(slash, std::string::npos) << text;
    const bool is_ipv6 = text.find(':') != std::string::npos;
    const int bits = std::stoi(text.substr(slash + 1));
    EXPECT_TRUE(bits > 0 && bits <= (is_ipv6 ? 128 : 32)) << text;
    EXPECT_NE(text.substr(0, 4), "127.");
    EXPECT_NE(text.substr(0, 4), "fe80");
    const std::string host = is_ipv6 ? "[" + text.substr(0, slash) + "]" : text.substr(0, slash);
    Descriptor listener;
    const Status listening = Listen("tcp:" + host + ":0", &listener);
    EXPECT_TRUE(listening.ok()) << listening.message();
  }
}

}  // namespace
}  // namespace farandole
