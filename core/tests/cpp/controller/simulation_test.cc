// Agreements, boards and the coordinator in one thread, in random order: messages wait, ranks run ahead, names change
// their meaning, ids run out. A failure replays from its seed (FARANDOLE_SEED).
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>

#include "controller/agreement.h"
#include "controller/coordinator.h"
#include "support/pages.h"

namespace farandole {
namespace {

Layout MakeGroups(const std::vector<int>& sizes) {
  std::vector<Card> cards;
  for (size_t g = 0; g < sizes.size(); ++g) {
    for (int i = 0; i < sizes[g]; ++i) cards.push_back({"host", "machine" + std::to_string(g), 1, true, ""});
  }
  return MakeLayout(cards, std::vector<bool>(cards.size(), false));
}

struct Operation {
  Description description;
  bool done = false;
  bool mismatch = false;
  std::vector<int64_t> extents;
  uint64_t marker = 0;  // stands for the data: what the last arriver leaves in the span
};

// One simulated job. Every rank submits the same program in its own order, as far as names in flight allow.
class Simulation {
 public:
  Simulation(const std::vector<int>& groups, uint64_t seed)
      : layout_(MakeGroups(groups)), random_(seed), coordinator_(layout_) {
    for (const auto& group : layout_.groups) {
      const size_t bytes = Board::BytesFor(static_cast<int>(group.size()));
      memory_.emplace_back(ZeroedPages(bytes), &std::free);
    }
    for (int r = 0; r < layout_.size(); ++r) {
      std::byte* const board = memory_[static_cast<size_t>(layout_.group_of[static_cast<size_t>(r)])].get();
      ranks_.push_back(std::make_unique<Rank>(layout_, r, board));
    }
    to_rank_.resize(ranks_.size());
    to_coordinator_.resize(ranks_.size());
  }

  int size() const { return layout_.size(); }

  // Runs program[r] on rank r to its end. False when it comes to a standstill.
  bool Run(const std::vector<std::vector<Description>>& program) {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r]->program.assign(program[r].begin(), program[r].end());
      ranks_[r]->operations.clear();
    }
    for (int idle = 0; idle < 20000; ++idle) {
      const size_t r = random_() % ranks_.size();
      if (Step(r)) idle = 0;
      if (AllDone()) return true;
    }
    return false;
  }

  // The batches and takes of each rank must be the same; the operations of rank r in order of submission.
  const std::vector<std::vector<std::string>>& batches(size_t r) const { return ranks_[r]->batches; }
  std::vector<Operation> operations(size_t r) const {
    std::vector<Operation> all;
    for (const auto& [ticket, operation] : ranks_[r]->operations) all.push_back(operation);
    return all;
  }
  size_t messages() const { return messages_; }
  void set_patient(bool patient) { patient_ = patient; }  // nobody ever asks whether it is stuck

 private:
  struct Rank {
    Rank(const Layout& layout, int rank, std::byte* board) : agreement(layout, rank, board) {}
    Agreement agreement;
    std::deque<Description> program;
    std::map<Ticket, Operation> operations;
    std::vector<std::vector<std::string>> batches;
    std::vector<Agreement::Event> unhandled;  // the engine is slow to take its results out of the spans
    std::map<std::string, uint64_t> submitted;
    Ticket next = 1;
  };

  bool AllDone() const {
    for (const auto& rank : ranks_) {
      if (!rank->program.empty()) return false;
      for (const auto& [ticket, operation] : rank->operations) {
        if (!operation.done) return false;
      }
    }
    return true;
  }

  bool Step(size_t r) {
    switch (random_() % 5) {
      case 0:
        return Submit(r);
      case 1:
        return Advance(r);
      case 2:
        return DeliverToRank(r);
      case 3:
        return DeliverToCoordinator(r);
      default:
        return !patient_ && random_() % 50 == 0 && Stick(r);
    }
  }

  // Submits one of the next few operations of the program, so that ranks differ in their order (named ones only).
  bool Submit(size_t r) {
    Rank& rank = *ranks_[r];
    if (rank.program.empty()) return false;
    size_t pick = random_() % std::min<size_t>(4, rank.program.size());
    for (size_t i = 0; i < pick; ++i) {
      if (!rank.program[i].named() || rank.program[i].name == rank.program[pick].name) pick = i;
    }
    if (!rank.program[pick].named()) pick = std::min(pick, FirstUnnamed(rank));
    const Description description = rank.program[pick];
    Agreement::Plan plan;
    if (!rank.agreement.Submit(description, rank.next, &plan).ok()) return false;
    rank.program.erase(rank.program.begin() + static_cast<std::ptrdiff_t>(pick));
    Operation& operation = rank.operations[rank.next++];
    operation.description = description;
    operation.marker = description.named()
                           ? std::hash<std::string>()(description.name) + rank.submitted[description.name]++
                           : static_cast<uint64_t>(description.turn);
    if (plan.id < 0) return true;
    const Agreement::Arrived arrived = rank.agreement.Arrive(plan);
    if (arrived == Agreement::Arrived::kRetired) rank.agreement.Redescribe(plan.ticket);
    if (arrived != Agreement::Arrived::kLast) return true;
    const bool alone = plan.span != nullptr && description.extents.empty();
    if (alone) std::memcpy(plan.span, &operation.marker, sizeof(operation.marker));
    alone ? rank.agreement.CompleteAlone(plan) : rank.agreement.CompleteTogether(plan);
    return true;
  }

  static size_t FirstUnnamed(const Rank& rank) {
    size_t i = 0;
    while (rank.program[i].named()) ++i;
    return i;
  }

  bool Advance(size_t r) {
    std::vector<Agreement::Event>& events = ranks_[r]->unhandled;
    const bool handled = !events.empty();
    Handle(r, events);
    events.clear();
    const bool news = ranks_[r]->agreement.HasNews();
    const bool moved = ranks_[r]->agreement.Advance(&events);
    EXPECT_TRUE(news || !moved) << "a driver would not have come";
    Collect(r);
    return moved || handled;
  }

  void Handle(size_t r, const std::vector<Agreement::Event>& events) {
    Rank& rank = *ranks_[r];
    for (const Agreement::Event& event : events) {
      std::vector<std::string> batch;
      for (const Agreement::Item& item : event.items) {
        Operation& operation = rank.operations.at(item.ticket);
        EXPECT_FALSE(operation.done) << "completed twice";
        operation.done = true;
        operation.mismatch = event.kind == Agreement::Event::kFailed;
        operation.extents = item.extents;
        if (event.kind == Agreement::Event::kTake) ExpectMarker(event.span, operation.marker);
        batch.push_back(operation.description.name);
      }
      if (event.kind == Agreement::Event::kBatch) rank.batches.push_back(batch);
    }
  }

  static void ExpectMarker(const std::byte* span, uint64_t marker) {
    EXPECT_EQ(std::memcmp(span, &marker, sizeof(marker)), 0) << "the data of another operation";
  }

  void Collect(size_t r) {
    for (Bytes& message : ranks_[r]->agreement.TakeOutgoing()) to_coordinator_[r].push_back(std::move(message));
  }

  bool DeliverToRank(size_t r) {
    if (to_rank_[r].empty()) return false;
    std::vector<Agreement::Event> events;
    const Status status = ranks_[r]->agreement.OnMessage(to_rank_[r].front(), &events);
    EXPECT_TRUE(status.ok()) << status.message();
    to_rank_[r].pop_front();
    Handle(r, events);
    return true;
  }

  bool DeliverToCoordinator(size_t r) {
    Collect(r);
    if (to_coordinator_[r].empty()) return false;
    std::vector<Outgoing> out;
    const Status status = coordinator_.OnMessage(static_cast<int>(r), to_coordinator_[r].front(), &out);
    EXPECT_TRUE(status.ok()) << status.message();
    to_coordinator_[r].pop_front();
    if (random_() % 2 == 0) coordinator_.Flush(&out);
    coordinator_.Flush(&out);
    for (Outgoing& each : out) to_rank_[static_cast<size_t>(each.rank)].push_back(std::move(each.message));
    ++messages_;
    return true;
  }

  // Time passes for an unnamed operation.
  bool Stick(size_t r) {
    Rank& rank = *ranks_[r];
    for (const auto& [ticket, operation] : rank.operations) {
      if (!operation.done && !operation.description.named()) rank.agreement.ReportStuck(ticket);
    }
    Collect(r);
    return true;
  }

  Layout layout_;
  std::mt19937_64 random_;
  Coordinator coordinator_;
  std::vector<std::unique_ptr<std::byte, void (*)(void*)>> memory_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::deque<Bytes>> to_rank_, to_coordinator_;
  size_t messages_ = 0;
  bool patient_ = false;
};

Description Allreduce(const std::string& name, int64_t elements) {
  Description description;
  description.name = name;
  description.signature.tensors = {{DType::kFloat32, {elements}}};
  return description;
}

Description Allgather(const std::string& name, int64_t rows) {
  Description description;
  description.name = name;
  description.signature.kind = OpKind::kAllgather;
  description.signature.tensors = {{DType::kFloat32, {3}}};
  description.extents = {rows};
  return description;
}

Description Unnamed(int64_t turn, int64_t elements) {
  Description description = Allreduce("", elements);
  description.turn = turn;
  description.name = "#" + std::to_string(Fingerprint(description.signature)) + "." + std::to_string(turn % 4);
  return description;
}

using Program = std::vector<std::vector<Description>>;

void ExpectSameBatches(const Simulation& simulation) {
  for (int r = 1; r < simulation.size(); ++r) {
    EXPECT_EQ(simulation.batches(0), simulation.batches(static_cast<size_t>(r))) << "rank " << r;
  }
}

uint64_t FirstSeed() {
  const char* const seed = std::getenv("FARANDOLE_SEED");
  return seed ? std::strtoull(seed, nullptr, 10) : 1;
}

class SimulationTest : public testing::TestWithParam<std::vector<int>> {
 protected:
  // `body` runs one seeded job.
  template <typename Body>
  void ForSeeds(int count, Body body) {
    const uint64_t first = FirstSeed();
    for (uint64_t seed = first; seed < first + static_cast<uint64_t>(count) && !HasFailure(); ++seed) {
      SCOPED_TRACE("FARANDOLE_SEED=" + std::to_string(seed));
      Simulation simulation(GetParam(), seed);
      body(simulation, seed);
    }
  }
};

class SeveralRanksTest : public SimulationTest {};  // one rank cannot disagree
class OneGroupTest : public SimulationTest {};      // several groups talk once per batch

TEST_P(SimulationTest, RanksThatSubmitInDifferentOrderRunTheSameBatches) {
  ForSeeds(20, [](Simulation& simulation, uint64_t) {
    for (int step = 0; step < 5; ++step) {
      std::vector<Description> names;
      for (int i = 0; i < 12; ++i) names.push_back(Allreduce("grad" + std::to_string(i), i % 3 == 0 ? 8 : 1 << 20));
      ASSERT_TRUE(simulation.Run(Program(static_cast<size_t>(simulation.size()), names)));
    }
    ExpectSameBatches(simulation);
  });
}

TEST_P(SimulationTest, NamesThatChangeTheirShapeAreAgreedOnAgain) {
  ForSeeds(30, [](Simulation& simulation, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Description> names;
    for (int i = 0; i < 60; ++i) {
      names.push_back(
          Allreduce("x" + std::to_string(i % 3), random() % 4 == 0 ? 1 << 20 : 4 + static_cast<int64_t>(random() % 2)));
    }
    ASSERT_TRUE(simulation.Run(Program(static_cast<size_t>(simulation.size()), names)));
    ExpectSameBatches(simulation);
    for (const Operation& operation : simulation.operations(0)) EXPECT_FALSE(operation.mismatch);
  });
}

TEST_P(SimulationTest, AllgatherHandsEveryRankAllFirstDimensions) {
  ForSeeds(20, [](Simulation& simulation, uint64_t seed) {
    Program program(static_cast<size_t>(simulation.size()));
    for (int i = 0; i < 20; ++i) {
      for (size_t r = 0; r < program.size(); ++r) {
        program[r].push_back(Allgather("gather" + std::to_string(i % 2),
                                       static_cast<int64_t>((seed + r * 7 + static_cast<size_t>(i)) % 5)));
      }
    }
    ASSERT_TRUE(simulation.Run(program));
    for (int r = 0; r < simulation.size(); ++r) {
      // Operations of one name complete in order, so the k-th of a rank belongs to the k-th of the others.
      std::map<std::string, size_t> count;
      for (const Operation& operation : simulation.operations(static_cast<size_t>(r))) {
        const std::string& name = operation.description.name;
        const size_t k = count[name]++;
        for (size_t other = 0; other < program.size(); ++other) {
          size_t seen = 0;
          for (const Description& each : program[other]) {
            if (each.name != name || seen++ != k) continue;
            EXPECT_EQ(operation.extents[other], each.extents[0]);
          }
        }
      }
    }
  });
}

TEST_P(SeveralRanksTest, DisagreementIsSeenByAllAndTheJobGoesOn) {
  ForSeeds(30, [](Simulation& simulation, uint64_t) {
    const auto n = static_cast<size_t>(simulation.size());
    const std::vector<Description> agreed{Allreduce("a", 8), Allreduce("b", 1 << 20)};
    for (int round = 0; round < 3; ++round) {
      ASSERT_TRUE(simulation.Run(Program(n, agreed)));
      Program program(n, agreed);
      program[n - 1] = {Allreduce("b", 1 << 20), Allreduce("a", 9)};
      ASSERT_TRUE(simulation.Run(program));
      for (size_t r = 0; r < n; ++r) {
        for (const Operation& operation : simulation.operations(r)) {
          EXPECT_EQ(operation.mismatch, operation.description.name == "a") << "rank " << r;
        }
      }
    }
  });
}

TEST_P(SimulationTest, UnnamedOperationsAreMatchedByTheirTurn) {
  ForSeeds(30, [](Simulation& simulation, uint64_t) {
    const auto n = static_cast<size_t>(simulation.size());
    std::vector<Description> turns;
    for (int64_t turn = 0; turn < 40; ++turn) turns.push_back(Unnamed(turn, turn % 3 == 0 ? 4 : 5));
    ASSERT_TRUE(simulation.Run(Program(n, turns)));
    if (n == 1) return;
    Program program(n, {Unnamed(40, 4)});
    program[n - 1] = {Unnamed(40, 5)};
    ASSERT_TRUE(simulation.Run(program));
    for (size_t r = 0; r < n; ++r) EXPECT_TRUE(simulation.operations(r)[0].mismatch) << "rank " << r;
    ASSERT_TRUE(simulation.Run(Program(n, {Unnamed(41, 4)})));
    EXPECT_FALSE(simulation.operations(0)[0].mismatch);
  });
}

TEST_P(SimulationTest, MoreNamesThanIdsRetireTheOldest) {
  ForSeeds(1, [](Simulation& simulation, uint64_t) {
    const auto n = static_cast<size_t>(simulation.size());
    for (int part = 0; part < 9; ++part) {
      std::vector<Description> names;
      for (int i = 0; i < 500; ++i) names.push_back(Allreduce("once" + std::to_string(part * 500 + i), 4));
      ASSERT_TRUE(simulation.Run(Program(n, names)));
    }
    ASSERT_TRUE(simulation.Run(Program(n, {Allreduce("once0", 4)})));
  });
}

TEST_P(OneGroupTest, TheSteadyStateOfOneGroupNeedsNoMessages) {
  ForSeeds(5, [](Simulation& simulation, uint64_t) {
    const std::vector<Description> names{Allreduce("a", 8), Allreduce("b", 1 << 20), Allgather("c", 2)};
    const Program program(static_cast<size_t>(simulation.size()), names);
    ASSERT_TRUE(simulation.Run(program));
    const size_t before = simulation.messages();
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(simulation.Run(program));
    EXPECT_EQ(simulation.messages(), before);
  });
}

TEST_P(OneGroupTest, AfterADisagreementOfUnnamedOperationsTheSteadyStateComesBack) {
  const auto n = static_cast<size_t>(Simulation(GetParam(), 1).size());
  ForSeeds(10, [n](Simulation& simulation, uint64_t) {
    int64_t turn = 0;
    // Several are in flight at a time, as many as they have names.
    const auto run = [&](int count) {
      std::vector<Description> next;
      for (int i = 0; i < count; ++i) next.push_back(Unnamed(turn++, 4));
      return simulation.Run(Program(n, next));
    };
    ASSERT_TRUE(run(10));
    Program program(n, {Unnamed(turn, 4)});
    program[n - 1] = {Unnamed(turn++, 5)};
    ASSERT_TRUE(simulation.Run(program));
    ASSERT_TRUE(run(40));
    simulation.set_patient(true);
    ASSERT_TRUE(run(8));  // what the last questions have retired is described again
    const size_t before = simulation.messages();
    ASSERT_TRUE(run(40));
    EXPECT_EQ(simulation.messages(), before);
  });
}

using Sizes = std::vector<int>;  // of the groups

INSTANTIATE_TEST_SUITE_P(Groups, SimulationTest,
                         testing::Values(Sizes{1}, Sizes{2}, Sizes{4}, Sizes{1, 1}, Sizes{1, 1, 1}, Sizes{2, 1},
                                         Sizes{3, 2, 2}));
INSTANTIATE_TEST_SUITE_P(Groups, SeveralRanksTest,
                         testing::Values(Sizes{2}, Sizes{4}, Sizes{1, 1}, Sizes{1, 1, 1}, Sizes{2, 1}, Sizes{3, 2, 2}));
INSTANTIATE_TEST_SUITE_P(Groups, OneGroupTest, testing::Values(Sizes{2}, Sizes{4}));

}  // namespace
}  // namespace farandole
