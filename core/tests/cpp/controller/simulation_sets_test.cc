// Simulated jobs whose ranks also work in process sets: inside a node, across nodes, overlapping, of one rank.
#include "controller/simulation.h"

namespace farandole {
namespace {

class ProcessSetsTest : public Simulated {};
class SlowReaderTest : public Simulated {};

// Sets by label, with their ranks.
using Sets = std::map<int, Ranks>;

// Adds sets, makes calls in them, and removes some of them, called by all ranks or by the members alone.
void ChangeSetsAtRandom(Scripts* scripts, Sets* sets, int* label, std::mt19937_64* random) {
  const Ranks all = scripts->Everyone();
  const auto change = [&](OpKind kind, int of, const Ranks& members) {
    const bool by_members = (*random)() % 3 > 0;
    scripts->ChangeLabelled(kind, of, members, by_members, by_members ? members : all);
  };
  for (int i = 0; i < 4; ++i) {
    (*sets)[++*label] = SomeOf(scripts->size(), random);
    change(OpKind::kAddProcessSet, *label, (*sets)[*label]);
    if (i % 2 == 0) AnyRightCall(scripts, all, all, 0, random);
  }
  for (int i = 0; i < 30; ++i) {
    const auto& [set, ranks] = *std::next(sets->begin(), static_cast<std::ptrdiff_t>((*random)() % sets->size()));
    AnyRightCall(scripts, ranks, ranks, set, random);
  }
  for (int i = 0; i < 3; ++i) {
    const auto gone = std::next(sets->begin(), 1 + static_cast<std::ptrdiff_t>((*random)() % (sets->size() - 1)));
    change(OpKind::kRemoveProcessSet, gone->first, gone->second);
    sets->erase(gone);
  }
}

// Every rank, also one outside of them, knows the same sets.
void ExpectSameSets(const SimulatedJob& job, int most) {
  for (int id = 0; id <= most; ++id) {
    const ProcessSetPtr first = job.FindSet(0, id);
    for (int rank = 1; rank < job.size(); ++rank) {
      const ProcessSetPtr other = job.FindSet(rank, id);
      ASSERT_EQ(first == nullptr, other == nullptr) << "rank " << rank << ", set " << id;
      if (!first) continue;
      EXPECT_EQ(first->ranks, other->ranks);
      EXPECT_EQ(first->channel, other->channel);
    }
  }
}

TEST_P(ProcessSetsTest, SetsThatOverlapGoOnSideBySide) {
  ForSeeds(30, [](SimulatedJob& job, uint64_t seed) {
    job.set_time(Time::kAtStandstill);  // the unnamed of several sets may be more in flight than names
    std::mt19937_64 random(seed);
    Scripts scripts(job.size());
    std::map<int, Ranks> sets{{0, scripts.Everyone()}};
    int next = 1;
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 3; ++i) {
        sets[next] = SomeOf(job.size(), &random);
        scripts.AddSet(sets[next++]);
        AnyRightCall(&scripts, sets[0], sets[0], 0, &random);
      }
      scripts.Wait();
      for (int i = 0; i < 40; ++i) {
        const auto& [set, ranks] = *std::next(sets.begin(), static_cast<std::ptrdiff_t>(random() % sets.size()));
        AnyRightCall(&scripts, ranks, ranks, set, &random);
      }
      scripts.Wait();
      for (int i = 0; i < 2; ++i) {
        const int gone = std::next(sets.begin(), 1 + static_cast<std::ptrdiff_t>(random() % (sets.size() - 1)))->first;
        scripts.RemoveSet(gone);
        sets.erase(gone);
        AnyRightCall(&scripts, sets[0], sets[0], 0, &random);
      }
    }
    EXPECT_TRUE(job.Run(scripts));
    for (int rank = 0; rank < job.size(); ++rank) EXPECT_EQ(job.failed(rank), 0);
  });
}

TEST_P(ProcessSetsTest, MembersAddAndRemoveSetsWithoutTheOthers) {
  ForSeeds(60, [](SimulatedJob& job, uint64_t seed) {
    job.set_time(Time::kAtStandstill);
    std::mt19937_64 random(seed);
    Scripts scripts(job.size());
    Sets sets{{0, scripts.Everyone()}};
    int label = kFirstLabel;
    for (int round = 0; round < 3; ++round) ChangeSetsAtRandom(&scripts, &sets, &label, &random);
    EXPECT_TRUE(job.Run(scripts));
    job.Settle();
    for (int rank = 0; rank < job.size(); ++rank) EXPECT_EQ(job.failed(rank), 0);
    ExpectSameSets(job, label - kFirstLabel);
  });
}

TEST_P(ProcessSetsTest, MembersThatNameDifferentSetsAreTold) {
  ForSeeds(10, [](SimulatedJob& job, uint64_t) {
    if (job.size() < 3) return;
    Scripts scripts(job.size());
    scripts.On({0, 1, 2}, [&](int rank) {
      Description description = Of(OpKind::kAddProcessSet, "set");
      description.signature.ranks = rank == 1 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0, 1, 2};
      return description;
    });
    scripts.ChangeLabelled(OpKind::kAddProcessSet, kFirstLabel, {0, 2}, true, {0, 2});
    scripts.On({0, 2}, Small("a", kFirstLabel));
    EXPECT_TRUE(job.Run(scripts));
    for (int rank = 0; rank < job.size(); ++rank) EXPECT_EQ(job.failed(rank), rank < 3 ? 1 : 0);
  });
}

// Others go on in their sets while one is removed.
TEST_P(ProcessSetsTest, ASetIsRemovedWhileOthersWork) {
  ForSeeds(10, [](SimulatedJob& job, uint64_t seed) {
    std::mt19937_64 random(seed);
    Scripts scripts(job.size());
    const Ranks one = SomeOf(job.size(), &random), two = SomeOf(job.size(), &random);
    scripts.AddSet(one);
    scripts.AddSet(two);
    scripts.Wait();
    for (int i = 0; i < 10; ++i) {
      scripts.On(one, i % 2 ? Small("a", 1) : Large("b", 1));
      scripts.On(two, i % 2 ? Small("a", 2) : Large("b", 2));
    }
    scripts.Wait();
    for (int i = 0; i < 10; ++i) scripts.On(two, i % 2 ? Small("a", 2) : Large("b", 2));
    scripts.RemoveSet(1);
    scripts.AddSet(one);
    scripts.Wait();
    for (int i = 0; i < 10; ++i) {
      scripts.On(one, i % 2 ? Small("a", 3) : Large("b", 3));
      scripts.On(two, i % 2 ? Small("a", 2) : Large("b", 2));
    }
    EXPECT_TRUE(job.Run(scripts));
  });
}

TEST_P(ProcessSetsTest, DisagreementInOneSetDoesNotTouchTheOthers) {
  ForSeeds(10, [](SimulatedJob& job, uint64_t seed) {
    std::mt19937_64 random(seed);
    Scripts scripts(job.size());
    Ranks ranks = SomeOf(job.size(), &random);
    if (job.size() > 1 && ranks.size() == 1) ranks = {0, job.size() - 1};
    scripts.AddSet(ranks);
    scripts.Wait();
    for (int i = 0; i < 10; ++i) {
      scripts.On(ranks, [&](int rank) { return Sum("x", i % 3 == 0 && rank == ranks.back() ? 9 : 8, 1); });
      scripts.All(Sum("x", kSmallElements + i % 3));
    }
    EXPECT_TRUE(job.Run(scripts));
    for (int rank : ranks) EXPECT_EQ(job.failed(rank), ranks.size() > 1 ? 4 : 0);
  });
}

TEST_P(ProcessSetsTest, RanksThatNameDifferentSetsAreTold) {
  ForSeeds(5, [](SimulatedJob& job, uint64_t) {
    if (job.size() == 1) return;
    Scripts scripts(job.size());
    scripts.AddSet({0});
    scripts.On(
        scripts.Everyone(),
        [&](int rank) {
          Description description = Of(OpKind::kAddProcessSet, "");
          description.signature.ranks = {rank == 0 ? 0 : 1};
          return description;
        },
        true);
    scripts.Wait();
    scripts.On(
        scripts.Everyone(),
        [&](int rank) {
          Description description = Of(OpKind::kRemoveProcessSet, "");
          description.signature.ranks = {rank == 0 ? 1 : 7};
          return description;
        },
        true);
    scripts.Wait();
    scripts.On({0}, Small("still there", 1));
    scripts.RemoveSet(9, true);
    scripts.RemoveSet(0, true);
    scripts.AddSet({1});
    scripts.Wait();
    scripts.On({1}, Small("new", 2));
    scripts.All(Small("all"));
    EXPECT_TRUE(job.Run(scripts));
    EXPECT_EQ(job.failed(0), 4);
  });
}

TEST_P(ProcessSetsTest, MoreSetsThanChannelsAreRefused) {
  ForSeeds(2, [](SimulatedJob& job, uint64_t) {
    Scripts scripts(job.size());
    for (int i = 1; i < kMaxChannels; ++i) scripts.AddSet({0});
    scripts.AddSet({0}, true);
    scripts.Wait();  // nobody knows a set's id before it is there
    scripts.RemoveSet(5);
    scripts.AddSet({0});
    scripts.Wait();
    scripts.On({0}, Small("a", kMaxChannels));
    scripts.On({0}, Small("a", 1));
    EXPECT_TRUE(job.Run(scripts));
    EXPECT_EQ(job.failed(0), 1);
  });
}

// Thousands of operations of two ranks are in the log, which a third rank does not read: the log fills, and nothing is
// lost.
TEST_P(SlowReaderTest, AFullLogOnlyWaits) {
  ForSeeds(1, [](SimulatedJob& job, uint64_t) {
    const Ranks pair{0, job.layout().nodes.back()[0] == 0 ? 1 : job.layout().nodes.back()[0]};
    const int slow = job.layout().nodes[0].back();
    Scripts first(job.size());
    first.AddSet(pair);
    first.Wait();
    EXPECT_TRUE(job.Run(first));
    job.Pause(slow, true);
    Scripts scripts(job.size());
    for (int i = 0; i < 17'000; ++i) scripts.On(pair, Large("x" + std::to_string(i % 8), 1));
    EXPECT_TRUE(job.RunToStandstill(scripts));
    EXPECT_LT(job.done(0), 17'000) << "the log of a node never filled";
    job.Pause(slow, false);
    EXPECT_TRUE(job.Run(Scripts(job.size())));
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, ProcessSetsTest, kAllNodes);
INSTANTIATE_TEST_SUITE_P(Nodes, SlowReaderTest, testing::Values(Sizes{3}, Sizes{3, 2, 2}));

}  // namespace
}  // namespace farandole
