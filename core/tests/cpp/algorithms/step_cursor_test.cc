#include "algorithms/partition.h"

#include <gtest/gtest.h>

#include <utility>

#include "algorithms/schedule.h"

namespace farandole {
namespace {

std::vector<int> AllSteps(const Schedule& schedule) {
  std::vector<int> all(schedule.steps.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  return all;
}

TEST(StepCursor, VisitsEveryStepOfEveryChunkOnceByTickOldestChunkFirst) {
  const Schedule schedule = RingAllreduce(4, 1);
  const int64_t lag = LagOf(schedule.phase_count);
  for (int64_t chunk_count : {0, 1, 2, 5, 30}) {
    StepCursor cursor(schedule, AllSteps(schedule));
    cursor.Restart(chunk_count);
    std::vector<std::vector<int64_t>> keys;
    for (; !cursor.ended(); cursor.Next()) {
      ASSERT_GE(cursor.chunk(), 0);
      ASSERT_LT(cursor.chunk(), chunk_count);
      keys.push_back({cursor.chunk() + lag * schedule.steps[cursor.step()].phase, cursor.chunk(), cursor.step()});
    }
    EXPECT_EQ(keys.size(), chunk_count * schedule.steps.size());
    for (size_t i = 1; i < keys.size(); ++i) EXPECT_LT(keys[i - 1], keys[i]);
  }
}

TEST(StepCursor, WithoutStepsEndsAtOnce) {
  StepCursor cursor(DirectAllgather(2, 0), {});
  cursor.Restart(7);
  EXPECT_TRUE(cursor.ended());
}

TEST(StepCursor, CanBeRestarted) {
  const Schedule schedule = DirectAllreduce(2, 0);
  StepCursor cursor(schedule, AllSteps(schedule));
  for (int64_t chunk_count : {3, 1, 5}) {
    cursor.Restart(chunk_count);
    size_t visits = 0;
    for (; !cursor.ended(); cursor.Next()) ++visits;
    EXPECT_EQ(visits, chunk_count * schedule.steps.size());
  }
}

TEST(Progress, ASlotIsReusedOnlyAfterItsReduction) {
  const Schedule schedule = DirectAllreduce(2, 0);  // send, receive into slot 0, reduce, send, receive
  Progress progress(&schedule);
  progress.Restart(100);
  for (int64_t chunk = 0; chunk < Progress::kSlotDepth; ++chunk) {
    EXPECT_TRUE(progress.Ready(chunk, 1));
    progress.Complete(chunk, 1);
  }
  EXPECT_FALSE(progress.Ready(Progress::kSlotDepth, 1));
  progress.Complete(0, 2);
  EXPECT_TRUE(progress.Ready(Progress::kSlotDepth, 1));
}

TEST(Progress, IsDoneAfterTheLastStepOfTheLastChunk) {
  const Schedule schedule = DirectAllreduce(2, 0);
  Progress progress(&schedule);
  progress.Restart(2);
  for (int step = 0; step < 5; ++step) progress.Complete(0, step);
  for (int step = 0; step < 4; ++step) progress.Complete(1, step);
  EXPECT_FALSE(progress.done());
  progress.Complete(1, 4);
  EXPECT_TRUE(progress.done());
}

TEST(Progress, NothingToDoIsDone) {
  const Schedule schedule = DirectAllreduce(2, 0), alone = DirectAllgather(1, 0);
  Progress progress(&schedule), lonely(&alone);
  progress.Restart(0);
  lonely.Restart(3);
  EXPECT_TRUE(progress.done());
  EXPECT_TRUE(lonely.done());
}

}  // namespace
}  // namespace farandole
