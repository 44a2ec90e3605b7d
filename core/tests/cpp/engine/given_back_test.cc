// When a connection is lost, at whatever step, every operation names the lost rank, and its memory is not written once
// it has ended. Then the same process begins a new epoch.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "common/failpoint.h"
#include "support/forked_ranks.h"
#include "support/requests.h"
#include "support/specs.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

constexpr size_t kCount = 300'000;
constexpr float kPoison = -7777;

// A rank's tensors, which are reused by the next epoch.
struct Memory {
  std::vector<float> in = std::vector<float>(kCount), out = std::vector<float>(kCount);
};

// No name comes twice, so nothing is early.
Status Begin(Engine& engine, Memory* memory, int number, OpKind kind, OperationPtr* operation) {
  for (size_t i = 0; i < kCount; ++i) memory->in[i] = static_cast<float>((i + static_cast<size_t>(engine.rank())) % 9);
  std::fill(memory->out.begin(), memory->out.end(), 0.0f);
  const std::string name = std::string(NameOf(kind)) + std::to_string(number);
  return SubmitTo(engine, Make(kind, {TensorOf(memory->in, &memory->out)}, name), operation);
}

bool HasResult(const Engine& engine, const Memory& memory, OpKind kind) {
  for (size_t i = 0; i < kCount; ++i) {
    float sum = static_cast<float>(i % 9);
    for (int r = 1; kind == OpKind::kAllreduce && r < engine.size(); ++r)
      sum += static_cast<float>((i + static_cast<size_t>(r)) % 9);
    if (memory.out[i] != sum) return false;
  }
  return true;
}

void ExpectGood(Engine& engine, Memory* memory, int number) {
  for (OpKind kind : {OpKind::kAllreduce, OpKind::kBroadcast}) {
    OperationPtr operation;
    ASSERT_TRUE(Begin(engine, memory, number, kind, &operation).ok());
    ASSERT_TRUE(engine.Wait(operation, 60'000));
    ASSERT_TRUE(operation->status().ok()) << operation->status().message();
    EXPECT_TRUE(HasResult(engine, *memory, kind)) << NameOf(kind);
  }
}

// Performs operations until one fails or is refused. From then on its memory belongs to the test.
void UseUntilLost(Engine& engine, Memory* memory, std::atomic<int>* failed) {
  Status status;
  for (int i = 0; status.ok(); ++i) {
    for (OpKind kind : {OpKind::kAllreduce, OpKind::kBroadcast}) {
      if (!status.ok()) break;
      OperationPtr operation;
      status = Begin(engine, memory, i, kind, &operation);
      if (!status.ok()) break;  // the epoch has ended between two operations
      ASSERT_TRUE(engine.Wait(operation, 60'000));
      status = operation->status();
      EXPECT_TRUE(!status.ok() || HasResult(engine, *memory, kind));
    }
  }
  for (auto* values : {&memory->in, &memory->out}) std::fill(values->begin(), values->end(), kPoison);
  EXPECT_EQ(status.code(), Code::kPeerLost) << status.message();
  const bool named = status.message().find("rank 0 ") != std::string::npos ||
                     status.message().find("rank " + std::to_string(engine.size() - 1) + " ") != std::string::npos;
  EXPECT_TRUE(named) << status.message();
  ++*failed;
  AwaitThat([&] { return *failed == engine.size(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  for (const auto* values : {&memory->in, &memory->out})
    EXPECT_EQ(*values, std::vector<float>(kCount, kPoison)) << "written after it was given back";
}

int SizeOf(const std::vector<int>& nodes) {
  int size = 0;
  for (int members : nodes) size += members;
  return size;
}

class GivenBackTest : public testing::TestWithParam<std::vector<int>> {
 protected:
  void Lose(std::vector<std::unique_ptr<World>> worlds) {
    std::atomic<int> failed{0};
    RunWorlds(std::move(worlds),
              [&](Engine& engine) { UseUntilLost(engine, &memory_[static_cast<size_t>(engine.rank())], &failed); });
  }
  void GoOn(std::vector<std::unique_ptr<World>> worlds) {
    RunWorlds(std::move(worlds),
              [&](Engine& engine) { ExpectGood(engine, &memory_[static_cast<size_t>(engine.rank())], 0); });
  }
  ~GivenBackTest() override { EXPECT_TRUE(SetFailpoints("").ok()); }

  const int last_ = SizeOf(GetParam()) - 1;
  std::vector<Memory> memory_ = std::vector<Memory>(static_cast<size_t>(last_ + 1));
};

// The loopback writes to posted memory until it is quiet.
TEST_P(GivenBackTest, NothingIsWrittenAfterALossInAnyMoveOfTheLoopback) {
  uint32_t seed = 1;
  for (int moves = 0; moves < 120; moves += 1 + moves / 3, ++seed) {
    SCOPED_TRACE("after " + std::to_string(moves) + " moves");
    std::vector<std::unique_ptr<World>> worlds = ThreadWorlds(GetParam());
    const auto net = ConnectByLoopback(worlds, seed);
    net->LoseAfter(moves, 0, last_);
    std::atomic<bool> over{false};
    std::thread card([&] {
      while (!over) {
        net->Disturb();
        std::this_thread::yield();
      }
    });
    Lose(std::move(worlds));
    over = true;
    card.join();
    if (testing::Test::HasFailure()) return;
    worlds = ThreadWorlds(GetParam());
    ConnectByLoopback(worlds, seed);
    GoOn(std::move(worlds));
  }
}

TEST_P(GivenBackTest, NothingIsWrittenAfterALossAtAnyStepOverSockets) {
  for (const char* point : {"link.send", "link.recv", "run.reduce", "native.exchange", "native.write", "native.make",
                            "native.combine", "native.finish"}) {
    const bool only_in_nodes = std::string(point) != "native.finish" && std::string(point).rfind("native", 0) == 0 &&
                               std::string(point) != "native.exchange";
    if (only_in_nodes && SizeOf(GetParam()) == static_cast<int>(GetParam().size())) continue;
    for (int visit : {1, 2, 7}) {
      SCOPED_TRACE(std::string(point) + ", visit " + std::to_string(visit));
      Sockets sockets;
      std::vector<std::unique_ptr<World>> worlds = ThreadWorlds(GetParam(), &sockets);
      ASSERT_TRUE(SetFailpoints(std::string(point) + "=hold@" + std::to_string(visit)).ok());
      std::thread cut([&, between = std::move(sockets.ordered.at({0, last_}))] {
        AwaitThat([] { return HeldAtFailpoints() > 0; });
        shutdown(between.get(), SHUT_RDWR);
        EXPECT_TRUE(SetFailpoints("").ok());
      });
      sockets = {};
      Lose(std::move(worlds));
      cut.join();
      if (testing::Test::HasFailure()) return;
    }
  }
  GoOn(ThreadWorlds(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Nodes, GivenBackTest,
                         testing::Values(std::vector<int>{1, 1}, std::vector<int>{1, 1, 1}, std::vector<int>{2, 1}),
                         [](const auto& info) {
                           std::string name = "nodes";
                           for (int size : info.param) name += "_" + std::to_string(size);
                           return name;
                         });

// ---- processes

// Rank 1 dies. The others end their epoch, and begin a new one between the two of them.
int Survive(const WorldSpec& first, const WorldSpec& second) {
  Settings settings;
  settings.shares_memory = false;
  Memory memory;
  {
    std::unique_ptr<Engine> engine;
    Status status = Engine::Start(first, settings, &engine);
    if (status.ok() && engine->rank() == 1) status = SetFailpoints("link.recv=kill@9");
    for (int i = 0; status.ok() && i < 100; ++i) {
      OperationPtr operation;
      status = Begin(*engine, &memory, i, OpKind::kAllreduce, &operation);
      if (!status.ok()) break;  // the epoch has ended between two operations
      if (!engine->Wait(operation, 60'000)) return 1;
      status = operation->status();
    }
    if (status.code() != Code::kPeerLost || status.message().find("rank 1 ") == std::string::npos) return 2;
  }
  std::unique_ptr<Engine> engine;
  if (!Engine::Start(second, settings, &engine).ok()) return 3;
  ExpectGood(*engine, &memory, 0);
  return testing::Test::HasFailure() ? 4 : 0;
}

TEST(GivenBackProcessTest, SurvivorsBeginANewEpochInTheSameProcess) {
  const std::vector<WorldSpec> first = SpecsOf(3, FreshEndpoint()), second = SpecsOf(2, FreshEndpoint());
  const std::vector<int> statuses =
      ForkRanks(3, [&](int rank) { return Survive(first[static_cast<size_t>(rank)], second[rank == 0 ? 0 : 1]); });
  EXPECT_TRUE(WIFSIGNALED(statuses[1]) && WTERMSIG(statuses[1]) == SIGKILL);
  for (size_t survivor : {0, 2})
    EXPECT_TRUE(WIFEXITED(statuses[survivor]) && WEXITSTATUS(statuses[survivor]) == 0) << statuses[survivor];
}

}  // namespace
}  // namespace farandole
