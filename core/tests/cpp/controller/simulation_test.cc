// Negotiations, their nodes' memory and the coordinator in one thread, in random order: messages wait, ranks run
// ahead, names change their meaning, ids run out. A failure replays from its seed (FARANDOLE_SEED).
#include "controller/simulation.h"

namespace farandole {
namespace {

class SimulationTest : public Simulated {};
class SeveralRanksTest : public Simulated {};  // one rank cannot disagree
class OneNodeTest : public Simulated {};       // several nodes talk once per batch

TEST_P(SimulationTest, RanksThatSubmitInDifferentOrderRunTheSame) {
  ForSeeds(10, [](SimulatedJob& job, uint64_t) {
    Scripts scripts(job.size());
    for (int step = 0; step < 5; ++step) {
      for (int i = 0; i < 12; ++i) {
        const std::string name = "grad" + std::to_string(i);
        scripts.All(i % 3 == 0 ? Small(name) : Large(name));
      }
      scripts.All(Of(OpKind::kBarrier, "barrier"));
      scripts.All(Of(OpKind::kReducescatter, "scatter"));
      scripts.All(Broadcast("weights", job.size() - 1));
      if (step % 2 == 0) scripts.Wait();
    }
    EXPECT_TRUE(job.Run(scripts));
    EXPECT_EQ(job.done(0), 5 * 15);
  });
}

TEST_P(SimulationTest, NamesThatChangeAreAgreedOnAgain) {
  ForSeeds(10, [](SimulatedJob& job, uint64_t seed) {
    std::mt19937_64 random(seed);
    Scripts scripts(job.size());
    for (int i = 0; i < 80; ++i) {
      const std::string name = "x" + std::to_string(i % 3);
      const int64_t sizes[] = {7, 8, 40, 1 << 16};
      switch (random() % 6) {
        case 0:
          scripts.All(Of(OpKind::kBarrier, name));
          break;
        case 1:
          scripts.All(Broadcast(name, 0));
          break;
        default:
          scripts.All(Sum(name, sizes[random() % 4]));
      }
    }
    EXPECT_TRUE(job.Run(scripts));
    EXPECT_EQ(job.failed(0), 0);
  });
}

TEST_P(SimulationTest, TensorsOfOneCallStayTogether) {
  ForSeeds(5, [](SimulatedJob& job, uint64_t) {
    Scripts scripts(job.size());
    for (int i = 0; i < 30; ++i) {
      Description grouped = Small("grouped" + std::to_string(i % 3));
      grouped.signature.tensors.push_back({DType::kInt64, {i % 6 == 0 ? 1 << 16 : 9}});
      scripts.All(grouped);
    }
    EXPECT_TRUE(job.Run(scripts));
  });
}

TEST_P(SimulationTest, EveryRankGetsTheCountsOfTheRightUse) {
  ForSeeds(10, [](SimulatedJob& job, uint64_t seed) {
    Scripts scripts(job.size());
    for (int i = 0; i < 30; ++i) {
      const auto rows = [&](int rank) {
        return static_cast<int64_t>((seed + static_cast<uint64_t>(rank * 7 + i)) % 5);
      };
      const std::string name = "gather" + std::to_string(i % 3);
      scripts.On(scripts.Everyone(), [&](int rank) {
        if (i % 3 != 2) return Allgather(name, rows(rank));
        std::vector<int64_t> to_each;
        for (int to = 0; to < job.size(); ++to) to_each.push_back(rows(rank) + to);
        return Alltoall(name, to_each);
      });
    }
    EXPECT_TRUE(job.Run(scripts));
  });
}

TEST_P(SimulationTest, UnnamedOperationsAreMatchedByTheirSequenceNumber) {
  ForSeeds(10, [](SimulatedJob& job, uint64_t) {
    Scripts scripts(job.size());
    for (int i = 0; i < 60; ++i) {
      if (i % 4 == 0) scripts.Wait();
      scripts.AllUnnamed(i % 3 == 0 ? Small("") : i % 3 == 1 ? Large("") : Allgather("", i));
    }
    EXPECT_TRUE(job.Run(scripts)) << "and nobody had to ask";
  });
}

// Some ranks then use other names, and the job finds out in the end that they mean the same.
TEST_P(SimulationTest, MoreUnnamedOperationsInFlightThanNames) {
  ForSeeds(10, [](SimulatedJob& job, uint64_t seed) {
    job.set_time(seed % 2 == 0 ? Time::kAnytime : Time::kAtStandstill);
    Scripts scripts(job.size());
    for (int i = 0; i < 60; ++i) scripts.AllUnnamed(i % 3 == 0 ? Small("") : i % 3 == 1 ? Large("") : Allgather("", i));
    EXPECT_TRUE(job.Run(scripts));
    EXPECT_EQ(job.failed(0), 0);
  });
}

TEST_P(SimulationTest, QuestionsThatNobodyNeededDoNoHarm) {
  ForSeeds(10, [](SimulatedJob& job, uint64_t) {
    job.set_time(Time::kAnytime);
    Scripts scripts(job.size());
    for (int i = 0; i < 60; ++i) {
      scripts.AllUnnamed(i % 3 == 0 ? Small("") : i % 3 == 1 ? Large("") : Allgather("", i));
      if (i % 4 == 0) scripts.All(Small("named"));
    }
    EXPECT_TRUE(job.Run(scripts));
    EXPECT_EQ(job.failed(0), 0);
  });
}

TEST_P(SimulationTest, MoreNamesThanIdsEvictThoseThatHaveThem) {
  if (size() == 7) return;  // takes long enough without this
  ForSeeds(1, [](SimulatedJob& job, uint64_t) {
    Scripts scripts(job.size());
    for (int i = 0; i < kMaxIds; ++i) {
      const std::string name = "twice" + std::to_string(i);
      for (int use = 0; use < 2; ++use) scripts.All(i % 7 == 0 ? Large(name) : Small(name));
      if (i % 9 == 0) scripts.All(Small("often"));
      // As long as there are ids. The time of a step grows with what is in flight.
      if (i < kMaxIds - 300 && i % 50 == 0) scripts.Wait();
    }
    scripts.All(Small("twice0"));
    EXPECT_TRUE(job.Run(scripts));
  });
}

TEST_P(SimulationTest, NamesThatNeverRepeatAreDescribedOnceAndEvictNoOthers) {
  ForSeeds(3, [](SimulatedJob& job, uint64_t) {
    Scripts warm_up(job.size());
    for (int use = 0; use < 2; ++use) warm_up.All(Small("often"));
    EXPECT_TRUE(job.Run(warm_up));
    Scripts scripts(job.size());
    constexpr int kNames = 500;
    for (int i = 0; i < kNames; ++i) {
      scripts.All(i % 3 == 0   ? Small("loss" + std::to_string(i))
                  : i % 3 == 1 ? Large("loss" + std::to_string(i))
                               : Allgather("loss" + std::to_string(i), i));
      if (i % 9 == 0) scripts.All(Small("often"));
      if (i % 20 == 0) scripts.Wait();
    }
    const size_t before = job.descriptions();
    EXPECT_TRUE(job.Run(scripts));
    EXPECT_EQ(job.descriptions() - before, static_cast<size_t>(kNames * job.size()));
  });
}

constexpr uint64_t kFewUses = 5;  // instead of kMaxUses

TEST_P(SimulationTest, NamesThatAreUsedVeryOftenGetNewIds) {
  const auto steps = [](SimulatedJob& job, uint64_t) {
    Scripts scripts(job.size());
    for (int step = 0; step < 40; ++step) {
      scripts.All(Small("small"));
      scripts.All(Large("large"));
      scripts.All(Allgather("rows", step % 3));
      scripts.AllUnnamed(Small(""));
    }
    EXPECT_TRUE(job.Run(scripts));
    EXPECT_EQ(job.failed(0), 0);
  };
  ForSeeds(10, steps, Planted::kNone, kFewUses);
}

TEST_P(SeveralRanksTest, DisagreementIsSeenByAllAndTheJobGoesOn) {
  ForSeeds(10, [](SimulatedJob& job, uint64_t) {
    const int odd = job.size() - 1;
    for (int round = 0; round < 3; ++round) {
      Scripts scripts(job.size());
      for (int i = 0; i < 2; ++i) {
        scripts.All(Small("a"));
        scripts.All(Large("b"));
      }
      scripts.On(scripts.Everyone(), [&](int rank) { return Sum("a", rank == odd ? 9 : 8); });
      scripts.On(scripts.Everyone(), [&](int rank) { return rank == odd ? Broadcast("b", 0) : Large("b"); });
      scripts.On(scripts.Everyone(), [&](int rank) { return Sum("c", rank == odd ? 8 : 1 << 16); });
      scripts.All(Small("a"));
      scripts.All(Large("b"));
      EXPECT_TRUE(job.Run(scripts));
      for (int rank = 0; rank < job.size(); ++rank) EXPECT_EQ(job.failed(rank), 3) << "rank " << rank;
    }
  });
}

TEST_P(SeveralRanksTest, UnnamedOperationsThatDifferFailAndTheOthersDoNot) {
  ForSeeds(10, [](SimulatedJob& job, uint64_t seed) {
    job.set_time(seed % 2 == 0 ? Time::kAnytime : Time::kAtStandstill);
    const int odd = job.size() - 1;
    Scripts scripts(job.size());
    for (int i = 0; i < 40; ++i) {
      const bool differs = i == 12 || i == 13 || i == 30;
      scripts.On(
          scripts.Everyone(), [&](int rank) { return Sum("", differs && rank == odd ? 7
                                                             : i % 2                ? 8
                                                                                    : 1 << 16); },
          true);
    }
    EXPECT_TRUE(job.Run(scripts));
    for (int rank = 0; rank < job.size(); ++rank) EXPECT_EQ(job.failed(rank), 3) << "rank " << rank;
  });
}

TEST_P(SeveralRanksTest, WhatSomeRanksRefuseFailsAndTheOthersAreInStep) {
  ForSeeds(40, [](SimulatedJob& job, uint64_t seed) {
    job.set_time(seed % 2 == 0 ? Time::kAnytime : Time::kAtStandstill);
    std::mt19937_64 random(seed);
    Scripts scripts(job.size());
    int failed = 0;
    for (int i = 0; i < 40; ++i) {
      const bool unnamed = random() % 2 == 0;
      const Description call = Sum(unnamed ? "" : "x", random() % 2 == 0 ? 8 : 1 << 16);
      scripts.On(scripts.Everyone(), [&](int) { return call; }, unnamed);
      if (random() % 4 > 0) continue;
      ++failed;
      for (int rank : SomeOf(job.size(), &random)) scripts.RefuseLast(rank);
    }
    EXPECT_TRUE(job.Run(scripts));
    for (int rank = 0; rank < job.size(); ++rank) EXPECT_EQ(job.failed(rank), failed) << "rank " << rank;
  });
}

// A sequence number and the one a pool's size later have one name, so ranks that differ in the first may meet in the
// second.
TEST_P(SeveralRanksTest, RanksThatAreAPoolApartDoNotMeet) {
  ForSeeds(20, [](SimulatedJob& job, uint64_t seed) {
    const int pool_size = seed % 4 == 0 ? 64 : 3;
    job.set_time(seed % 2 == 0 ? Time::kAnytime : Time::kAtStandstill);
    job.set_pool_size(pool_size);
    const int odd = job.size() - 1;
    for (const int64_t common : {int64_t{8}, int64_t{1} << 16}) {
      Scripts scripts(job.size());
      for (int i = 0; i < 2 * pool_size; ++i) scripts.AllUnnamed(Sum("", common));
      for (int i = 0; i < 3 * pool_size; ++i) {
        // They differ in the first names of the pool only: one rank arrives at a name with its sequence number, the
        // other with that of the name's next use.
        scripts.On(
            scripts.Everyone(), [&](int rank) { return Sum("", i < pool_size && rank == odd ? 9 : common); }, true);
      }
      EXPECT_TRUE(job.Run(scripts));
      for (int rank = 0; rank < job.size(); ++rank) EXPECT_EQ(job.failed(rank), pool_size) << "rank " << rank;
    }
  });
}

// Returns how many messages the same calls need when they are made `steps` more times.
size_t MessagesOf(SimulatedJob* job, int steps, const std::vector<Description>& calls, bool unnamed = false) {
  Scripts scripts(job->size());
  for (int i = 0; i < steps; ++i) {
    for (const Description& call : calls) scripts.On(scripts.Everyone(), [&](int) { return call; }, unnamed);
  }
  job->Settle();
  const size_t before = job->messages();
  EXPECT_TRUE(job->Run(scripts));
  return job->messages() - before;
}

TEST_P(OneNodeTest, TheSteadyStateNeedsNoMessages) {
  ForSeeds(5, [](SimulatedJob& job, uint64_t) {
    const std::vector<Description> calls{Small("a"), Large("b"), Allgather("c", 2), Of(OpKind::kBarrier, "d")};
    EXPECT_GT(MessagesOf(&job, 2, calls), 0u);
    EXPECT_EQ(MessagesOf(&job, 20, calls), 0u);
    job.set_pool_size(64);
    const std::vector<Description> unnamed{Small(""), Large("")};
    EXPECT_GT(MessagesOf(&job, 2, unnamed, true), 0u);
    EXPECT_GT(MessagesOf(&job, 32, unnamed, true), 0u);
    EXPECT_EQ(MessagesOf(&job, 32, unnamed, true), 0u);
  });
}

TEST_P(OneNodeTest, ANameThatWasUsedVeryOftenIsDescribedAnew) {
  const auto uses = [](SimulatedJob& job, uint64_t) {
    const std::vector<Description> calls{Small("a"), Large("b")};
    EXPECT_GT(MessagesOf(&job, 2, calls), 0u);
    EXPECT_EQ(MessagesOf(&job, kFewUses - 2, calls), 0u);
    for (int id = 0; id < 3; ++id) EXPECT_GT(MessagesOf(&job, 2 * kFewUses, calls), 0u);
  };
  ForSeeds(5, uses, Planted::kNone, kFewUses);
}

TEST_P(OneNodeTest, AfterADisagreementOfUnnamedOperationsTheSteadyStateComesBack) {
  ForSeeds(5, [](SimulatedJob& job, uint64_t) {
    job.set_pool_size(64);
    EXPECT_GT(MessagesOf(&job, 64, {Small("")}, true), 0u);
    job.set_time(Time::kAnytime);
    Scripts scripts(job.size());
    scripts.On(scripts.Everyone(), [&](int rank) { return Sum("", rank == 0 ? 9 : 8); }, true);
    EXPECT_TRUE(job.Run(scripts));
    MessagesOf(&job, 63 + 64, {Small("")}, true);  // where chance lets a rank ask whether it is stuck, there are some
    job.set_time(Time::kAtStandstill);
    Scripts wait(job.size());
    for (int i = 0; i < 64; ++i) {
      wait.Wait();
      wait.AllUnnamed(Small(""));
    }
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(job.Run(wait));  // ids that these evicted are described again
    job.Settle();
    job.set_time(Time::kNever);
    const size_t before = job.messages();
    EXPECT_TRUE(job.Run(wait));
    EXPECT_EQ(job.messages(), before);
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, SimulationTest, kAllNodes);
INSTANTIATE_TEST_SUITE_P(Nodes, SeveralRanksTest, kSeveralRanks);
INSTANTIATE_TEST_SUITE_P(Nodes, OneNodeTest, testing::Values(Sizes{2}, Sizes{4}));

}  // namespace
}  // namespace farandole
