// Requests that the engine refuses, and the errors that the ranks get: over one node, several nodes, and in a world
// of one.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <mutex>
#include <set>
#include <thread>

#include "common/failpoint.h"
#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

Request ChangeSets(OpKind kind, std::vector<int64_t> ranks) {
  Request request = Make(kind, {});
  request.ranks = std::move(ranks);
  return request;
}

int64_t NumberIn(const OperationPtr& operation) {
  return *reinterpret_cast<const int64_t*>(operation->outputs.at(0).memory.get());
}

// In worlds of 1, of 2 in one node, of 2 in two nodes.
class RefusalTest : public testing::TestWithParam<std::vector<int>> {
 protected:
  void Run(const std::function<void(Engine&)>& body) {
    if (GetParam() != std::vector<int>{1}) return RunRanks(GetParam(), body);
    std::unique_ptr<Engine> engine;
    WorldSpec alone;
    alone.size = 1;
    ASSERT_TRUE(Engine::Start(alone, Settings(), &engine).ok());
    body(*engine);
  }
};

TEST_P(RefusalTest, MoreSetsThanARankCanBeInAreInvalidOnEveryRankAndTheJobGoesOn) {
  std::mutex mutex;
  std::set<std::string> texts;
  Run([&](Engine& engine) {
    OperationPtr operation;
    for (int64_t id = 1; id < kMaxChannels; ++id) {
      ASSERT_TRUE(SubmitAndWait(engine, ChangeSets(OpKind::kAddProcessSet, {0}), &operation).ok());
      EXPECT_EQ(NumberIn(operation), id);
    }
    const Status status = SubmitAndWait(engine, ChangeSets(OpKind::kAddProcessSet, {0}), &operation);
    EXPECT_EQ(status.code(), Code::kInvalid);
    EXPECT_TRUE(operation->outputs.empty());
    ASSERT_TRUE(SubmitAndWait(engine, ChangeSets(OpKind::kRemoveProcessSet, {5})).ok());
    ASSERT_TRUE(SubmitAndWait(engine, ChangeSets(OpKind::kAddProcessSet, {0}), &operation).ok());
    EXPECT_EQ(NumberIn(operation), kMaxChannels);
    std::lock_guard<std::mutex> lock(mutex);
    texts.insert(status.message());
  });
  EXPECT_EQ(texts,
            (std::set<std::string>{"a process set of the ranks (0,) cannot be added: a rank can be in 63 process "
                                   "sets at a time, and these ranks are in as many; remove one of those first"}));
}

TEST_P(RefusalTest, RemovingASetThatIsNotThereIsInvalid) {
  Run([](Engine& engine) {
    ASSERT_TRUE(SubmitAndWait(engine, ChangeSets(OpKind::kAddProcessSet, {0})).ok());
    ASSERT_TRUE(SubmitAndWait(engine, ChangeSets(OpKind::kRemoveProcessSet, {1})).ok());
    for (int64_t id : {99, 1}) {
      const Status status = SubmitAndWait(engine, ChangeSets(OpKind::kRemoveProcessSet, {id}));
      EXPECT_EQ(status.code(), Code::kInvalid);
      EXPECT_EQ(status.message(), "there is no process set " + std::to_string(id) + " to remove");
    }
  });
}

// The removal is accepted once the log has been read that far, which here is long before the sums have ended.
TEST_P(RefusalTest, ASetIsRemovedBehindItsOperationsWhoseDataStillMove) {
  constexpr size_t kCount = 1 << 20;
  constexpr int kSums = 3;
  ASSERT_TRUE(SetFailpoints("native.write=delay:5;native.make=delay:5").ok());
  Run([&](Engine& engine) {
    const std::vector<int64_t> ranks = engine.size() == 1 ? std::vector<int64_t>{0} : std::vector<int64_t>{0, 1};
    for (int round = 0; round < 2; ++round) {
      OperationPtr added;
      Request add = ChangeSets(OpKind::kAddProcessSet, {});
      add.ranks = ranks;
      ASSERT_TRUE(SubmitAndWait(engine, std::move(add), &added).ok());
      const int64_t set = NumberIn(added);
      std::vector<std::vector<float>> values;
      std::vector<OperationPtr> sums(kSums);
      for (int use = 0; use < kSums; ++use) values.push_back(Values<float>(engine.rank(), kCount, use));
      for (int use = 0; use < kSums; ++use) {
        auto& own = values[static_cast<size_t>(use)];
        Request sum = Make(OpKind::kAllreduce, {TensorOf(own, &own)}, "sum" + std::to_string(use));
        sum.process_set = static_cast<int>(set);
        ASSERT_TRUE(SubmitTo(engine, sum, &sums[static_cast<size_t>(use)]).ok());
      }
      Status removed;
      do {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        removed = SubmitAndWait(engine, ChangeSets(OpKind::kRemoveProcessSet, {set}));
      } while (removed.message().find("is in flight") != std::string::npos);
      EXPECT_TRUE(removed.ok()) << removed.message();
      for (int use = 0; use < kSums; ++use) {
        ASSERT_TRUE(engine.Wait(sums[static_cast<size_t>(use)], kWaitMs));
        ExpectSum(values[static_cast<size_t>(use)], engine.size(), use);
      }
    }
  });
  EXPECT_TRUE(SetFailpoints("").ok());
}

Request UnnamedSum(std::vector<float>* values) {
  Request request = Make(OpKind::kAllreduce, {TensorOf(*values, values)});
  request.site = "sum.py:2";
  return request;
}

TEST_P(RefusalTest, AChangeOfSetsAgainstAnUnnamedOperationIsAMismatchWithBothPlaces) {
  if (GetParam() == std::vector<int>{1}) return;
  Run([](Engine& engine) {
    ASSERT_TRUE(SubmitAndWait(engine, ChangeSets(OpKind::kAddProcessSet, {0, 1})).ok());
    std::vector<float> values(3, 1);
    for (const OpKind kind : {OpKind::kAddProcessSet, OpKind::kRemoveProcessSet}) {
      for (int changer : {0, 1}) {
        Request change = ChangeSets(kind, {1});
        change.site = "sets.py:1";
        const bool changes = engine.rank() == changer;
        const Status status = SubmitAndWait(engine, changes ? std::move(change) : UnnamedSum(&values));
        EXPECT_EQ(status.code(), Code::kMismatch);
        const std::string who = "rank " + std::to_string(changer) + " (sets.py:1) has " + NameOf(kind);
        const std::string other = "rank " + std::to_string(1 - changer) + " (sum.py:2) has allreduce";
        EXPECT_NE(status.message().find(who), std::string::npos) << status.message();
        EXPECT_NE(status.message().find(other), std::string::npos) << status.message();
        for (int i = 0; i < 70; ++i)
          ASSERT_TRUE(SubmitAndWait(engine, UnnamedSum(&values)).ok());  // known from here on
      }
    }
    EXPECT_TRUE(SubmitAndWait(engine, ChangeSets(OpKind::kRemoveProcessSet, {1})).ok());
  });
}

TEST_P(RefusalTest, ARemovalThatOneRankRefusesFailsOnAllAndTheRanksAreInStep) {
  if (GetParam() == std::vector<int>{1}) return;
  std::atomic<bool> refused{false};
  Run([&refused](Engine& engine) {
    ASSERT_TRUE(SubmitAndWait(engine, ChangeSets(OpKind::kAddProcessSet, {0, 1})).ok());
    std::vector<float> values(3, 1);
    Request sum = Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "x");
    sum.process_set = 1;
    OperationPtr operation;
    if (engine.rank() == 0) {
      ASSERT_TRUE(SubmitTo(engine, sum, &operation).ok());
      EXPECT_EQ(SubmitAndWait(engine, ChangeSets(OpKind::kRemoveProcessSet, {1})).code(), Code::kInvalid);
      refused = true;
    } else {
      AwaitThat([&] { return refused.load(); });
      ASSERT_TRUE(SubmitTo(engine, sum, &operation).ok());
      ASSERT_TRUE(engine.Wait(operation, kWaitMs));
      EXPECT_EQ(SubmitAndWait(engine, ChangeSets(OpKind::kRemoveProcessSet, {1})).code(), Code::kMismatch);
    }
    ASSERT_TRUE(engine.Wait(operation, kWaitMs));
    EXPECT_TRUE(SubmitAndWait(engine, UnnamedSum(&values)).ok());
    EXPECT_TRUE(SubmitAndWait(engine, ChangeSets(OpKind::kRemoveProcessSet, {1})).ok());
  });
}

// A call, and the same with an argument that cannot be.
struct Refusable {
  Request right, wrong;
};

Refusable Sums(std::vector<float>* values, const std::string& name) {
  Refusable sum{Make(OpKind::kAllreduce, {TensorOf(*values, values)}, name), {}};
  sum.wrong = sum.right;
  sum.wrong.prescale = std::numeric_limits<double>::infinity();
  return sum;
}

// Either may come first, the refusal or the ranks that wait, and the rank may refuse several calls before.
TEST_P(RefusalTest, WhatOneRankCannotCallFailsOnAllWithTheReasonAndTheNextCallsMatch) {
  if (GetParam() == std::vector<int>{1}) return;
  for (const std::string name : {"", "x"}) {
    for (const bool is_known : {false, true}) {
      for (const bool refusal_is_first : {false, true}) {
        std::atomic<int> begun{0};
        Run([&](Engine& engine) {
          std::vector<float> values(3, 1);
          Refusable sum = Sums(&values, name);
          sum.wrong.site = "sum.py:7";
          if (is_known) {
            ASSERT_TRUE(SubmitAndWait(engine, sum.right).ok());
          }
          OperationPtr operation;
          for (int call = 0; call < 3; ++call) {
            if (engine.rank() == 1) {
              if (!refusal_is_first) AwaitThat([&] { return begun > call; });
              EXPECT_EQ(SubmitTo(engine, sum.wrong, &operation).code(), Code::kInvalid);
              ++begun;
              continue;
            }
            if (refusal_is_first) AwaitThat([&] { return begun >= 3; });
            ASSERT_TRUE(SubmitTo(engine, sum.right, &operation).ok());
            ++begun;
            ASSERT_TRUE(engine.Wait(operation, kWaitMs));
            EXPECT_EQ(operation->status().code(), Code::kMismatch);
            const std::string reason = "rank 1 (sum.py:7) could not make its call: ";
            EXPECT_NE(operation->status().message().find(reason), std::string::npos) << operation->status().message();
          }
          for (int i = 0; i < 3; ++i) {
            values.assign(3, 1);
            ASSERT_TRUE(SubmitAndWait(engine, sum.right).ok());
            EXPECT_EQ(values, std::vector<float>(3, static_cast<float>(engine.size())));
          }
        });
      }
    }
  }
}

// A call that one rank makes while it has joined concerns no other rank, so it has no number.
TEST_P(RefusalTest, WhatIsCalledDuringAJoinIsNotCounted) {
  if (GetParam() == std::vector<int>{1}) return;
  std::atomic<bool> refused{false};
  Run([&](Engine& engine) {
    std::vector<float> values(3, 1);
    ASSERT_TRUE(SubmitAndWait(engine, UnnamedSum(&values)).ok());
    OperationPtr join, sum;
    if (engine.rank() == 1) AwaitThat([&] { return refused.load(); });
    const uint64_t sent = engine.messages_sent();
    ASSERT_TRUE(SubmitTo(engine, Make(OpKind::kJoin, {}), &join).ok());
    if (engine.rank() == 0) {
      AwaitThat([&] { return engine.messages_sent() > sent; });  // the join
      EXPECT_EQ(SubmitTo(engine, UnnamedSum(&values), &sum).code(), Code::kInvalid);
      EXPECT_FALSE(SubmitTo(engine, Sums(&values, "").wrong, &sum).ok());
      refused = true;
    }
    ASSERT_TRUE(engine.Wait(join, kWaitMs));
    ASSERT_TRUE(join->status().ok()) << join->status().message();
    ASSERT_TRUE(SubmitAndWait(engine, UnnamedSum(&values)).ok());
  });
}

TEST_P(RefusalTest, WhatIsCalledInASetThatIsNotRemovedAfterAllIsNotCounted) {
  if (GetParam() == std::vector<int>{1}) return;
  std::atomic<bool> refused{false};
  Run([&](Engine& engine) {
    ASSERT_TRUE(SubmitAndWait(engine, ChangeSets(OpKind::kAddProcessSet, {0, 1})).ok());
    std::vector<float> values(3, 1);
    Request sum = UnnamedSum(&values), wrong = Sums(&values, "").wrong, named = Sums(&values, "x").right;
    sum.process_set = wrong.process_set = named.process_set = 1;
    ASSERT_TRUE(SubmitAndWait(engine, sum).ok());
    OperationPtr removal, operation;
    if (engine.rank() == 0) {
      ASSERT_TRUE(SubmitTo(engine, ChangeSets(OpKind::kRemoveProcessSet, {1}), &removal).ok());
      EXPECT_EQ(SubmitTo(engine, sum, &operation).code(), Code::kInvalid);
      EXPECT_FALSE(SubmitTo(engine, wrong, &operation).ok());
      refused = true;
      ASSERT_TRUE(engine.Wait(removal, kWaitMs));
      EXPECT_EQ(removal->status().code(), Code::kMismatch) << removal->status().message();
      ASSERT_TRUE(SubmitTo(engine, named, &operation).ok());
    } else {
      AwaitThat([&] { return refused.load(); });
      ASSERT_TRUE(SubmitTo(engine, named, &operation).ok());
      EXPECT_FALSE(SubmitAndWait(engine, ChangeSets(OpKind::kRemoveProcessSet, {1})).ok());
    }
    ASSERT_TRUE(engine.Wait(operation, kWaitMs));
    EXPECT_TRUE(SubmitAndWait(engine, sum).ok());
    EXPECT_TRUE(SubmitAndWait(engine, ChangeSets(OpKind::kRemoveProcessSet, {1})).ok());
  });
}

// Keeps the driver of a rank in the `done` of an operation until the flag is set.
Request HeldUntil(std::atomic<bool>* flag, Request request) {
  request.done = [](void* flag, const Status&, Event) {
    AwaitThat([flag] { return static_cast<std::atomic<bool>*>(flag)->load(); });
  };
  request.done_argument = flag;
  return request;
}

// More operations than a pool has names: the last two wait for their names, which are free at the same time. When the
// first of them ends, its `done` calls the removal of the set.
TEST(RefusedRemovalTest, ASetIsNotRemovedBeforeItsOperationsThatWaitForTheirNames) {
  constexpr size_t kNames = 64, kCount = kNames + 2;
  struct Remover {
    Engine* engine;
    Status status;
  };
  std::atomic<bool> has_begun{false}, is_over{false};
  RunRanks({2}, [&](Engine& engine) {
    ASSERT_TRUE(SubmitAndWait(engine, ChangeSets(OpKind::kAddProcessSet, {0, 1})).ok());
    std::vector<std::vector<float>> values(kCount, std::vector<float>(3, 1));
    std::vector<OperationPtr> sums(kCount);
    Remover remover{&engine, {}};
    const auto begin = [&](size_t i, bool removes) {
      Request sum = UnnamedSum(&values[i]);
      sum.process_set = 1;
      if (removes) {
        sum.done = [](void* self, const Status&, Event) {
          OperationPtr removal;
          auto* const to = static_cast<Remover*>(self);
          to->status = SubmitTo(*to->engine, ChangeSets(OpKind::kRemoveProcessSet, {1}), &removal);
        };
        sum.done_argument = &remover;
      }
      ASSERT_TRUE(SubmitTo(engine, sum, &sums[i]).ok());
    };
    for (size_t i = 0; i < kNames; ++i) begin(i, false);  // the names are known from here on
    for (size_t i = 0; i < kNames; ++i) ASSERT_TRUE(engine.Wait(sums[i], kWaitMs));
    OperationPtr before;
    const Request barrier = Make(OpKind::kBarrier, {}, "before");
    ASSERT_TRUE(SubmitTo(engine, engine.rank() == 0 ? HeldUntil(&is_over, barrier) : barrier, &before).ok());
    if (engine.rank() == 1) {
      ASSERT_TRUE(engine.Wait(before, kWaitMs));
      AwaitThat([&] { return has_begun.load(); });
    } else {
      AwaitThat([&] { return before->done(); });
    }
    for (size_t i = 0; i < kCount; ++i) begin(i, engine.rank() == 0 && i == kNames);
    has_begun = true;
    if (engine.rank() == 1) {
      for (size_t i = 0; i < kNames; ++i) ASSERT_TRUE(engine.Wait(sums[i], kWaitMs));
      AwaitThat([&] { return !sums[kCount - 1]->deferred(); });  // its data are there
      is_over = true;
    }
    for (const OperationPtr& sum : sums) {
      ASSERT_TRUE(engine.Wait(sum, kWaitMs));
      ASSERT_TRUE(sum->status().ok()) << sum->status().message();
    }
    const bool removes = engine.rank() == 0;
    const Status removed = removes ? remover.status : SubmitAndWait(engine, ChangeSets(OpKind::kRemoveProcessSet, {1}));
    EXPECT_EQ(removed.code(), removes ? Code::kInvalid : Code::kMismatch) << removed.message();
    ASSERT_TRUE(SubmitAndWait(engine, UnnamedSum(&values[0])).ok());
  });
}

TEST_P(RefusalTest, WhatAllRanksRefuseLeavesNothingBehind) {
  Run([](Engine& engine) {
    std::vector<float> values(3, 1);
    OperationPtr operation;
    ASSERT_TRUE(SubmitAndWait(engine, ChangeSets(OpKind::kAddProcessSet, {0})).ok());
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(SubmitTo(engine, Sums(&values, "").wrong, &operation).ok());
    Request in_set = Sums(&values, "").wrong;
    in_set.process_set = 1;
    EXPECT_FALSE(SubmitTo(engine, in_set, &operation).ok());
    ASSERT_TRUE(SubmitAndWait(engine, UnnamedSum(&values)).ok());
    EXPECT_TRUE(SubmitAndWait(engine, ChangeSets(OpKind::kRemoveProcessSet, {1})).ok());
  });
}

TEST_P(RefusalTest, MemoryForAResultThatTheCoreAllocatesIsRefused) {
  Run([](Engine& engine) {
    for (const OpKind kind : {OpKind::kAllgather, OpKind::kAlltoall, OpKind::kReducescatter}) {
      std::vector<float> values(2, 1), result(4, 7);
      const Tensor without = TensorOf<float>(values, nullptr);
      for (const Tensor& with : {TensorOf(values, &values), TensorOf(values, &result)}) {
        for (const std::vector<Tensor>& tensors : {std::vector<Tensor>{with}, std::vector<Tensor>{without, with}}) {
          const Status status = SubmitAndWait(engine, Make(kind, tensors, "x"));
          EXPECT_EQ(status.code(), Code::kInvalid);
          EXPECT_EQ(status.message(),
                    std::string(NameOf(kind)) +
                        " 'x': the core allocates its result; leave the output NULL, and take it from the operation");
        }
      }
      EXPECT_EQ(result, std::vector<float>(4, 7));
      ASSERT_TRUE(SubmitAndWait(engine, Make(kind, {without, without}, "x")).ok());
    }
  });
}

TEST_P(RefusalTest, NoRowsOfASizeThatCannotBeCountedAreRefused) {
  Run([](Engine& engine) {
    std::vector<float> none;
    Tensor tensor = TensorOf<float>(none, nullptr);
    tensor.shape = {0, int64_t{1} << 40, int64_t{1} << 40};
    const Status status = SubmitAndWait(engine, Make(OpKind::kAllgather, {tensor}, "x"));
    EXPECT_EQ(status.code(), Code::kInvalid);
    EXPECT_EQ(status.message(), "allgather 'x': shape (0, 1099511627776, 1099511627776) has too many elements");
    tensor.shape = {0, int64_t{1} << 40};
    EXPECT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllgather, {tensor}, "x")).ok());
  });
}

TEST_P(RefusalTest, AReductionThatTheTypeLacksIsToldWhatToDo) {
  Run([](Engine& engine) {
    const std::vector<int64_t> values(2, 1);
    Request request = Make(OpKind::kAllreduce, {TensorOf<int64_t>(values, nullptr)}, "x");
    request.reduce = ReduceOp::kAdasum;
    EXPECT_EQ(SubmitAndWait(engine, request).message(),
              "allreduce 'x': adasum of int64 is not defined; convert the tensor to a floating-point type first");
    request.tensors[0].dtype = DType::kBool;
    request.reduce = ReduceOp::kAverage;
    EXPECT_EQ(
        SubmitAndWait(engine, request).message(),
        "allreduce 'x': average of bool is not defined; convert the tensor to a floating-point type first, or take "
        "min (and) or max (or)");
    request.tensors[0].dtype = DType::kComplex64;
    request.reduce = ReduceOp::kMax;
    EXPECT_EQ(SubmitAndWait(engine, request).message(),
              "allreduce 'x': max of complex64 is not defined; complex tensors take sum and average");
  });
}

// Too many ranks to start here, so this tests only the check before anything is sent.
TEST(RequestTest, AnOperationAmongMoreRanksThanItCanBeIsToldHowManyAndWhatToDo) {
  std::vector<PeerInfo> peers;
  const ProcessSet most = WholeWorld(LayoutOfNodes({2048}, &peers), 0);
  peers.clear();
  const ProcessSet more = WholeWorld(LayoutOfNodes({2049}, &peers), 0);
  std::vector<float> values(2, 1);
  for (const OpKind kind : {OpKind::kAllgather, OpKind::kReducescatter}) {
    Request request = Make(kind, {TensorOf<float>(values, nullptr)}, "x");
    EXPECT_TRUE(CheckRequest(&request, most, 2048).ok());
    const Status status = CheckRequest(&request, more, 2049);
    EXPECT_EQ(status.code(), Code::kInvalid);
    EXPECT_EQ(status.message(), std::string(NameOf(kind)) +
                                    " 'x': it supports at most 2048 ranks, not 2049; do it in smaller process "
                                    "sets first, and then among one rank of each");
  }
  Request sum = Make(OpKind::kAllreduce, {TensorOf(values, &values)});
  EXPECT_TRUE(CheckRequest(&sum, more, 2049).ok());
}

INSTANTIATE_TEST_SUITE_P(Worlds, RefusalTest,
                         testing::Values(std::vector<int>{1}, std::vector<int>{2}, std::vector<int>{1, 1}));

}  // namespace
}  // namespace farandole
