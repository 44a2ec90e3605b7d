// Tensors on (fake) CUDA devices of several hosts between which NCCL has no network, through the engine: NCCL inside a
// host, links between hosts. The native backend stages operations that cannot be relayed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "support/fake_framework.h"
#include "support/fake_gpus.h"
#include "support/forked_ranks.h"
#include "support/specs.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

Settings FakesWithoutNetwork() {
  Settings settings = SettingsOfFakes();
  settings.without_network = {"nccl"};
  return settings;
}

class DeviceHosts : public OnFakeGpus<testing::TestWithParam<std::vector<int>>> {
 protected:
  void TearDown() override {
    OnFakeGpus::TearDown();
    for (int size : nccl_.sizes()) EXPECT_LE(size, 2) << "a communicator of several hosts";
  }
  void Run(const std::function<void(Engine&, Framework&)>& body, const Settings& settings = FakesWithoutNetwork()) {
    RunRanks(
        GetParam(),
        [&](Engine& engine) {
          Framework framework(cuda_, engine.rank() % 2);
          body(engine, framework);
        },
        settings);
  }
};

TEST_P(DeviceHosts, ManySumsAreInFlight) {
  cuda_.SetDelay(milliseconds(1));
  Run([](Engine& engine, Framework& framework) {
    constexpr size_t kOperations = 12;
    const auto count_of = [](size_t n) { return n % 3 == 0 ? size_t{70'001} : 300 * n; };
    std::vector<float*> values(kOperations);
    std::vector<OperationPtr> operations(kOperations);
    for (size_t k = 0; k < kOperations; ++k) {
      const size_t n = (k * 5 + static_cast<size_t>(engine.rank())) % kOperations;  // each rank in an order of its own
      values[n] = framework.Compute(count_of(n), engine.rank());
      Request request =
          Make(OpKind::kAllreduce, {framework.TensorOf(values[n], values[n], count_of(n))}, "t" + std::to_string(n));
      ASSERT_TRUE(engine.Submit(std::move(request), &operations[n]).ok());
    }
    for (size_t n = 0; n < kOperations; ++n) {
      ASSERT_TRUE(engine.Wait(operations[n], kWaitMs));
      ASSERT_TRUE(operations[n]->status().ok()) << operations[n]->status().message();
      ExpectSum(framework.Read(values[n], count_of(n)), engine.size());
    }
  });
  EXPECT_EQ(nccl_.calls("ncclAllReduce"), 0);
  EXPECT_GT(nccl_.calls("ncclReduce"), 0);
}

TEST_P(DeviceHosts, ARankThatHasJoinedTakesPartWithZeros) {
  Run([](Engine& engine, Framework& framework) {
    const bool leaves_early = engine.rank() == 1;
    for (int step = 0; step < (leaves_early ? 1 : 3); ++step) {
      float* const values = framework.Compute(20'000, 0);
      ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 20'000)})).ok());
      const int adding = step == 0 ? engine.size() : engine.size() - 1;
      ASSERT_EQ(framework.Read(values, 20'000)[7], static_cast<float>(adding * ValueOf(0, 7)));
    }
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kJoin, {})).ok());
  });
}

TEST_P(DeviceHosts, WhatIsNotRelayedIsStagedForOurs) {
  Run([](Engine& engine, Framework& framework) {
    float* const values = framework.Compute(100, engine.rank());
    Request request = Make(OpKind::kAllgather, {framework.TensorOf(values, nullptr, 100)});
    request.results_on_device = true;
    OperationPtr operation;
    ASSERT_TRUE(SubmitAndWait(engine, std::move(request), &operation).ok());
    const Output& output = operation->outputs.at(0);
    EXPECT_EQ(output.device, nullptr);
    EXPECT_EQ(reinterpret_cast<const float*>(output.memory.get())[100], static_cast<float>(ValueOf(1, 0)));
  });
  EXPECT_EQ(nccl_.calls("ncclCommInitRankConfig"), 0);
}

TEST_P(DeviceHosts, AnOperationThatHangsInsideAHostIsADeadlineForEverybody) {
  nccl_.Hang();
  Settings settings = FakesWithoutNetwork();
  settings.timeout_ms = 1000;
  Run(
      [](Engine& engine, Framework& framework) {
        ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kBarrier, {})).ok());  // nobody's start takes of that time
        float* const values = framework.Compute(1000, engine.rank());
        const Status status =
            SubmitAndWait(engine, Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 1000)}, "grad"));
        EXPECT_EQ(status.code(), Code::kDeadline) << status.message();
        EXPECT_NE(status.message().find("allreduce 'grad'"), std::string::npos) << status.message();
      },
      settings);
}

INSTANTIATE_TEST_SUITE_P(Groups, DeviceHosts, testing::Values(std::vector<int>{2, 1}, std::vector<int>{2, 2}));

// Ranks 0 and 1 are one host, rank 2 another. The victim's device hangs, so that all others wait for it: in NCCL, or
// for what it should have sent. It is killed when all have called their devices; the others say so through a pipe.
int BeRankOfHosts(WorldSpec spec, int victim, const int (&pipe)[2]) {
  spec.plan = Engine::PlanFor(spec.size);
  spec.shares_memory = spec.rank != 2;
  std::unique_ptr<World> world;
  if (!Bootstrap(spec, After(std::chrono::seconds(20)), &world).ok()) return 2;
  if (world->layout.group_count() != 2) return 3;
  std::unique_ptr<Engine> engine;
  if (!Engine::Start(std::move(world), FakesWithoutNetwork(), &engine).ok()) return 4;
  OpenFakeNccl().Reset();
  if (spec.rank == victim) OpenFakeNccl().Hang();
  Framework framework(OpenFakeCuda(), spec.rank % 2);
  float* const values = framework.Compute(20'000, spec.rank);
  OperationPtr operation;
  if (!engine->Submit(Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 20'000)}, "grad"), &operation).ok())
    return 5;
  while (OpenFakeNccl().calls("ncclGroupEnd") < 1 && !operation->done()) engine->Wait(operation, 1);
  char byte = 0;
  if (spec.rank == victim) {
    for (int others = 0; others < 2; engine->Wait(operation, 1)) others += read(pipe[0], &byte, 1) == 1;
    raise(SIGKILL);
  }
  if (write(pipe[1], &byte, 1) != 1) return 9;
  if (!engine->Wait(operation, kWaitMs)) return 6;
  const std::string name = "rank " + std::to_string(victim) + " (";
  const bool names_it = operation->status().message().find(name) != std::string::npos;
  if (operation->status().code() != Code::kPeerLost || !names_it) return 7;
  return OpenFakeNccl().live() == 0 && OpenFakeNccl().calls("ncclCommAbort") == 1 ? 0 : 8;
}

TEST(DeviceHostsKilled, ARankThatDiesIsNamedOnBothHostsAndNobodyHangs) {
  for (const int victim : {1, 2}) {
    const std::vector<WorldSpec> specs = SpecsOf(3, FreshEndpoint());
    int pipe[2];
    ASSERT_EQ(pipe2(pipe, O_NONBLOCK | O_CLOEXEC), 0);
    const std::vector<int> statuses =
        ForkRanks(3, [&](int rank) { return BeRankOfHosts(specs[static_cast<size_t>(rank)], victim, pipe); });
    close(pipe[0]);
    close(pipe[1]);
    for (int rank = 0; rank < 3; ++rank) {
      const int status = statuses[static_cast<size_t>(rank)];
      if (rank == victim) {
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
      } else {
        EXPECT_TRUE(WIFEXITED(status));
        EXPECT_EQ(WEXITSTATUS(status), 0) << "rank " << rank << " when " << victim << " is killed";
      }
    }
  }
}

}  // namespace
}  // namespace farandole
