// Simulated jobs in which a rank dies or leaves, and bugs that are planted to see that the simulation finds them.
#include "controller/simulation.h"

namespace farandole {
namespace {

class DeathTest : public Simulated {};
class LeaveTest : public Simulated {};
class PlantedControllerBugTest : public Simulated {};

// Every wait for the dead rank is explained: by the rank itself, another member of the dead rank's node, rank 0, or
// the first task. Only a rank that was the last to count its arrival, and dies before it can append to the log, is
// missed by nobody; the end of its process shows that.
TEST_P(DeathTest, TheOthersStopAndKnowForWhom) {
  ForSeeds(20, [](SimulatedJob& job, uint64_t seed) {
    std::mt19937_64 random(seed);
    const int dead = static_cast<int>(random() % static_cast<uint64_t>(job.size()));
    Scripts scripts(job.size());
    for (int i = 0; i < 40; ++i) {
      const std::string name = std::to_string(i % 4);
      i % 3 == 0 ? scripts.All(Large("l" + name)) : scripts.All(Small("s" + name));
    }
    job.Kill(dead, 1 + static_cast<int>(random() % 800));
    EXPECT_TRUE(job.RunToStandstill(scripts)) << "nothing else may go wrong";
    if (job.HasToAppend(dead)) return;
    std::set<int> named;
    for (int rank = 0; rank < job.size(); ++rank) {
      if (rank == dead) continue;
      const std::set<int> missing = job.MissingFor(rank);
      const bool in_node = missing.empty() || missing == std::set<int>{dead};
      EXPECT_TRUE(in_node) << "rank " << rank << " blames others than the dead";
      named.insert(missing.begin(), missing.end());
      if (job.NotInFront(rank).count(dead) > 0) named.insert(dead);
    }
    if (dead != 0) named.merge(job.MissingForCoordinator());
    for (int rank = 0; rank < job.size() && dead != 0; ++rank) {
      if (rank == dead || !job.Waits(rank)) continue;
      EXPECT_EQ(named.count(dead), 1u) << "rank " << rank << " waits for nobody";
    }
  });
}

// A rank outside of the set is not waited for, even if it is dead; a dead member is named, and no other rank.
TEST_P(DeathTest, MembersThatAddASetWaitForMembersAlone) {
  ForSeeds(20, [](SimulatedJob& job, uint64_t seed) {
    std::mt19937_64 random(seed);
    const int dead = 1 + static_cast<int>(random() % static_cast<uint64_t>(job.size() - 1));
    const Ranks members = SomeOf(job.size(), &random);
    const bool has_dead = std::find(members.begin(), members.end(), dead) != members.end();
    Scripts scripts(job.size());
    scripts.ChangeLabelled(OpKind::kAddProcessSet, kFirstLabel, members, true, members);
    job.Kill(dead, 1);
    EXPECT_TRUE(job.RunToStandstill(scripts));
    const bool some_wait = has_dead && members.size() > 1;
    EXPECT_EQ(job.MissingForCoordinator(), some_wait ? std::set<int>{dead} : std::set<int>());
    if (has_dead || job.layout().node_count() > 1) return;  // a dead leader writes nothing for its node
    EXPECT_EQ(job.done(members[0]), 1);
  });
}

// Kills a rank after ever more steps, with each `every`-th seed. Where rank 0 waits then, it or the coordinator names
// the dead rank and no other. Returns how often it waits.
int WaitsOfRank0(const std::vector<int>& nodes, int dead, uint64_t last_seed, uint64_t every, int steps) {
  int waited = 0;
  for (uint64_t seed = every; seed <= last_seed; seed += every) {
    SCOPED_TRACE(seed);
    SimulatedJob job(nodes, seed);
    Scripts scripts(job.size());
    for (int i = 0; i < 40; ++i) scripts.All(Small("s"));
    job.Kill(dead, static_cast<int>(seed) * steps);
    EXPECT_TRUE(job.RunToStandstill(scripts));
    if (!job.Waits(0)) continue;
    std::set<int> named = job.MissingFor(0);
    named.merge(job.MissingForCoordinator());
    EXPECT_EQ(named, std::set<int>{dead});
    ++waited;
  }
  return waited;
}

// It has written its data, and not reduced its share. (With an even seed, all small operations take two phases.)
TEST(DeathBetweenTwoPhases, IsSeenByTheOtherRank) { EXPECT_GT(WaitsOfRank0({2}, 1, 200, 2, 4), 50); }

// No member of its node is left to say that it is missing.
TEST(DeathInANodeOfOne, IsSeenByTheLeaderThatWaitsForItsData) { EXPECT_GT(WaitsOfRank0({2, 1}, 2, 50, 1, 16), 25); }

TEST_P(LeaveTest, WhatTheRankTookPartInIsDoneBeforeItHasLeft) {
  ForSeeds(20, [](SimulatedJob& job, uint64_t seed) {
    const int leaver = 1 + static_cast<int>(seed % static_cast<uint64_t>(job.size() - 1));
    Scripts scripts(job.size());
    for (int i = 0; i < 10; ++i) {
      scripts.All(Small("a"));
      scripts.All(Large("b"));
      scripts.All(Allgather("c", i));
    }
    scripts.Leave(leaver);
    Ranks others;
    for (int rank : scripts.Everyone()) {
      if (rank != leaver) others.push_back(rank);
    }
    scripts.On(others, Small("a"));  // in vain
    scripts.On(others, Large("new"));
    EXPECT_TRUE(job.RunToStandstill(scripts));
    for (int rank : others) {
      EXPECT_EQ(job.done(rank), 30);
      EXPECT_EQ(job.failed(rank), 0);
      const bool leads = job.layout().member_of[static_cast<size_t>(leaver)] == 0;
      const bool same =
          job.layout().node_of[static_cast<size_t>(leaver)] == job.layout().node_of[static_cast<size_t>(rank)];
      EXPECT_EQ(job.lefts_seen(rank), 1) << leads << same;
    }
  });
}

// How many of some jobs complain.
int CountErrors(const std::vector<int>& nodes, Planted planted, bool disagree) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimulatedJob job(nodes, seed, planted);
    Scripts scripts(job.size());
    for (int i = 0; i < 20; ++i) {
      const std::string name = std::to_string(i % 4);
      scripts.All(i % 2 ? Small("s" + name) : Large("l" + name));
      scripts.All(Broadcast("b" + name, 0));
    }
    scripts.On(scripts.Everyone(), [&](int rank) { return Sum("odd", disagree && rank == job.size() - 1 ? 9 : 8); });
    job.Run(scripts);
    found += !job.error().empty();
  }
  return found;
}

TEST_P(PlantedControllerBugTest, BugsAreFound) {
  EXPECT_EQ(CountErrors(GetParam(), Planted::kNone, true), 0);
  EXPECT_GT(CountErrors(GetParam(), Planted::kSwappedOrder, false), 10);
  EXPECT_EQ(CountErrors(GetParam(), Planted::kNoValidation, true), 20);
  if (GetParam().size() == 1) {  // small operations are there
    EXPECT_GT(CountErrors(GetParam(), Planted::kEarlyReady, false), 10);
  }
  if (GetParam().size() > 1) {  // early ones are
    EXPECT_GT(CountErrors(GetParam(), Planted::kHeadIsEnough, false), 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, DeathTest, kSeveralRanks);
INSTANTIATE_TEST_SUITE_P(Nodes, LeaveTest, kSeveralRanks);
INSTANTIATE_TEST_SUITE_P(Nodes, PlantedControllerBugTest, kSeveralRanks);

}  // namespace
}  // namespace farandole
