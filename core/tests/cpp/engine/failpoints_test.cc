// At each step of the data plane, a delay does not change the results, and when a rank dies, the others say which. They
// also do when rank 0 dies while it sends its last message of the start.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>

#include "common/failpoint.h"
#include "support/forked_ranks.h"
#include "support/requests.h"
#include "support/specs.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

// One operation of each kind, of several rounds and, between nodes, several chunks; and a small one.
Status PerformEach(Engine& engine) {
  const auto n = static_cast<size_t>(engine.size());
  constexpr size_t kCount = 60'000 * 12;  // a multiple of the ranks
  auto small = Values<float>(engine.rank(), 5), large = Values<float>(engine.rank(), kCount), cast = large;
  std::vector<float> part(kCount / n);
  FRD_RETURN_IF_ERROR(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(small, &small)}, "small")));
  ExpectSum(small, engine.size());
  OperationPtr scattered;
  FRD_RETURN_IF_ERROR(
      SubmitAndWait(engine, Make(OpKind::kReducescatter, {TensorOf<float>(large, nullptr)}, "scatter"), &scattered));
  std::memcpy(part.data(), scattered->outputs.at(0).memory.get(), part.size() * sizeof(float));
  FRD_RETURN_IF_ERROR(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(large, &large)}, "large")));
  ExpectSum(large, engine.size());
  const size_t begin = static_cast<size_t>(engine.rank()) * part.size();
  EXPECT_EQ(part, std::vector<float>(large.begin() + static_cast<std::ptrdiff_t>(begin),
                                     large.begin() + static_cast<std::ptrdiff_t>(begin + part.size())));
  for (OpKind kind : {OpKind::kAllgather, OpKind::kAlltoall}) {
    OperationPtr gathered;
    FRD_RETURN_IF_ERROR(SubmitAndWait(engine, Make(kind, {TensorOf<float>(part, nullptr)}, NameOf(kind)), &gathered));
  }
  FRD_RETURN_IF_ERROR(SubmitAndWait(engine, Make(OpKind::kBroadcast, {TensorOf(cast, &cast)}, "cast")));
  EXPECT_EQ(cast, Values<float>(0, kCount));
  return Status::Ok();
}

struct Place {
  std::vector<int> nodes;  // their sizes
  const char* failpoint;
};

constexpr const char* kInNode[] = {"counters.arrive", "native.write", "native.make", "native.combine", "native.finish"};
constexpr const char* kSmall[] = {"slots.write", "slots.reduce"};  // where all ranks are one node
constexpr const char* kBetween[] = {"native.exchange", "run.reduce", "link.send", "link.recv"};
constexpr const char* kEarly[] = {"early.send", "early.recv"};
constexpr const char* kEarlyInNode[] = {"slots.write", "early.partial", "early.result"};

std::vector<Place> Places() {
  std::vector<Place> places;
  for (const char* point : kSmall) places.push_back({{2}, point});
  for (const char* point : kInNode) places.insert(places.end(), {{{2}, point}, {{3}, point}, {{2, 1}, point}});
  for (const char* point : kBetween) places.insert(places.end(), {{{1, 1}, point}, {{2, 1}, point}});
  for (const char* point : kEarly) places.insert(places.end(), {{{1, 1}, point}, {{1, 1, 1}, point}});
  // In the first of these worlds rank 1, the one that dies, leads its node, in the second it does not.
  for (const char* point : kEarly) places.push_back({{1, 2}, point});
  for (const char* point : kEarlyInNode) places.push_back({{1, 2}, point});
  places.push_back({{2, 1}, "slots.write"});
  for (const char* point : {"counters.arrive", "native.finish"}) places.push_back({{1, 1}, point});
  return places;
}

std::string NameOfPlace(const testing::TestParamInfo<Place>& info) {
  std::string name = info.param.failpoint;
  for (int size : info.param.nodes) name += "_" + std::to_string(size);
  name[name.find('.')] = '_';
  return name;
}

class DelayedAtStepTest : public testing::TestWithParam<Place> {
 protected:
  ~DelayedAtStepTest() override { EXPECT_TRUE(SetFailpoints("").ok()); }
};

TEST_P(DelayedAtStepTest, ChangesNoResult) {
  ASSERT_TRUE(SetFailpoints(std::string(GetParam().failpoint) + "=delay:1%30").ok());
  RunRanks(GetParam().nodes, [](Engine& engine) {
    for (int i = 0; i < 2; ++i) {
      const Status status = PerformEach(engine);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, DelayedAtStepTest, testing::ValuesIn(Places()), NameOfPlace);

class KilledAtStepTest : public testing::TestWithParam<Place> {};

constexpr int kVictim = 1;

// Returns 0 when the error was the right one.
int CheckStatus(const Status& status, int victim) {
  const bool named = status.message().find("rank " + std::to_string(victim) + " ") != std::string::npos;
  if (status.code() == Code::kPeerLost && named) return 0;
  std::fprintf(stderr, "was told: %s\n", status.message().c_str());
  return 1;
}

int BeRank(WorldSpec spec, bool shares_memory, const std::string& failpoint) {
  Settings settings;
  settings.shares_memory = shares_memory;
  std::unique_ptr<Engine> engine;
  Status status = Engine::Start(std::move(spec), settings, &engine);
  if (status.ok() && engine->rank() == kVictim) status = SetFailpoints(failpoint);
  for (int i = 0; i < 20 && status.ok(); ++i) status = PerformEach(*engine);
  return CheckStatus(status, kVictim);
}

void KillAtVisit(const Place& place, int visit) {
  int size = 0;
  for (int members : place.nodes) size += members;
  const std::vector<WorldSpec> specs = SpecsOf(size, FreshEndpoint());
  const std::string failpoint = std::string(place.failpoint) + "=kill@" + std::to_string(visit);
  // The members of the largest node share memory; the others are alone.
  const auto largest = std::max_element(place.nodes.begin(), place.nodes.end());
  const int first = std::accumulate(place.nodes.begin(), largest, 0);
  const std::vector<int> statuses = ForkRanks(size, [&](int rank) {
    const bool together = *largest > 1 && rank >= first && rank < first + *largest;
    return BeRank(specs[static_cast<size_t>(rank)], together, failpoint);
  });
  for (int r = 0; r < size; ++r) {
    const int status = statuses[static_cast<size_t>(r)];
    if (r == kVictim) {
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "it never came to " << failpoint;
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << r << ": " << status;
    }
  }
}

TEST_P(KilledAtStepTest, IsToldToTheOthersWithTheRank) {
  KillAtVisit(GetParam(), 1);
  KillAtVisit(GetParam(), 4);
}

INSTANTIATE_TEST_SUITE_P(All, KilledAtStepTest, testing::ValuesIn(Places()), NameOfPlace);

// A rank that dies while it writes the abort word leaves it incomplete.
TEST(HalfAnAbortTest, IsNoReasonToWait) {
  RunRanks({2}, [](Engine& engine) {
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kBarrier, {}, "start")).ok());
    engine.world()->node->abort_word().state = 1;
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kBarrier, {}, "written")).ok());
    auto values = Values<float>(engine.rank(), 5);
    const std::string name = "of rank " + std::to_string(engine.rank());
    if (engine.rank() == 1) {
      OperationPtr pending;
      ASSERT_TRUE(SubmitTo(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, name), &pending).ok());
      engine.Shutdown();
    } else {
      const Status status = SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, name));
      EXPECT_EQ(CheckStatus(status, 1), 0);
    }
  });
}

// ---- the start

constexpr std::chrono::milliseconds kUntilRank2HasEnded{300};

// Rank 0 says "go" to rank 1, and dies before it says so to rank 2, whose start fails, so that it ends. Rank 1 is slow:
// it sees the message and the death at once, and when it looks again both have ended.
int BeRankOfHalfAStart(WorldSpec spec, const Settings& settings, const std::string& failpoint) {
  const int rank = spec.rank;
  if (rank == 0 && !SetFailpoints(failpoint).ok()) return 2;
  if (rank == 1 && !SetFailpoints("bootstrap.wait=delay:40").ok()) return 2;
  spec.plan = Engine::PlanFor(spec.size);
  spec.shares_memory = settings.shares_memory;
  std::unique_ptr<World> world;
  Status status = Bootstrap(spec, After(std::chrono::seconds(20)), &world);
  if (!status.ok()) return CheckStatus(status, 0);  // rank 2
  std::this_thread::sleep_for(kUntilRank2HasEnded);
  std::unique_ptr<Engine> engine;
  status = Engine::Start(std::move(world), settings, &engine);
  return CheckStatus(status.ok() ? PerformEach(*engine) : status, 0);
}

// For each rank, whether it shares memory with the others that do.
struct HalfAStart {
  const char* name;
  std::vector<bool> shares_memory;
};

// Rank 0 sends the peers to two ranks, and then "go".
constexpr const char* kKilledBeforeTheLastGo = "bootstrap.send=kill@4";

class HalfAStartTest : public testing::TestWithParam<HalfAStart> {};

TEST_P(HalfAStartTest, RankZeroIsNamedNotWhoEndedBecauseOfIt) {
  const std::vector<WorldSpec> specs = SpecsOf(3, FreshEndpoint());
  const std::vector<int> statuses = ForkRanks(3, [&](int rank) {
    Settings settings;
    settings.shares_memory = GetParam().shares_memory[static_cast<size_t>(rank)];
    return BeRankOfHalfAStart(specs[static_cast<size_t>(rank)], settings, kKilledBeforeTheLastGo);
  });
  EXPECT_TRUE(WIFSIGNALED(statuses[0]) && WTERMSIG(statuses[0]) == SIGKILL);
  for (size_t r : {1, 2}) EXPECT_EQ(statuses[r], 0) << "rank " << r;
}

INSTANTIATE_TEST_SUITE_P(All, HalfAStartTest,
                         testing::Values(HalfAStart{"OneNode", {true, true, true}},
                                         HalfAStart{"ZeroAlone", {false, true, true}},
                                         HalfAStart{"TwoAlone", {true, true, false}},
                                         HalfAStart{"AllAlone", {false, false, false}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace farandole
