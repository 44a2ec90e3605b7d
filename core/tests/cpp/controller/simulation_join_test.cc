// Simulated jobs whose ranks run out of data one by one: a rank that has joined takes part without data until all have,
// and then all go on.
#include <algorithm>
#include <iterator>

#include "controller/simulation.h"

namespace farandole {
namespace {

class JoinTest : public Simulated {};
class SeveralRanksJoinTest : public Simulated {};

// When each rank joins, in steps of the round.
std::vector<int> Lengths(int size, int steps, std::mt19937_64* random) {
  std::vector<int> lengths;
  for (int rank = 0; rank < size; ++rank)
    lengths.push_back(static_cast<int>((*random)() % static_cast<uint64_t>(steps + 1)));
  return lengths;
}

Ranks StillIn(const Ranks& ranks, const std::vector<int>& lengths, int step) {
  Ranks still;
  for (int rank : ranks) {
    if (lengths[static_cast<size_t>(rank)] > step) still.push_back(rank);
  }
  return still;
}

void JoinWhoEnds(Scripts* scripts, const std::vector<int>& lengths, int step) {
  for (int rank : scripts->Everyone()) {
    if (lengths[static_cast<size_t>(rank)] == step) scripts->Join(rank);
  }
}

// Makes four rounds, each until all have joined, and calls visit(step, the ranks that have not) at every step.
template <typename Visit>
void InRounds(Scripts* scripts, int steps, std::mt19937_64* random, Visit visit) {
  const Ranks all = scripts->Everyone();
  for (int round = 0; round < 4; ++round) {
    const std::vector<int> lengths = Lengths(static_cast<int>(all.size()), steps, random);
    for (int step = 0; step <= steps; ++step) {
      JoinWhoEnds(scripts, lengths, step);
      visit(step, StillIn(all, lengths, step));
    }
  }
}

TEST_P(JoinTest, OperationsOfTheOthersGoOnAndAllBeginAnew) {
  ForSeeds(60, [](SimulatedJob& job, uint64_t seed) {
    job.set_time(Time::kAtStandstill);  // more unnamed operations in flight than names
    std::mt19937_64 random(seed);
    Scripts scripts(job.size());
    const Ranks all = scripts.Everyone();
    InRounds(&scripts, 12, &random, [&](int, const Ranks& still) {
      if (!still.empty()) AnyCall(&scripts, still, all, 0, &random);
      if (random() % 5 == 0) scripts.Wait();
    });
    EXPECT_TRUE(job.Run(scripts));
  });
}

TEST_P(JoinTest, NamedOperationsNeedNoTimeToPass) {
  ForSeeds(60, [](SimulatedJob& job, uint64_t seed) {
    std::mt19937_64 random(seed);
    Scripts scripts(job.size());
    const Ranks all = scripts.Everyone();
    InRounds(&scripts, 12, &random, [&](int step, const Ranks& still) {
      if (still.empty()) return;
      const std::string name = "x" + std::to_string(random() % 2);
      switch (random() % 5) {
        case 0:
          scripts.On(still, Broadcast(name, all[random() % all.size()]));
          break;
        case 1:
          scripts.On(still, [&](int rank) { return Allgather(name, rank + step); });
          break;
        case 2:
          scripts.On(still, Large(name));
          break;
        default:
          scripts.On(still, Sum(name, kSmallElements + (random() % 4 == 0 ? 1 : 0)));
      }
    });
    EXPECT_TRUE(job.Run(scripts));
  });
}

TEST_P(JoinTest, SetsAreAddedUsedAndRemovedWhileSomeHaveJoined) {
  ForSeeds(40, [](SimulatedJob& job, uint64_t seed) {
    job.set_time(Time::kAtStandstill);
    std::mt19937_64 random(seed);
    Scripts scripts(job.size());
    std::map<int, Ranks> sets{{0, scripts.Everyone()}};
    int next = 1;
    InRounds(&scripts, 15, &random, [&](int, const Ranks& callers) {
      if (callers.empty()) return;
      if (random() % 4 == 0) {
        sets[next] = SomeOf(job.size(), &random);
        scripts.AddSet(sets[next++], false, callers);
        scripts.Wait();
      } else if (random() % 6 == 0 && sets.size() > 1) {
        const auto gone = std::next(sets.begin(), 1 + static_cast<std::ptrdiff_t>(random() % (sets.size() - 1)));
        scripts.Wait();
        scripts.RemoveSet(gone->first, false, callers);
        sets.erase(gone);
      }
      const auto& [set, ranks] = *std::next(sets.begin(), static_cast<std::ptrdiff_t>(random() % sets.size()));
      Ranks still;
      std::set_intersection(ranks.begin(), ranks.end(), callers.begin(), callers.end(), std::back_inserter(still));
      if (!still.empty()) AnyCall(&scripts, still, ranks, set, &random);
    });
    EXPECT_TRUE(job.Run(scripts));
  });
}

// Of the callers, only the members add and remove sets. A rank that has joined may be a member, or none.
TEST_P(JoinTest, MembersChangeSetsWhileSomeHaveJoined) {
  ForSeeds(40, [](SimulatedJob& job, uint64_t seed) {
    job.set_time(Time::kAtStandstill);
    std::mt19937_64 random(seed);
    Scripts scripts(job.size());
    std::map<int, Ranks> sets{{0, scripts.Everyone()}};
    int label = kFirstLabel;
    const auto those_in = [](const Ranks& ranks, const Ranks& callers) {
      Ranks in;
      std::set_intersection(ranks.begin(), ranks.end(), callers.begin(), callers.end(), std::back_inserter(in));
      return in;
    };
    InRounds(&scripts, 15, &random, [&](int, const Ranks& callers) {
      const Ranks added = SomeOf(job.size(), &random);
      if (random() % 3 == 0 && !those_in(added, callers).empty()) {
        sets[++label] = added;
        scripts.ChangeLabelled(OpKind::kAddProcessSet, label, added, true, those_in(added, callers));
      } else if (random() % 5 == 0 && sets.size() > 1) {
        const auto gone = std::next(sets.begin(), 1 + static_cast<std::ptrdiff_t>(random() % (sets.size() - 1)));
        if (those_in(gone->second, callers).empty()) return;
        scripts.ChangeLabelled(OpKind::kRemoveProcessSet, gone->first, {}, true, those_in(gone->second, callers));
        sets.erase(gone);
      }
      const auto& [set, ranks] = *std::next(sets.begin(), static_cast<std::ptrdiff_t>(random() % sets.size()));
      const Ranks still = those_in(ranks, callers);
      if (!still.empty()) AnyCall(&scripts, still, ranks, set, &random);
    });
    EXPECT_TRUE(job.Run(scripts));
  });
}

// A known operation needs no message of rank 0, so it may end before rank 0 has heard of ranks that joined.
TEST_P(SeveralRanksJoinTest, WhoHelpedAnotherToItsLastOperationIsNotTheLast) {
  ForSeeds(20, [](SimulatedJob& job, uint64_t) {
    Scripts scripts(job.size());
    for (int round = 0; round < job.size(); ++round) {
      scripts.All(round % 2 == 0 ? Small("a") : Large("b"));
      for (int rank : scripts.Everyone()) {
        if (rank != round) scripts.Join(rank);
      }
      scripts.On({round}, round % 2 == 0 ? Small("a") : Large("b"));
      scripts.Join(round);
    }
    EXPECT_TRUE(job.Run(scripts));
  });
}

TEST_P(SeveralRanksJoinTest, ABroadcastWhoseRootHasJoinedFailsForAll) {
  ForSeeds(20, [](SimulatedJob& job, uint64_t) {
    const int root = job.size() - 1;
    Scripts scripts(job.size());
    Ranks others = scripts.Everyone();
    others.pop_back();
    scripts.All(Broadcast("known", root));
    scripts.Join(root);
    scripts.On(others, Broadcast("known", root));
    scripts.On(others, Broadcast("unknown", root));
    scripts.On(others, Large("other"));
    for (int rank : others) scripts.Join(rank);
    scripts.All(Broadcast("known", root));
    EXPECT_TRUE(job.Run(scripts));
    for (int rank : others) EXPECT_EQ(job.failed(rank), 2);
    EXPECT_EQ(job.failed(root), 0);
  });
}

TEST_P(SeveralRanksJoinTest, DisagreementOfThoseThatAreLeft) {
  ForSeeds(10, [](SimulatedJob& job, uint64_t) {
    if (job.size() < 3) return;
    Scripts scripts(job.size());
    const int first = 1;
    Ranks others = scripts.Everyone();
    others.erase(others.begin() + first);
    scripts.All(Small("a"));
    scripts.All(Large("b"));
    scripts.Join(first);
    for (int i = 0; i < 3; ++i) {
      scripts.On(others, [&](int rank) { return Sum("a", rank == 0 ? 8 : 9); });
      scripts.On(others, [&](int rank) { return rank == 0 ? Large("b") : Broadcast("b", 0); });
      scripts.On(others, Small("a"));
      scripts.On(others, Large("b"));
    }
    for (int rank : others) scripts.Join(rank);
    scripts.All(Small("a"));
    EXPECT_TRUE(job.Run(scripts));
    for (int rank : others) EXPECT_EQ(job.failed(rank), 6);
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, JoinTest, kAllNodes);
INSTANTIATE_TEST_SUITE_P(Nodes, SeveralRanksJoinTest, kSeveralRanks);

}  // namespace
}  // namespace farandole
