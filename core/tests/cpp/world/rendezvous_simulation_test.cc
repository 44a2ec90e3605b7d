// Thousands of starts with random failures. The survivors agree, name the right rank, and wait no longer than their
// deadline. FARANDOLE_SEEDS is the number of starts; FARANDOLE_SEED repeats one.
#include "world/rendezvous_simulation.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "support/seeds.h"

namespace farandole {
namespace {

std::string Simulate(uint64_t seed, Planted planted = Planted::kNothing) {
  RendezvousSimulation simulation(seed, planted);
  simulation.Run();
  const std::string wrong = simulation.FindMistake();
  return wrong.empty() ? "" : wrong + simulation.Story();
}

TEST(RendezvousSimulationTest, SurvivorsAgreeOrNameTheRightRankInTime) {
  const Seeds seeds = SeedsFromEnvironment(1000);
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    ASSERT_EQ(Simulate(seed), "") << "FARANDOLE_SEED=" << seed;
  }
}

// Hosts of eight ranks each. FARANDOLE_LONG=1 adds 2,048 ranks.
TEST(RendezvousSimulationTest, LargeWorldsStartAndAgree) {
  constexpr int kRanksEach = 8;
  std::vector<int> sizes{64, 512};
  if (std::getenv("FARANDOLE_LONG") != nullptr) sizes.push_back(2048);
  for (int size : sizes) {
    RendezvousSimulation simulation(size / kRanksEach, kRanksEach);
    simulation.Run();
    ASSERT_EQ(simulation.FindMistake(), "");
    const RendezvousSimulation::Traffic& first = simulation.traffic(0);
    const RendezvousSimulation::Traffic& last = simulation.traffic(size - 1);
    EXPECT_EQ(simulation.link_count(size - 1), static_cast<size_t>(size - kRanksEach));
    EXPECT_LE(last.sent_messages + last.received_messages, 8u) << "of a rank, whatever the size of the world";
    EXPECT_EQ(first.sent_messages, last.received_messages * static_cast<size_t>(size - 1));
    std::printf("%d ranks: rank 0 sends %zu messages, %zu bytes; a rank receives %zu messages, %zu bytes\n", size,
                first.sent_messages, first.sent_bytes, last.received_messages, last.received_bytes);
  }
}

class PlantedTest : public testing::TestWithParam<Planted> {};

TEST_P(PlantedTest, IsFoundWithinAThousandSeedsAndReplaysFromItsSeed) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const std::string found = Simulate(seed, GetParam());
    if (found.empty()) continue;
    EXPECT_EQ(Simulate(seed, GetParam()), found);
    EXPECT_EQ(Simulate(seed), "") << "not because of what was planted";
    return;
  }
  FAIL() << "a decision is wrong and nobody noticed";
}

INSTANTIATE_TEST_SUITE_P(All, PlantedTest,
                         testing::Values(Planted::kSkippedValidation, Planted::kSwappedOrder, Planted::kDroppedRank,
                                         Planted::kSilentEnd),
                         [](const auto& info) {
                           switch (info.param) {
                             case Planted::kSkippedValidation:
                               return "ARefusedDoubleThatIsHeardAllTheSame";
                             case Planted::kSwappedOrder:
                               return "AGoBeforeTheLinks";
                             case Planted::kSilentEnd:
                               return "ARankThatEndsWithoutAWordToItsNode";
                             default:
                               return "ARankThatIsNotToldWhoIsApart";
                           }
                         });

}  // namespace
}  // namespace farandole
