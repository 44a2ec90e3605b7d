// Readiness belongs to a descriptor, not to its number.
#include "transport/poll.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace farandole {
namespace {

struct Pipe {
  Descriptor reading, writing;
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    reading = Descriptor(ends[0]);
    writing = Descriptor(ends[1]);
  }
};

// Makes the pipe readable, and lets the set notice it.
void MakeReady(const Pipe& ready, PollSet* set) {
  ASSERT_EQ(write(ready.writing.get(), "x", 1), 1);
  set->Add(ready.reading, POLLIN);
  ASSERT_TRUE(set->Wait());
}

TEST(PollSetTest, ReportsWhichDescriptorsAreReady) {
  const Pipe ready, silent;
  ASSERT_EQ(write(ready.writing.get(), "x", 1), 1);
  PollSet set;
  set.Add(ready.reading, POLLIN);
  set.Add(silent.reading, POLLIN);
  set.Add(Descriptor(), POLLIN);
  ASSERT_TRUE(set.Wait());
  EXPECT_TRUE(set.ready(ready.reading));
  EXPECT_FALSE(set.ready(silent.reading));
  EXPECT_FALSE(set.ready(Descriptor()));
}

TEST(PollSetTest, ADescriptorDoesNotInheritTheReadinessOfItsNumber) {
  Pipe ready;
  PollSet set;
  MakeReady(ready, &set);
  const int number = ready.reading.get();
  ready.reading.Reset();
  const Pipe silent;
  ASSERT_EQ(silent.reading.get(), number) << "the lowest number that is free";
  EXPECT_FALSE(set.ready(silent.reading));
}

TEST(PollSetTest, ADescriptorThatMovesStaysTheSame) {
  Pipe ready;
  PollSet set;
  MakeReady(ready, &set);
  const Descriptor moved = std::move(ready.reading);
  EXPECT_TRUE(set.ready(moved));
}

}  // namespace
}  // namespace farandole
