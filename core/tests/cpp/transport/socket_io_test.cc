// Bytes, frames and passed descriptors over a connected socket.
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

// Small buffers, so that a few hundred kilobytes fill them.
Both SmallPair() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

std::string Pattern(size_t size_bytes) {
  std::string text(size_bytes, '\0');
  for (size_t i = 0; i < size_bytes; ++i) text[i] = static_cast<char>(i * 7 + i / 251);
  return text;
}

TEST(SendAll, MovesMoreThanTheBuffersHoldWhileTheOtherEndReads) {
  Both pair = SmallPair();
  const std::string sent = Pattern(3 << 20);
  std::thread sender([&] { EXPECT_TRUE(SendAll(pair.left.get(), sent.data(), sent.size(), Soon()).ok()); });
  std::string received(sent.size(), '\0');
  EXPECT_TRUE(RecvAll(pair.right.get(), received.data(), received.size(), Soon()).ok());
  sender.join();
  EXPECT_TRUE(received == sent);
}

TEST(SendAll, StopsAtTheDeadlineWhenNobodyReads) {
  Both pair = SmallPair();
  const std::string sent(3 << 20, 'x');
  const Status status = SendAll(pair.left.get(), sent.data(), sent.size(), After(milliseconds(30)));
  EXPECT_EQ(status.code(), Code::kDeadline) << status.message();
}

TEST(SendAll, ToAPeerThatIsGoneIsAnErrorAndNoSignal) {
  Both pair = SmallPair();
  pair.right.Reset();
  EXPECT_EQ(SendAll(pair.left.get(), "x", 1, Soon()).code(), Code::kPeerLost);
}

TEST(RecvAll, OfNothingSucceedsAtOnce) {
  Both pair = SmallPair();
  EXPECT_TRUE(RecvAll(pair.left.get(), nullptr, 0, After(milliseconds(0))).ok());
}

TEST(RecvAll, SaysHowFarItCameWhenThePeerCloses) {
  Both pair = SmallPair();
  ASSERT_TRUE(SendAll(pair.left.get(), "abc", 3, Soon()).ok());
  pair.left.Reset();
  char received[10];
  const Status status = RecvAll(pair.right.get(), received, sizeof(received), Soon());
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.message().find("3 of 10 bytes"), std::string::npos) << status.message();
}

TEST(RecvAll, SaysHowFarItCameAtTheDeadline) {
  Both pair = SmallPair();
  ASSERT_TRUE(SendAll(pair.left.get(), "abc", 3, Soon()).ok());
  char received[10];
  const Status status = RecvAll(pair.right.get(), received, sizeof(received), After(milliseconds(30)));
  EXPECT_EQ(status.code(), Code::kDeadline);
  EXPECT_NE(status.message().find("3 of 10 bytes"), std::string::npos) << status.message();
}

TEST(RecvAll, TakesWhatIsThereEvenAfterTheDeadline) {
  Both pair = SmallPair();
  ASSERT_TRUE(SendAll(pair.left.get(), "abc", 3, Soon()).ok());
  char received[3];
  EXPECT_TRUE(RecvAll(pair.right.get(), received, 3, After(milliseconds(-1000))).ok());
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

TEST_P(DescriptorCounts, ArriveInOrderWithTheirPayloadAndCloseOnExec) {
  Both pair = SmallPair();
  std::vector<Descriptor> owned;
  std::vector<int> sent;
  for (int i = 0; i < GetParam(); ++i) {
    owned.push_back(Numbered(i));
    sent.push_back(owned.back().get());
  }
  std::thread sender([&] { EXPECT_TRUE(SendDescriptors(pair.left.get(), sent, "what they are", Soon()).ok()); });
  std::vector<Descriptor> received;
  std::string payload;
  const Status status = RecvDescriptors(pair.right.get(), 1000, 1000, &received, &payload, Soon());
  sender.join();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(payload, "what they are");
  ASSERT_EQ(received.size(), sent.size());
  for (int i = 0; i < GetParam(); ++i) {
    EXPECT_EQ(NumberOf(received[static_cast<size_t>(i)]), i);
    EXPECT_TRUE(IsCloseOnExec(received[static_cast<size_t>(i)].get()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, DescriptorCounts, ::testing::Values(0, 1, 199, 200, 201, 401));

TEST(Descriptors, TheNextMessageStartsWhereTheyEnd) {
  Both pair = SmallPair();
  const Descriptor memory = Numbered(7);
  ASSERT_TRUE(SendDescriptors(pair.left.get(), {memory.get()}, "", Soon()).ok());
  ASSERT_TRUE(SendAll(pair.left.get(), "next", 4, Soon()).ok());
  std::vector<Descriptor> received;
  std::string payload, next(4, ' ');
  ASSERT_TRUE(RecvDescriptors(pair.right.get(), 1, 0, &received, &payload, Soon()).ok());
  ASSERT_TRUE(RecvAll(pair.right.get(), next.data(), next.size(), Soon()).ok());
  EXPECT_EQ(next, "next");
}

TEST(Descriptors, MoreThanAllowedAreRefused) {
  Both pair = SmallPair();
  const Descriptor memory = Numbered(7);
  ASSERT_TRUE(SendDescriptors(pair.left.get(), {memory.get(), memory.get()}, "", Soon()).ok());
  std::vector<Descriptor> received;
  std::string payload;
  const Status status = RecvDescriptors(pair.right.get(), 1, 0, &received, &payload, Soon());
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_NE(status.message().find("2 descriptors"), std::string::npos) << status.message();
}

TEST(Descriptors, FewerThanAnnouncedAreNoticed) {
  Both pair = SmallPair();
  ASSERT_TRUE(SendAll(pair.left.get(), "\x01\0\0\0\0\0\0\0D", 9, Soon()).ok());
  std::vector<Descriptor> received;
  std::string payload;
  const Status status = RecvDescriptors(pair.right.get(), 1, 0, &received, &payload, Soon());
  EXPECT_EQ(status.code(), Code::kMismatch) << status.message();
}

TEST(Descriptors, ThatThisProcessMayNotOpenAreAnErrorThatNamesTheLimit) {
  Both pair = SmallPair();
  const Descriptor memory = Numbered(7);
  const std::vector<int> sent(64, memory.get());
  ASSERT_TRUE(SendDescriptors(pair.left.get(), sent, "", Soon()).ok());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {static_cast<rlim_t>(memory.get() + 8), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<Descriptor> received;
  std::string payload;
  const Status status = RecvDescriptors(pair.right.get(), 100, 0, &received, &payload, Soon());
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
