// The owners of an engine's state, each without the others: what they return to the progress loop.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "engine/control.h"
#include "engine/failures.h"
#include "engine/stalls.h"
#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

OperationPtr BarrierCalled(const std::string& name) {
  return std::make_shared<Operation>(Make(OpKind::kBarrier, {}, name));
}

// ---- ControlPlane

TEST(ControlPlaneTest, LastWordsAreThereWithTheEndOfTheirConnectionAndOfTheirProcess) {
  std::vector<std::unique_ptr<World>> worlds = ThreadWorlds({1, 1});
  auto [process, its_end] = SocketPair();  // readable when the other is closed, as a pidfd when the process ends
  worlds[1]->pidfds[0] = std::move(process);
  ControlPlane plane(worlds[1].get());
  ASSERT_TRUE(plane.Open().ok());
  plane.Look();  // finds that the connections can be written
  EXPECT_FALSE(plane.Look());
  EXPECT_FALSE(plane.has_events());
  const Bytes first{1, 2, 3}, last{4};
  MessageStream& stream = worlds[0]->control[1];
  for (const Bytes& message : {first, last}) stream.Queue(message);
  ASSERT_TRUE(stream.Flush().ok());
  stream = MessageStream();
  its_end.Reset();
  EXPECT_TRUE(plane.Look());
  const ControlPlane::Events events = plane.TakeEvents();
  EXPECT_EQ(events.messages, (std::vector<Bytes>{first, last}));
  EXPECT_EQ(events.closed, std::vector<int>{0});
  EXPECT_EQ(events.gone, std::vector<int>{0});
  EXPECT_TRUE(events.ends.empty());
  EXPECT_FALSE(plane.Look()) << "each event comes once";
  EXPECT_FALSE(plane.has_events());
}

TEST(ControlPlaneTest, WhoSaysToRankZeroWhatItCannotReadIsToBlame) {
  std::vector<std::unique_ptr<World>> worlds = ThreadWorlds({1, 1, 1});
  ControlPlane plane(worlds[0].get());
  ASSERT_TRUE(plane.Open().ok());
  MessageStream& stream = worlds[2]->control[0];
  stream.Queue({255, 255});
  ASSERT_TRUE(stream.Flush().ok());
  EXPECT_TRUE(plane.Look());
  const ControlPlane::Events events = plane.TakeEvents();
  ASSERT_EQ(events.ends.size(), 1u);
  EXPECT_EQ(events.ends[0].culprit, 2);
  EXPECT_FALSE(events.ends[0].status.ok());
}

// ---- WorkQueue

// A ring of two has no memory for what it passes on. Until the tasks are cancelled, a failed one is neither begun again
// nor taken for done.
TEST(WorkQueueTest, AFailureIsFinal) {
  std::vector<std::unique_ptr<World>> worlds = ThreadWorlds({1, 1});
  Settings settings;
  settings.algorithm = "ring";
  BackendList backend_list;
  ASSERT_TRUE(BackendList::Read({"native"}, &backend_list).ok());
  WorkQueue queue(worlds[0].get(), settings, backend_list);
  ASSERT_TRUE(queue.Open().ok());
  constexpr int64_t kRows = int64_t{1} << 58;
  auto operation = std::make_shared<Operation>(Make(OpKind::kAllgather, {TensorOf<float>({}, nullptr)}, "x"));
  operation->invited = true;
  operation->admission.set = std::make_shared<ProcessSet>(WholeWorld(worlds[0]->layout, 0));
  const std::vector<ReadyOperation> batch = {{operation, {kRows, kRows}}};
  std::vector<PlannedTask> tasks;
  ASSERT_TRUE(PlanBatch(batch, settings.fusion_threshold_bytes, &tasks).ok());
  queue.Add(batch, std::move(tasks));
  std::vector<WorkQueue::Ended> ended;
  for (int pass = 0; pass < 3; ++pass) {
    const WorkQueue::Outcome outcome = queue.Run(&ended);
    ASSERT_TRUE(outcome.end) << "pass " << pass;
    EXPECT_NE(outcome.end->status.message().find("no memory"), std::string::npos) << outcome.end->status.message();
  }
  EXPECT_TRUE(ended.empty());
  std::vector<OperationPtr> cancelled;
  queue.Cancel(&cancelled, &ended);
  EXPECT_EQ(cancelled, std::vector<OperationPtr>{operation});
  EXPECT_FALSE(queue.Run(&ended).end);
}

// ---- FailureMonitor

TEST(FailureMonitorTest, TheFirstReasonCountsInTheNodeAndOnEachRank) {
  std::vector<std::unique_ptr<World>> worlds = ThreadWorlds({2});
  Operations first(worlds[0].get()), second(worlds[1].get());
  FailureMonitor here(&first), there(&second);
  EXPECT_FALSE(there.is_aborted());
  EXPECT_TRUE(here.WriteAbortWord({{Code::kPeerLost, "rank 7 died"}, 7}));
  EXPECT_FALSE(there.WriteAbortWord({{Code::kDeadline, "too late"}, -1}));
  ASSERT_TRUE(there.is_aborted());
  EXPECT_EQ(there.ReadAbortWord().status.message(), "rank 7 died");
  EXPECT_EQ(there.ReadAbortWord().culprit, 7);
  there.MarkBroken(there.ReadAbortWord());
  there.MarkBroken({{Code::kNotInitialized, "shut down"}, -1});
  EXPECT_TRUE(second.is_broken);
  EXPECT_EQ(second.broken_by, 7);
  EXPECT_EQ(there.ShutdownEnd(3).status.message(), "rank 7 died") << "the first cause is told";
}

TEST(FailureMonitorTest, AGuessThatWaitsGivesWayToAnEndThatIsSure) {
  std::vector<std::unique_ptr<World>> worlds = ThreadWorlds({1, 1, 1});
  Operations operations(worlds[1].get());
  FailureMonitor failures(&operations);
  const TimePoint now = Now();
  EpochEnd guess{{Code::kPeerLost, "rank 2 was lost"}, 2, true}, sure{{Code::kDeadline, "too late"}, -1};
  failures.Hold(guess, now);
  EXPECT_FALSE(failures.holds_sure_end()) << "rank 0 may say that it was another rank";
  failures.Hold(sure, now);
  EXPECT_TRUE(failures.holds_sure_end());
  failures.Hold(guess, now);
  EXPECT_FALSE(failures.TakeUnconfirmed(now));
  const auto end = failures.TakeUnconfirmed(now + FailureMonitor::kConfirmationTimeout);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->status.message(), "too late");
  EXPECT_FALSE(failures.TakeUnconfirmed(TimePoint::max())) << "it is told once";
}

TEST(FailureMonitorTest, AnEndedConnectionIsBlamedWhenItsTimeIsOver) {
  std::vector<std::unique_ptr<World>> worlds = ThreadWorlds({1, 1});
  Operations operations(worlds[0].get());
  FailureMonitor failures(&operations);
  EXPECT_FALSE(failures.FindBrokenPeers());
  worlds[1]->transport.reset();
  EXPECT_TRUE(failures.FindBrokenPeers());
  ASSERT_TRUE(failures.liveness().suspects_somebody());
  const auto end = failures.FindFailure(Now() + Liveness::kSuspicionTimeout);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->culprit, 1);
  EXPECT_EQ(end->status.message().find("the connection to rank 1 (host host1, pid 1) was lost"), 0u);
  EXPECT_FALSE(failures.liveness().suspects_somebody());
}

// ---- StallInspector

TEST(StallInspectorTest, AWaitBeyondTheLimitEndsTheEpochWithWhatIsKnownOfIt) {
  std::vector<std::unique_ptr<World>> worlds = ThreadWorlds({1, 1});
  Operations operations(worlds[1].get());
  Settings settings;
  settings.timeout_ms = 5000;
  settings.warn_after_ms = 10'000;
  const EarlySums early_sums(&operations);
  StallInspector stalls(&operations, &early_sums, nullptr, settings);
  Negotiation::Event absent;
  absent.kind = Negotiation::Event::kAnswered;
  absent.answer.absences = {{"barrier 'metric'", {1}, {0}}};
  stalls.On(absent);
  Wait wait{BarrierCalled("batch"), 4999, {0}};
  EXPECT_FALSE(stalls.Check(Now(), {wait}));
  wait.waited_ms = 5000;
  const auto end = stalls.Check(Now(), {wait});
  ASSERT_TRUE(end);
  EXPECT_EQ(end->status.code(), Code::kDeadline);
  EXPECT_EQ(end->status.message().find("barrier 'batch' has waited 5 s on rank 1 for rank 0 (host host0, pid 1), while "
                                       "rank 0 waits for rank 1 in barrier 'metric'"),
            0u)
      << end->status.message();
}

TEST(StallInspectorTest, WhatIsNoRankIsToldInItsOwnWords) {
  std::vector<std::unique_ptr<World>> worlds = ThreadWorlds({2});
  Operations operations(worlds[1].get());
  Settings settings;
  settings.timeout_ms = 5000;
  const EarlySums early_sums(&operations);
  StallInspector stalls(&operations, &early_sums, nullptr, settings);
  Wait wait{BarrierCalled("w"), 6000, {kOwnDevice}};
  wait.reason = "GPU 3, which has not computed its input yet,";
  const auto end = stalls.Check(Now(), {wait});
  ASSERT_TRUE(end);
  EXPECT_EQ(end->status.message(),
            "barrier 'w' has waited 6 s on rank 1 for GPU 3, which has not computed its input yet; raise "
            "FARANDOLE_TIMEOUT if that is normal");
}

}  // namespace
}  // namespace farandole
