// Tensors on (fake) CUDA devices through the engine, performed by a backend that takes them as they lie there; the
// native backend performs on the host what that lacks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "support/await_all.h"
#include "support/fake_framework.h"
#include "support/fake_gpus.h"
#include "support/forked_ranks.h"
#include "support/specs.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

// Waits until so many ranks of this process have called their devices.
void AwaitCalls(Engine& engine, const OperationPtr& operation, int ranks) {
  while (OpenFakeNccl().calls("ncclAllReduce") < ranks && !operation->done()) engine.Wait(operation, 1);
}

class DeviceBackend : public OnFakeGpus<testing::TestWithParam<std::vector<int>>> {
 protected:
  void Run(const std::function<void(Engine&, Framework&)>& body, const Settings& settings = SettingsOfFakes()) {
    RunRanks(
        GetParam(),
        [&](Engine& engine) {
          Framework framework(cuda_, engine.rank() % 2);
          body(engine, framework);
        },
        settings);
  }

  // An allreduce that does not end fails on all ranks with the reason.
  void ExpectDeadline(const std::string& why, Settings settings = SettingsOfFakes()) {
    settings.timeout_ms = 1000;
    Run(
        [&why](Engine& engine, Framework& framework) {
          ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kBarrier, {})).ok());  // nobody's start takes of that time
          float* const values = framework.Compute(1000, engine.rank());
          const Status status =
              SubmitAndWait(engine, Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 1000)}, "grad"));
          const std::string& text = status.message();
          EXPECT_EQ(status.code(), Code::kDeadline) << text;
          EXPECT_NE(text.find("allreduce 'grad'"), std::string::npos) << text;
          EXPECT_NE(text.find(why), std::string::npos) << text;
          EXPECT_NE(text.find("); raise FARANDOLE_TIMEOUT"), std::string::npos) << text;
        },
        settings);
  }
};

TEST_P(DeviceBackend, TensorsAreReducedWhereTheyLie) {
  cuda_.SetDelay(milliseconds(3));
  Run([](Engine& engine, Framework& framework) {
    for (size_t count : {size_t{5}, size_t{1}, size_t{300'000}, size_t{0}, size_t{70'001}}) {
      float* const values = framework.Compute(count, engine.rank());
      Request request = Make(OpKind::kAllreduce, {framework.TensorOf(values, values, count)});
      OnDone done(&framework);
      done.Attach(&request);
      const Status status = SubmitAndWait(engine, std::move(request));
      ASSERT_TRUE(status.ok()) << status.message();
      ExpectSum(framework.Read(values, count), engine.size());
      EXPECT_EQ(done.calls, 1);
    }
  });
  EXPECT_EQ(cuda_.calls("cuMemHostAlloc"), 0);
}

TEST_P(DeviceBackend, ManyInFlightSomeOfThemOnTheHostOrForOurs) {
  cuda_.SetDelay(milliseconds(1));
  Run([](Engine& engine, Framework& framework) {
    constexpr size_t kOperations = 12, kCount = 3000;
    std::vector<float*> on_device(kOperations);
    std::vector<std::vector<float>> on_host(kOperations, Values<float>(engine.rank(), kCount));
    std::vector<OperationPtr> operations(kOperations);
    for (size_t k = 0; k < kOperations; ++k) {
      const size_t n = (k * 5 + static_cast<size_t>(engine.rank())) % kOperations;  // each rank in an order of its own
      on_device[n] = framework.Compute(kCount, engine.rank());
      const bool gathers = n % 4 == 1;
      Tensor tensor = n % 4 == 0 ? TensorOf(on_host[n], &on_host[n])
                                 : framework.TensorOf(on_device[n], gathers ? nullptr : on_device[n], kCount);
      Request request =
          Make(gathers ? OpKind::kAllgather : OpKind::kAllreduce, {std::move(tensor)}, "t" + std::to_string(n));
      ASSERT_TRUE(SubmitTo(engine, request, &operations[n]).ok());
    }
    for (size_t n = 0; n < kOperations; ++n) {
      ASSERT_TRUE(engine.Wait(operations[n], kWaitMs));
      ASSERT_TRUE(operations[n]->status().ok()) << operations[n]->status().message();
      if (n % 4 == 1) {
        const auto* const all = reinterpret_cast<const float*>(operations[n]->outputs.at(0).memory.get());
        EXPECT_EQ(all[kCount], ValueOf(1, 0));
      } else {
        ExpectSum(n % 4 == 0 ? on_host[n] : framework.Read(on_device[n], kCount), engine.size());
      }
    }
  });
  EXPECT_GT(nccl_.calls("ncclAllReduce"), 0);
}

TEST_P(DeviceBackend, ResultsLieOnTheDeviceWhereThatIsAskedFor) {
  Run([this](Engine& engine, Framework& framework) {
    const auto mine = static_cast<size_t>(engine.rank());  // rank 0 has no rows
    size_t all = 0;
    for (int rank = 0; rank < engine.size(); ++rank) all += static_cast<size_t>(rank);
    float* const values = framework.Compute(mine, engine.rank());
    Request request = Make(OpKind::kAllgather, {framework.TensorOf(values, nullptr, mine)});
    request.results_on_device = true;
    OperationPtr operation;
    ASSERT_TRUE(SubmitAndWait(engine, std::move(request), &operation).ok());
    const Output& output = operation->outputs.at(0);
    ASSERT_NE(output.device, nullptr);
    EXPECT_EQ(output.shape, Shape{static_cast<int64_t>(all)});
    EXPECT_NE(cuda_.Contents(output.memory.get(), all * sizeof(float), engine.rank() % 2), nullptr);
    const auto* const result = reinterpret_cast<const float*>(output.memory.get());
    EXPECT_EQ(framework.Read(result, all)[0], static_cast<float>(ValueOf(1, 0)));
  });
  EXPECT_EQ(cuda_.calls("cuMemAlloc_v2"), cuda_.calls("cuMemFree_v2"));
  EXPECT_EQ(cuda_.calls("cuMemHostAlloc"), 0);
}

TEST_P(DeviceBackend, ResultsOfASteadyStateTakeNoNewMemory) {
  Run([this](Engine& engine, Framework& framework) {
    float* const values = framework.Compute(100, engine.rank());
    Device* device = nullptr;
    ASSERT_TRUE(Devices(FakeCudaPath()).Find(DeviceKind::kCuda, values, &device).ok());
    const auto gather = [&](int times) {
      for (int i = 0; i < times; ++i) {
        Request request = Make(OpKind::kAllgather, {framework.TensorOf(values, nullptr, 100)});
        request.results_on_device = true;
        ASSERT_TRUE(SubmitAndWait(engine, std::move(request)).ok());
        AwaitAll(device);
      }
      ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kBarrier, {})).ok());
    };
    gather(3);
    const int allocated = cuda_.calls("cuMemAlloc_v2");
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kBarrier, {})).ok());
    gather(5);
    EXPECT_EQ(cuda_.calls("cuMemAlloc_v2"), allocated);
  });
}

TEST_P(DeviceBackend, AResultForWhichTheDeviceHasNoMemoryIsAnErrorOfAll) {
  cuda_.Fail("cuMemAlloc_v2", 2);
  Run([](Engine& engine, Framework& framework) {
    float* const values = framework.Compute(100, engine.rank());
    Request request = Make(OpKind::kAllgather, {framework.TensorOf(values, nullptr, 100)}, "rows");
    request.results_on_device = true;
    const Status status = SubmitAndWait(engine, std::move(request));
    EXPECT_EQ(status.code(), Code::kInternal);
    const std::string& text = status.message();
    EXPECT_NE(text.find("allgather 'rows': no memory for a result of 0 MB: cuMemAlloc_v2 failed on CUDA device "),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("CUDA_ERROR_OUT_OF_MEMORY (2)"), std::string::npos) << text;
  });
}

TEST_P(DeviceBackend, BroadcastInAProcessSetOfItsOwn) {
  Run([](Engine& engine, Framework& framework) {
    Request add = Make(OpKind::kAddProcessSet, {});
    add.ranks = {0, 1};
    OperationPtr added;
    ASSERT_TRUE(SubmitAndWait(engine, std::move(add), &added).ok());
    const auto set = static_cast<int>(*reinterpret_cast<const int64_t*>(added->outputs.at(0).memory.get()));
    float* const values = framework.Compute(1000, engine.rank());
    if (engine.rank() < 2) {
      Request request = Make(OpKind::kBroadcast, {framework.TensorOf(values, values, 1000)});
      request.process_set = set;
      request.root = 1;
      ASSERT_TRUE(SubmitAndWait(engine, std::move(request)).ok());
      ASSERT_EQ(framework.Read(values, 1000)[999], ValueOf(1, 999));
    }
    Request remove = Make(OpKind::kRemoveProcessSet, {});
    remove.ranks = {set};
    ASSERT_TRUE(SubmitAndWait(engine, std::move(remove)).ok());
  });
  EXPECT_EQ(nccl_.calls("ncclCommInitRankConfig"), 2);
  EXPECT_EQ(nccl_.calls("ncclCommAbort"), 0);
}

TEST_P(DeviceBackend, ARankThatHasJoinedTakesPartWithZeros) {
  Run([](Engine& engine, Framework& framework) {
    const bool leaves_early = engine.rank() == 1;
    for (int step = 0; step < (leaves_early ? 1 : 3); ++step) {
      float* const values = framework.Compute(500, 0);
      ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 500)})).ok());
      const int adding = step == 0 ? engine.size() : engine.size() - 1;
      ASSERT_EQ(framework.Read(values, 500)[7], static_cast<float>(adding * ValueOf(0, 7)));
    }
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kJoin, {})).ok());
  });
}

TEST_P(DeviceBackend, WhatItWouldRoundOtherwiseIsStagedForOurs) {
  Run([this](Engine& engine, Framework& framework) {
    float* const memory = framework.Empty(3);
    auto* const integers = static_cast<int32_t*>(cuda_.Contents(memory));
    for (int i = 0; i < 3; ++i) integers[i] = engine.rank() == 0 ? 5 + i : 0;
    Request request = Make(OpKind::kAllreduce, {framework.TensorOf(memory, memory, 3)});
    request.tensors[0].dtype = DType::kInt32;
    request.reduce = ReduceOp::kAverage;
    ASSERT_TRUE(SubmitAndWait(engine, std::move(request)).ok());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(integers[i], (5 + i) / engine.size());
  });
  EXPECT_EQ(nccl_.calls("ncclAllReduce"), 0);
}

TEST_P(DeviceBackend, AnOperationThatHangsIsADeadlineForEverybody) {
  nccl_.Hang();
  ExpectDeadline("for NCCL 2.18.3, which does not come to an end on CUDA device ");
  EXPECT_GE(nccl_.calls("ncclCommAbort"), 2);
}

TEST_P(DeviceBackend, RanksThatAreNotConnectedWhenTheyPerformAreADeadlineForEverybody) {
  nccl_.HangBeforeLaunch();
  ExpectDeadline("for NCCL 2.18.3, which has not connected the ranks");
  EXPECT_GE(nccl_.calls("ncclCommAbort"), 2);
}

TEST_P(DeviceBackend, ACallThatDoesNotComeBackIsADeadlineForEverybody) {
  nccl_.HangIn("ncclCommInitRankConfig");
  Settings settings = SettingsOfFakes();
  settings.abort_patience_ms = 50;  // the call hangs until the test releases it
  ExpectDeadline("for NCCL 2.18.3, which has not come back from ncclCommInitRankConfig on CUDA device ", settings);
  nccl_.Release();  // the abandoned threads end
  while (nccl_.calls("ncclCommAbort") < nccl_.calls("ncclCommInitRankConfig") || nccl_.live() > 0)
    std::this_thread::yield();
}

TEST_P(DeviceBackend, AFailureOfOneRankIsToldToAll) {
  nccl_.Fail("ncclAllReduce", 1);
  Run([](Engine& engine, Framework& framework) {
    float* const values = framework.Compute(1000, engine.rank());
    const Status status =
        SubmitAndWait(engine, Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 1000)}, "grad"));
    EXPECT_EQ(status.code(), Code::kInternal);
    const std::string& text = status.message();
    EXPECT_EQ(text.find("allreduce 'grad' failed on rank " + std::to_string(engine.rank()) + ": rank "), 0u) << text;
    EXPECT_NE(text.find("ncclAllReduce of NCCL 2.18.3 failed on CUDA device "), std::string::npos) << text;
  });
}

TEST_P(DeviceBackend, ARankThatLeavesMeanwhileIsNamed) {
  nccl_.Hang();
  Run([](Engine& engine, Framework& framework) {
    float* const values = framework.Compute(1000, engine.rank());
    OperationPtr operation;
    ASSERT_TRUE(
        SubmitTo(engine, Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 1000)}, "grad"), &operation)
            .ok());
    if (engine.rank() == 1) {
      AwaitCalls(engine, operation, engine.size());
      engine.Shutdown();
      return;
    }
    ASSERT_TRUE(engine.Wait(operation, kWaitMs));
    EXPECT_EQ(operation->status().code(), Code::kPeerLost);
    EXPECT_NE(operation->status().message().find("rank 1"), std::string::npos) << operation->status().message();
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, DeviceBackend,
                         testing::Values(std::vector<int>{2}, std::vector<int>{3}, std::vector<int>{2, 1}));

// ---- several hosts, between which NCCL has no network

class DeviceHosts : public DeviceBackend {
 protected:
  void SetUp() override {
    DeviceBackend::SetUp();
    settings_.without_network = {"nccl"};
  }
  void TearDown() override {
    EXPECT_EQ(nccl_.calls("ncclCommInitRankConfig"), 0) << "a communicator of several hosts";
    DeviceBackend::TearDown();
  }

  Settings settings_ = SettingsOfFakes();
};

// The native backend stages all operations.
TEST_P(DeviceHosts, ManySumsAreInFlight) {
  cuda_.SetDelay(milliseconds(1));
  Run(
      [](Engine& engine, Framework& framework) {
        constexpr size_t kOperations = 12;
        const auto count_of = [](size_t n) { return n % 3 == 0 ? size_t{70'001} : 300 * n; };
        std::vector<float*> values(kOperations);
        std::vector<OperationPtr> operations(kOperations);
        for (size_t k = 0; k < kOperations; ++k) {
          const size_t n =
              (k * 5 + static_cast<size_t>(engine.rank())) % kOperations;  // each rank in an order of its own
          values[n] = framework.Compute(count_of(n), engine.rank());
          Request request = Make(OpKind::kAllreduce, {framework.TensorOf(values[n], values[n], count_of(n))},
                                 "t" + std::to_string(n));
          ASSERT_TRUE(SubmitTo(engine, request, &operations[n]).ok());
        }
        for (size_t n = 0; n < kOperations; ++n) {
          ASSERT_TRUE(engine.Wait(operations[n], kWaitMs));
          ASSERT_TRUE(operations[n]->status().ok()) << operations[n]->status().message();
          ExpectSum(framework.Read(values[n], count_of(n)), engine.size());
        }
      },
      settings_);
}

TEST_P(DeviceHosts, ARankThatHasJoinedTakesPartWithZeros) {
  Run(
      [](Engine& engine, Framework& framework) {
        const bool leaves_early = engine.rank() == 1;
        for (int step = 0; step < (leaves_early ? 1 : 3); ++step) {
          float* const values = framework.Compute(20'000, 0);
          ASSERT_TRUE(
              SubmitAndWait(engine, Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 20'000)})).ok());
          const int adding = step == 0 ? engine.size() : engine.size() - 1;
          ASSERT_EQ(framework.Read(values, 20'000)[7], static_cast<float>(adding * ValueOf(0, 7)));
        }
        ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kJoin, {})).ok());
      },
      settings_);
}

INSTANTIATE_TEST_SUITE_P(Nodes, DeviceHosts, testing::Values(std::vector<int>{2, 1}, std::vector<int>{2, 2}));

// Rank 1 is killed when both have called their devices; rank 0 says so through a pipe.
// tests/collectives/backends/test_nccl_faults.py kills ranks while they are connected.
int BeRankOfAKernelThatHangs(WorldSpec spec, const int (&pipe)[2]) {
  spec.plan = Engine::PlanFor(spec.size);
  std::unique_ptr<World> world;
  if (!Bootstrap(spec, After(std::chrono::seconds(20)), &world).ok()) return 2;
  std::unique_ptr<Engine> engine;
  if (!Engine::Start(std::move(world), SettingsOfFakes(), &engine).ok()) return 3;
  OpenFakeNccl().Reset();
  OpenFakeNccl().Hang();
  Framework framework(OpenFakeCuda(), 0);
  float* const values = framework.Compute(100, spec.rank);
  OperationPtr operation;
  if (!SubmitTo(*engine, Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 100)}, "grad"), &operation).ok())
    return 4;
  AwaitCalls(*engine, operation, 1);
  char byte = 0;
  if (spec.rank == 1) {
    while (read(pipe[0], &byte, 1) < 0) engine->Wait(operation, 1);
    raise(SIGKILL);
  }
  if (write(pipe[1], &byte, 1) != 1) return 8;
  if (!engine->Wait(operation, kWaitMs)) return 5;
  const bool names_rank_1 = operation->status().message().find("rank 1 (") != std::string::npos;
  if (operation->status().code() != Code::kPeerLost || !names_rank_1) return 6;
  return OpenFakeNccl().live() == 0 && OpenFakeNccl().calls("ncclCommAbort") == 1 ? 0 : 7;
}

TEST(DeviceBackendKilled, ARankThatDiesWhileTheDeviceWorksIsNamedAndNobodyHangs) {
  const std::vector<WorldSpec> specs = SpecsOf(2, FreshEndpoint());
  int pipe[2];
  ASSERT_EQ(pipe2(pipe, O_NONBLOCK | O_CLOEXEC), 0);
  const std::vector<int> statuses =
      ForkRanks(2, [&](int rank) { return BeRankOfAKernelThatHangs(specs[static_cast<size_t>(rank)], pipe); });
  close(pipe[0]);
  close(pipe[1]);
  EXPECT_TRUE(WIFSIGNALED(statuses[1]) && WTERMSIG(statuses[1]) == SIGKILL);
  EXPECT_TRUE(WIFEXITED(statuses[0]));
  EXPECT_EQ(WEXITSTATUS(statuses[0]), 0);
}

}  // namespace
}  // namespace farandole
