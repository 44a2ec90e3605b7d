#include "transport/host_addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <bitset>
#include <cstddef>
#include <memory>

namespace farandole {
namespace {

struct Bytes {
  const uint8_t* data = nullptr;  // null: of a family that does not matter here
  size_t count = 0;
};

Bytes BytesOf(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(address);
    return {reinterpret_cast<const uint8_t*>(&v4->sin_addr), sizeof(v4->sin_addr)};
  }
  if (address->sa_family != AF_INET6) return {};
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(address);
  if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) return {};
  return {reinterpret_cast<const uint8_t*>(&v6->sin6_addr), sizeof(v6->sin6_addr)};
}

size_t Ones(const Bytes& mask) {
  size_t ones = 0;
  for (size_t i = 0; i < mask.count; ++i) ones += std::bitset<8>(mask.data[i]).count();
  return ones;
}

}  // namespace

Status HostAddresses(std::vector<std::string>* addresses) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return SystemError("getifaddrs");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  addresses->clear();
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    const bool reaches_others = (each->ifa_flags & IFF_UP) != 0 && (each->ifa_flags & IFF_LOOPBACK) == 0;
    if (!reaches_others || each->ifa_addr == nullptr || each->ifa_netmask == nullptr) continue;
    const Bytes bytes = BytesOf(each->ifa_addr);
    char text[INET6_ADDRSTRLEN];
    if (bytes.data == nullptr) continue;
    if (inet_ntop(each->ifa_addr->sa_family, bytes.data, text, sizeof(text)) == nullptr) continue;
    addresses->push_back(std::string(text) + "/" + std::to_string(Ones(BytesOf(each->ifa_netmask))));
  }
  return Status::Ok();
}

}  // namespace farandole
