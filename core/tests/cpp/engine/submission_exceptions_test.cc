// An allocation that fails in a call of the engine, while one rank submits an operation, runs it, or completes it. The
// call fails on all ranks and the job goes on; or, where the rank had arrived, the epoch ends on all ranks. No rank
// hangs, no exception leaves the engine, and the error names the rank.
//
// Each case makes one call again and again, each time in a new world, and the allocation that fails is the first one of
// the calling thread, then the second, and so on, until the call needs fewer allocations than that.
#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <functional>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/failing_allocations.h"
#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

constexpr int kMaxAllocations = 300;  // of one call
constexpr int64_t kLimitMs = 10'000;  // far more than a rank needs to hear of the end

// Makes the call with this allocation failing, waits for its end, and returns its status.
using AnyCall = std::function<Status(Engine&, int fails_at)>;

// Returns body(), in which this allocation fails. It must not throw.
template <typename Body>
auto Failing(int fails_at, Body body) {
  const FailingAllocation failing(fails_at);
  try {
    return body();
  } catch (const std::exception& thrown) {
    ADD_FAILURE() << "allocation " << fails_at << ": an exception has left the engine: " << thrown.what();
  }
  return decltype(body())();
}

Status AwaitEnd(Engine& engine, const OperationPtr& operation) {
  if (!operation) return Status::Ok();
  const bool done = engine.Wait(operation, kLimitMs);
  EXPECT_TRUE(done) << operation->Title() << " hangs on rank " << engine.rank();
  return done ? operation->status() : Internal("hangs");
}

Status SubmitFailing(Engine& engine, const Request& request, int fails_at) {
  OperationPtr operation;
  const ViewOf view(request);
  const Status begun = Failing(fails_at, [&] { return engine.Submit(view.get(), &operation); });
  return begun.ok() ? AwaitEnd(engine, operation) : begun;
}

Status Meet(Engine& engine, const std::string& name) {
  return SubmitFailing(engine, Make(OpKind::kBarrier, {}, name), 0);
}

// ---- calls that return at once

AnyCall SubmitSum(size_t count, const std::string& name, size_t tensors = 1) {
  return [=](Engine& engine, int fails_at) {
    std::vector<float> values(count, 1);
    Request request = Make(OpKind::kAllreduce, std::vector<Tensor>(tensors, TensorOf(values, &values)), name);
    request.site = "a_script_with_a_long_name.py:12";
    return SubmitFailing(engine, std::move(request), fails_at);
  };
}

Status SubmitGather(Engine& engine, int fails_at) {
  const std::vector<float> values(3000, 1);
  return SubmitFailing(engine, Make(OpKind::kAllgather, {TensorOf<float>(values, nullptr)}, "gathered"), fails_at);
}

Status SubmitChanges(Engine& engine, int fails_at) {
  Request add = Make(OpKind::kAddProcessSet, {});
  add.ranks = {0, 1};
  OperationPtr added;
  FRD_RETURN_IF_ERROR(SubmitAndWait(engine, add, &added));
  Request remove = Make(OpKind::kRemoveProcessSet, {});
  remove.ranks = {*reinterpret_cast<const int64_t*>(added->outputs.at(0).memory.get())};
  FRD_RETURN_IF_ERROR(SubmitFailing(engine, remove, fails_at));
  return SubmitFailing(engine, add, fails_at);
}

// More unnamed operations than there are names for, so that the last one waits for the first.
Status MoreThanNames(Engine& engine, int fails_at) {
  constexpr size_t kNames = 64, kCount = 3;
  std::vector<std::vector<float>> values(kNames + 1, std::vector<float>(kCount, 1));
  std::vector<OperationPtr> begun(values.size());
  Status status;
  for (size_t i = 0; i < values.size() && status.ok(); ++i) {
    Request request = Make(OpKind::kAllreduce, {TensorOf(values[i], &values[i])});
    const int here = i + 1 == values.size() ? fails_at : 0;
    const ViewOf view(request);
    status = Failing(here, [&] { return engine.Submit(view.get(), &begun[i]); });
  }
  for (const OperationPtr& each : begun) {
    const Status ended = AwaitEnd(engine, each);
    if (status.ok()) status = ended;
  }
  return status;
}

// ---- calls that wait

Status SubmitAndWaitFailing(Engine& engine, const Request& request, int fails_at) {
  OperationPtr operation;
  const ViewOf view(request);
  const Status begun = Failing(fails_at, [&] {
    Status status = engine.Submit(view.get(), &operation, /*will_wait=*/true);
    if (status.ok()) engine.Wait(operation, kLimitMs);
    return status;
  });
  return begun.ok() ? AwaitEnd(engine, operation) : begun;
}

AnyCall SumAndWait(size_t count, const std::string& name) {
  return [=](Engine& engine, int fails_at) {
    std::vector<float> values(count, 1);
    return SubmitAndWaitFailing(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, name), fails_at);
  };
}

// Rank 0 has one element more.
Status Disagree(Engine& engine, int fails_at) {
  std::vector<float> values(engine.rank() == 0 ? 4 : 3, 1);
  return SubmitAndWaitFailing(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "x"), fails_at);
}

Status Join(Engine& engine, int fails_at) { return SubmitAndWaitFailing(engine, Make(OpKind::kJoin, {}), fails_at); }

// The victim has joined, and takes part in what the others do.
Status TakePart(Engine& engine, int fails_at) {
  for (int i = 0; i < 2 && fails_at == 0; ++i) {
    FRD_RETURN_IF_ERROR(SubmitSum(3, "x")(engine, 0));
    FRD_RETURN_IF_ERROR(SubmitGather(engine, 0));
  }
  return Join(engine, fails_at);
}

Status SumAndPoll(Engine& engine, int fails_at) {
  std::vector<float> values(3, 1);
  const Request request = Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "x");
  const ViewOf view(request);
  return Failing(fails_at, [&] {
    OperationPtr operation;
    FRD_RETURN_IF_ERROR(engine.Submit(view.get(), &operation));
    AwaitThat([&] { return engine.Poll(operation); });
    return operation->status();
  });
}

// A sum whose request is borrowed where the name is known.
AnyCall Borrowed(size_t count, const std::string& name) {
  return [=](Engine& engine, int fails_at) {
    std::vector<float> values(count, 1);
    const auto length = static_cast<int64_t>(count);
    TensorView tensor;
    tensor.input = tensor.output = values.data();
    tensor.shape = {&length, 1};
    RequestView request;
    request.tensors = {&tensor, 1};
    request.name = name;
    request.site = "a_script_with_a_long_name.py:12";
    return Failing(fails_at, [&] {
      OperationPtr operation;
      if (!engine.RunOrBegin(request, &operation))
        FRD_RETURN_IF_ERROR(engine.Submit(request, &operation, /*will_wait=*/true));
      return AwaitEnd(engine, operation);
    });
  };
}

// ---- the cases

struct FailingCall {
  const char* name;
  AnyCall call;
  int earlier = 2;                // such calls in which nothing fails; then the name is known
  const char* or_else = nullptr;  // in an error that the call may have, too

  friend void PrintTo(const FailingCall& call, std::ostream* out) { *out << call.name; }
};

std::vector<FailingCall> FailingCalls() {
  constexpr size_t kSmall = 3, kTwoPhases = 4000, kLarge = 300'000;
  return {{"Unknown", SubmitSum(kSmall, "x"), 0},
          {"Small", SubmitSum(kSmall, "a name that needs memory of its own")},
          {"Large", SubmitSum(kLarge, "x")},
          {"Grouped", SubmitSum(kSmall, "x", 2)},
          {"Unnamed", SubmitSum(kSmall, "")},
          {"UnnamedUnknown", SubmitSum(kSmall, ""), 0},
          {"MoreThanNames", &MoreThanNames, 1},
          {"SubmitGather", &SubmitGather},
          {"ChangeSets", &SubmitChanges, 0},
          {"Joins", &Join, 1},
          {"TakesPart", &TakePart, 0},
          {"Disagrees", &Disagree, 0, "disagree"},
          {"Waits", SumAndWait(kTwoPhases, "x")},
          {"Polls", &SumAndPoll},
          {"Run", Borrowed(kSmall, "a name that needs memory of its own")},
          {"RunUnknown", Borrowed(kSmall, "x"), 0},
          {"RunUnnamed", Borrowed(kSmall, "")},
          {"RunInTwoPhases", Borrowed(kTwoPhases, "a name that needs memory of its own")}};
}

// What the ranks have seen of one world.
struct SeenFailures {
  bool has_failed = false;         // the allocation
  std::atomic<int> calls{0};       // that have failed
  std::atomic<int> later_ones{0};  // likewise, after the call
};

struct FailingWorld {
  std::vector<int> nodes;
  int victim;  // the rank whose allocation fails

  friend void PrintTo(const FailingWorld& world, std::ostream* out) { *out << testing::PrintToString(world.nodes); }
};

class SubmissionExceptionsTest : public testing::TestWithParam<std::tuple<FailingWorld, FailingCall>> {
 protected:
  void Run(int fails_at, SeenFailures* seen) {
    const auto& [world, one] = GetParam();
    const AnyCall& call = one.call;
    const int earlier = one.earlier, victim = world.victim;
    const auto body = [&](Engine& engine) {
      const bool is_victim = engine.rank() == victim;
      Status status;  // another rank may end the epoch before this one has taken the result of an earlier call
      for (int i = 0; i < earlier && status.ok(); ++i) status = call(engine, 0);
      if (status.ok()) status = call(engine, is_victim ? fails_at : 0);
      Count(status, &seen->calls);
      if (is_victim) seen->has_failed = FailingAllocation::has_failed();
      // Only the second one cannot be complete on other ranks before the victim tells them of its end.
      Meet(engine, "later");
      Count(Meet(engine, "latest"), &seen->later_ones);
    };
    RunRanks(world.nodes, body, Settings(), std::chrono::seconds(110), /*records=*/true);
  }

 private:
  static void Count(const Status& status, std::atomic<int>* failed) {
    if (status.ok()) return;
    ++*failed;
    const auto& [world, call] = GetParam();
    const std::string& message = status.message();
    if (call.or_else != nullptr && message.find(call.or_else) != std::string::npos) return;
    EXPECT_NE(message.find("rank " + std::to_string(world.victim)), std::string::npos) << message;
    EXPECT_NE(message.find("memory"), std::string::npos) << message;
  }
};

TEST_P(SubmissionExceptionsTest, EndTheCallOrTheEpochOnAllRanks) {
  int in_a_row = 0, failed = 0;
  for (int fails_at = 1; fails_at < kMaxAllocations && in_a_row < 2; ++fails_at) {
    SeenFailures seen;
    Run(fails_at, &seen);
    int size = 0;
    for (int members : std::get<0>(GetParam()).nodes) size += members;
    const bool goes_on = seen.later_ones == 0;
    EXPECT_EQ(seen.later_ones, goes_on ? 0 : size);
    if (goes_on && seen.calls != 0) {
      EXPECT_EQ(seen.calls, size) << "it has failed on some ranks only";
    }
    if (testing::Test::HasFailure()) FAIL() << "allocation " << fails_at;
    in_a_row = seen.has_failed ? 0 : in_a_row + 1;
    failed += seen.has_failed;
  }
  const bool needs_memory = std::get<1>(GetParam()).earlier == 0;  // to describe what the ranks do not know
  EXPECT_TRUE(failed > 0 || !needs_memory) << "no allocation has failed: the test sees nothing";
}

std::vector<FailingWorld> FailingWorlds() { return {{{2}, 1}, {{1, 1}, 0}, {{1, 1}, 1}, {{4}, 0}, {{2, 2}, 2}}; }

std::string NameOfFailing(const testing::TestParamInfo<std::tuple<FailingWorld, FailingCall>>& info) {
  const auto& [world, call] = info.param;
  std::string name = call.name;
  for (int members : world.nodes) name += "_" + std::to_string(members);
  return name + "_victim_" + std::to_string(world.victim);
}

INSTANTIATE_TEST_SUITE_P(Worlds, SubmissionExceptionsTest,
                         testing::Combine(testing::ValuesIn(FailingWorlds()), testing::ValuesIn(FailingCalls())),
                         NameOfFailing);

// The rank leaves before its loop thread has seen the exception. What the others need to hear is the exception.
TEST(LeavingAfterAnExceptionTest, TellsTheOthersTheReason) {
  const auto body = [](Engine& engine) {
    Meet(engine, "first");
    if (engine.rank() == 1) {
      const std::string name = "a name that needs memory of its own";
      Failing(1, [&] {
        engine.Refuse(/*set=*/0, name, /*site=*/"", "out of memory");
        return true;
      });
      return;
    }
    const std::string message = Meet(engine, "later").message();
    EXPECT_NE(message.find("rank 1"), std::string::npos) << message;
    EXPECT_NE(message.find("out of memory"), std::string::npos) << message;
  };
  for (const FailingWorld& world : FailingWorlds()) RunRanks(world.nodes, body);
}

// A refusal takes the sequence number of an unnamed call. If it were sent twice, later calls would meet wrong ones.
TEST(RefusalAfterAnExceptionTest, IsSentOnce) {
  const std::vector<float> values(3, 1);
  for (int fails_at = 1; fails_at <= 60; ++fails_at) {
    Status later[2];
    RunRanks({2}, [&](Engine& engine) {
      Meet(engine, "first");
      std::vector<float> output(3);
      Request broadcast = Make(OpKind::kBroadcast, {TensorOf(values, &output)});
      broadcast.site = "a_script_with_a_long_name.py:12";
      broadcast.root = engine.rank() == 1 ? 9 : 0;
      EXPECT_FALSE(SubmitFailing(engine, broadcast, engine.rank() == 1 ? fails_at : 0).ok());
      later[engine.rank()] = SubmitFailing(engine, Make(OpKind::kAllreduce, {TensorOf(values, &output)}), 0);
    });
    for (const Status& status : later) {  // both meet, or the epoch has ended because of the exception
      const bool has_ended = status.message().find("out of memory") != std::string::npos;
      EXPECT_TRUE(status.ok() || has_ended) << fails_at << ": " << status.message();
    }
  }
}

}  // namespace
}  // namespace farandole
