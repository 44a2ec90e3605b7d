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

// The set knows that the pipe has something to say.
void Hear(const Pipe& loud, PollSet* set) {
  ASSERT_EQ(write(loud.writing.get(), "x", 1), 1);
  set->Add(loud.reading, POLLIN);
  ASSERT_TRUE(set->Wait());
}

TEST(PollSetTest, TellsWhichDescriptorsHaveSomethingToSay) {
  const Pipe loud, silent;
  ASSERT_EQ(write(loud.writing.get(), "x", 1), 1);
  PollSet set;
  set.Add(loud.reading, POLLIN);
  set.Add(silent.reading, POLLIN);
  set.Add(Descriptor(), POLLIN);
  ASSERT_TRUE(set.Wait());
  EXPECT_TRUE(set.ready(loud.reading));
  EXPECT_FALSE(set.ready(silent.reading));
  EXPECT_FALSE(set.ready(Descriptor()));
}

TEST(PollSetTest, ADescriptorDoesNotInheritWhatItsNumberHadToSay) {
  Pipe loud;
  PollSet set;
  Hear(loud, &set);
  const int number = loud.reading.get();
  loud.reading.Reset();
  const Pipe silent;
  ASSERT_EQ(silent.reading.get(), number) << "the lowest number that is free";
  EXPECT_FALSE(set.ready(silent.reading));
}

TEST(PollSetTest, ADescriptorThatMovesStaysTheSame) {
  Pipe loud;
  PollSet set;
  Hear(loud, &set);
  const Descriptor moved = std::move(loud.reading);
  EXPECT_TRUE(set.ready(moved));
}

}  // namespace
}  // namespace farandole
