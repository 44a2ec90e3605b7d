// Blocking calls that become no operation unless another thread needs one: their results, and everything that can come
// between.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/reductions.h"
#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

// Sums the values in place. Returns false when the engine needs an operation.
bool Run(Engine& engine, const std::string& name, std::vector<float>* values, Status* status, int set = 0) {
  const auto count = static_cast<int64_t>(values->size());
  TensorView tensor;
  tensor.input = tensor.output = values->data();
  tensor.shape = {&count, 1};
  RequestView request;
  request.tensors = {&tensor, 1};
  request.name = name;
  request.process_set = set;
  return RunBorrowed(engine, request, status);
}

Status Sum(Engine& engine, const std::string& name, std::vector<float>* values, int set = 0) {
  Request request = Make(OpKind::kAllreduce, {TensorOf(*values, values)}, name);
  request.process_set = set;
  return SubmitAndWait(engine, std::move(request));
}

// From here on all ranks know the name.
void Introduce(Engine& engine, const std::string& name, size_t count = 4) {
  auto values = Values<float>(engine.rank(), count);
  ASSERT_TRUE(Sum(engine, name, &values).ok());
}

class SmallCallTest : public testing::TestWithParam<int> {
 protected:
  void Run(const std::function<void(Engine&)>& body, const Settings& settings = Settings()) {
    RunRanks({GetParam()}, body, settings);
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, SmallCallTest, testing::Values(2, 3));

TEST_P(SmallCallTest, BeginsOnceTheNameIsKnown) {
  Run([](Engine& engine) {
    Status status;
    auto values = Values<float>(engine.rank(), 4);
    EXPECT_FALSE(farandole::Run(engine, "x", &values, &status));
    Introduce(engine, "x");
    for (int use = 0; use < 500; ++use) {
      values = Values<float>(engine.rank(), 4, use);
      status = Status(Code::kInternal, "of another call");
      ASSERT_TRUE(farandole::Run(engine, "x", &values, &status));
      ASSERT_TRUE(status.ok()) << status.message();
      ExpectSum(values, engine.size(), use);
    }
    std::vector<float> longer(5);
    EXPECT_FALSE(farandole::Run(engine, "x", &longer, &status)) << "another shape has to be agreed on";
  });
}

std::vector<uint8_t> RandomBytes(DType dtype, size_t count, int rank) {
  std::mt19937 random(static_cast<unsigned>(rank + 1));
  std::vector<uint8_t> bytes(count * SizeOf(dtype));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() % 60);  // as a float, finite; as a bool, set or not
  if (dtype == DType::kBool) std::for_each(bytes.begin(), bytes.end(), [](uint8_t& byte) { byte %= 2; });
  return bytes;
}

// The results of a call and of an operation with the same input.
void ExpectTheSameBits(Engine& engine, DType dtype, ReduceOp reduce, int64_t count, double postscale) {
  if (!Supports(dtype, reduce)) return;
  const std::string name = std::string(NameOf(dtype)) + NameOf(reduce) + std::to_string(count);
  const std::vector<uint8_t> input = RandomBytes(dtype, static_cast<size_t>(count), engine.rank());
  std::vector<uint8_t> expected(input.size()), given(input.size());
  Tensor tensor;
  tensor.input = input.data();
  tensor.output = expected.data();
  tensor.dtype = dtype;
  tensor.shape = {count, 1};
  Request request = Make(OpKind::kAllreduce, {tensor}, name);
  request.reduce = reduce;
  request.postscale = postscale;
  ASSERT_TRUE(SubmitAndWait(engine, std::move(request)).ok());
  const int64_t shape[] = {count, 1};
  TensorView view;
  static_cast<TensorFields&>(view) = tensor;
  view.output = given.data();
  view.shape = {shape, 2};
  RequestView again;
  again.tensors = {&view, 1};
  again.name = name;
  again.reduce = reduce;
  again.postscale = postscale;
  Status status;
  if (AveragesIntegers(dtype, reduce)) {
    EXPECT_FALSE(RunBorrowed(engine, again, &status)) << name << " is summed in wider memory, by an operation";
    return;
  }
  ASSERT_TRUE(RunBorrowed(engine, again, &status)) << name;
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(given, expected) << name;
}

TEST_P(SmallCallTest, GivesTheBitsOfAnOperation) {
  Run([](Engine& engine) {
    for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
      std::vector<ReduceOp> reductions = tests::ElementwiseReductions(static_cast<DType>(dtype));
      reductions.push_back(ReduceOp::kAverage);
      for (const ReduceOp reduce : reductions) {
        for (int64_t count : {1, 9, 300})
          ExpectTheSameBits(engine, static_cast<DType>(dtype), reduce, count, dtype % 2 == 0 ? 2.0 : -0.5);
      }
    }
  });
}

TEST_P(SmallCallTest, ALateRankIsWaitedForAsByAnOperation) {
  Run([](Engine& engine) {
    Introduce(engine, "x");
    for (int use = 0; use < 10; ++use) {
      if (engine.rank() == use % engine.size()) std::this_thread::sleep_for(milliseconds(5));
      auto values = Values<float>(engine.rank(), 4, use);
      Status status;
      ASSERT_TRUE(farandole::Run(engine, "x", &values, &status));
      ASSERT_TRUE(status.ok()) << status.message();
      ExpectSum(values, engine.size(), use);
    }
  });
}

// Rank 0 writes its data first and then computes, so nobody but its sleeping loop thread can reduce its share. The
// others wait, or only poll. By itself the loop thread looks 50 ms after it fell asleep, so without doorbells all uses
// take 40 to 60 ms. With doorbells a tenth take less than 20 even beside six computing programs per core.
TEST_P(SmallCallTest, ARankThatComputesReducesItsShareWithinMilliseconds) {
  constexpr int kUses = 30;
  for (const bool polls : {false, true}) {
    std::atomic<int> submitted{0}, ended{0};
    Run([&, polls](Engine& engine) {
      Introduce(engine, "x", 4096);
      std::vector<double> times;
      for (int use = 0; use < kUses; ++use) {
        auto values = Values<float>(engine.rank(), 4096, use);
        const bool computes = engine.rank() == 0;
        if (!computes) AwaitThat([&] { return submitted > use; });
        const TimePoint before = Now();
        OperationPtr operation;
        ASSERT_TRUE(SubmitTo(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "x"), &operation).ok());
        if (computes) {
          ++submitted;
          AwaitThat([&] { return ended == (use + 1) * (engine.size() - 1); });
        } else if (polls) {
          while (!engine.Poll(operation)) CpuPause();
        } else {
          ASSERT_TRUE(engine.Wait(operation, kWaitMs));
        }
        times.push_back(std::chrono::duration<double, std::milli>(Now() - before).count());
        if (!computes) ++ended;
        ASSERT_TRUE(engine.Wait(operation, kWaitMs));
        ExpectSum(values, engine.size(), use);
      }
      std::nth_element(times.begin(), times.begin() + kUses / 10, times.end());
      EXPECT_TRUE(engine.rank() == 0 || times[kUses / 10] < 30) << times[kUses / 10] << " ms, polls: " << polls;
    });
  }
}

// Calls and operations, named and unnamed, of several threads, each in another order.
TEST_P(SmallCallTest, MixesWithAllElse) {
  constexpr int kThreads = 3, kUses = 400;
  Run([](Engine& engine) {
    const auto task = [&engine](int thread) {
      const std::string name = "thread" + std::to_string(thread);
      std::mt19937 random(static_cast<unsigned>(engine.rank() * kThreads + thread));
      for (int use = 0; use < kUses; ++use) {
        auto values = Values<float>(engine.rank(), 4, use);
        Status status;
        if (random() % 3 == 0 || !farandole::Run(engine, name, &values, &status)) status = Sum(engine, name, &values);
        ASSERT_TRUE(status.ok()) << status.message();
        ExpectSum(values, engine.size(), use);
      }
    };
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(task, thread);
    for (int use = 0; use < kUses; ++use) {
      auto values = Values<float>(engine.rank(), 700, use);
      ASSERT_TRUE(Sum(engine, use % 2 == 0 ? "" : "large", &values).ok());
      ExpectSum(values, engine.size(), use);
    }
    for (std::thread& thread : threads) thread.join();
  });
}

// The ranks reduce in two phases. Each new size evicts the name's id.
TEST_P(SmallCallTest, LargeOnesOfChangingSizesMixWithOperations) {
  constexpr int kUses = 600;
  Run([](Engine& engine) {
    std::mt19937 random(static_cast<unsigned>(engine.rank()));
    for (int use = 0; use < kUses; ++use) {
      const size_t count = 2000 + 1500 * static_cast<size_t>(use / 9 % 3);
      auto values = Values<float>(engine.rank(), count, use);
      const std::string name = use % 2 == 0 ? "x" : "y";
      for (unsigned pauses = random() % 3 == 0 ? random() % 2000 : 0; pauses > 0; --pauses) CpuPause();
      Status status;
      if (random() % 4 == 0 || !farandole::Run(engine, name, &values, &status)) status = Sum(engine, name, &values);
      ASSERT_TRUE(status.ok()) << status.message();
      ExpectSum(values, engine.size(), use);
    }
  });
}

// Two ranks whose callers wait have slots for larger tensors.
TEST_P(SmallCallTest, AwaitedOnesOfTwoRanksMayBeLarger) {
  constexpr size_t kCount = 100'000;  // 400 KB
  Run([](Engine& engine) {
    std::mt19937 random(static_cast<unsigned>(engine.rank()));
    for (int use = 0; use < 120; ++use) {
      auto values = Values<float>(engine.rank(), kCount, use);
      for (unsigned pauses = random() % 4000; pauses > 0; --pauses) CpuPause();
      Status status;
      const bool by_call = (use == 0 || random() % 4 > 0) && farandole::Run(engine, "x", &values, &status);
      EXPECT_FALSE(by_call && (use == 0 || engine.size() > 2)) << use;
      if (!by_call) {
        OperationPtr operation;
        Request request = Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "x");
        ASSERT_TRUE(SubmitTo(engine, request, &operation, /*will_wait=*/use == 0).ok());
        ASSERT_TRUE(engine.Wait(operation, 60'000));
        status = operation->status();
      }
      ASSERT_TRUE(status.ok()) << status.message();
      ExpectSum(values, engine.size(), use);
    }
  });
}

// More calls than there are names, of two shapes; each rank has its own mix of calls and operations, and is late by
// turns.
TEST_P(SmallCallTest, UnnamedOnesMeetInTheirOrder) {
  std::atomic<int> calls{0};
  Run([&calls](Engine& engine) {
    std::mt19937 random(static_cast<unsigned>(engine.rank()));
    for (int use = 0; use < 1500; ++use) {
      if (use % 100 == engine.rank()) std::this_thread::sleep_for(milliseconds(2));
      auto values = Values<float>(engine.rank(), use % 3 == 0 ? 4 : 700, use);
      Status status;
      if (random() % 4 == 0 || !farandole::Run(engine, "", &values, &status)) {
        status = Sum(engine, "", &values);
      } else {
        ++calls;
      }
      ASSERT_TRUE(status.ok()) << status.message();
      ExpectSum(values, engine.size(), use);
    }
  });
  EXPECT_GT(calls, 1000 * GetParam() * 3 / 4);
}

// Rank 1 waits only for the first ones. The ranks' names differ until they are told, and then are known on all.
TEST_P(SmallCallTest, UnnamedOnesForWhichNotAllRanksWaitMeet) {
  for (const int waited : {0, 20}) {
    Run([waited](Engine& engine) {
      uint64_t messages = 0;
      for (int use = 0; use < waited + 200; ++use) {
        if (use == waited + 100) messages = engine.messages_sent();
        auto values = Values<float>(engine.rank(), 3000, use);
        const bool waits = engine.rank() != 1 || use < waited;
        Status status;
        if (!waits || !farandole::Run(engine, "", &values, &status)) {
          OperationPtr operation;
          ASSERT_TRUE(
              SubmitTo(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, ""), &operation, waits).ok());
          ASSERT_TRUE(engine.Wait(operation, 60'000));
          status = operation->status();
        }
        ASSERT_TRUE(status.ok()) << status.message();
        ExpectSum(values, engine.size(), use);
      }
      EXPECT_EQ(engine.messages_sent(), messages) << waited;
    });
  }
}

TEST_P(SmallCallTest, UnnamedOnesThatDifferAreAMismatchAndTheJobGoesOn) {
  Run([](Engine& engine) {
    for (int use = 0; use < 300; ++use) {
      const bool differs = use == 200 && engine.rank() == engine.size() - 1;
      auto values = Values<float>(engine.rank(), differs ? 5 : 4, use);
      Status status;
      if (!farandole::Run(engine, "", &values, &status)) status = Sum(engine, "", &values);
      ASSERT_EQ(status.code(), use == 200 ? Code::kMismatch : Code::kOk) << status.message();
      if (use != 200) ExpectSum(values, engine.size(), use);
    }
  });
}

TEST_P(SmallCallTest, AMismatchNamesBothAndTheJobGoesOn) {
  Run([](Engine& engine) {
    Introduce(engine, "x");
    for (int use = 0; use < 5; ++use) {
      auto values = Values<float>(engine.rank(), engine.rank() == engine.size() - 1 ? 5 : 4);
      Status status;
      if (!farandole::Run(engine, "x", &values, &status)) status = Sum(engine, "x", &values);
      ASSERT_EQ(status.code(), Code::kMismatch);
      const std::string other = "rank " + std::to_string(engine.size() - 1) + " has (5,)";
      EXPECT_NE(status.message().find(other), std::string::npos) << status.message();
      Introduce(engine, "x");
    }
  });
}

TEST_P(SmallCallTest, TheSameNameTwiceAtOnceIsRefused) {
  std::atomic<bool> refused{false};
  Run([&refused](Engine& engine) {
    Introduce(engine, "x");
    auto values = Values<float>(engine.rank(), 4), again = values;
    Status status;
    if (engine.rank() != 0) {
      while (!refused) std::this_thread::sleep_for(milliseconds(1));
      ASSERT_TRUE(farandole::Run(engine, "x", &values, &status));
    } else {
      OperationPtr first;
      ASSERT_TRUE(SubmitTo(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "x"), &first).ok());
      EXPECT_FALSE(farandole::Run(engine, "x", &again, &status)) << "it would take the other one's turn";
      refused = true;
      ASSERT_TRUE(engine.Wait(first, kWaitMs));
    }
    ExpectSum(values, engine.size());
  });
}

TEST_P(SmallCallTest, AJoinedRankTakesPartWithZeros) {
  Run([](Engine& engine) {
    Introduce(engine, "x");
    for (int use = 0; use < 100; ++use) Introduce(engine, "");
    const int last = engine.size() - 1;
    for (int use = 0; engine.rank() != last && use < 80; ++use) {
      const std::string name = use % 2 == 0 ? "x" : "";
      const size_t count = use < 40 ? 4 : 3000;  // in one phase, then in two
      std::vector<float> values(count, 1.0f);
      Status status;
      if (!farandole::Run(engine, name, &values, &status)) status = Sum(engine, name, &values);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(values, std::vector<float>(count, static_cast<float>(last)));
    }
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kJoin, {})).ok());
  });
}

TEST_P(SmallCallTest, InAProcessSet) {
  Run([](Engine& engine) {
    Request request = Make(OpKind::kAddProcessSet, {});
    request.ranks = {0, 1};
    OperationPtr added;
    ASSERT_TRUE(SubmitAndWait(engine, std::move(request), &added).ok());
    int64_t set = 0;
    std::memcpy(&set, added->outputs.at(0).memory.get(), sizeof set);
    for (int use = 0; engine.rank() < 2 && use < 20; ++use) {
      auto values = Values<float>(engine.rank(), 4, use);
      Status status;
      ASSERT_EQ(farandole::Run(engine, "x", &values, &status, static_cast<int>(set)), use > 0);
      if (use == 0) status = Sum(engine, "x", &values, static_cast<int>(set));
      ASSERT_TRUE(status.ok()) << status.message();
      ExpectSum(values, 2, use);
    }
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kBarrier, {})).ok());
  });
}

// ---- faults

void ExpectItFails(Engine& engine, const std::vector<Code>& codes, const std::string& whom) {
  auto values = Values<float>(engine.rank(), 4);
  Status status;
  ASSERT_TRUE(Run(engine, "x", &values, &status));
  EXPECT_NE(std::find(codes.begin(), codes.end(), status.code()), codes.end()) << status.message();
  EXPECT_NE(status.message().find("allreduce 'x'"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(whom), std::string::npos) << status.message();
}

// The call may come before the other rank leaves, or after it.
TEST_P(SmallCallTest, ARankThatLeavesIsNamed) {
  Run([](Engine& engine) {
    Introduce(engine, "x");
    const int last = engine.size() - 1;
    if (engine.rank() == last) return std::this_thread::sleep_for(milliseconds(20));
    auto values = Values<float>(engine.rank(), 4);
    Status status;
    if (!farandole::Run(engine, "x", &values, &status)) status = Sum(engine, "x", &values);
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank " + std::to_string(last)), std::string::npos) << status.message();
  });
}

TEST_P(SmallCallTest, AnAbsentRankIsADeadlineErrorThatNamesIt) {
  Settings settings;
  settings.timeout_ms = 1000;
  settings.log_level = 0;
  std::atomic<int> waiting{GetParam() - 1};
  const auto body = [&waiting](Engine& engine) {
    Introduce(engine, "x");
    const int last = engine.size() - 1;
    if (engine.rank() == last) {
      while (waiting > 0) std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    ExpectItFails(engine, {Code::kDeadline}, "rank " + std::to_string(last));
    --waiting;
  };
  Run(body, settings);
}

TEST_P(SmallCallTest, EndsWhenAnotherThreadShutsDown) {
  std::atomic<int> to_call{GetParam()};  // the last rank counts when it knows the name
  Run([&to_call](Engine& engine) {
    Introduce(engine, "x");
    const auto await_all = [&to_call] {
      while (to_call > 0) std::this_thread::sleep_for(milliseconds(1));
    };
    if (engine.rank() == engine.size() - 1) {
      --to_call;
      return await_all();
    }
    const uint64_t before = engine.bytes_submitted();
    std::thread caller([&engine] { ExpectItFails(engine, {Code::kNotInitialized, Code::kPeerLost}, "rank"); });
    while (engine.bytes_submitted() == before) std::this_thread::sleep_for(milliseconds(1));
    --to_call;
    await_all();
    engine.Shutdown();
    caller.join();
  });
}

// One thread of a rank drives the operations of all its threads, and may do so for longer than another one waits.
TEST_P(SmallCallTest, WakesASleepingThreadWhileAnotherGoesOnDriving) {
  std::atomic<bool> is_over{false};
  Run([&is_over](Engine& engine) {
    if (engine.rank() == 0) {
      std::thread driver([&engine] { Introduce(engine, "late"); });
      std::this_thread::sleep_for(milliseconds(50));
      Introduce(engine, "soon");
      is_over = true;
      return driver.join();
    }
    std::this_thread::sleep_for(milliseconds(150));  // rank 0's second thread has stopped polling
    Introduce(engine, "soon");
    const TimePoint limit = Now() + std::chrono::seconds(10);
    while (!is_over && Now() < limit) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_TRUE(is_over);
    Introduce(engine, "late");
  });
}

// A driver may have looked at a large operation before its call was over. The next call reuses the operation.
TEST(SpareOperationTest, DoesNotKeepTheWaitOfTheCallBefore) {
  auto values = Values<float>(0, 4);
  const int64_t count = 4;
  TensorView tensor;
  tensor.input = tensor.output = values.data();
  tensor.shape = {&count, 1};
  RequestView request;
  request.tensors = {&tensor, 1};
  Operation operation;
  operation.Borrow(request, "x", -1);
  operation.submitted = Now();
  operation.stuck_reported = true;
  operation.Borrow(request, "x", -1);
  EXPECT_EQ(operation.submitted, TimePoint());
  EXPECT_FALSE(operation.stuck_reported);
}

}  // namespace
}  // namespace farandole
