// Process sets in one segment: channels that several sets use, at the same time or one after the other, and ranks that
// are not equally far in their tasks.
#include <gtest/gtest.h>

#include "backends/performed.h"

namespace farandole::tests {
namespace {

std::string PerformCase(Rank& rank, const Case& c, const ProcessSet& set) {
  const Performed performed(c, set);
  const std::string error = rank.Perform(performed.task());
  return error.empty() ? performed.Check() : error;
}

Case AllreduceCase(uint32_t seed, int positions, size_t element_count) {
  Case c;
  c.seed = seed;
  c.counts = {element_count};
  c.joined.assign(static_cast<size_t>(positions), false);
  c.parts.assign(static_cast<size_t>(positions), 0);
  c.matrix.assign(static_cast<size_t>(positions), c.parts);
  return c;
}

// Rank 0 is slow, so it may still read what the others wrote for the old set when they are ready for the new one.
// Several rounds, so that all slots are written again.
TEST(Channels, AreUsedOnOnlyWhenNobodyReadsThereAnyMore) {
  EXPECT_EQ(RunBackends({4},
                        [](Rank& rank) -> std::string {
                          if (rank.rank() == 0) rank.BeSlow(std::chrono::milliseconds(30));
                          const Layout& layout = rank.world().layout;
                          std::vector<std::unique_ptr<Performed>>
                              tasks;  // made and checked separately, so that one follows the other at once
                          for (int id = 1; id <= 12; ++id) {
                            const std::vector<int> ranks =
                                id % 2 == 1 ? std::vector<int>{0, 1, 2} : std::vector<int>{1, 2, 3};
                            const ProcessSet set = MakeProcessSet(layout, rank.rank(), id, ranks, 1);
                            const Case c = AllreduceCase(static_cast<uint32_t>(id), 3, 500000);
                            if (set.contains_me()) tasks.push_back(std::make_unique<Performed>(c, set));
                          }
                          for (const auto& performed : tasks) {
                            const std::string error = rank.Perform(performed->task());
                            if (!error.empty()) return error;
                            rank.Forget(performed->task().set->id);
                          }
                          std::string error;
                          for (const auto& performed : tasks) error += performed->Check();
                          return error;
                        }),
            "");
}

TEST(Channels, AreSharedBySetsWithoutACommonRank) {
  EXPECT_EQ(RunBackends({5},
                        [](Rank& rank) -> std::string {
                          const std::vector<int> ranks =
                              rank.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3, 4};
                          const ProcessSet set =
                              MakeProcessSet(rank.world().layout, rank.rank(), rank.rank() < 2 ? 1 : 2, ranks, 1);
                          std::string error;
                          for (uint32_t i = 0; i < 60 && error.empty(); ++i) {
                            error = PerformCase(rank, AllreduceCase(i, set.size(), 1 + i * 137), set);
                          }
                          return error;
                        }),
            "");
}

// Rank 1 is in both sets. Ranks 0 and 2 run ahead as far as it lets them.
TEST(Channels, SetsThatOverlapDoNotDisturbEachOther) {
  for (const std::vector<int>& nodes : {std::vector<int>{3}, {2, 1}, {1, 1, 1}}) {
    EXPECT_EQ(RunBackends(nodes,
                          [](Rank& rank) -> std::string {
                            const Layout& layout = rank.world().layout;
                            const ProcessSet low = MakeProcessSet(layout, rank.rank(), 1, {0, 1}, 1);
                            const ProcessSet high = MakeProcessSet(layout, rank.rank(), 2, {1, 2}, 2);
                            if (rank.rank() == 1) rank.BeSlow(std::chrono::milliseconds(1));
                            std::string error;
                            for (uint32_t i = 0; i < 60 && error.empty(); ++i) {
                              const ProcessSet& set = i % 3 == 0 ? low : high;
                              if (set.contains_me()) error = PerformCase(rank, AllreduceCase(i, 2, 1 + i * 501), set);
                            }
                            return error;
                          }),
              "");
  }
}

}  // namespace
}  // namespace farandole::tests
