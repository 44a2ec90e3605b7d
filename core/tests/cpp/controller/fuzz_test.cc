// Messages of every kind with some bytes changed: the coordinator and both kinds of member refuse them or accept them,
// and never crash. Worth most under the address and undefined-behaviour sanitizers. FARANDOLE_SEEDS=20000 for a long
// run, of 56 million messages.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>

#include "controller/coordinator.h"
#include "controller/described.h"
#include "controller/negotiation.h"
#include "support/pages.h"
#include "support/seeds.h"

namespace farandole {
namespace {

Description Describe(const std::string& name, OpKind kind) {
  Description description;
  description.name = name;
  description.signature.kind = kind;
  if (CarriesTensors(kind)) description.signature.tensors = {{DType::kFloat32, {2, 3}}};
  if (kind == OpKind::kAllgather) description.counts = {4};
  if (kind == OpKind::kAddProcessSet) description.signature.ranks = {0, 1};
  if (kind == OpKind::kRemoveProcessSet) description.signature.ranks = {1};
  return description;
}

Description InSet(int set) {
  Description description = Describe("p", OpKind::kAllreduce);
  description.signature.set = set;
  return description;
}

const std::vector<Description>& Descriptions() {
  static const std::vector<Description> all{Describe("w", OpKind::kAllreduce),
                                            Describe("g", OpKind::kAllgather),
                                            Describe("b", OpKind::kBroadcast),
                                            Describe("s", OpKind::kBarrier),
                                            Describe("#sets.0", OpKind::kAddProcessSet),
                                            Describe("#sets.1", OpKind::kRemoveProcessSet),
                                            InSet(1)};
  return all;
}

const Layout& CachedLayout(const std::vector<std::string>& machines) {
  static std::map<std::vector<std::string>, Layout> all;
  return all.try_emplace(machines, LayoutOf(machines)).first->second;
}

// Assigns this id to the description.
Assignment AssignmentOf(int id, const Description& description, Protocol protocol, int64_t buffer_offset) {
  return {id, protocol, buffer_offset, static_cast<uint32_t>(id) + 1, false, false, description};
}

// Assigns its number to one of Descriptions().
Assignment AssignmentOf(int id, const Layout& layout) {
  const Description& description = Descriptions()[static_cast<size_t>(id)];
  const ProcessSet world = WholeWorld(layout, 0);
  OperationFacts facts = FactsOf(description.signature, world);
  facts.has_early_lanes = HasEarlyLanes(layout);
  const Protocol protocol = ChooseProtocol(facts);
  const bool has_buffers = BufferBytesOf(description.signature, world, protocol) > 0;
  return AssignmentOf(id, description, protocol, has_buffers ? id * 4096 : -1);
}

// Valid messages about the first ids, so that a few changed bytes still mean something.
std::vector<Bytes> ValidMessages(const Layout& layout) {
  std::vector<Bytes> all{Encode(Abort{static_cast<int32_t>(Code::kPeerLost), 1, "gone"}),
                         Encode(MessageKind::kJoin, Join{0, {{0, 3}, {1, 4}}}),
                         Encode(MessageKind::kJoinEnd, Join{1, {{0, 3}}}),
                         Encode(Answer{0, 1, "train.py:12", {}}),
                         Encode(MessageKind::kDescribe, RefusalOf(0, "", 0, "train.py:12", "no")),
                         Encode(MessageKind::kDescribe, RefusalOf(0, Descriptions()[0].name, -1, "", "no"))};
  const auto count = static_cast<int>(Descriptions().size());
  for (int id = 0; id < count; ++id) {
    const Description& description = Descriptions()[static_cast<size_t>(id)];
    const size_t each = description.signature.CountsPerRank(layout.size());
    const std::vector<int64_t> counts(each * static_cast<size_t>(layout.size()), 4);
    const LogKind ready = layout.node_count() == 1 ? LogKind::kReady : LogKind::kReadyInterNode;
    const Completion completion{id, 1, {{id % layout.node_count(), std::vector<int64_t>(each, 4)}}};
    all.push_back(Encode(MessageKind::kDescribe, description));
    all.push_back(Encode(Error{description.signature.set, description.name, Code::kInvalid, "no"}));
    all.push_back(Encode(AssignmentOf(id, layout)));
    Assignment once = AssignmentOf(id, description, Protocol::kNegotiated, description.counts.empty() ? -1 : id * 4096);
    once.once = true;
    all.push_back(Encode(once));
    all.push_back(Encode(Question{0, {0, 1}}));
    all.push_back(Encode(Question{1, {}}));
    all.push_back(Encode(Answer{0, Answer::kNobody, "", {{description.name, {0, 1}, {2}}, {"", {}, {}}}}));
    all.push_back(Encode(Report{{completion}, {}, {}}));
    all.push_back(Encode(Report{{}, {{id, 1, 1, 1, 1, false}}, {}}));
    all.push_back(Encode(Report{{}, {}, {id}}));
    all.push_back(
        Encode(LogItems{{{ready, id, description.signature.set, 1, counts}, {LogKind::kEndOfBatch, 0, 0, 0, {}}}}));
    all.push_back(Encode(LogItems{{{LogKind::kEvicted, id, description.signature.set, 1, {}}}}));
    all.push_back(Encode(Leave{id}));
    for (auto kind : {MessageKind::kStuck, MessageKind::kEvict}) all.push_back(EncodeIdMessage(kind, id));
  }
  return all;
}

// Of another rank's early message; some are such as no rank sends.
MessageTag RandomTag(std::mt19937* random) {
  MessageTag tag{0, 1, GenerationOf(1 + (*random)() % 3, -1), 0, 0, Lane::kEarly};
  constexpr int32_t kIds[] = {-1, 1, 7, kMaxIds};
  if ((*random)() % 4 == 0) tag.id = kIds[(*random)() % 4];
  if ((*random)() % 4 == 0) tag.serial = static_cast<uint32_t>((*random)() % 5);
  if ((*random)() % 4 == 0) tag.operation = (*random)();
  return tag;
}

Bytes Mutated(Bytes bytes, std::mt19937* random) {
  constexpr uint8_t kEdges[] = {0, 1, 0x7f, 0x80, 0xff};
  if ((*random)() % 8 == 0) bytes.resize((*random)() % bytes.size());
  for (size_t i = (*random)() % 4; i > 0 && !bytes.empty(); --i) {
    bytes[(*random)() % bytes.size()] = (*random)() % 2 ? kEdges[(*random)() % 5] : static_cast<uint8_t>((*random)());
  }
  return bytes;
}

TEST(FuzzTest, TheCoordinatorSurvivesAnyMessage) {
  const Seeds seeds = SeedsFromEnvironment(300);
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    const Layout& layout =
        CachedLayout(seed % 2 ? std::vector<std::string>{"a", "b"} : std::vector<std::string>{"a", "a"});
    static std::map<const Layout*, std::vector<Bytes>> messages;
    const std::vector<Bytes>& valid = messages.try_emplace(&layout, ValidMessages(layout)).first->second;
    Coordinator coordinator(layout);
    std::vector<Outgoing> out;
    for (int i = 0; i < 300; ++i) {
      const Bytes& message = valid[random() % valid.size()];
      const bool faithful = random() % 4 == 0;  // some unchanged, so that ids become live
      coordinator.OnMessage(static_cast<int>(random() % 2), faithful ? message : Mutated(message, &random), &out);
      if (random() % 3 == 0) coordinator.Flush(&out);
      coordinator.Absences();
      out.clear();
    }
  }
}

struct Member {
  Member(const Layout& layout, int rank) : memory(NodeMemory::BytesFor(2)), negotiation(layout, rank, memory.data()) {}
  Pages memory;
  Negotiation negotiation;
  Ticket latest = 0;
  Admission early;
  bool joined = false;

  void Join() {
    negotiation.SendJoin({{0, 7}});
    joined = true;
  }
  void See(const std::vector<Negotiation::Event>& events) {
    for (const Negotiation::Event& event : events) {
      joined = joined && event.kind != Negotiation::Event::kJoinEnd;
      for (const auto& item : event.items) {
        if (item.ticket == early.ticket) early = {};
      }
    }
  }

  // Ends the operation, as the engine does when the data are reduced.
  void EndEarly() {
    if (!early.early || !negotiation.MissingRanks(early.ticket).empty()) return;
    negotiation.EndEarly(early.ticket);
    early = {};
  }

  // Submits as a framework would, whatever rank 0 makes of it.
  void Submit(std::mt19937* random) {
    Description description = Descriptions()[(*random)() % Descriptions().size()];
    if ((*random)() % 4 == 0) description.name = Descriptions()[(*random)() % 4].name;
    if (joined) return;
    Admission admission;
    if (!negotiation.Submit(ReadyDescription(description), &admission).ok()) return;
    latest = admission.ticket;
    if (admission.id < 0) return;
    if (admission.slots) return Write(description, &admission);
    const Negotiation::Arrived arrived = negotiation.Arrive(admission);
    if (arrived == Negotiation::Arrived::kEvicted) negotiation.Redescribe(admission.ticket);
    if (arrived == Negotiation::Arrived::kLast && admission.early) early = admission;
    if (arrived == Negotiation::Arrived::kLast && !admission.early) negotiation.PublishComplete(admission);
  }
  void Write(const Description& description, Admission* admission) {
    const float data[6] = {1, 2, 3, 4, 5, 6};
    const SlotTensor tensor{data, nullptr, DType::kFloat32, 6};
    admission->slots->Write(&tensor, description.signature.tensors.size(), admission->generation());
    if (negotiation.CanAdvance(*admission) && negotiation.IsSmall(admission->ticket))
      negotiation.EndSmall(admission->ticket);
  }
};

void FuzzMember(const std::vector<std::string>& machines, int rank) {
  const std::vector<Bytes> valid = ValidMessages(CachedLayout(machines));
  std::vector<Negotiation::Event> events;
  const Seeds seeds = SeedsFromEnvironment(150);
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    Member member(CachedLayout(machines), rank);
    for (int i = 0; i < 500; ++i) {
      if (random() % 3 == 0) member.Submit(&random);
      const Bytes& message = valid[random() % valid.size()];
      const auto assignment = ReadAs<Assignment>(message);  // of a future set: all behind it would wait
      if (assignment && !member.negotiation.FindSet(assignment->description.signature.set)) continue;
      member.negotiation.OnMessage(random() % 2 ? message : Mutated(message, &random), &events);
      if (member.negotiation.HasNews()) member.negotiation.Advance(&events);
      member.See(events);
      events.clear();
      member.negotiation.WantsMessage(RandomTag(&random));
      member.EndEarly();
      if (seed % 3 == 0 && i == 100) member.Join();
      member.negotiation.RequestDoorbells();
      for (Ticket ticket : member.negotiation.ReadySmall()) member.negotiation.EndSmall(ticket);
      member.negotiation.ReportStuck(member.latest);
      member.negotiation.MissingRanks(member.latest);
      member.negotiation.outbox().Take();
    }
  }
}

// A leader clears the generations of its buffers as soon as it hears of the id.
TEST(LeadTest, AnEarlyIdOfANodeNeedsItsBuffers) {
  const Layout& layout = CachedLayout({"a", "a", "b"});
  const Assignment valid = AssignmentOf(0, layout);
  ASSERT_EQ(valid.protocol, Protocol::kEarly);
  std::vector<Negotiation::Event> events;
  for (const bool has_buffers : {false, true}) {
    Member member(layout, 0);
    Admission admission;
    ASSERT_TRUE(member.negotiation.Submit(ReadyDescription(Descriptions()[0]), &admission).ok());
    Assignment assignment = valid;
    if (!has_buffers) assignment.buffer_offset = -1;
    EXPECT_EQ(member.negotiation.OnMessage(Encode(assignment), &events).ok(), has_buffers);
  }
}

TEST(FuzzTest, ALeaderSurvivesAnyMessage) { FuzzMember({"a", "a", "b"}, 0); }
TEST(FuzzTest, TheLeaderOfTheOnlyNodeSurvivesAnyMessage) { FuzzMember({"a", "a"}, 0); }
TEST(FuzzTest, ANodeOfOneSurvivesAnyMessage) { FuzzMember({"a", "a", "b"}, 2); }
TEST(FuzzTest, ARankThatSharesNoMemorySurvivesAnyMessage) { FuzzMember({"a", "b", "c"}, 0); }
TEST(FuzzTest, ARankThatDoesNotLeadSurvivesAnyMessage) { FuzzMember({"a", "a", "b"}, 1); }

TEST(FitsSetTest, OnlyTheWholeWorldChangesItsProcessSets) {
  Description removal;
  removal.signature.kind = OpKind::kRemoveProcessSet;
  removal.signature.ranks = {1};
  EXPECT_TRUE(FitsSet(removal, 2, 2));
  removal.signature.set = 1;
  EXPECT_FALSE(FitsSet(removal, 2, 2));
}

Status Decoded(const Description& description) {
  Coordinator coordinator(CachedLayout({"a", "b"}));
  std::vector<Outgoing> out;
  return coordinator.OnMessage(1, Encode(MessageKind::kDescribe, description), &out);
}

// The engine reduces the result from the buffer after Advance has returned, and only then may another id get the
// buffer.
TEST(ReleaseTest, AnIdIsFreeOnlyWhenItsLastResultHasBeenTaken) {
  const Layout& layout = CachedLayout({"a", "a"});
  Member member(layout, 0);
  const NodeMemory node(member.memory.data(), 0, 2);
  Negotiation& negotiation = member.negotiation;
  std::vector<Negotiation::Event> events;
  Admission admission;
  ASSERT_TRUE(negotiation.Submit(ReadyDescription(Descriptions()[0]), &admission).ok());
  const Assignment assignment = AssignmentOf(5, Descriptions()[0], Protocol::kSlots, 0);
  ASSERT_TRUE(negotiation.OnMessage(Encode(assignment), &events).ok());
  ASSERT_TRUE(negotiation.OnMessage(Encode(LogItems{{{LogKind::kReady, 5, 0, 0, {}}}}), &events).ok());
  ASSERT_TRUE(negotiation.Advance(&events));
  ASSERT_TRUE(negotiation.Submit(ReadyDescription(Descriptions()[0]), &admission).ok());
  const float data[6] = {};
  const SlotTensor tensor{data, nullptr, DType::kFloat32, 6};
  admission.slots->Write(&tensor, 1, admission.generation());
  ASSERT_TRUE(admission.slots->payload_is_in_line());  // so the memory begins with the first payload
  SlotBuffer other(admission.slots->payload_to_write(0), 2, sizeof data, /*self=*/1);
  other.Write(&tensor, 1, admission.generation());
  ASSERT_TRUE(negotiation.CanAdvance(admission));
  ASSERT_TRUE(negotiation.OnMessage(EncodeIdMessage(MessageKind::kEvict, 5), &events).ok());
  EXPECT_FALSE(negotiation.CanAdvance(admission)) << "the log says what it is worth";
  ASSERT_TRUE(negotiation.OnMessage(Encode(LogItems{{{LogKind::kEvicted, 5, 0, 1, {}}}}), &events).ok());
  events.clear();
  ASSERT_TRUE(negotiation.Advance(&events));
  ASSERT_EQ(events.size(), 1u);
  ASSERT_EQ(events[0].kind, Negotiation::Event::kTake);
  NodeMemory(member.memory.data(), 1, 2).counters.DoneWith(5, 2);
  EXPECT_FALSE(node.counters.AllDoneWith(5, 2));
  EXPECT_TRUE(negotiation.HasNews()) << "the driver must come back";
  negotiation.outbox().TakeRing();
  negotiation.outbox().Take();
  EXPECT_TRUE(negotiation.Advance(&events));
  EXPECT_TRUE(negotiation.outbox().TakeRing());
  ASSERT_FALSE(negotiation.outbox().empty());
  EXPECT_EQ(negotiation.outbox().Take().back(), Encode(Report{{}, {}, {5}}));
}

TEST(BatchTest, MayHaveMoreEntriesThanTheLog) {
  constexpr int kOperations = 6;
  const Layout& layout = CachedLayout({"a", "b"});
  Pages memory(NodeMemory::BytesFor(1));
  Negotiation::Limits limits;
  limits.log_entries = 4;
  Negotiation negotiation(layout, 0, memory.data(), limits);
  std::vector<Negotiation::Event> events;
  LogItems log;
  for (int id = 0; id < kOperations; ++id) {
    Description description = Descriptions()[0];
    description.name = "sum" + std::to_string(id);
    Admission admission;
    ASSERT_TRUE(negotiation.Submit(ReadyDescription(description), &admission).ok());
    const Assignment assignment = AssignmentOf(id, description, Protocol::kNegotiated, -1);
    ASSERT_TRUE(negotiation.OnMessage(Encode(assignment), &events).ok());
    log.items.push_back({LogKind::kReadyInterNode, id, 0, 0, {}});
  }
  log.items.push_back({LogKind::kEndOfBatch, 0, 0, 0, {}});
  ASSERT_TRUE(negotiation.OnMessage(Encode(log), &events).ok());
  while (negotiation.Advance(&events)) continue;
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].items.size(), static_cast<size_t>(kOperations));
}

// A leader evicts the id while the last arriver has still to take the use back: both see that the generations differ.
TEST(EvictionTest, AUseWhoseMembersMeantDifferentOperationsIsNotComplete) {
  const Layout& layout = CachedLayout({"a", "a"});
  Member leader(layout, 0);
  std::vector<Negotiation::Event> events;
  for (const auto& [sequence_numbers, uses] : {std::pair{std::pair{5, 69}, 0}, std::pair{std::pair{5, 5}, 1}}) {
    const int id = uses;
    Description description = Descriptions()[0];
    description.name = "w" + std::to_string(id);
    Admission admission;
    ASSERT_TRUE(leader.negotiation.Submit(ReadyDescription(description), &admission).ok());
    leader.negotiation.outbox().Take();
    const Assignment assignment = AssignmentOf(id, description, Protocol::kNegotiated, -1);
    ASSERT_TRUE(leader.negotiation.OnMessage(Encode(assignment), &events).ok());
    NodeMemory(leader.memory.data(), 0, 2).counters.Arrive(id, GenerationOf(1, sequence_numbers.first), 2);
    NodeMemory(leader.memory.data(), 1, 2).counters.Arrive(id, GenerationOf(1, sequence_numbers.second), 2);
    ASSERT_TRUE(leader.negotiation.OnMessage(EncodeIdMessage(MessageKind::kEvict, id), &events).ok());
    leader.negotiation.Advance(&events);
    const std::vector<Bytes> said = leader.negotiation.outbox().Take();
    ASSERT_EQ(said.size(), 1u);
    const auto completed = static_cast<uint64_t>(uses);
    EXPECT_EQ(said[0], Encode(Report{{}, {{id, 1, completed, completed, 0, false}}, {}}));
  }
}

// A message about a set whose log entry this rank has not read waits for that, and so do all messages behind it.
TEST(DeferredTest, MessagesAboutASetOfTheFutureWait) {
  const Layout& layout = CachedLayout({"a", "a"});
  Member member(layout, 0);
  Negotiation& negotiation = member.negotiation;
  std::vector<Negotiation::Event> events;
  Admission admission;
  Description addition = Descriptions()[4];
  addition.sequence_number = 0;    // unnamed: all ranks call it
  addition.signature.ranks = {1};  // this rank is not in the set, and only leads the node
  ASSERT_TRUE(negotiation.Submit(ReadyDescription(addition), &admission).ok());
  const auto assigned = [&](int id, const Description& description) {
    return negotiation.OnMessage(Encode(AssignmentOf(id, description, Protocol::kNegotiated, -1)), &events).ok();
  };
  ASSERT_TRUE(assigned(0, addition));
  ASSERT_TRUE(negotiation.OnMessage(Encode(LogItems{{{LogKind::kReady, 0, 0, 0, {}}}}), &events).ok());
  ASSERT_TRUE(assigned(1, InSet(1))) << "set 1 is in the log, unread";
  ASSERT_TRUE(negotiation.OnMessage(Encode(Abort{static_cast<int32_t>(Code::kPeerLost), 1, "gone"}), &events).ok());
  EXPECT_TRUE(events.empty());
  EXPECT_TRUE(negotiation.HasNews());
  ASSERT_TRUE(negotiation.Advance(&events));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, Negotiation::Event::kBatch);
  EXPECT_EQ(events[0].items[0].new_set, 1);
  EXPECT_EQ(events[1].kind, Negotiation::Event::kAbort);
  EXPECT_FALSE(assigned(2, InSet(1 << 20))) << "no such future";
}

// A job may have more ranks than ids.
TEST(LargeWorldTest, ARankAboveTheIdsLeavesUnderItsOwnNumber) {
  constexpr int kLeaver = kMaxIds + 5;
  std::vector<std::string> machines;
  for (int rank = 0; rank <= kLeaver; ++rank) machines.push_back(std::to_string(rank / 2));
  const Layout layout = LayoutOf(machines);
  Pages there(NodeMemory::BytesFor(2)), here(NodeMemory::BytesFor(2));
  Negotiation leaver(layout, kLeaver, there.data()), beside(layout, kLeaver - 1, there.data());
  ASSERT_TRUE(leaver.LogLeaving());
  leaver.SendLeaving();
  const auto left = [](Negotiation* negotiation) {
    std::vector<Negotiation::Event> events;
    while (negotiation->Advance(&events)) continue;
    return events.size() == 1 && events[0].kind == Negotiation::Event::kLeft ? events[0].rank : -1;
  };
  EXPECT_EQ(beside.Leaving(), std::set<int>{kLeaver});
  EXPECT_EQ(left(&beside), kLeaver);
  Coordinator coordinator(layout);
  std::vector<Outgoing> out;
  for (const Bytes& message : leaver.outbox().Take()) ASSERT_TRUE(coordinator.OnMessage(kLeaver, message, &out).ok());
  ASSERT_FALSE(out.empty());
  ASSERT_EQ(out[0].rank, 0);
  Negotiation leader(layout, 0, here.data());
  std::vector<Negotiation::Event> events;
  ASSERT_TRUE(leader.OnMessage(out[0].message, &events).ok());
  EXPECT_EQ(left(&leader), kLeaver);
}

TEST(DecodeTest, ADescriptionOutOfRangeIsRefused) {
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(Decoded(Descriptions()[static_cast<size_t>(i)]).ok()) << i;
  std::vector<Description> bad(10, Descriptions()[1]);
  bad[0].signature.kind = static_cast<OpKind>(kOpKindCount);
  bad[1].signature.reduce = static_cast<ReduceOp>(kReduceOpCount);
  bad[2].signature.tensors[0].dtype = static_cast<DType>(kDTypeCount);
  bad[3].signature.tensors[0].shape = {3, -1};
  bad[4].counts = {};
  bad[5].counts = {1, 2};
  bad[6].counts = {-1};
  bad[7].signature.kind = OpKind::kAllreduce;  // with counts
  bad[8].signature.tensors = {};
  bad[8].counts = {};
  bad[9] = Descriptions()[0];
  bad[9].signature.tensors[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
  for (size_t i = 0; i < bad.size(); ++i) EXPECT_EQ(Decoded(bad[i]).code(), Code::kPeerLost) << i;
}

TEST(DecodeTest, AnAbortIsNeverASuccess) {
  Member member(CachedLayout({"a", "a"}), 1);
  for (int code : {0, -1, 8, 1 << 30, static_cast<int>(Code::kDeadline)}) {
    std::vector<Negotiation::Event> events;
    ASSERT_TRUE(member.negotiation.OnMessage(Encode(Abort{code, 99, "why"}), &events).ok());
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].status.code(), code == 4 ? Code::kDeadline : Code::kInternal) << code;
    EXPECT_EQ(events[0].rank, -1);
  }
}

TEST(DecodeTest, RangesBeyondThePoolAreRefused) {
  const auto end = static_cast<int64_t>(kBufferPoolBytes);
  for (int64_t offset : {int64_t{-1}, int64_t{-4096}, int64_t{64}, end, end - 8, INT64_MAX}) {
    Member member(CachedLayout({"a", "a"}), 0);
    std::vector<Negotiation::Event> events;
    Admission admission;
    ASSERT_TRUE(member.negotiation.Submit(ReadyDescription(Descriptions()[1]), &admission).ok());
    const auto assigned = [&](int64_t at) {
      const Assignment assignment = AssignmentOf(0, Descriptions()[1], Protocol::kNegotiated, at);
      return member.negotiation.OnMessage(Encode(assignment), &events).ok();
    };
    EXPECT_FALSE(assigned(offset)) << offset;
    EXPECT_TRUE(assigned(4096));
  }
}

TEST(DecodeTest, OnlyAnIdInUseCanBeComplete) {
  Coordinator coordinator(CachedLayout({"a", "b"}));
  std::vector<Outgoing> out;
  EXPECT_FALSE(coordinator.OnMessage(1, Encode(Report{{{7, 1, {{1, {}}}}}, {}, {}}), &out).ok());
  EXPECT_FALSE(coordinator.OnMessage(1, Encode(Report{{}, {{7, 1, 1, 1, 0, false}}, {}}), &out).ok());
  EXPECT_FALSE(coordinator.OnMessage(1, Encode(Report{{}, {}, {7}}), &out).ok());
}

}  // namespace
}  // namespace farandole
