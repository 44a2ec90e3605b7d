// Bytes and passed descriptors over a connected socket.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "support/connect.h"
#include "transport/socket.h"
#include "transport/socket_io.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

struct Both {
  Descriptor left, right;
};

Both UnixSockets() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

TEST(TrySend, ToAPeerThatIsGoneIsAnErrorAndNoSignal) {
  Both pair = UnixSockets();
  pair.right.Reset();
  size_t moved = 0;
  EXPECT_EQ(TrySend(pair.left.get(), "x", 1, &moved).code(), Code::kPeerLost);
  EXPECT_EQ(moved, 0u);
}

// ---- descriptors

// A memfd that holds its number.
Descriptor Numbered(int number) {
  Descriptor memory(memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(pwrite(memory.get(), &number, sizeof(number), 0), static_cast<ssize_t>(sizeof(number)));
  return memory;
}

int NumberOf(const Descriptor& memory) {
  int number = -1;
  EXPECT_EQ(pread(memory.get(), &number, sizeof(number), 0), static_cast<ssize_t>(sizeof(number)));
  return number;
}

class DescriptorCounts : public ::testing::TestWithParam<int> {};

TEST_P(DescriptorCounts, ArriveInOrderAndCloseOnExec) {
  Both pair = UnixSockets();
  std::vector<Descriptor> owned;
  std::vector<int> sent;
  for (int i = 0; i < GetParam(); ++i) {
    owned.push_back(Numbered(i));
    sent.push_back(owned.back().get());
  }
  std::thread sender([&] { EXPECT_TRUE(SendDescriptors(pair.left.get(), sent, Soon()).ok()); });
  std::vector<Descriptor> received;
  const Status status = RecvDescriptors(pair.right.get(), sent.size(), &received, Soon());
  sender.join();
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(received.size(), sent.size());
  for (int i = 0; i < GetParam(); ++i) {
    EXPECT_EQ(NumberOf(received[static_cast<size_t>(i)]), i);
    EXPECT_TRUE(IsCloseOnExec(received[static_cast<size_t>(i)].get()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, DescriptorCounts, ::testing::Values(0, 1, 199, 200, 201, 401));

TEST(Descriptors, TheNextMessageStartsWhereTheyEnd) {
  Both pair = UnixSockets();
  const Descriptor memory = Numbered(7);
  ASSERT_TRUE(SendDescriptors(pair.left.get(), {memory.get()}, Soon()).ok());
  ASSERT_TRUE(SendAll(pair.left.get(), "next", 4, Soon()).ok());
  std::vector<Descriptor> received;
  std::string next(4, ' ');
  ASSERT_TRUE(RecvDescriptors(pair.right.get(), 1, &received, Soon()).ok());
  ASSERT_TRUE(RecvAll(pair.right.get(), next.data(), next.size(), Soon()).ok());
  EXPECT_EQ(next, "next");
}

TEST(Descriptors, MoreThanExpectedAreRefused) {
  Both pair = UnixSockets();
  const Descriptor memory = Numbered(7);
  ASSERT_TRUE(SendDescriptors(pair.left.get(), {memory.get(), memory.get()}, Soon()).ok());
  std::vector<Descriptor> received;
  const Status status = RecvDescriptors(pair.right.get(), 1, &received, Soon());
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_NE(status.message().find("2 descriptors"), std::string::npos) << status.message();
}

TEST(Descriptors, FewerThanExpectedAreNoticed) {
  Both pair = UnixSockets();
  ASSERT_TRUE(SendAll(pair.left.get(), "D", 1, Soon()).ok());
  std::vector<Descriptor> received;
  const Status status = RecvDescriptors(pair.right.get(), 1, &received, Soon());
  EXPECT_EQ(status.code(), Code::kMismatch) << status.message();
}

TEST(Descriptors, ThatThisProcessMayNotOpenAreAnErrorThatNamesTheLimit) {
  Both pair = UnixSockets();
  const Descriptor memory = Numbered(7);
  const std::vector<int> sent(64, memory.get());
  ASSERT_TRUE(SendDescriptors(pair.left.get(), sent, Soon()).ok());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {static_cast<rlim_t>(memory.get() + 8), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<Descriptor> received;
  const Status status = RecvDescriptors(pair.right.get(), 64, &received, Soon());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_NE(status.message().find("ulimit -n"), std::string::npos) << status.message();
}

TEST(Descriptor, ClosesWhatItOwnsAndNothingTwice) {
  const int fd = memfd_create("test", MFD_CLOEXEC);
  {
    Descriptor first(fd);
    Descriptor second(std::move(first));
    EXPECT_FALSE(first.valid());
    EXPECT_EQ(second.get(), fd);
    first = std::move(second);
    EXPECT_EQ(first.get(), fd);
    EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
  }
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

}  // namespace
}  // namespace farandole
