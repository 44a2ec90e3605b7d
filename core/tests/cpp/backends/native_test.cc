// The native backend, ranks as threads: random sequences of all collectives over one node, ranks without shared memory
// and unequal nodes, in overlapping sets, compared with the definitions. FARANDOLE_LONG=1 takes a hundred times as
// many.
#include <gtest/gtest.h>

#include <cstdlib>

#include "backends/performed.h"

namespace farandole::tests {
namespace {

using NodeSizes = std::vector<int>;

std::string NameOfNodes(const ::testing::TestParamInfo<NodeSizes>& info) {
  std::string name = "nodes";
  for (int size : info.param) name += "_" + std::to_string(size);
  return name;
}

// The world, and sets that overlap, each on a channel of its own.
std::vector<ProcessSet> SetsOf(const World& world) {
  std::vector<ProcessSet> sets{WholeWorld(world.layout, world.rank)};
  std::vector<int> even, tail;
  for (int r = 0; r < world.size; ++r) {
    if (r % 2 == 0) even.push_back(r);
    if (r > 0) tail.push_back(r);
  }
  sets.push_back(MakeProcessSet(world.layout, world.rank, 1, even, 1));
  sets.push_back(MakeProcessSet(world.layout, world.rank, 2, tail, 2));
  sets.push_back(MakeProcessSet(world.layout, world.rank, 3, {world.size - 1}, 3));
  return sets;
}

// Goes on after wrong values, so that the other ranks do not wait for ever.
std::string PerformSequence(Rank& rank, uint32_t seed, int length, size_t max_elements, bool any_order = false) {
  CaseMaker maker(seed, max_elements);
  const std::vector<ProcessSet> sets = SetsOf(rank.world());
  std::string first_error;
  for (int i = 0; i < length; ++i) {
    const ProcessSet& set = sets[maker.Below(2) == 0 ? 0 : maker.Below(sets.size())];
    const Case c = maker.Make(set.size());
    if (!set.contains_me() || (any_order && OrderMatters(c))) continue;
    const Performed performed(c, set);
    const std::string error = rank.Perform(performed.task());
    const std::string wrong = error.empty() ? performed.Check() : error;
    if (!wrong.empty() && first_error.empty()) {
      first_error = "seed " + std::to_string(seed) + ", work " + std::to_string(i) + ", " + performed.Description() +
                    ": " + wrong;
    }
    if (!error.empty()) break;
  }
  return first_error;
}

class Native : public ::testing::TestWithParam<NodeSizes> {};

TEST_P(Native, AnySequenceOfCollectivesGivesWhatTheDefinitionsSay) {
  const uint32_t seeds = std::getenv("FARANDOLE_LONG") ? 300 : 3;
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    EXPECT_EQ(RunBackends(GetParam(), [&](Rank& rank) { return PerformSequence(rank, seed, 50, 60000); }), "");
  }
}

TEST_P(Native, GivesTheSameOverATransportThatReordersChannels) {
  if (GetParam().size() == 1) return;  // no transport
  const uint32_t seeds = std::getenv("FARANDOLE_LONG") ? 1000 : 20;
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    const auto perform = [&](Rank& rank) { return PerformSequence(rank, seed, 10, 60000); };
    ASSERT_EQ(RunBackends(GetParam(), perform, Settings(), seed), "") << "seed " << seed;
  }
}

TEST_P(Native, ManyRoundsFollowEachOther) {
  EXPECT_EQ(RunBackends(GetParam(), [&](Rank& rank) { return PerformSequence(rank, 77, 12, 1500000); }), "");
}

// The ring is left out, since it reduces in another order.
TEST_P(Native, ForcedAlgorithmsGiveTheSameBits) {
  for (const char* algorithm : {"direct", "tree", "exchange"}) {
    Settings settings;
    settings.algorithm = algorithm;
    EXPECT_EQ(RunBackends(
                  GetParam(), [&](Rank& rank) { return PerformSequence(rank, 5, 25, 20000); }, settings),
              "")
        << algorithm;
  }
}

TEST_P(Native, TheRingGivesWhatDoesNotDependOnTheOrder) {
  Settings settings;
  settings.algorithm = "ring";
  EXPECT_EQ(
      RunBackends(GetParam(), [&](Rank& rank) { return PerformSequence(rank, 6, 25, 20000, true); }, settings), "");
}

INSTANTIATE_TEST_SUITE_P(Nodes, Native,
                         ::testing::Values(NodeSizes{1, 1}, NodeSizes{2}, NodeSizes{3}, NodeSizes{1, 1, 1},
                                           NodeSizes{2, 1}, NodeSizes{1, 2}, NodeSizes{2, 2}, NodeSizes{3, 1, 2},
                                           NodeSizes{2, 2, 2}, NodeSizes{1, 1, 1, 1, 1}, NodeSizes{5}),
                         NameOfNodes);

}  // namespace
}  // namespace farandole::tests
