// Validation, buffers, process sets and the coordinator, each by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <random>
#include <set>

#include "controller/coordinator.h"
#include "controller/described.h"
#include "controller/signature.h"

namespace farandole {
namespace {

Description Base() {
  Description description;
  description.name = "w";
  description.signature.tensors = {{DType::kFloat32, {3, 4}}};
  return description;
}

void ExpectMismatch(const std::function<void(Description*)>& change, const std::string& left,
                    const std::string& right) {
  std::map<int, Description> all{{0, Base()}, {1, Base()}, {2, Base()}};
  EXPECT_TRUE(FindMismatch(all).ok());
  change(&all[2]);
  const Status found = FindMismatch(all);
  const std::string& text = found.message();
  EXPECT_EQ(found.code(), Code::kMismatch);
  EXPECT_NE(text.find("'w'"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 0 has " + left + ", rank 2 has " + right), std::string::npos) << text;
}

TEST(ValidateTest, TheFirstDifferenceIsNamedWithBothValues) {
  ExpectMismatch([](Description* d) { d->signature.kind = OpKind::kBroadcast; }, "allreduce", "broadcast");
  ExpectMismatch([](Description* d) { d->signature.tensors[0].dtype = DType::kInt32; }, "float32", "int32");
  ExpectMismatch([](Description* d) { d->signature.tensors[0].shape = {3, 5}; }, "(3, 4)", "(3, 5)");
  ExpectMismatch([](Description* d) { d->signature.reduce = ReduceOp::kMax; }, "sum", "max");
  ExpectMismatch([](Description* d) { d->signature.root = 1; }, "0", "1");
  ExpectMismatch([](Description* d) { d->signature.prescale = 0.5; }, "1", "0.5");
  ExpectMismatch([](Description* d) { d->signature.postscale = 2; }, "1", "2");
  ExpectMismatch([](Description* d) { d->signature.tensors.push_back({}); }, "1", "2");
}

TEST(ValidateTest, TheRankThatDiffersFromMostIsNamedLast) {
  std::map<int, Description> all{{0, Base()}, {1, Base()}, {2, Base()}, {3, Base()}};
  all[0].signature.tensors[0].shape = {3, 5};
  const std::string odd = FindMismatch(all).message();
  EXPECT_NE(odd.find("rank 1 has (3, 4), rank 0 has (3, 5); 3 of 4 ranks agree with rank 1; call"), odd.npos) << odd;
  all[3].signature.tensors[0].shape = {3, 5};
  const std::string tie = FindMismatch(all).message();
  EXPECT_NE(tie.find("rank 0 has (3, 5), rank 1 has (3, 4); call"), tie.npos) << "nobody can tell: " << tie;
}

TEST(ValidateTest, OperationsThatDifferAreToldBesideTheSentence) {
  std::map<int, Description> all{{0, Base()}, {1, Base()}, {2, Base()}};
  all[1].signature.tensors[0].dtype = DType::kInt32;
  EXPECT_EQ(FindMismatch(all).kinds(), 0U);
  all[2].signature.kind = OpKind::kAllgather;  // the message is about the dtype
  EXPECT_EQ(FindMismatch(all).kinds(), 1U << 0 | 1U << 1);
}

TEST(BufferAllocatorTest, ReturnedRangesAreGivenOutAgainAndNoneOverlap) {
  BufferAllocator ranges(4096);
  const int64_t a = ranges.Take(300), b = ranges.Take(512), c = ranges.Take(1);
  EXPECT_GE(std::abs(a - b), 512);
  EXPECT_GE(std::abs(b - c), 256);
  EXPECT_EQ(ranges.Take(8192), -1);
  EXPECT_EQ(ranges.Take(0), -1);
  ranges.GiveBack(a, 300);
  EXPECT_EQ(ranges.Take(400), a);
}

TEST(BufferAllocatorTest, ANeedBeyondTheCapacityIsRefusedNotGranted) {
  BufferAllocator ranges(1024);
  EXPECT_GE(ranges.Take(512), 0);
  EXPECT_GE(ranges.Take(512), 0);
  EXPECT_EQ(ranges.Take(256), -1);
}

TEST(BufferAllocatorTest, NoneOverlapAndClearMakesOnePieceOfAll) {
  constexpr int64_t kCapacity = 1 << 16;
  std::mt19937 random(5);
  BufferAllocator ranges(kCapacity);
  std::map<int64_t, int64_t> taken;  // the oracle: offset -> size
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 || taken.empty()) {
      const int64_t size = 1 + static_cast<int64_t>(random() % (1u << random() % 15));
      const int64_t offset = ranges.Take(size);
      if (offset < 0) continue;
      const auto next = taken.lower_bound(offset);
      ASSERT_LE(offset + size, next == taken.end() ? kCapacity : next->first);
      if (next != taken.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second, offset);
      }
      taken[offset] = size;
    } else {
      const auto which = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      ranges.GiveBack(which->first, which->second);
      taken.erase(which);
    }
    if (i % 1000 != 0) continue;
    for (const auto& [offset, size] : taken) ranges.GiveBack(offset, size);
    taken.clear();
    ranges.Clear();
    ASSERT_EQ(ranges.Take(kCapacity), 0);
    ranges.GiveBack(0, kCapacity);
    ranges.Clear();
  }
}

// Reports of several nodes may be merged in any order.
TEST(ReportTest, WhatSeveralNodesHaveClosedCanBeMergedInAnyOrder) {
  const auto early = [](uint64_t uses, int64_t sequence_number) {
    const uint64_t generation = sequence_number < 0 ? 0 : GenerationOf(uses, sequence_number);  // 0: not known any more
    return Closing{3, 1, uses, uses, generation, false};
  };
  using Closings = std::vector<Closing>;
  for (const auto& [all, uses] : {std::pair{Closings{early(4, 7), early(4, 7), early(4, -1)}, 4},
                                  std::pair{Closings{early(4, 7), early(4, 9), early(4, -1)}, 3},
                                  std::pair{Closings{early(4, 7), early(5, 9), early(5, 9)}, 4}}) {
    std::vector<size_t> order{0, 1, 2};
    do {
      Closing left = all[order[0]], right = all[order[1]];
      left.Merge(all[order[1]]);
      left.Merge(all[order[2]]);
      right.Merge(all[order[2]]);
      Closing nested = all[order[0]];
      nested.Merge(right);
      EXPECT_EQ(left.uses(), static_cast<uint64_t>(uses));
      EXPECT_EQ(nested.uses(), static_cast<uint64_t>(uses));
      EXPECT_EQ(nested.nodes, 3);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(CoordinatorTest, AnyBytesAreAnErrorOrAMessageNeverACrash) {
  std::mt19937 random(11);
  const Bytes valid = Encode(MessageKind::kDescribe, Base());
  for (int round = 0; round < 2000; ++round) {
    Coordinator coordinator(LayoutOf({"a", "b"}));
    Bytes bytes = valid;
    if (random() % 2) bytes.resize(random() % bytes.size());
    for (int i = 0; i < 3 && !bytes.empty(); ++i) bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    std::vector<Outgoing> out;
    coordinator.OnMessage(1, bytes, &out);
    coordinator.OnMessage(0, bytes, &out);
    coordinator.Flush(&out);
  }
}

TEST(CoordinatorTest, StalledNamesWhoHasNotDescribed) {
  Coordinator coordinator(LayoutOf({"a", "a", "a"}));
  std::vector<Outgoing> out;
  ASSERT_TRUE(coordinator.OnMessage(1, Encode(MessageKind::kDescribe, Base()), &out).ok());
  const auto stalled = coordinator.Absences();
  ASSERT_EQ(stalled.size(), 1u);
  EXPECT_EQ(stalled[0].title, "allreduce 'w'");
  EXPECT_EQ(stalled[0].ranks, (std::vector<int64_t>{0, 2}));
}

TEST(CoordinatorTest, OnlyTheFirstAbortIsForwarded) {
  Coordinator coordinator(LayoutOf({"a", "b", "c"}));
  std::vector<Outgoing> out;
  ASSERT_TRUE(coordinator.OnMessage(1, Encode(Abort{3, 2, "gone"}), &out).ok());
  ASSERT_EQ(out.size(), 3u) << "also to the rank that told";
  for (int rank : {0, 2, 1}) ASSERT_TRUE(coordinator.OnMessage(rank, Encode(Abort{3, 2, "gone"}), &out).ok());
  EXPECT_EQ(out.size(), 3u);
}

Bytes ReportOf(const Completion& completion) { return Encode(Report{{completion}, {}, {}}); }

// Every rank makes the call.
void Describe(Coordinator* coordinator, int size, const Description& description, std::vector<Outgoing>* out) {
  for (int rank = 0; rank < size; ++rank)
    EXPECT_TRUE(coordinator->OnMessage(rank, Encode(MessageKind::kDescribe, description), out).ok());
}

// One machine whose leader closes and finishes with every id at once. Returns the names that got an id.
std::vector<std::string> DescribeByAll(Coordinator* coordinator, int size, const Description& description) {
  std::vector<Outgoing> out;
  std::vector<std::string> assigned;
  Describe(coordinator, size, description, &out);
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i].rank != 0) continue;
    const Bytes message = out[i].message;  // a copy, since `out` grows
    Report report;
    if (const auto assignment = ReadAs<Assignment>(message)) {
      assigned.push_back(assignment->description.name);
      if (assignment->once) report.finished.push_back(assignment->id);
    }
    if (const auto evict = ReadAs<IdMessage>(message, MessageKind::kEvict))
      report.closed.push_back({evict->id, 1, 1, 1, 0, false});
    for (const LogItem& item : ReadAs<LogItems>(message).value_or(LogItems()).items) {
      if (item.kind == LogKind::kEvicted) report.finished.push_back(item.id);
    }
    if (!report.empty()) {
      EXPECT_TRUE(coordinator->OnMessage(0, Encode(report), &out).ok());
    }
    coordinator->Flush(&out);
  }
  return assigned;
}

TEST(CoordinatorTest, CountsGetTheirBuffersHoweverFullThePoolIs) {
  constexpr int kRanks = 8;
  Coordinator coordinator(LayoutOf(std::vector<std::string>(kRanks, "a")));
  Description small;
  small.signature.tensors = {{DType::kFloat32, {SlotLimitBytes(kRanks) / 4}}};
  for (int i = 0; i < 200; ++i) {
    small.name = "w" + std::to_string(i);
    EXPECT_EQ(DescribeByAll(&coordinator, kRanks, small), (std::vector<std::string>{small.name}));
  }
  Description gather;
  gather.signature.kind = OpKind::kAllgather;
  for (size_t tensors : {size_t{1}, size_t{1000}, size_t{100'000}}) {
    gather.name = "g" + std::to_string(tensors);
    gather.signature.tensors.assign(tensors, {DType::kFloat32, {}});
    gather.counts.assign(tensors, 2);
    EXPECT_EQ(DescribeByAll(&coordinator, kRanks, gather), (std::vector<std::string>{gather.name}));
  }
}

TEST(CoordinatorTest, WhereManyIdsAreLiveANameGetsOneForGoodAtItsSecondUse) {
  Coordinator coordinator(LayoutOf({"a", "a"}), /*max_new=*/0);
  const auto is_once = [&coordinator](const Description& description) {
    std::vector<Outgoing> out;
    Describe(&coordinator, 2, description, &out);
    return ReadAs<Assignment>(out.back().message).value().once;
  };
  for (const bool once : {true, false}) EXPECT_EQ(is_once(Base()), once);
  // Of unnamed operations with one signature the first is enough.
  for (int64_t number = 0; number < 3; ++number) {
    Description unnamed = Base();
    unnamed.name = "#123." + std::to_string(number);
    unnamed.sequence_number = number;
    EXPECT_EQ(is_once(unnamed), number == 0);
  }
  Description sets;
  sets.signature.kind = OpKind::kAddProcessSet;
  sets.signature.ranks = {0, 1};
  for (sets.sequence_number = 3; sets.sequence_number < 6; ++sets.sequence_number) {
    sets.name = "#sets." + std::to_string(sets.sequence_number);
    EXPECT_TRUE(is_once(sets));
  }
}

TEST(RecentNamesTest, TheLatestNamesAreRememberedAndNotAll) {
  RecentNames seen;
  Description description;
  const auto add = [&](int name) {
    description.name = "loss." + std::to_string(name);
    return seen.Add(description);
  };
  for (int name = 0; name < 100'000; ++name) EXPECT_FALSE(add(name));
  EXPECT_FALSE(add(0));
  EXPECT_TRUE(add(100'000 - 4 * kMaxIds));
}

// The ranks describe one operation of so many floats. Returns whether it gets buffers for its data.
bool GetsBuffers(Coordinator* coordinator, const std::string& name, int64_t elements,
                 const std::vector<bool>& awaited) {
  Description description;
  description.name = name;
  description.signature.tensors = {{DType::kFloat32, {elements}}};
  std::vector<Outgoing> out;
  for (size_t rank = 0; rank < awaited.size(); ++rank) {
    description.awaited = awaited[rank];
    const Bytes message = Encode(MessageKind::kDescribe, description);
    EXPECT_TRUE(coordinator->OnMessage(static_cast<int>(rank), message, &out).ok());
  }
  return ReadAs<Assignment>(out.back().message).value().buffer_offset >= 0;
}

TEST(CoordinatorTest, WhetherASumHasBuffersDependsOnItsSizeAndTheNumberOfRanks) {
  const auto has_buffers = [](size_t ranks, int64_t elements) {
    Coordinator coordinator(LayoutOf(std::vector<std::string>(ranks, "a")));
    return GetsBuffers(&coordinator, "w", elements, std::vector<bool>(ranks, false));
  };
  constexpr int64_t kUpTo32Kb = 8 << 10, kUpTo64Kb = 16 << 10;
  EXPECT_TRUE(has_buffers(2, kUpTo64Kb));
  EXPECT_FALSE(has_buffers(2, kUpTo64Kb + 1));
  EXPECT_TRUE(has_buffers(3, kUpTo32Kb));
  EXPECT_FALSE(has_buffers(3, kUpTo32Kb + 1));
}

TEST(CoordinatorTest, OversizedSlotsAreForOperationsThatAllRanksAwait) {
  Coordinator coordinator(LayoutOf({"a", "a"}));
  constexpr int64_t kLarge = 256 << 10;  // 1 MB
  EXPECT_TRUE(GetsBuffers(&coordinator, "both", kLarge, {true, true}));
  EXPECT_FALSE(GetsBuffers(&coordinator, "one", kLarge, {true, false}));
  EXPECT_FALSE(GetsBuffers(&coordinator, "none", kLarge, {false, false}));
  EXPECT_FALSE(GetsBuffers(&coordinator, "larger", kLarge + 1, {true, true}));
}

TEST(CoordinatorTest, OversizedSlotsOfNamesThatTheUserGaveAreFew) {
  Coordinator coordinator(LayoutOf({"a", "a"}));
  constexpr int64_t kLarge = 128 << 10;  // 512 KB, of which two ranks have two buffers each
  int large = 0;
  while (GetsBuffers(&coordinator, "large" + std::to_string(large), kLarge, {true, true})) ++large;
  EXPECT_EQ(large, 7) << "2 MB and some lines each, of 16 MB";
  EXPECT_TRUE(GetsBuffers(&coordinator, "small", 16 << 10, {true, true}));
}

// Ranks whose callers differ in whether they wait name an unnamed operation differently.
TEST(CoordinatorTest, AllHearThatTheirNamesForAnOperationDiffer) {
  for (const bool differ : {false, true}) {
    Coordinator coordinator(LayoutOf({"a", "a"}));
    std::vector<Outgoing> out;
    for (int rank = 0; rank < 2; ++rank) {
      Description description = Base();
      description.name = differ && rank == 1 ? "#1.3" : "#1.0";
      description.sequence_number = 3;
      ASSERT_TRUE(coordinator.OnMessage(rank, Encode(MessageKind::kDescribe, description), &out).ok());
    }
    int assigned = 0;
    for (const Outgoing& outgoing : out) {
      const auto assignment = ReadAs<Assignment>(outgoing.message);
      if (!assignment) continue;
      EXPECT_EQ(assignment->names_differ, differ);
      EXPECT_EQ(assignment->description.name, "#1.0");
      ++assigned;
    }
    EXPECT_EQ(assigned, 2);
  }
}

// Too large to be early.
Description InTheLog() {
  Description description = Base();
  description.signature.tensors[0].shape = {1 << 20};
  return description;
}

TEST(CoordinatorTest, AKnownOperationThatANodeHasNotComeToIsStalled) {
  Coordinator coordinator(LayoutOf({"a", "b", "b"}));
  std::vector<Outgoing> out;
  Describe(&coordinator, 3, InTheLog(), &out);
  EXPECT_TRUE(coordinator.Absences().empty());
  ASSERT_TRUE(coordinator.OnMessage(0, ReportOf(Completion{0, 1, {{0, {}}}}), &out).ok());
  const auto stalled = coordinator.Absences();
  ASSERT_EQ(stalled.size(), 1u);
  EXPECT_EQ(stalled[0].title, "allreduce 'w'");
  EXPECT_EQ(stalled[0].ranks, (std::vector<int64_t>{1, 2}));
}

// Returns the ranks for which rank 0 waits, as the coordinator says.
std::vector<int64_t> ToldWhom(Coordinator* coordinator) {
  std::vector<Outgoing> out;
  EXPECT_TRUE(coordinator->OnMessage(0, Encode(Question{0, {}}), &out).ok());
  EXPECT_EQ(out.size(), 1u);
  EXPECT_EQ(out.at(0).rank, 0);
  const Answer answer = ReadAs<Answer>(out.at(0).message).value();
  EXPECT_EQ(answer.rank, Answer::kNobody);
  const std::vector<Absence>& absences = answer.absences;
  if (absences.empty()) return {};
  EXPECT_EQ(absences.size(), 1u);
  EXPECT_EQ(absences[0].title, "allreduce 'w'");
  EXPECT_EQ(absences[0].ranks.size() + absences[0].here.size(), 3u);
  return absences[0].ranks;
}

TEST(CoordinatorTest, WhoAsksForWhomItWaitsIsToldThoseThatHaveNotCome) {
  Coordinator coordinator(LayoutOf({"a", "b", "b"}));
  std::vector<Outgoing> out;
  EXPECT_EQ(ToldWhom(&coordinator), (std::vector<int64_t>{})) << "unknown";
  ASSERT_TRUE(coordinator.OnMessage(2, Encode(MessageKind::kDescribe, InTheLog()), &out).ok());
  EXPECT_EQ(ToldWhom(&coordinator), (std::vector<int64_t>{0, 1})) << "another waits, also for the one that asks";
  ASSERT_TRUE(coordinator.OnMessage(0, Encode(MessageKind::kDescribe, InTheLog()), &out).ok());
  EXPECT_EQ(ToldWhom(&coordinator), (std::vector<int64_t>{1})) << "described";
  ASSERT_TRUE(coordinator.OnMessage(1, Encode(MessageKind::kDescribe, InTheLog()), &out).ok());
  EXPECT_EQ(ToldWhom(&coordinator), (std::vector<int64_t>{})) << "known, and nobody has come";
  ASSERT_TRUE(coordinator.OnMessage(0, ReportOf(Completion{0, 1, {{0, {}}}}), &out).ok());
  EXPECT_EQ(ToldWhom(&coordinator), (std::vector<int64_t>{1, 2})) << "known, and a node has come";
}

TEST(CoordinatorTest, TheRanksThatAreAskedForAreToldWhoAsks) {
  Coordinator coordinator(LayoutOf({"a", "b", "b"}));
  std::vector<Outgoing> out;
  ASSERT_TRUE(coordinator.OnMessage(0, Encode(Question{0, {1, 2}}), &out).ok());
  ASSERT_EQ(out.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(out[i].rank, static_cast<int>(i) + 1);
    EXPECT_EQ(ReadAs<Question>(out[i].message).value().asker, 0);
  }
  EXPECT_FALSE(coordinator.OnMessage(0, Encode(Question{0, {3}}), &out).ok()) << "there is no rank 3";
}

TEST(CoordinatorTest, SetsOfRanksThatCannotBeAreRefused) {
  const std::vector<std::vector<int64_t>> bad{{}, {2}, {0, 0}, {1, 0}, {-1}, {int64_t{1} << 40}};
  for (const std::vector<int64_t>& ranks : bad) {
    Coordinator coordinator(LayoutOf({"a", "b"}));
    Description description;
    description.signature.kind = OpKind::kAddProcessSet;
    description.signature.ranks = ranks;
    std::vector<Outgoing> out;
    EXPECT_EQ(coordinator.OnMessage(1, Encode(MessageKind::kDescribe, description), &out).code(), Code::kPeerLost);
  }
}

TEST(CoordinatorTest, CountsThatDoNotFitTheSetAreRefused) {
  Description gather = Base();
  gather.signature.kind = OpKind::kAlltoall;
  for (size_t count : {size_t{0}, size_t{1}, size_t{3}}) {
    Coordinator coordinator(LayoutOf({"a", "b"}));
    gather.counts.assign(count, 1);
    std::vector<Outgoing> out;
    EXPECT_FALSE(coordinator.OnMessage(1, Encode(MessageKind::kDescribe, gather), &out).ok()) << count;
  }
  Coordinator coordinator(LayoutOf({"a", "b"}));
  gather.counts.assign(2, 1);
  std::vector<Outgoing> out;
  EXPECT_TRUE(coordinator.OnMessage(1, Encode(MessageKind::kDescribe, gather), &out).ok());
}

TEST(CoordinatorTest, ShapesWhoseBytesExceed64BitsAreRefused) {
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kAllgather}) {
    Description description = Base();
    description.signature.kind = kind;
    if (RowsDiffer(kind)) description.counts = {0};
    description.signature.tensors[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
    Coordinator coordinator(LayoutOf({"a", "b"}));
    std::vector<Outgoing> out;
    EXPECT_FALSE(coordinator.OnMessage(1, Encode(MessageKind::kDescribe, description), &out).ok()) << NameOf(kind);
    description.signature.tensors[0].shape = {int64_t{1} << 40, 1};
    EXPECT_TRUE(coordinator.OnMessage(1, Encode(MessageKind::kDescribe, description), &out).ok()) << NameOf(kind);
  }
}

TEST(ProcessSetsTest, ASetTakesTheLowestChannelThatNoCommonRankUses) {
  ProcessSets sets(LayoutOf({"a", "a", "b", "b"}), 1);
  EXPECT_EQ(sets.Find(0)->channel, 0);
  EXPECT_EQ(sets.Add({0, 1}), 1);
  EXPECT_EQ(sets.Add({2, 3}), 2);
  EXPECT_EQ(sets.Add({1, 2}), 3);
  EXPECT_EQ(sets.Find(1)->channel, 1);
  EXPECT_EQ(sets.Find(2)->channel, 1) << "no common rank";
  EXPECT_EQ(sets.Find(3)->channel, 2);
  EXPECT_EQ(sets.Find(1)->position, 1);
  EXPECT_EQ(sets.Find(2)->position, -1);
  EXPECT_TRUE(sets.Find(1)->local());
  EXPECT_FALSE(sets.Find(3)->local());
  sets.Remove(1);
  EXPECT_EQ(sets.Find(1), nullptr);
  EXPECT_EQ(sets.Add({0, 1, 2}), 4) << "ids are not given out again";
  EXPECT_EQ(sets.Find(4)->channel, 3) << "1 and 2 are taken by ranks 2 and 1";
  EXPECT_TRUE(sets.IsFuture(5));
  EXPECT_FALSE(sets.IsFuture(4));
  EXPECT_FALSE(sets.IsFuture(1 << 20));
}

TEST(ProcessSetsTest, ARankIsInNoMoreSetsThanThereAreChannels) {
  ProcessSets sets(LayoutOf({"a", "a"}), 0);
  for (int i = 1; i < kMaxChannels; ++i) EXPECT_EQ(sets.Add({0}), i);
  EXPECT_EQ(sets.Add({0}), -1);
  EXPECT_EQ(sets.Add({0, 1}), -1);
  EXPECT_EQ(sets.Add({1}), kMaxChannels);
  sets.Remove(7);
  EXPECT_EQ(sets.Add({0}), kMaxChannels + 1);
}

}  // namespace
}  // namespace farandole
