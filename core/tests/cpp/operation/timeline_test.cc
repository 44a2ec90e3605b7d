#include "operation/timeline.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace farandole {
namespace {

TEST(TraceRecord, ALongNameKeepsItsEndAndWholeCharacters) {
  TraceRecord record;
  record.SetName("layer\xC3\xA9" + std::string(TraceRecord::kNameBytes - 2, 'x'));  // cut within the character
  EXPECT_EQ(std::string(record.name.data()), std::string(TraceRecord::kNameBytes - 2, 'x'));
}

TEST(Timeline, RecordsOfTheTimelineBeforeAreDropped) {
  TraceRecord record, found;
  for (int turn = 0; turn < 3; ++turn) {
    Timeline::Start(/*marks_batches=*/false);
    EXPECT_TRUE(Timeline::on());
    EXPECT_FALSE(Timeline::Take(&found));
    record.bytes = turn;
    Timeline::Record(record);
    Timeline::Stop();
    EXPECT_FALSE(Timeline::on());
    EXPECT_TRUE(Timeline::Take(&found));
    EXPECT_EQ(found.bytes, turn);
    Timeline::Record(record);  // by a thread that has seen on()
  }
}

TEST(Timeline, CountsWhatItCannotTakeAndKeepsTheOrderOfEachThread) {
  constexpr int kThreads = 3, kEach = 50000;
  Timeline::Start(/*marks_batches=*/false);
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&running, t] {
      TraceRecord record;
      record.process_set = t;
      for (record.bytes = 1; record.bytes <= kEach; ++record.bytes) Timeline::Record(record);
      --running;
    });
  }
  std::vector<int64_t> last(kThreads, 0);
  uint64_t taken = 0;
  for (bool ended = false; !ended;) {
    ended = running == 0;
    for (TraceRecord found; Timeline::Take(&found); ++taken) {
      EXPECT_GT(found.bytes, last[static_cast<size_t>(found.process_set)]);
      last[static_cast<size_t>(found.process_set)] = found.bytes;
    }
  }
  for (std::thread& thread : threads) thread.join();
  Timeline::Stop();
  EXPECT_EQ(taken + Timeline::TakeLost(), uint64_t{kThreads} * kEach);
  EXPECT_EQ(Timeline::TakeLost(), 0u);
}

TEST(Timeline, KeepsTheOldestRecordsWhereItIsFull) {
  Timeline::Start(/*marks_batches=*/false);
  TraceRecord record, found;
  for (record.bytes = 0; record.bytes < 40000; ++record.bytes) Timeline::Record(record);
  Timeline::Stop();
  int64_t taken = 0;
  for (; Timeline::Take(&found); ++taken) ASSERT_EQ(found.bytes, taken);
  EXPECT_EQ(taken, 32768);
  EXPECT_EQ(Timeline::TakeLost(), 40000u - 32768u);
}

// A child has no writer, and may have copied a queue that was in use.
TEST(Timeline, AForkedChildHasNone) {
  Timeline::Start(/*marks_batches=*/false);
  Timeline::Record({});
  const pid_t child = fork();
  if (child == 0) {
    Timeline::ForgetInChild();
    TraceRecord found;
    Timeline::Record({});
    const bool has_none = !Timeline::on() && !Timeline::Take(&found) && Timeline::TakeLost() == 0;
    Timeline::Start(/*marks_batches=*/false);
    Timeline::Record({});
    _exit(has_none && Timeline::Take(&found) ? 0 : 1);
  }
  Timeline::Stop();
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace farandole
