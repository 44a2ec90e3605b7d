// Connections by endpoint text: which are accepted, their options, and the errors.
#include "transport/socket.h"
#include "transport/socket_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "common/config.h"
#include "support/connect.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

std::string FreshUnixEndpoint() {
  static std::atomic<int> counter{0};
  return "unix:farandole-test-" + std::to_string(getpid()) + "-" + std::to_string(counter++);
}

int OptionOf(int fd, int level, int name) {
  int value = -1;
  socklen_t size_bytes = sizeof(value);
  EXPECT_EQ(getsockopt(fd, level, name, &value, &size_bytes), 0);
  return value;
}

struct Connected {
  Descriptor listener, client, server;
  std::string endpoint;
};

Connected ConnectTo(const std::string& endpoint) {
  Connected made;
  Status status = Listen(endpoint, &made.listener);
  EXPECT_TRUE(status.ok()) << status.message();
  status = BoundEndpoint(made.listener.get(), &made.endpoint);
  EXPECT_TRUE(status.ok()) << status.message();
  status = ConnectOnce(made.endpoint, Soon(), &made.client);
  EXPECT_TRUE(status.ok()) << status.message();
  status = Accept(made.listener.get(), Soon(), &made.server);
  EXPECT_TRUE(status.ok()) << status.message();
  return made;
}

class Endpoints : public ::testing::TestWithParam<const char*> {
 protected:
  std::string endpoint() const {
    return std::string(GetParam()) == "unix" ? FreshUnixEndpoint() : std::string(GetParam());
  }
};

TEST_P(Endpoints, CarryBytesBothWays) {
  Connected pair = ConnectTo(endpoint());
  char received[4] = {};
  EXPECT_TRUE(SendAll(pair.client.get(), "ping", 4, Soon()).ok());
  EXPECT_TRUE(RecvAll(pair.server.get(), received, 4, Soon()).ok());
  EXPECT_EQ(std::string(received, 4), "ping");
  EXPECT_TRUE(SendAll(pair.server.get(), "pong", 4, Soon()).ok());
  EXPECT_TRUE(RecvAll(pair.client.get(), received, 4, Soon()).ok());
  EXPECT_EQ(std::string(received, 4), "pong");
}

TEST_P(Endpoints, MakeDescriptorsThatNoChildInherits) {
  Connected pair = ConnectTo(endpoint());
  EXPECT_TRUE(IsCloseOnExec(pair.listener.get()));
  EXPECT_TRUE(IsCloseOnExec(pair.client.get()));
  EXPECT_TRUE(IsCloseOnExec(pair.server.get()));
}

TEST_P(Endpoints, AreNamedAsTheOtherEndOfAConnection) {
  Connected pair = ConnectTo(endpoint());
  EXPECT_EQ(DescribePeer(pair.client.get()), pair.endpoint);
  EXPECT_NE(DescribePeer(pair.server.get()), "a peer that is gone");
}

TEST_P(Endpoints, RefuseAtOnceWhenNobodyListens) {
  std::string closed;
  {
    Descriptor listener;
    ASSERT_TRUE(Listen(endpoint(), &listener).ok());
    ASSERT_TRUE(BoundEndpoint(listener.get(), &closed).ok());
  }
  Descriptor connection;
  const Deadline deadline = Soon();
  const Status status = ConnectOnce(closed, deadline, &connection);
  EXPECT_EQ(status.code(), Code::kPeerLost) << status.message();
  EXPECT_NE(status.message().find("no connection" + AtEndpoint(closed)), std::string::npos) << status.message();
  EXPECT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_FALSE(connection.valid());
}

TEST_P(Endpoints, AreConnectedToOnceTheListenerComes) {
  std::string later;
  {
    Descriptor listener;
    ASSERT_TRUE(Listen(endpoint(), &listener).ok());
    ASSERT_TRUE(BoundEndpoint(listener.get(), &later).ok());
  }
  Descriptor listener, connection;
  std::thread opener([&] {
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_TRUE(Listen(later, &listener).ok());
  });
  const Status status = ConnectRetry(later, Soon(), &connection);
  opener.join();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(connection.valid());
}

std::string KindOf(const ::testing::TestParamInfo<const char*>& info) {
  static const char* const kKinds[] = {"unix", "ipv4", "name"};
  return kKinds[info.index];
}
INSTANTIATE_TEST_SUITE_P(All, Endpoints, ::testing::Values("unix", "tcp:127.0.0.1:0", "tcp:localhost:0"), KindOf);

TEST(Ipv6Endpoint, IsWrittenInBracketsBothWays) {
  Descriptor listener;
  const Status status = Listen("tcp:[::1]:0", &listener);
  if (!status.ok()) {
    // On a host without IPv6 the error names the endpoint, and the rest of the test does not apply.
    EXPECT_NE(status.message().find("tcp:[::1]:0"), std::string::npos);
    return;
  }
  std::string bound;
  ASSERT_TRUE(BoundEndpoint(listener.get(), &bound).ok());
  EXPECT_EQ(bound.rfind("tcp:[::1]:", 0), 0u) << bound;
  Descriptor connection;
  EXPECT_TRUE(ConnectOnce(bound, Soon(), &connection).ok());
}

TEST(TcpEndpoint, PortZeroIsReplacedByTheOneTheKernelChose) {
  Connected pair = ConnectTo("tcp:127.0.0.1:0");
  EXPECT_EQ(pair.endpoint.rfind("tcp:127.0.0.1:", 0), 0u);
  EXPECT_NE(pair.endpoint, "tcp:127.0.0.1:0");
}

TEST(TcpEndpoint, ConnectionsSendAtOnceAndNoticeAVanishedHost) {
  Connected pair = ConnectTo("tcp:127.0.0.1:0");
  for (const int fd : {pair.client.get(), pair.server.get()}) {
    EXPECT_NE(OptionOf(fd, IPPROTO_TCP, TCP_NODELAY), 0);
    EXPECT_NE(OptionOf(fd, SOL_SOCKET, SO_KEEPALIVE), 0);
    EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_KEEPIDLE), 1);
    EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_KEEPINTVL), 1);
    EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
    EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
    FailWhenUnanswered(fd);
    EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 4000);
  }
}

TEST(TcpEndpoint, ConnectionsBearSilenceForAsLongAsTheyAreTold) {
  const struct {
    int64_t timeout_ms;
    int pause_s;
    int probes;  // the connection is lost after 1 + probes pauses
  } kCases[] = {{1000, 1, 1},      {20'000, 1, 19},  {20'500, 1, 20},
                {128'000, 1, 127}, {129'000, 2, 64}, {86'400'000, 675, 127}};
  for (const auto& each : kCases) {
    SetSilenceTimeout(each.timeout_ms);
    Connected pair = ConnectTo("tcp:127.0.0.1:0");
    for (const int fd : {pair.client.get(), pair.server.get()}) {
      EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_KEEPIDLE), each.pause_s) << each.timeout_ms;
      EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_KEEPINTVL), each.pause_s) << each.timeout_ms;
      EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_KEEPCNT), each.probes) << each.timeout_ms;
      FailWhenUnanswered(fd);
      EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), each.timeout_ms);
    }
  }
  SetSilenceTimeout(Settings().silence_timeout_ms);
}

TEST(TcpEndpoint, WithoutAListenerIsNotConnectedToItself) {
  // A socket connects to itself when the kernel chooses for it the very port that it connects to. The kernel walks with
  // random strides through the ports of the same parity as the lowest one, so this many attempts reach that port.
  int lowest = 0, highest = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> lowest >> highest;
  const std::string endpoint = "tcp:127.0.0.1:" + std::to_string(lowest + 2 * ((highest - lowest) / 4));
  for (int attempt = 0; attempt < (highest - lowest) * 3 / 2; ++attempt) {
    Descriptor connection;
    const Status status = ConnectOnce(endpoint, Soon(), &connection);
    ASSERT_EQ(status.code(), Code::kPeerLost) << "attempt " << attempt << ": " << status.message();
  }
}

TEST(Endpoint, MessagesNameTcpAddressesOnly) {
  EXPECT_EQ(AtEndpoint("tcp:10.0.0.2:4711"), " at 10.0.0.2:4711");
  EXPECT_EQ(AtEndpoint("tcp:[::1]:4711"), " at [::1]:4711");
  EXPECT_EQ(AtEndpoint("unix:farandole-77aa"), "");
}

TEST(Endpoint, TextThatIsWrongIsRefusedWithTheReason) {
  const struct {
    const char* text;
    const char* reason;
  } kCases[] = {{"", "neither"},
                {"http:host:80", "neither"},
                {"unix:", "name is empty"},
                {"tcp:host", "port is missing"},
                {"tcp::80", "host is missing"},
                {"tcp:::1:80", "brackets"},
                {"tcp:[::1:80", "brackets"},
                {"tcp:host:", "port is no number"},
                {"tcp:host:65536", "port is no number"},
                {"tcp:host:-1", "port is no number"},
                {"tcp:host:80x", "port is no number"}};
  for (const auto& each : kCases) {
    Descriptor connection;
    for (const Status& status : {Listen(each.text, &connection), ConnectRetry(each.text, Soon(), &connection)}) {
      EXPECT_EQ(status.code(), Code::kInvalid) << each.text;
      EXPECT_NE(status.message().find(each.reason), std::string::npos) << status.message();
    }
  }
  Descriptor connection;
  EXPECT_EQ(Listen("unix:" + std::string(108, 'x'), &connection).code(), Code::kInvalid);
  std::string longest = FreshUnixEndpoint();
  longest.resize(std::string("unix:").size() + 107, 'x');
  EXPECT_TRUE(Listen(longest, &connection).ok());
}

TEST(Listen, TwiceAtOneEndpointIsAnErrorThatNamesIt) {
  const std::string endpoint = FreshUnixEndpoint();
  Descriptor first, second;
  ASSERT_TRUE(Listen(endpoint, &first).ok());
  const Status status = Listen(endpoint, &second);
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_NE(status.message().find(endpoint), std::string::npos);
}

TEST(Accept, ReturnsAtTheDeadlineWhenNobodyComes) {
  Descriptor listener, connection;
  ASSERT_TRUE(Listen(FreshUnixEndpoint(), &listener).ok());
  EXPECT_EQ(Accept(listener.get(), After(milliseconds(30)), &connection).code(), Code::kDeadline);
}

TEST(UnixEndpoint, AProcessOfAnotherUserIsRefusedAndTheNextOneIsAccepted) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string endpoint = FreshUnixEndpoint();
  Descriptor listener;
  ASSERT_TRUE(Listen(endpoint, &listener).ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Descriptor connection;
    const bool became = setresuid(65534, 65534, 65534) == 0;
    const Status status = ConnectOnce(endpoint, Soon(), &connection);
    // The listener belongs to root, so this end refuses as well.
    _exit(became && status.code() == Code::kMismatch ? 0 : 1);
  }
  Descriptor connection;
  const Status status = Accept(listener.get(), Soon(), &connection);
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_NE(status.message().find("user id 65534"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("user id 0"), std::string::npos) << status.message();
  EXPECT_FALSE(connection.valid());
  int exit_status = -1;
  ASSERT_EQ(waitpid(child, &exit_status, 0), child);
  EXPECT_EQ(exit_status, 0);
  Descriptor ours;
  ASSERT_TRUE(ConnectOnce(endpoint, Soon(), &ours).ok());
  EXPECT_TRUE(Accept(listener.get(), Soon(), &connection).ok());
}

}  // namespace
}  // namespace farandole
