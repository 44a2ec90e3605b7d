// Tests every algorithm for each of 1 .. 17 participants, without threads or sockets.
#include "algorithms/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "algorithms/simulation.h"

namespace farandole::tests {
namespace {

constexpr int kMaxParticipants = 17;

enum class Result { kSumInOrder, kSumAnyOrder, kGathered, kRootsBlock, kOwnSumInOrder, kExchanged };

struct ScheduleCase {
  const char* name;
  Result result;
  int root;  // kRootsBlock only; taken modulo participants
  MakeSchedule make;
};
void PrintTo(const ScheduleCase& c, std::ostream* out) { *out << c.name; }

MakeSchedule Rooted(Schedule (*make)(int, int, int), int root) {
  return [=](int participants, int me) { return make(participants, me, root % participants); };
}

const ScheduleCase kCases[] = {
    {"DirectAllreduce", Result::kSumInOrder, 0, DirectAllreduce},
    {"ExchangeAll", Result::kSumInOrder, 0, ExchangeAll},
    {"TreeAllreduce", Result::kSumInOrder, 0, TreeAllreduce},
    {"RingAllreduce", Result::kSumAnyOrder, 0, RingAllreduce},
    {"PairwiseReduceScatter", Result::kOwnSumInOrder, 0, PairwiseReduceScatter},
    {"PairwiseAlltoall", Result::kExchanged, 0, PairwiseAlltoall},
    {"DirectAllgather", Result::kGathered, 0, DirectAllgather},
    {"RingAllgather", Result::kGathered, 0, RingAllgather},
    {"TreeBroadcastFrom0", Result::kRootsBlock, 0, Rooted(TreeBroadcast, 0)},
    {"TreeBroadcastFrom5", Result::kRootsBlock, 5, Rooted(TreeBroadcast, 5)},
    {"TreeBroadcastFrom16", Result::kRootsBlock, 16, Rooted(TreeBroadcast, 16)},
};

bool Reduces(const ScheduleCase& c) {
  return c.result == Result::kSumInOrder || c.result == Result::kSumAnyOrder || c.result == Result::kOwnSumInOrder;
}

// In an alltoall, block j of `from` goes to j, and block n + i of `to` comes from i.
bool Agree(const ScheduleCase& c, int participants, int from, const Step& send, int to, const Step& recv) {
  if (c.result != Result::kExchanged) return send.block == recv.block;
  return send.block == to && recv.block == participants + from;
}

// One letter per participant, so that an expression can be split into its summands.
std::string Name(int participant) { return std::string(1, static_cast<char>('a' + participant)); }

std::string Initial(const ScheduleCase& c, int participants, int me, int block) {
  if (Reduces(c)) return Name(me);
  if (c.result == Result::kExchanged) return block < participants ? Name(me) + Name(block) : "";
  const bool mine = c.result == Result::kGathered ? block == me : me == c.root % participants;
  return mine ? Name(me) : "";
}

std::vector<std::string> Names(int participants) {
  std::vector<std::string> names;
  for (int i = 0; i < participants; ++i) names.push_back(Name(i));
  return names;
}

// The messages in an expression, sorted; its other characters must be those of sums with one scale at the end.
std::string Summands(const std::string& expression) {
  std::string messages;
  for (char c : expression.substr(0, expression.size() - 2)) {
    if (c >= 'a' && c <= 'q') messages += c;
  }
  std::sort(messages.begin(), messages.end());
  return messages;
}

std::string Final(const ScheduleCase& c, int participants, int me, int block, const std::string& got) {
  const std::vector<std::string> names = Names(participants);
  switch (c.result) {
    case Result::kSumInOrder:
      return InOrder(names) + "*s";
    case Result::kSumAnyOrder: {
      std::string all;
      for (const std::string& name : names) all += name;
      const bool scaled_once = std::count(got.begin(), got.end(), '*') == 1 && got.substr(got.size() - 2) == "*s";
      return Summands(got) == all && scaled_once ? got : "a sum of " + all + ", scaled once, at the end";
    }
    case Result::kOwnSumInOrder:  // the other blocks are only read
      return block == me ? InOrder(names) + "*s" : Name(me);
    case Result::kExchanged:
      if (block < participants || block == participants + me) return Initial(c, participants, me, block);
      return Name(block - participants) + Name(me);
    case Result::kGathered:
      return Name(block);
    case Result::kRootsBlock:
      return Name(c.root % participants);
  }
  return "";
}

class Schedules : public ::testing::TestWithParam<ScheduleCase> {
 protected:
  void ExpectComplete(int participants, int64_t chunk_count, uint32_t seed) {
    const ScheduleCase& c = GetParam();
    Simulation simulation(
        participants, c.make, [&](int me, int block) { return Initial(c, participants, me, block); }, chunk_count, seed,
        [&](int from, const Step& send, int to, const Step& recv) {
          return Agree(c, participants, from, send, to, recv);
        });
    ASSERT_EQ(simulation.Run(), "") << participants << " participants, " << chunk_count << " chunks";
    for (int me = 0; me < participants; ++me) {
      for (int64_t chunk = 0; chunk < chunk_count; ++chunk) {
        const std::vector<std::string>& blocks = simulation.At(me, chunk);
        for (size_t b = 0; b < blocks.size(); ++b) {
          ASSERT_EQ(blocks[b], Final(c, participants, me, static_cast<int>(b), blocks[b])) << "participant " << me;
        }
      }
    }
  }
};

TEST_P(Schedules, EveryBlockEndsCompleteOnEveryParticipant) {
  for (int participants = 1; participants <= kMaxParticipants; ++participants) {
    for (uint32_t seed = 0; seed < 3; ++seed) ExpectComplete(participants, 1, seed);
  }
}

TEST_P(Schedules, ManyChunksUnderWayEndComplete) {
  for (int participants : {1, 2, 3, 4, 5, 8, 11}) {
    for (int64_t chunk_count : {0, 2, 3, 7, 41}) ExpectComplete(participants, chunk_count, 1);
  }
}

std::vector<int> Lane(const Schedule& schedule, int peer, bool sends) {
  std::vector<int> lane;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    if (step.kind != StepKind::kReduce && step.peer == peer && (step.kind == StepKind::kSend) == sends) {
      lane.push_back(static_cast<int>(i));
    }
  }
  return lane;
}

TEST_P(Schedules, SendsStandInTheOrderOfThePeersReceives) {
  for (int n = 1; n <= kMaxParticipants; ++n) {
    for (int from = 0; from < n; ++from) {
      for (int to = 0; to < n; ++to) {
        const Schedule sender = GetParam().make(n, from), receiver = GetParam().make(n, to);
        const std::vector<int> sends = Lane(sender, to, true), recvs = Lane(receiver, from, false);
        ASSERT_EQ(sends.size(), recvs.size()) << from << " -> " << to << " of " << n;
        for (size_t i = 0; i < sends.size(); ++i) {
          ASSERT_TRUE(Agree(GetParam(), n, from, sender.steps[sends[i]], to, receiver.steps[recvs[i]]));
          ASSERT_EQ(sender.steps[sends[i]].phase, receiver.steps[recvs[i]].phase);
        }
      }
    }
  }
}

// The memory that a step reads and writes: data blocks as 0, 1, ..; slots as -1, -2, ...
struct Touched {
  std::set<int> reads, writes;
};
Touched TouchedBy(const Step& step) {
  const auto slot = [](int index) { return -1 - index; };
  switch (step.kind) {
    case StepKind::kSend:
      return {{step.block}, {}};
    case StepKind::kRecvData:
      return {{}, {step.block}};
    case StepKind::kRecvScratch:
      return {{}, {slot(step.slot)}};
    case StepKind::kReduce:
      break;
  }
  Touched touched{{}, {step.block}};
  for (int operand : step.operands) touched.reads.insert(operand == kOwnData ? step.block : slot(operand));
  return touched;
}

bool Meet(const std::set<int>& a, const std::set<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int x) { return b.count(x) > 0; });
}

bool Conflict(const Step& a, const Step& b) {
  const Touched x = TouchedBy(a), y = TouchedBy(b);
  return Meet(x.writes, y.writes) || Meet(x.writes, y.reads) || Meet(x.reads, y.writes);
}

TEST_P(Schedules, AfterCoversEveryConflictOverABlockOrSlot) {
  for (int n = 1; n <= kMaxParticipants; ++n) {
    for (int me = 0; me < n; ++me) {
      const Schedule schedule = GetParam().make(n, me);
      std::vector<std::set<int>> before(
          schedule.steps.size());  // all that must be complete, directly or through others
      for (size_t i = 0; i < schedule.steps.size(); ++i) {
        for (int earlier : schedule.steps[i].after) {
          ASSERT_LT(earlier, static_cast<int>(i));
          before[i].insert(earlier);
          before[i].insert(before[earlier].begin(), before[earlier].end());
        }
        for (size_t j = 0; j < i; ++j) {
          if (!Conflict(schedule.steps[j], schedule.steps[i])) continue;
          ASSERT_TRUE(before[i].count(static_cast<int>(j)))
              << "steps " << j << ", " << i << " of " << me << " of " << n;
        }
      }
    }
  }
}

TEST_P(Schedules, PhasesNeverRunBackwardsAndAreCountedAlikeByAll) {
  for (int n = 1; n <= kMaxParticipants; ++n) {
    for (int me = 0; me < n; ++me) {
      const Schedule schedule = GetParam().make(n, me);
      EXPECT_EQ(schedule.phase_count, GetParam().make(n, 0).phase_count);
      std::vector<int> phase_of_slot(schedule.slot_count, -1);
      for (const Step& step : schedule.steps) {
        ASSERT_LT(step.phase, schedule.phase_count);
        for (int earlier : step.after) ASSERT_LE(schedule.steps[earlier].phase, step.phase);
        if (step.slot >= 0) phase_of_slot[step.slot] = step.phase;
        for (int operand : step.operands) ASSERT_TRUE(operand == kOwnData || phase_of_slot[operand] == step.phase);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Schedules, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Bytes that participant `me` sends, in blocks.
int SendCount(const Schedule& schedule) {
  return static_cast<int>(std::count_if(schedule.steps.begin(), schedule.steps.end(),
                                        [](const Step& step) { return step.kind == StepKind::kSend; }));
}

TEST(ScheduleCost, RingAndDirectSendTwiceAllBlocksButOne) {
  for (int n = 1; n <= kMaxParticipants; ++n) {
    for (int me = 0; me < n; ++me) {
      EXPECT_EQ(SendCount(RingAllreduce(n, me)), 2 * (n - 1));
      EXPECT_EQ(SendCount(DirectAllreduce(n, me)), 2 * (n - 1));
    }
  }
}

TEST(ScheduleCost, ATreeSendsEachBlockUpOnceAndDownOnce) {
  for (int n = 1; n <= kMaxParticipants; ++n) {
    int total = 0;
    for (int me = 0; me < n; ++me) total += SendCount(TreeAllreduce(n, me));
    EXPECT_EQ(total, 2 * (n - 1));
  }
}

TEST(BlockRange, BlocksCoverAllElementsOnceInOrder) {
  for (int64_t count : {0, 1, 2, 15, 16, 17, 1000, 4096, 100003}) {
    for (size_t bytes : {1, 2, 4, 8}) {
      for (int blocks = 1; blocks <= kMaxParticipants; ++blocks) {
        int64_t at = 0;
        for (int b = 0; b < blocks; ++b) {
          const Range range = BlockRange(count, bytes, b, blocks);
          EXPECT_EQ(range.begin, at);
          EXPECT_GE(range.size(), 0);
          at = range.end;
        }
        EXPECT_EQ(at, count);
      }
    }
  }
}

TEST(BlockRange, BordersFallOnCacheLinesAndSizesDifferByOneLineAtMost) {
  for (int64_t count : {16, 17, 1000, 4096, 100003}) {
    for (size_t bytes : {1, 2, 4, 8}) {
      const int64_t line = 64 / static_cast<int64_t>(bytes);
      for (int blocks = 1; blocks <= kMaxParticipants; ++blocks) {
        const int64_t even = (count + line - 1) / line / blocks;
        for (int b = 0; b < blocks; ++b) {
          const Range range = BlockRange(count, bytes, b, blocks);
          EXPECT_TRUE(range.begin % line == 0 || range.begin == count);
          EXPECT_LE(range.size(), (even + 1) * line);
          EXPECT_GT(range.size(), (even - 1) * line);
        }
      }
    }
  }
}

}  // namespace
}  // namespace farandole::tests
