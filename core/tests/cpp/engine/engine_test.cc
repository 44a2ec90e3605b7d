// The engine end to end, ranks as threads, over one node, several nodes of one, and nodes of different sizes.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <thread>

#include "reduce/conversions.h"
#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

class EngineTest : public testing::TestWithParam<std::vector<int>> {};

TEST_P(EngineTest, AllreduceSumsRandomSizesInAnyMix) {
  RunRanks(GetParam(), [](Engine& engine) {
    std::mt19937 random(7);
    for (int i = 0; i < 60; ++i) {
      const auto magnitude = random() % 21;
      const size_t count = (size_t{1} << magnitude) + random() % (size_t{1} << magnitude) - (random() % 8 == 0 ? 1 : 0);
      std::vector<float> values = Values<float>(engine.rank(), count, i % 5);
      const Status status = SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}));
      ASSERT_TRUE(status.ok()) << status.message();
      ExpectSum(values, engine.size(), i % 5);
    }
  });
}

TEST_P(EngineTest, NamedOperationsInDifferentOrderGiveTheSameResults) {
  RunRanks(GetParam(), [](Engine& engine) {
    std::mt19937 random(static_cast<unsigned>(engine.rank()));
    constexpr int kNames = 24;
    for (int step = 0; step < 8; ++step) {
      std::vector<std::vector<double>> values;
      for (int i = 0; i < kNames; ++i)
        values.push_back(Values<double>(engine.rank(), i % 3 == 0 ? 5 : 20'000 + static_cast<size_t>(i), i));
      std::vector<int> order(kNames);
      for (int i = 0; i < kNames; ++i) order[static_cast<size_t>(i)] = i;
      std::shuffle(order.begin(), order.end(), random);
      std::vector<OperationPtr> operations(kNames);
      for (int i : order) {
        auto& each = values[static_cast<size_t>(i)];
        Request request = Make(OpKind::kAllreduce, {TensorOf(each, &each)}, "grad" + std::to_string(i));
        ASSERT_TRUE(SubmitTo(engine, request, &operations[static_cast<size_t>(i)]).ok());
      }
      for (int i = 0; i < kNames; ++i) {
        ASSERT_TRUE(engine.Wait(operations[static_cast<size_t>(i)], kWaitMs));
        ASSERT_TRUE(operations[static_cast<size_t>(i)]->status().ok());
        ExpectSum(values[static_cast<size_t>(i)], engine.size(), i);
      }
    }
  });
}

// More than the names of a pool are in flight on rank 0 before any other rank begins, and one at a time on the
// others.
TEST_P(EngineTest, AnyNumberOfUnnamedOperationsIsInFlight) {
  for (size_t count : {size_t{3}, size_t{20'000}}) {
    constexpr int kSteps = 2, kInFlight = 70;  // a pool has 64 names
    std::atomic<int> begun{0};
    RunRanks(GetParam(), [&](Engine& engine) {
      for (int step = 0; step < kSteps; ++step) {
        while (engine.rank() != 0 && begun <= step) std::this_thread::yield();
        std::vector<std::vector<float>> values;
        std::vector<OperationPtr> operations(kInFlight);
        for (int i = 0; i < kInFlight; ++i) values.push_back(Values<float>(engine.rank(), count, i));
        for (size_t i = 0; i < operations.size(); ++i) {
          Request request = Make(OpKind::kAllreduce, {TensorOf(values[i], &values[i])});
          ASSERT_TRUE(SubmitTo(engine, request, &operations[i]).ok());
          ASSERT_TRUE(engine.rank() == 0 || engine.Wait(operations[i], kWaitMs));
        }
        if (engine.rank() == 0) ++begun;
        for (size_t i = 0; i < operations.size(); ++i) {
          ASSERT_TRUE(engine.Wait(operations[i], kWaitMs));
          ASSERT_TRUE(operations[i]->status().ok()) << operations[i]->status().message();
          ExpectSum(values[i], engine.size(), static_cast<int>(i));
        }
      }
    });
  }
}

TEST_P(EngineTest, GroupedAllreduceMixesDtypesAndSizes) {
  RunRanks(GetParam(), [](Engine& engine) {
    for (int i = 0; i < 4; ++i) {
      auto a = Values<float>(engine.rank(), 3), b = Values<float>(engine.rank(), 300'000);
      auto c = Values<int64_t>(engine.rank(), 77);
      auto d = Values<double>(engine.rank(), 0);
      Request request =
          Make(OpKind::kAllreduce, {TensorOf(a, &a), TensorOf(c, &c), TensorOf(b, &b), TensorOf(d, &d)}, "node");
      ASSERT_TRUE(SubmitAndWait(engine, std::move(request)).ok());
      ExpectSum(a, engine.size());
      ExpectSum(b, engine.size());
      ExpectSum(c, engine.size());
    }
  });
}

TEST_P(EngineTest, AverageDividesAndScalesApply) {
  RunRanks(GetParam(), [](Engine& engine) {
    for (size_t count : {size_t{7}, size_t{100'000}}) {
      auto values = Values<double>(engine.rank(), count);
      Request request = Make(OpKind::kAllreduce, {TensorOf(values, &values)});
      request.reduce = ReduceOp::kAverage;
      request.prescale = 4.0;
      request.postscale = 0.5;
      ASSERT_TRUE(SubmitAndWait(engine, std::move(request)).ok());
      for (size_t i = 0; i < count; ++i) ASSERT_DOUBLE_EQ(values[i], SumOf(engine.size(), i) * 2.0 / engine.size());
    }
  });
}

// Of 3 and -3 half is 1.5 and -1.5, truncated 1 and -1; a sum that is scaled at its end would be 1.5 times the size.
TEST_P(EngineTest, OperandsAreScaledBeforeTheyAreReduced) {
  RunRanks(GetParam(), [](Engine& engine) {
    for (size_t count : {size_t{2}, size_t{7'000}, size_t{400'000}}) {
      for (const bool in_place : {false, true}) {
        std::vector<int32_t> values(count, 3), results(count);
        for (size_t i = 0; i < count; i += 2) values[i] = -3;
        std::vector<int32_t>& to = in_place ? values : results;
        Request request = Make(OpKind::kAllreduce, {TensorOf(values, &to)});
        request.prescale = 0.5;
        const Status status = SubmitAndWait(engine, std::move(request));
        ASSERT_TRUE(status.ok()) << status.message();
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(to[i], i % 2 == 0 ? -engine.size() : engine.size());
        ASSERT_TRUE(in_place || values[1] == 3);
      }
    }
  });
}

TEST_P(EngineTest, MinimumWithNegativePrescaleIsTheNegatedMaximum) {
  RunRanks(GetParam(), [](Engine& engine) {
    auto values = Values<float>(engine.rank(), 1000);
    Request request = Make(OpKind::kAllreduce, {TensorOf(values, &values)});
    request.reduce = ReduceOp::kMin;
    request.prescale = -1.0;
    ASSERT_TRUE(SubmitAndWait(engine, std::move(request)).ok());
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<float>(-ValueOf(engine.size() - 1, i)));
  });
}

TEST_P(EngineTest, SixteenBitMinimumAndProductScaleAsOneNodeWould) {
  RunRanks(GetParam(), [](Engine& engine) {
    for (size_t count : {size_t{9}, size_t{50'000}}) {
      for (const ReduceOp reduce : {ReduceOp::kMin, ReduceOp::kProduct}) {
        // Minimum: -1 * (rank + 1), whose least is -size. Product: (0.5 * 2) each, and 4 from the postscale.
        const bool product = reduce == ReduceOp::kProduct;
        std::vector<uint16_t> values(count, FloatToBfloat16(product ? 2.0f : static_cast<float>(engine.rank() + 1)));
        Tensor tensor;
        tensor.input = tensor.output = values.data();
        tensor.dtype = DType::kBfloat16;
        tensor.shape = {static_cast<int64_t>(count)};
        Request request = Make(OpKind::kAllreduce, {tensor});
        request.reduce = reduce;
        request.prescale = product ? 0.5 : -1.0;
        request.postscale = product ? 4.0 : 1.0;
        ASSERT_TRUE(SubmitAndWait(engine, std::move(request)).ok());
        const float expected = product ? 4.0f : static_cast<float>(-engine.size());
        for (uint16_t value : values) ASSERT_EQ(Bfloat16ToFloat(value), expected);
      }
    }
  });
}

TEST_P(EngineTest, MoreUnnamedOperationsInFlightThanAPoolHasNames) {
  RunRanks(GetParam(), [](Engine& engine) {
    std::vector<std::vector<float>> values(150, Values<float>(engine.rank(), 6));
    std::vector<OperationPtr> operations(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(SubmitTo(engine, Make(OpKind::kAllreduce, {TensorOf(values[i], &values[i])}), &operations[i]).ok());
    }
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(engine.Wait(operations[i], kWaitMs));
      ASSERT_TRUE(operations[i]->status().ok()) << operations[i]->status().message();
      ExpectSum(values[i], engine.size());
    }
  });
}

TEST_P(EngineTest, AllgatherJoinsPartsOfDifferentSizes) {
  RunRanks(GetParam(), [](Engine& engine) {
    for (size_t scale : {size_t{1}, size_t{0}, size_t{50'000}, size_t{3}}) {
      // Rank r has r * scale rows, so rank 0 has none.
      const auto part = Values<int32_t>(engine.rank(), static_cast<size_t>(engine.rank()) * scale);
      OperationPtr operation;
      ASSERT_TRUE(SubmitAndWait(engine,
                                Make(OpKind::kAllgather, {TensorOf(part, static_cast<std::vector<int32_t>*>(nullptr))}),
                                &operation)
                      .ok());
      const Output& output = operation->outputs.at(0);
      const auto* const all = reinterpret_cast<const int32_t*>(output.memory.get());
      size_t at = 0;
      for (int r = 0; r < engine.size(); ++r) {
        for (size_t i = 0; i < static_cast<size_t>(r) * scale; ++i)
          ASSERT_EQ(all[at++], static_cast<int32_t>(ValueOf(r, i)));
      }
      ASSERT_EQ(output.shape, Shape{static_cast<int64_t>(at)});
    }
  });
}

TEST_P(EngineTest, BroadcastGivesEveryRankTheRootsValues) {
  RunRanks(GetParam(), [](Engine& engine) {
    for (int root = 0; root < engine.size(); ++root) {
      for (size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{700'001}}) {
        for (bool in_place : {true, false}) {
          auto values = Values<double>(engine.rank(), count);
          std::vector<double> apart(count);
          std::vector<double>& result = in_place ? values : apart;
          Request request = Make(OpKind::kBroadcast, {TensorOf(values, &result)});
          request.root = root;
          ASSERT_TRUE(SubmitAndWait(engine, std::move(request)).ok());
          for (size_t i = 0; i < count; ++i) ASSERT_EQ(result[i], ValueOf(root, i));
        }
      }
    }
  });
}

TEST_P(EngineTest, BarrierWaitsForEveryRank) {
  std::atomic<int> arrived{0};
  RunRanks(GetParam(), [&arrived](Engine& engine) {
    for (int round = 1; round <= 40; ++round) {
      arrived.fetch_add(1);
      ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kBarrier, {})).ok());
      ASSERT_GE(arrived.load(), round * engine.size());
    }
  });
}

TEST_P(EngineTest, MismatchNamesBothRanksAndTheJobGoesOn) {
  RunRanks(GetParam(), [](Engine& engine) {
    if (engine.size() == 1) return;
    for (const char* name : {"", "named"}) {
      for (int i = 0; i < 3; ++i) {
        auto good = Values<float>(engine.rank(), 4);
        ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(good, &good)}, name)).ok());
        ExpectSum(good, engine.size());
        auto bad = Values<float>(engine.rank(), engine.rank() == engine.size() - 1 ? 5 : 4);
        const Status status = SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(bad, &bad)}, name));
        ASSERT_EQ(status.code(), Code::kMismatch);
        const std::string other = "rank " + std::to_string(engine.size() - 1) + " has (5,)";
        EXPECT_NE(status.message().find("rank 0 has (4,)"), std::string::npos) << status.message();
        EXPECT_NE(status.message().find(other), std::string::npos) << status.message();
      }
    }
  });
}

TEST_P(EngineTest, ALeavingRankFailsWhatTheOthersStillWaitFor) {
  std::atomic<int> summed{0};
  RunRanks(GetParam(), [&summed](Engine& engine) {
    if (engine.size() == 1) return;
    auto values = Values<float>(engine.rank(), 4);
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "x")).ok());
    ++summed;
    if (engine.rank() == engine.size() - 1) {
      while (summed < engine.size()) std::this_thread::yield();
      return;  // its engine leaves in good order
    }
    const Status status = SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "x"));
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank " + std::to_string(engine.size() - 1)), std::string::npos)
        << status.message();
  });
}

// Rank 0 knows of it before it calls, is refused at once and ends, while the others still wait.
void ExpectTheFirstToLeaveIsNamed(const std::vector<int>& nodes, bool with_one_in_flight) {
  std::vector<float> kept(4);
  std::atomic<int> summed{0};
  RunRanks(nodes, [&kept, &summed, with_one_in_flight](Engine& engine) {
    if (engine.size() < 3) return;
    auto values = Values<float>(engine.rank(), 4);
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "x")).ok());
    ++summed;
    if (engine.rank() == engine.size() - 1) {
      while (summed < engine.size()) std::this_thread::yield();
      return;
    }
    OperationPtr alone;
    if (engine.rank() == 0) {
      if (with_one_in_flight) SubmitTo(engine, Make(OpKind::kAllreduce, {TensorOf(kept, &kept)}, "y"), &alone);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    const Status status = SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "x"));
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank " + std::to_string(engine.size() - 1)), std::string::npos)
        << status.message();
  });
}

TEST_P(EngineTest, WhoEndsBecauseAnotherLeftIsNotBlamed) { ExpectTheFirstToLeaveIsNamed(GetParam(), false); }

TEST_P(EngineTest, WhoEndsWithOperationsInFlightBecauseAnotherLeftIsNotBlamed) {
  ExpectTheFirstToLeaveIsNamed(GetParam(), true);
}

TEST_P(EngineTest, CallbacksComeOncePerOperationAndMaySubmit) {
  struct Chain {
    Engine* engine;
    std::vector<float> values;
    std::atomic<int> calls{0};
    std::vector<OperationPtr> operations;
    static Request Next(Chain* chain) {
      Request request = Make(OpKind::kAllreduce, {TensorOf(chain->values, &chain->values)},
                             "chain" + std::to_string(chain->calls.load()));
      request.done = [](void* argument, const Status& status, Event) {
        auto* const self = static_cast<Chain*>(argument);
        EXPECT_TRUE(status.ok()) << status.message();
        if (self->calls.fetch_add(1) + 1 >= 5) return;
        OperationPtr next;
        EXPECT_TRUE(SubmitTo(*self->engine, Next(self), &next).ok());
      };
      request.done_argument = chain;
      return request;
    }
  };
  RunRanks(GetParam(), [](Engine& engine) {
    Chain chain{&engine, Values<float>(engine.rank(), 10), {}, {}};
    OperationPtr first;
    ASSERT_TRUE(SubmitTo(engine, Chain::Next(&chain), &first).ok());
    for (int i = 0; i < 3000 && chain.calls < 5; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(chain.calls, 5);
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kBarrier, {})).ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, EngineTest,
                         testing::Values(std::vector<int>{2}, std::vector<int>{4}, std::vector<int>{1, 1},
                                         std::vector<int>{1, 1, 1}, std::vector<int>{2, 2}, std::vector<int>{3, 1, 2}));

TEST(OneNodeTest, SumsHaveTheSameBitsHoweverOperationsAreFused) {
  // Values whose sum depends on the order of additions.
  const auto inputs = [](int rank, size_t count) {
    std::mt19937 random(static_cast<unsigned>(rank) + 1);
    std::vector<float> values(count);
    for (float& value : values)
      value = std::ldexp(static_cast<float>(random() % 1000) - 500.0f, static_cast<int>(random() % 20) - 10);
    return values;
  };
  constexpr size_t kCount = 70'000;
  std::vector<float> fused_bits, apart_bits, nodes_bits;
  RunRanks({4}, [&](Engine& engine) {
    auto apart = inputs(engine.rank(), kCount), fused = apart;
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(apart, &apart)})).ok());
    std::vector<float> first(fused.begin(), fused.begin() + 333), rest(fused.begin() + 333, fused.end());
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(first, &first), TensorOf(rest, &rest)})).ok());
    if (engine.rank() != 0) return;
    apart_bits = apart;
    fused_bits = first;
    fused_bits.insert(fused_bits.end(), rest.begin(), rest.end());
  });
  RunRanks({1, 1, 1, 1}, [&](Engine& engine) {
    auto values = inputs(engine.rank(), kCount);
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)})).ok());
    if (engine.rank() == 0) nodes_bits = values;
  });
  EXPECT_EQ(std::memcmp(apart_bits.data(), fused_bits.data(), kCount * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(apart_bits.data(), nodes_bits.data(), kCount * sizeof(float)), 0)
      << "one node of all and all apart differ";
}

TEST(OneNodeTest, TheSteadyStateSendsNoMessages) {
  RunRanks({3}, [](Engine& engine) {
    uint64_t before = 0;
    for (int step = 0; step < 10; ++step) {
      if (step == 2) before = engine.messages_sent();
      auto small = Values<float>(engine.rank(), 4), big = Values<float>(engine.rank(), 100'000);
      ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(small, &small)}, "small")).ok());
      ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(big, &big)}, "big")).ok());
    }
    EXPECT_EQ(engine.messages_sent(), before);
  });
}

TEST(OneNodeTest, ADuplicateNameIsRefusedOnThatRankAlone) {
  std::atomic<bool> refused{false};
  RunRanks({2}, [&refused](Engine& engine) {
    auto values = Values<float>(engine.rank(), 4), again = values;
    OperationPtr first, second;
    if (engine.rank() == 0) {
      ASSERT_TRUE(SubmitTo(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "x"), &first).ok());
      const Status status = SubmitTo(engine, Make(OpKind::kAllreduce, {TensorOf(again, &again)}, "x"), &second);
      EXPECT_EQ(status.code(), Code::kInvalid);
      refused = true;
      EXPECT_TRUE(engine.Wait(first, kWaitMs));
    } else {
      while (!refused) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "x")).ok());
    }
    ExpectSum(values, 2);
  });
}

TEST(OneNodeTest, AnAbsentRankIsADeadlineErrorThatNamesIt) {
  Settings settings;
  settings.timeout_ms = 1000;
  settings.log_level = 0;
  std::atomic<int> waiting{2};
  RunRanks(
      {3},
      [&waiting](Engine& engine) {
        auto values = Values<float>(engine.rank(), 4);
        ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "x")).ok());
        if (engine.rank() == 2) {
          while (waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return;
        }
        const Status status = SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "x"));
        --waiting;
        EXPECT_EQ(status.code(), Code::kDeadline);
        EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status.message();
      },
      settings);
}

// Rank 0 takes no part in the broadcast of ranks 1 and 3, but reports to the coordinator that its node has come to it.
// Rank 1 comes just when rank 0 has what it waited for and drives no longer.
TEST(LeaderTest, WhatComesWhenItStopsWaitingIsReportedAtOnce) {
  constexpr int kUses = 15;
  constexpr int64_t kSoonMs = 20;                                      // a thread that nobody wakes sleeps for 50 ms
  std::atomic<int> submitted{-1}, written{-1}, done{-1}, arrived{-1};  // the use of `small`; of the broadcast
  std::vector<int64_t> waited_ms;
  RunRanks({2, 2}, [&](Engine& engine) {
    for (const std::vector<int64_t>& ranks : {std::vector<int64_t>{0, 1}, std::vector<int64_t>{1, 3}}) {
      Request add = Make(OpKind::kAddProcessSet, {});
      add.ranks = ranks;
      ASSERT_TRUE(SubmitAndWait(engine, add).ok());
    }
    std::vector<float> values(1000);
    std::deque<std::function<void()>> at_ends;  // they may outlast the wait
    Request small = Make(OpKind::kBarrier, {}, "small"), cast = Make(OpKind::kBroadcast, {}, "cast");
    small.process_set = 1;
    cast.process_set = 2;
    cast.root = 1;
    cast.tensors = {TensorOf(values, &values)};
    for (int use = -2; use < kUses; ++use) {
      const bool is_known = use >= 0;
      if (engine.rank() == 2 || (engine.rank() == 0 && !is_known)) {
        ASSERT_TRUE(engine.rank() == 2 || SubmitAndWait(engine, small).ok());
        continue;
      }
      if (engine.rank() == 3 || !is_known) {
        ASSERT_TRUE(engine.rank() == 3 || SubmitAndWait(engine, small).ok());
        ASSERT_TRUE(SubmitAndWait(engine, cast).ok());
        continue;
      }
      if (engine.rank() == 1) {
        AwaitThat([&] { return submitted == use; });
        ASSERT_TRUE(SubmitAndWait(engine, small).ok());
        written = use;
        AwaitThat([&] { return done == use; });
        OperationPtr operation;
        const TimePoint begin = Now();
        ASSERT_TRUE(SubmitTo(engine, cast, &operation, /*will_wait=*/true).ok());
        arrived = use;
        ASSERT_TRUE(engine.Wait(operation, kWaitMs));
        waited_ms.push_back(MillisecondsBetween(begin, Now()));
        continue;
      }
      at_ends.push_back([&, use] {
        done = use;
        AwaitThat([&] { return arrived == use; });
      });
      Request held = small;
      held.done = [](void* function, const Status&, Event) { (*static_cast<std::function<void()>*>(function))(); };
      held.done_argument = &at_ends.back();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // until the loop thread sleeps again
      OperationPtr operation;
      ASSERT_TRUE(SubmitTo(engine, held, &operation, /*will_wait=*/true).ok());
      submitted = use;
      AwaitThat([&] { return written == use; });
      ASSERT_TRUE(engine.Wait(operation, kWaitMs));
    }
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kBarrier, {}, "end")).ok());
  });
  std::sort(waited_ms.begin(), waited_ms.end());
  EXPECT_LT(waited_ms.at(kUses - 4), kSoonMs);  // some may be late on a busy machine
}

}  // namespace
}  // namespace farandole
