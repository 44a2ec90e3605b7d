// A small operation of more than 2 KiB is copied and reduced without the lock that every submitter needs.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <tuple>

#include "common/failpoint.h"
#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

constexpr size_t kFew = 4, kMany = 4096;

void Sum(Engine& engine, const std::string& name, size_t count) {
  auto values = Values<float>(engine.rank(), count);
  ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, name)).ok());
  ExpectSum(values, engine.size());
}

// Polls for the result, so it needs no driver: the blocked thread may be the driver, which also folds, with the
// ProgressLock.
void SumByPolling(Engine& engine, const std::string& name, size_t count) {
  auto values = Values<float>(engine.rank(), count);
  OperationPtr operation;
  ASSERT_TRUE(SubmitTo(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, name), &operation).ok());
  AwaitThat([&] { return engine.Poll(operation); });
  ExpectSum(values, engine.size());
}

// As a blocking call, which needs no operation.
void SumByCall(Engine& engine, const std::string& name, size_t count) {
  auto values = Values<float>(engine.rank(), count);
  const auto shape = static_cast<int64_t>(count);
  TensorView tensor;
  tensor.input = tensor.output = values.data();
  tensor.shape = {&shape, 1};
  RequestView request;
  request.tensors = {&tensor, 1};
  request.name = name;
  Status status;
  ASSERT_TRUE(RunBorrowed(engine, request, &status));
  ASSERT_TRUE(status.ok()) << status.message();
  ExpectSum(values, engine.size());
}

void Set(const std::string& failpoints) { ASSERT_TRUE(SetFailpoints(failpoints).ok()); }

// Returns when both ranks have called it.
void Meet(std::atomic<int>* arrived) {
  for (++*arrived; *arrived < 2;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

class UnlockedCopies : public testing::TestWithParam<std::tuple<const char*, bool>> {};
INSTANTIATE_TEST_SUITE_P(Points, UnlockedCopies,
                         testing::Combine(testing::Values("cells.put", "cells.fold", "cells.copy"), testing::Bool()));

TEST_P(UnlockedCopies, OtherThreadsSubmitAndEndTheirOperationsMeanwhile) {
  const auto [point, by_call] = GetParam();
  std::atomic<int> known{0}, armed{0}, judged{0};
  RunRanks({2}, [&, point = point, by_call = by_call](Engine& engine) {
    Sum(engine, "many", kMany);
    Sum(engine, "few", kFew);
    Meet(&known);
    if (engine.rank() == 0) Set(std::string(point) + "=hold@1");
    Meet(&armed);
    std::thread many([&] { by_call ? SumByCall(engine, "many", kMany) : Sum(engine, "many", kMany); });
    while (HeldAtFailpoints() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::future<void> few = std::async(std::launch::async, [&] { SumByPolling(engine, "few", kFew); });
    EXPECT_EQ(few.wait_for(std::chrono::seconds(30)), std::future_status::ready) << "the lock is held";
    Meet(&judged);
    if (engine.rank() == 0) Set("");
    many.join();
  });
}

// A caller that learns that its operation has ended may free the tensor.
TEST(UnlockedCopiesTest, NobodyHearsOfAnEndWhileTheDataAreCopied) {
  std::atomic<int> known{0}, armed{0};
  RunRanks({2}, [&](Engine& engine) {
    Sum(engine, "many", kMany);
    Meet(&known);
    if (engine.rank() == 0) Set("cells.put=hold@1");
    Meet(&armed);
    const auto is_held = [] { return HeldAtFailpoints() == 1; };
    if (engine.rank() == 1) {
      AwaitThat(is_held);
      OperationPtr pending;
      ASSERT_TRUE(SubmitTo(engine, Make(OpKind::kBarrier, {}, "of one rank"), &pending).ok());
      return engine.Shutdown();  // with an operation in flight: the job ends
    }
    std::atomic<bool> is_done{false};
    auto values = Values<float>(0, kMany);
    Request request = Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "many");
    request.done = [](void* done, const Status&, Event) { static_cast<std::atomic<bool>*>(done)->store(true); };
    request.done_argument = &is_done;
    OperationPtr many;
    std::thread submitter([&] { ASSERT_TRUE(SubmitTo(engine, request, &many).ok()); });
    AwaitThat(is_held);
    OperationPtr refused;
    // Waits until this rank knows that the job ended, and then as long as it might take to report the end.
    AwaitThat([&] { return !SubmitTo(engine, Make(OpKind::kBarrier, {}), &refused).ok(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_FALSE(is_done);
    Set("");
    submitter.join();
    AwaitThat([&] { return is_done.load(); });
    EXPECT_EQ(many->status().code(), Code::kPeerLost);
  });
}

}  // namespace
}  // namespace farandole
