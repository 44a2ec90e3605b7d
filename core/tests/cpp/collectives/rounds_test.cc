// An operation in rounds: the results are those of one operation for each round, and rounds overlap.
#include <gtest/gtest.h>

#include "algorithms/mesh.h"
#include "algorithms/operations.h"
#include "algorithms/schedule.h"
#include "collectives/runner.h"

namespace farandole::tests {
namespace {

constexpr int64_t kAtOnce = 16;
using MakeSchedule = Schedule (*)(int participants, int me);

int64_t AllCountsOf(const std::vector<int64_t>& counts) {
  int64_t all = 0;
  for (int64_t count : counts) all += count;
  return all;
}

// Elements of each round; some have none.
std::vector<int64_t> CountsOf(int rounds) {
  std::mt19937 random(static_cast<uint32_t>(rounds));
  std::vector<int64_t> counts;
  for (int i = 0; i < rounds; ++i) counts.push_back(random() % 5 == 0 ? 0 : random() % 3000);
  return counts;
}

// Supplies rounds as early as may be.
Status RunRounds(DrivenRunner* runner, const Schedule& schedule, const std::vector<int64_t>& counts, Bytes* data) {
  const TimeLimit limit(kLimit);
  runner->StartRounds(static_cast<int64_t>(counts.size()), kAtOnce);
  int64_t supplied = 0;
  size_t at = 0;
  while (!runner->done()) {
    for (; supplied < static_cast<int64_t>(counts.size()) && supplied < runner->rounds_done() + kAtOnce; ++supplied) {
      RunPlan plan;
      const int64_t count = counts[static_cast<size_t>(supplied)];
      plan.blocks = CutBlocks(data->data() + at, data->data() + at, count, sizeof(float), schedule.block_count);
      plan.dtype = DType::kFloat32;
      at += static_cast<size_t>(count) * sizeof(float);
      runner->Supply(plan);
    }
    bool moved = false;
    FRD_RETURN_IF_ERROR(runner->Advance(&moved));
    if (limit.passed()) return {Code::kDeadline, "time limit passed"};
    if (!moved) std::this_thread::yield();
  }
  return Status::Ok();
}

TEST(Rounds, GiveTheSumsOfEachRound) {
  for (const MakeSchedule make : {DirectAllreduce, RingAllreduce, TreeAllreduce, ExchangeAll}) {
    for (int n = 1; n <= 5; ++n) {
      const Mesh mesh(LoopbackTransports(n, static_cast<uint32_t>(n)));
      EXPECT_EQ(mesh.Run([&](int me) -> std::string {
        const Schedule schedule = make(n, me);
        const auto runner = mesh.MakeRunner(&schedule, me, kRoundsUnderWay);
        for (int rounds : {1, 2, 17, 40, 0, 3}) {  // one runner for all
          const std::vector<int64_t> counts = CountsOf(rounds);
          const int64_t all = AllCountsOf(counts);
          Bytes data = Elements(DType::kFloat32, all, [&](int64_t i) { return Element(me, i); });
          const Status status = RunRounds(runner.get(), schedule, counts, &data);
          if (!status.ok()) return status.message();
          if (data != Elements(DType::kFloat32, all, [&](int64_t i) { return SumOfElements(n, i); })) {
            return "wrong sums of " + std::to_string(rounds) + " rounds";
          }
        }
        return "";
      }),
                "")
          << n << " participants";
    }
  }
}

// A network with delay is filled only if later rounds leave while the first one waits for its answer.
TEST(Rounds, LeaveBeforeTheFirstOneIsAnswered) {
  const Mesh mesh(UnixTransports(2));
  const Schedule schedule = DirectAllreduce(2, 0);
  const auto runner = mesh.MakeRunner(&schedule, 0, kRoundsUnderWay);
  constexpr size_t kBlockBytes = 1024;
  Bytes data(kAtOnce * 2 * kBlockBytes);
  runner->StartRounds(100, kAtOnce);
  for (int64_t t = 0; t < kAtOnce; ++t) {
    RunPlan plan;
    char* const round = data.data() + t * 2 * static_cast<int64_t>(kBlockBytes);
    plan.blocks = {{round, round, kBlockBytes}, {round + kBlockBytes, round + kBlockBytes, kBlockBytes}};
    plan.dtype = DType::kFloat32;
    runner->Supply(plan);
  }
  char block[kBlockBytes];
  for (uint64_t t = 0; t < kAtOnce; ++t)
    mesh.transport(1)->PostReceive(0, {}, static_cast<uint32_t>(t), block, sizeof block, t);
  std::vector<Transport::Completion> received;
  for (bool moved = true; moved;) {
    moved = false;
    ASSERT_TRUE(runner->Advance(&moved).ok());
    moved |= mesh.transport(1)->Poll(&received);
  }
  EXPECT_EQ(received.size(), kRoundsUnderWay);  // then the order of the schedule has the first round's answer
  EXPECT_EQ(runner->rounds_done(), 0);
  EXPECT_TRUE(runner->WaitsToRecv(1));
}

// Rounds that were not supplied yet are not awaited from another rank.
TEST(Rounds, WaitForNothingUntilTheyAreSupplied) {
  const Mesh mesh(LoopbackTransports(2));
  const Schedule schedule = DirectAllreduce(2, 0);
  const auto runner = mesh.MakeRunner(&schedule, 0, kRoundsUnderWay);
  runner->StartRounds(3, kAtOnce);
  bool moved = false;
  ASSERT_TRUE(runner->Advance(&moved).ok());
  EXPECT_FALSE(moved);
  EXPECT_FALSE(runner->done());
  EXPECT_FALSE(runner->WaitsToRecv(1));
}

}  // namespace
}  // namespace farandole::tests
