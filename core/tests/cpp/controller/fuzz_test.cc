// Messages of every kind with some bytes changed: the coordinator and both kinds of member refuse them or take them,
// and never fall. Worth most under the address and undefined-behaviour sanitizers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>

#include "controller/agreement.h"
#include "controller/coordinator.h"
#include "support/pages.h"

namespace farandole {
namespace {

Layout LayoutOf(const std::vector<std::string>& machines) {
  std::vector<Card> cards;
  for (const std::string& machine : machines) cards.push_back({"h", machine, 1, true, ""});
  return MakeLayout(cards, std::vector<bool>(cards.size(), false));
}

Description Describe(const std::string& name, OpKind kind) {
  Description description;
  description.name = name;
  description.signature.kind = kind;
  if (kind != OpKind::kBarrier) description.signature.tensors = {{DType::kFloat32, {2, 3}}};
  if (kind == OpKind::kAllgather) description.extents = {4};
  return description;
}

const std::vector<Description>& Descriptions() {
  static const std::vector<Description> all{Describe("w", OpKind::kAllreduce), Describe("g", OpKind::kAllgather),
                                            Describe("b", OpKind::kBroadcast), Describe("s", OpKind::kBarrier)};
  return all;
}

// What is said in good order about the first ids, so that a few changed bytes still mean something.
std::vector<Bytes> ValidMessages() {
  std::vector<Bytes> all{EncodeAbort(static_cast<int>(Code::kPeerLost), 1, "gone")};
  for (const Description& description : Descriptions()) {
    all.push_back(EncodeDescribe(description));
    all.push_back(EncodeError(description.name, "no"));
  }
  for (int id = 0; id < 4; ++id) {
    const std::string& name = Descriptions()[static_cast<size_t>(id)].name;
    all.push_back(EncodeAssign(name, id, id == 2 ? -1 : id * 4096));
    all.push_back(EncodeComplete(id, 1, id == 1 ? std::vector<int64_t>{4, 4} : std::vector<int64_t>{}));
    all.push_back(EncodeReady({{id, 1, 4096, id == 1 ? std::vector<int64_t>{4, 4, 4} : std::vector<int64_t>{}}}));
    for (auto kind : {MessageKind::kStuck, MessageKind::kLeave, MessageKind::kRetireInfo, MessageKind::kFree,
                      MessageKind::kRetire, MessageKind::kRetired, MessageKind::kLeft}) {
      all.push_back(EncodeIdMessage(kind, id, 1));
    }
  }
  return all;
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
  const std::vector<Bytes> valid = ValidMessages();
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    Coordinator coordinator(
        LayoutOf(seed % 2 ? std::vector<std::string>{"a", "b"} : std::vector<std::string>{"a", "a"}));
    std::vector<Outgoing> out;
    for (int i = 0; i < 300; ++i) {
      const Bytes& message = valid[random() % valid.size()];
      const bool faithful = random() % 4 == 0;  // some, so that ids come to life
      coordinator.OnMessage(static_cast<int>(random() % 2), faithful ? message : Mutated(message, &random), &out);
      if (random() % 3 == 0) coordinator.Flush(&out);
      coordinator.Stalled();
      out.clear();
    }
  }
}

struct Member {
  Member(const Layout& layout, int rank)
      : memory(ZeroedPages(Board::BytesFor(2)), &std::free), agreement(layout, rank, memory.get()) {}
  std::unique_ptr<std::byte, void (*)(void*)> memory;
  Agreement agreement;
  Ticket next = 1;

  // Submits as a framework would, in disregard of what rank 0 makes of it.
  void Submit(std::mt19937* random) {
    Description description = Descriptions()[(*random)() % 4];
    if ((*random)() % 4 == 0) description.name = Descriptions()[(*random)() % 4].name;
    Agreement::Plan plan;
    if (!agreement.Submit(description, next++, &plan).ok() || plan.id < 0) return;
    const Agreement::Arrived arrived = agreement.Arrive(plan);
    if (arrived == Agreement::Arrived::kRetired) agreement.Redescribe(plan.ticket);
    if (arrived == Agreement::Arrived::kLast) agreement.CompleteTogether(plan);
  }
};

void FuzzMember(const std::vector<std::string>& machines, int rank) {
  const std::vector<Bytes> valid = ValidMessages();
  std::vector<Agreement::Event> events;
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    Member member(LayoutOf(machines), rank);
    for (int i = 0; i < 500; ++i) {
      if (random() % 3 == 0) member.Submit(&random);
      const Bytes& message = valid[random() % valid.size()];
      member.agreement.OnMessage(random() % 2 ? message : Mutated(message, &random), &events);
      if (member.agreement.HasNews()) member.agreement.Advance(&events);
      member.agreement.ReportStuck(member.next - 1);
      member.agreement.MissingRanks(member.next - 1);
      member.agreement.TakeOutgoing();
      events.clear();
    }
  }
}

TEST(FuzzTest, ALeaderSurvivesAnyMessage) { FuzzMember({"a", "a", "b"}, 0); }
TEST(FuzzTest, TheLeaderOfTheOnlyGroupSurvivesAnyMessage) { FuzzMember({"a", "a"}, 0); }
TEST(FuzzTest, AGroupOfOneSurvivesAnyMessage) { FuzzMember({"a", "a", "b"}, 2); }
TEST(FuzzTest, ARankThatDoesNotLeadSurvivesAnyMessage) { FuzzMember({"a", "a", "b"}, 1); }

Status Decoded(const Description& description) {
  Coordinator coordinator(LayoutOf({"a", "b"}));
  std::vector<Outgoing> out;
  return coordinator.OnMessage(1, EncodeDescribe(description), &out);
}

// The engine copies a result out of the span after Advance has returned, and only then may the span be another id's.
TEST(ReleaseTest, AnIdIsFreeOnlyWhenItsLastResultHasBeenTaken) {
  Member member(LayoutOf({"a"}), 0);
  const Board board(member.memory.get(), 0, 1);
  Agreement& agreement = member.agreement;
  std::vector<Agreement::Event> events;
  Agreement::Plan plan;
  ASSERT_TRUE(agreement.Submit(Descriptions()[0], 1, &plan).ok());
  ASSERT_TRUE(agreement.OnMessage(EncodeAssign("w", 5, 0), &events).ok());
  ASSERT_TRUE(agreement.OnMessage(EncodeReady({{5, 0, 0, {}}}), &events).ok());
  ASSERT_TRUE(agreement.Advance(&events));
  ASSERT_TRUE(agreement.Submit(Descriptions()[0], 2, &plan).ok());
  ASSERT_EQ(agreement.Arrive(plan), Agreement::Arrived::kLast);
  agreement.CompleteAlone(plan);
  ASSERT_TRUE(agreement.OnMessage(EncodeIdMessage(MessageKind::kRetire, 5), &events).ok());
  ASSERT_TRUE(agreement.OnMessage(EncodeIdMessage(MessageKind::kRetired, 5, 1), &events).ok());
  events.clear();
  ASSERT_TRUE(agreement.Advance(&events));
  ASSERT_EQ(events.size(), 1u);
  ASSERT_EQ(events[0].kind, Agreement::Event::kTake);
  EXPECT_FALSE(board.AllDoneWith(5));
  EXPECT_TRUE(agreement.HasNews()) << "the driver must come back";
  agreement.TakeRing();
  agreement.TakeOutgoing();
  EXPECT_TRUE(agreement.Advance(&events));
  EXPECT_TRUE(agreement.TakeRing());
  EXPECT_EQ(agreement.TakeOutgoing().back(), EncodeIdMessage(MessageKind::kFree, 5));
}

TEST(DecodeTest, ADescriptionOutOfRangeIsRefused) {
  for (const Description& good : Descriptions()) EXPECT_TRUE(Decoded(good).ok()) << good.name;
  std::vector<Description> bad(10, Descriptions()[1]);
  bad[0].signature.kind = static_cast<OpKind>(kOpKindCount);
  bad[1].signature.reduce = static_cast<ReduceOp>(kReduceOpCount);
  bad[2].signature.tensors[0].dtype = static_cast<DType>(kDTypeCount);
  bad[3].signature.tensors[0].shape = {3, -1};
  bad[4].extents = {};
  bad[5].extents = {1, 2};
  bad[6].extents = {-1};
  bad[7].signature.kind = OpKind::kAllreduce;  // with extents
  bad[8].signature.tensors = {};
  bad[8].extents = {};
  bad[9] = Descriptions()[0];
  bad[9].signature.tensors[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
  for (size_t i = 0; i < bad.size(); ++i) EXPECT_EQ(Decoded(bad[i]).code(), Code::kPeerLost) << i;
}

TEST(DecodeTest, AnAbortIsNeverASuccess) {
  Member member(LayoutOf({"a", "a"}), 1);
  for (int code : {0, -1, 7, 1 << 30, static_cast<int>(Code::kDeadline)}) {
    std::vector<Agreement::Event> events;
    ASSERT_TRUE(member.agreement.OnMessage(EncodeAbort(code, 99, "why"), &events).ok());
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].status.code(), code == 4 ? Code::kDeadline : Code::kInternal) << code;
    EXPECT_EQ(events[0].rank, -1);
  }
}

TEST(DecodeTest, SpansBeyondTheBoardAreRefused) {
  const auto end = static_cast<int64_t>(kSpanBytes);
  for (int64_t offset : {int64_t{-1}, int64_t{-4096}, end, end - 8, INT64_MAX}) {
    Member member(LayoutOf({"a", "a"}), 0);
    std::vector<Agreement::Event> events;
    Agreement::Plan plan;
    ASSERT_TRUE(member.agreement.Submit(Descriptions()[1], 1, &plan).ok());
    EXPECT_FALSE(member.agreement.OnMessage(EncodeAssign("g", 0, offset), &events).ok()) << offset;
    EXPECT_FALSE(member.agreement.OnMessage(EncodeReady({{0, 1, offset, {4, 4}}}), &events).ok()) << offset;
  }
}

TEST(DecodeTest, OnlyAnIdInUseCanBeComplete) {
  Coordinator coordinator(LayoutOf({"a", "b"}));
  std::vector<Outgoing> out;
  EXPECT_FALSE(coordinator.OnMessage(1, EncodeComplete(7, 1, {}), &out).ok());
  EXPECT_FALSE(coordinator.OnMessage(1, EncodeIdMessage(MessageKind::kFree, 7), &out).ok());
  EXPECT_FALSE(coordinator.OnMessage(1, EncodeIdMessage(MessageKind::kRetireInfo, 7), &out).ok());
}

}  // namespace
}  // namespace farandole
