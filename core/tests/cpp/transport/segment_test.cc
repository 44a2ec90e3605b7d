// Memory shared by several ranks: all ranks see it, and the thread sanitizer sees their races.
#include "transport/shm/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

namespace farandole {
namespace {

constexpr size_t kBytes = 8192;

SharedSegment Made() {
  SharedSegment segment;
  EXPECT_TRUE(SharedSegment::Create(kBytes, &segment).ok());
  return segment;
}

SharedSegment Attached(const SharedSegment& to) {
  SharedSegment segment;
  EXPECT_TRUE(SharedSegment::Attach(Descriptor(dup(to.descriptor())), kBytes, &segment).ok());
  return segment;
}

TEST(SegmentTest, WhatOneWritesTheOtherReads) {
  const SharedSegment first = Made(), second = Attached(first);
  first.data()[kBytes - 1] = std::byte{7};
  EXPECT_EQ(second.data()[kBytes - 1], std::byte{7});
}

TEST(SegmentTest, TheMemoryLivesAsLongAsOneOfItsSegments) {
  SharedSegment second;
  {
    const SharedSegment first = Made();
    first.data()[0] = std::byte{7};
    second = Attached(first);
  }
  EXPECT_EQ(second.data()[0], std::byte{7});
}

TEST(SegmentTest, MemoryThatItsOwnerMayStillShrinkIsRefused) {
  Descriptor memfd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(memfd.get(), static_cast<off_t>(kBytes)), 0);
  ASSERT_EQ(fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  SharedSegment segment;
  const Status status = SharedSegment::Attach(std::move(memfd), kBytes, &segment);
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_NE(status.message().find("sealed against resizing"), std::string::npos) << status.message();
}

TEST(SegmentTest, ASegmentOfAnotherSizeIsRefused) {
  const SharedSegment first = Made();
  SharedSegment second;
  EXPECT_EQ(SharedSegment::Attach(Descriptor(dup(first.descriptor())), 2 * kBytes, &second).code(), Code::kMismatch);
  EXPECT_EQ(second.data(), nullptr);
}

#if FRD_ONE_MAPPING

// The two writes are unordered, so they always race. To see that, the sanitizer must know that both ranks write the
// same byte.
[[noreturn]] void WriteUnordered() {
  const SharedSegment first = Made(), second = Attached(first);
  std::thread rank([&] { second.data()[0] = std::byte{1}; });
  first.data()[0] = std::byte{2};
  rank.join();
  std::exit(0);  // the sanitizer changes it to 66 when it has found a race
}

TEST(SegmentDeathTest, TheThreadSanitizerSeesARaceBetweenTwoRanks) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(WriteUnordered(), testing::ExitedWithCode(66), "data race");
}

#else

TEST(SegmentTest, TwoRanksSeeTheMemoryAtTwoAddresses) {
  const SharedSegment first = Made(), second = Attached(first);
  EXPECT_NE(first.data(), second.data());
}

#endif

}  // namespace
}  // namespace farandole
