// An allocation that fails while a rank drives the progress loop ends the epoch on every rank: no rank hangs, no
// process terminates, and the error names the rank.
//
// Each case runs one operation again and again, and the allocation that fails is the first of the driving thread, then
// the second, and so on, until a run needs fewer allocations than that.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "support/failing_allocations.h"
#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

// Of one thread, at most: the allocations of a driver in one of these operations.
constexpr int kMaxAllocations = 300;

// Runs body(engine, fails_at) on every rank, for rank 1 with fails_at = 1, 2, ... Each rank's operation succeeds, or
// fails with an error that names `culprit`. Returns after some runs in which nothing failed.
void FailEachAllocation(const std::vector<int>& nodes, const std::function<Status(Engine&, int fails_at)>& body,
                        const std::string& culprit = "rank 1") {
  int in_a_row = 0, failed = 0;
  for (int fails_at = 1; fails_at < kMaxAllocations && in_a_row < 5; ++fails_at) {
    std::atomic<int> failures{0};
    RunRanks(nodes, [&](Engine& engine) {
      const Status status = body(engine, engine.rank() == 1 ? fails_at : 0);
      if (status.ok()) return;
      ++failures;
      EXPECT_NE(status.message().find(culprit), std::string::npos) << status.message();
      EXPECT_NE(status.message().find("memory"), std::string::npos) << status.message();
    });
    in_a_row = failures == 0 ? in_a_row + 1 : 0;
    failed += failures;
    if (testing::Test::HasFailure()) FAIL() << "allocation " << fails_at;
  }
  EXPECT_GT(failed, 0) << "no allocation has failed: the test sees nothing";
}

// Waits with an allocation of this thread that fails.
Status WaitFailing(Engine& engine, const OperationPtr& operation, int fails_at) {
  bool done;
  {
    const FailingAllocation failing(fails_at);
    done = engine.Wait(operation, kWaitMs);
  }
  EXPECT_TRUE(done) << operation->Title() << " hangs";
  return done ? operation->status() : Status::Ok();
}

Request Gather(const std::vector<float>& values, const std::string& name) {
  return Make(OpKind::kAllgather, {TensorOf<float>(values, nullptr)}, name);
}

Status GatherFailing(Engine& engine, int fails_at) {
  const std::vector<float> values(3000, 1);
  OperationPtr operation;
  const Status begun = SubmitTo(engine, Gather(values, "x"), &operation, true);
  return begun.ok() ? WaitFailing(engine, operation, fails_at) : begun;
}

Status SumsFailing(Engine& engine, int fails_at) {
  std::vector<float> large(100'000, 1), first(3, 1), second(5, 1);
  for (int i = 0; i < 2; ++i) {
    std::vector<OperationPtr> begun(3);
    const auto submit = [&](Request request, OperationPtr* to) { return SubmitTo(engine, request, to, true); };
    Status status = submit(Make(OpKind::kAllreduce, {TensorOf(large, &large)}, "large"), &begun[0]);
    const std::vector<Tensor> node = {TensorOf(first, &first), TensorOf(second, &second)};
    if (status.ok()) status = submit(Make(OpKind::kAllreduce, node, "node"), &begun[1]);
    if (status.ok()) status = submit(Make(OpKind::kBarrier, {}), &begun[2]);
    for (const OperationPtr& each : begun) {
      if (!each) continue;
      const Status ended = WaitFailing(engine, each, fails_at);
      if (status.ok()) status = ended;
    }
    if (!status.ok()) return status;
  }
  return Status::Ok();
}

TEST(ExceptionsTest, AnAllgatherInOneNode) { FailEachAllocation({2}, &GatherFailing); }
TEST(ExceptionsTest, AnAllgatherBetweenNodes) { FailEachAllocation({1, 1}, &GatherFailing); }
TEST(ExceptionsTest, SumsInOneNode) { FailEachAllocation({2}, &SumsFailing); }
TEST(ExceptionsTest, SumsBetweenNodes) { FailEachAllocation({2, 1}, &SumsFailing); }

// Nobody waits, so the engine's own thread drives.
TEST(ExceptionsTest, InTheLoopThread) {
  const auto body = [](Engine& engine, int fails_at) {
    IsTheTests();
    EXPECT_TRUE(SubmitAndWait(engine, Make(OpKind::kBarrier, {}, "both have started")).ok());
    const std::vector<float> values(3000, 1);
    OperationPtr operation;
    const Status begun = SubmitTo(engine, Gather(values, "x"), &operation);
    if (fails_at > 0) FailAllocationOfOthers(fails_at);
    if (!begun.ok()) return begun;
    AwaitThat([&] { return operation->done(); });
    FailAllocationOfOthers(0);
    return operation->status();
  };
  IsTheTests();
  FailEachAllocation({2}, body, "rank ");  // the thread of either rank
}

// Before rank 1 sleeps, it lists the ranks to be woken: rank 0, which has come but does not wait, so that its share of
// the result is missing.
TEST(ExceptionsTest, BeforeARankSleeps) {
  std::atomic<int> begun{0};
  const auto body = [&begun](Engine& engine, int fails_at) {
    std::vector<float> values(4000, 1);
    const Request sum = Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "x");
    for (int use = 0; use < 2; ++use) EXPECT_TRUE(SubmitAndWait(engine, sum).ok());
    if (fails_at > 0) AwaitThat([&] { return begun == fails_at; });
    OperationPtr operation;
    const Status status = SubmitTo(engine, sum, &operation, /*will_wait=*/true);
    if (!status.ok()) return status;
    if (fails_at > 0) return WaitFailing(engine, operation, fails_at);
    ++begun;
    AwaitThat([&] { return operation->done(); });
    return operation->status();
  };
  FailEachAllocation({2}, body);
}

}  // namespace
}  // namespace farandole
