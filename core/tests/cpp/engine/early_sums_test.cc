// Allreduces between several nodes: from the second use of a name on they are early, and the results do not show it.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "common/failpoint.h"
#include "engine/early_sums.h"
#include "reduce/conversions.h"
#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

constexpr int kUses = 4;

class EarlyTest : public testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Worlds, EarlyTest,
                         testing::Values(std::vector<int>{1, 1}, std::vector<int>{1, 1, 1}, std::vector<int>(5, 1),
                                         std::vector<int>{2, 2}, std::vector<int>{1, 3}, std::vector<int>{2, 1, 3}));

std::vector<uint8_t> RandomBytes(DType dtype, size_t count, int rank) {
  std::mt19937 random(static_cast<unsigned>(rank + 1));
  std::vector<uint8_t> bytes(count * SizeOf(dtype));
  for (size_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(random()) / 4e9 - 0.3;
    uint8_t* const to = bytes.data() + i * SizeOf(dtype);
    const auto put = [to](auto number) { std::memcpy(to, &number, sizeof number); };
    if (dtype == DType::kFloat32) put(static_cast<float>(value));
    if (dtype == DType::kFloat64) put(value);
    if (dtype == DType::kInt16) put(static_cast<int16_t>(value * 3e4));
    if (dtype == DType::kFloat16) put(static_cast<uint16_t>(0x3000 + random() % 0x800));
    if (dtype == DType::kBfloat16) put(static_cast<uint16_t>(0x3f00 + random() % 0x100));
  }
  return bytes;
}

// The bits of each use of one name; the first goes through the log.
std::vector<std::vector<uint8_t>> BitsOfUses(Engine& engine, DType dtype, ReduceOp reduce, size_t count, double scale) {
  std::vector<std::vector<uint8_t>> all;
  const std::vector<uint8_t> input = RandomBytes(dtype, count, engine.rank());
  for (int use = 0; use < kUses; ++use) {
    std::vector<uint8_t> output = input;  // in place every other time
    Tensor tensor;
    tensor.input = use % 2 == 0 ? output.data() : input.data();
    tensor.output = output.data();
    tensor.dtype = dtype;
    tensor.shape = {static_cast<int64_t>(count)};
    Request request = Make(OpKind::kAllreduce, {tensor},
                           std::to_string(static_cast<int>(dtype)) + "." + std::to_string(static_cast<int>(reduce)) +
                               "." + std::to_string(count));
    request.reduce = reduce;
    request.postscale = scale;
    EXPECT_TRUE(SubmitAndWait(engine, std::move(request)).ok());
    all.push_back(std::move(output));
  }
  return all;
}

TEST_P(EarlyTest, HasTheBitsOfAnExchangeBySchedule) {
  RunRanks(GetParam(), [](Engine& engine) {
    for (DType dtype : {DType::kFloat32, DType::kInt16, DType::kBfloat16}) {
      for (ReduceOp reduce : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kProduct, ReduceOp::kMin}) {
        for (size_t count : {size_t{1}, size_t{37}, size_t{5000}, size_t{70'001}}) {
          const double scale = dtype == DType::kInt16 ? 1.0 : 0.3;
          const auto uses = BitsOfUses(engine, dtype, reduce, count, scale);
          for (const auto& use : uses)
            ASSERT_EQ(use, uses[0]) << NameOf(dtype) << " " << NameOf(reduce) << " of " << count;
        }
      }
    }
  });
}

TEST_P(EarlyTest, ASteadyStateSendsNoMessageToTheCoordinator) {
  RunRanks(GetParam(), [](Engine& engine) {
    const auto steps = [&engine](int count) {
      for (int i = 0; i < count; ++i) {
        auto values = Values<float>(engine.rank(), 1000, i);
        EXPECT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "grad")).ok());
        ExpectSum(values, engine.size(), i);
      }
    };
    steps(2);
    const uint64_t before = engine.messages_sent();
    steps(50);
    EXPECT_EQ(engine.messages_sent(), before);
  });
}

// Three times the data for which a rank has credit, in another order on each rank.
TEST_P(EarlyTest, ManyInFlightInAnyOrderComeToAnEnd) {
  const std::vector<int>& nodes = GetParam();
  const int largest = *std::max_element(nodes.begin(), nodes.end());
  const auto limit = static_cast<size_t>(EarlyLimitBytes(static_cast<int>(nodes.size()), largest));
  const size_t credit_bytes = Transport::kEarlyBytes / (nodes.size() - 1);
  RunRanks(nodes, [limit, credit_bytes](Engine& engine) {
    const size_t count = limit / sizeof(float), names = 3 * credit_bytes / limit;
    std::mt19937 random(static_cast<unsigned>(engine.rank()));
    std::vector<std::vector<float>> values(names);
    std::vector<OperationPtr> operations(names);
    std::vector<size_t> order(names);
    for (size_t i = 0; i < names; ++i) order[i] = i;
    for (int use = 0; use < 3; ++use) {
      std::shuffle(order.begin(), order.end(), random);
      for (size_t i : order) {
        values[i] = Values<float>(engine.rank(), count, static_cast<int>(i));
        Request request = Make(OpKind::kAllreduce, {TensorOf(values[i], &values[i])}, "grad" + std::to_string(i));
        ASSERT_TRUE(SubmitTo(engine, request, &operations[i]).ok());
      }
      for (size_t i = 0; i < names; ++i) {
        ASSERT_TRUE(engine.Wait(operations[i], kWaitMs));
        ASSERT_TRUE(operations[i]->status().ok());
        ExpectSum(values[i], engine.size(), static_cast<int>(i));
      }
    }
  });
}

// The runner of the large sum takes what the transport has for the small one, too.
TEST_P(EarlyTest, ASmallSumEndsWhileALargeOneIsUnderWay) {
  RunRanks(GetParam(), [](Engine& engine) {
    for (int i = 0; i < 24; ++i) {
      auto large = Values<float>(engine.rank(), 500'000, i), small = Values<float>(engine.rank(), 10, i);
      OperationPtr first, second;
      ASSERT_TRUE(SubmitTo(engine, Make(OpKind::kAllreduce, {TensorOf(large, &large)}, "large"), &first).ok());
      ASSERT_TRUE(SubmitTo(engine, Make(OpKind::kAllreduce, {TensorOf(small, &small)}, "small"), &second).ok());
      ASSERT_TRUE(engine.Wait(i % 2 == 0 ? second : first, kWaitMs));
      ASSERT_TRUE(engine.Wait(i % 2 == 0 ? first : second, kWaitMs));
      ExpectSum(large, engine.size(), i);
      ExpectSum(small, engine.size(), i);
    }
  });
}

// A rank that needs nothing more leaves at once, while its data are on their way.
TEST_P(EarlyTest, WhoLeavesLeavesNobodyWaiting) {
  for (int job = 0; job < 10; ++job) {
    RunRanks(GetParam(), [](Engine& engine) {
      for (int i = 0; i < kUses; ++i) {
        auto values = Values<float>(engine.rank(), 10'000, i);
        const Status status = SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "last"));
        ASSERT_TRUE(status.ok()) << status.message();
        ExpectSum(values, engine.size(), i);
      }
      engine.Shutdown();
    });
  }
}

// The others have begun the sum, and neither its node nor another one waits for it for ever.
TEST_P(EarlyTest, WhoLeavesWithoutASumEndsItOnEveryOtherRank) {
  RunRanks(GetParam(), [](Engine& engine) {
    for (int i = 0; i < kUses; ++i) {
      auto values = Values<float>(engine.rank(), 100, i);
      ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "last")).ok());
    }
    if (engine.rank() == engine.size() - 1) return engine.Shutdown();
    auto values = Values<float>(engine.rank(), 100);
    OperationPtr operation;
    const Status status =
        SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "last"), &operation);
    const std::weak_ptr<Operation> ended = operation;
    operation.reset();
    AwaitThat([&] { return ended.expired(); });  // nobody keeps its outputs
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank " + std::to_string(engine.size() - 1)), std::string::npos)
        << status.message();
  });
}

TEST_P(EarlyTest, ANameThatIsUsedOtherwiseIsDescribedAnew) {
  RunRanks(GetParam(), [](Engine& engine) {
    for (int i = 0; i < 12; ++i) {
      auto values = Values<float>(engine.rank(), i % 3 == 2 ? 20 : 30, i);
      ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "changing")).ok());
      ExpectSum(values, engine.size(), i);
    }
    // Only one rank uses it otherwise: all get the error, and the name can be used again.
    std::vector<float> odd(engine.rank() == 1 ? 20 : 30);
    EXPECT_EQ(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(odd, &odd)}, "changing")).code(),
              Code::kMismatch);
    auto values = Values<float>(engine.rank(), 30);
    EXPECT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "changing")).ok());
    ExpectSum(values, engine.size());
  });
}

// A tensor in a page of its own, which is unmapped as soon as its operation has ended.
class FleetingTensor {
 public:
  static constexpr size_t kCount = 10, kPageBytes = 4096;
  FleetingTensor() : page_(mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  FleetingTensor(const FleetingTensor&) = delete;
  ~FleetingTensor() { munmap(page_, kPageBytes); }

  Request AllreduceOf(const std::string& name) {
    Tensor tensor;
    tensor.input = tensor.output = page_;
    tensor.dtype = DType::kFloat32;
    tensor.shape = {kCount};
    Request request = Make(OpKind::kAllreduce, {tensor}, name);
    request.done_argument = page_;
    request.done = [](void* page, const Status&, Event) { mprotect(page, kPageBytes, PROT_NONE); };
    return request;
  }

 private:
  void* const page_;
};

// An operation that is taken then fails before it has begun. Its memory is the user's again, so it must not begin
// later.
TEST(EarlyEndTest, WhatIsSubmittedWhileTheEpochEndsNeverBegins) {
  constexpr int kNames = 120;
  const auto name_of = [](int i) { return "grad" + std::to_string(i); };
  ASSERT_TRUE(SetFailpoints("engine.break=delay:100").ok());
  RunRanks({1, 1}, [&name_of](Engine& engine) {
    std::vector<float> values(FleetingTensor::kCount);
    for (int i = 0; i < 2 * kNames; ++i) {
      const std::string name = name_of(i % kNames);
      ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, name)).ok());
    }
    FleetingTensor lonely, fleeting[kNames];
    std::vector<OperationPtr> taken(kNames);
    const bool ends_the_epoch = engine.rank() == 1;  // it leaves with operations in flight
    int count = 0;
    for (; count < kNames && SubmitTo(engine, fleeting[count].AllreduceOf(name_of(count)), &taken[count]).ok(); ++count)
      std::this_thread::sleep_for(std::chrono::microseconds(ends_the_epoch ? 0 : 1000));
    if (ends_the_epoch) {
      ASSERT_TRUE(engine.Wait(taken[0], kWaitMs));  // by then the data of all have been sent
      OperationPtr alone;
      ASSERT_TRUE(SubmitTo(engine, lonely.AllreduceOf("alone"), &alone).ok());
      return engine.Shutdown();
    }
    for (int i = 0; i < count; ++i) ASSERT_TRUE(engine.Wait(taken[i], kWaitMs));
    const bool refused = count < kNames;  // on a busy machine, without one that was taken while the epoch ended
    ASSERT_TRUE(refused || taken[kNames - 1]->status().code() == Code::kPeerLost) << "the epoch ended too late";
    engine.Shutdown();
  });
  ASSERT_TRUE(SetFailpoints("").ok());
}

}  // namespace
}  // namespace farandole
