// Promises of the runner beyond correct results: the same bits from every algorithm, errors, and when it may sleep.
#include <gtest/gtest.h>

#include "algorithms/mesh.h"
#include "algorithms/operations.h"
#include "algorithms/schedule.h"
#include "collectives/runner.h"

namespace farandole::tests {
namespace {

using MakeAllreduce = Schedule (*)(int participants, int me);
constexpr MakeAllreduce kMakers[] = {DirectAllreduce, RingAllreduce, TreeAllreduce, ExchangeAll};

// Values whose sums round, so that another order gives other bits.
Bytes RoughElements(DType dtype, int64_t count, int me) {
  std::mt19937 random(me + 1);
  return Elements(dtype, count, [&](int64_t i) {
    return (static_cast<double>(random()) / 4294967296.0 - 0.5) * static_cast<double>(1 + i % 7 * 100);
  });
}

std::vector<Bytes> AllreduceOver(const Mesh& mesh, MakeAllreduce make, DType dtype, int64_t count, size_t chunk_bytes) {
  std::vector<Bytes> results(mesh.participants());
  EXPECT_EQ(mesh.Run([&](int me) {
    const Schedule schedule = make(mesh.participants(), me);
    const auto runner = mesh.MakeRunner(&schedule, me);
    results[me] = RoughElements(dtype, count, me);
    const Job job{dtype, count, chunk_bytes};
    return RunToEnd(runner.get(), PlanOf(schedule, job, &results[me]), TimeLimit(kLimit)).message();
  }),
            "");
  return results;
}

TEST(OrderOfSummation, DirectTreeAndExchangeGiveTheSameBitsOnAllParticipantsWhateverTheChunk) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBfloat16}) {
    for (int n = 2; n <= 7; ++n) {
      const Mesh mesh(LoopbackTransports(n));
      const std::vector<Bytes> first = AllreduceOver(mesh, DirectAllreduce, dtype, 5003, 1 << 20);
      for (const auto& make : {DirectAllreduce, TreeAllreduce, ExchangeAll}) {
        for (size_t chunk_bytes : {1000, 1 << 20}) {
          const std::vector<Bytes> again = AllreduceOver(mesh, make, dtype, 5003, chunk_bytes);
          for (const Bytes& result : again)
            EXPECT_EQ(result, first[0]) << NameOf(dtype) << ", " << n << " participants";
        }
      }
    }
  }
}

// The result is made in other memory than the inputs.
TEST(OrderOfSummation, ASourceOfItsOwnGivesTheSameBitsAndIsNeverWritten) {
  const int n = 5;
  const Mesh mesh(LoopbackTransports(n));
  for (DType dtype : {DType::kFloat32, DType::kBfloat16}) {
    for (MakeAllreduce make : kMakers) {
      const std::vector<Bytes> expected = AllreduceOver(mesh, make, dtype, 5003, 4096);
      EXPECT_EQ(mesh.Run([&](int me) -> std::string {
        const Schedule schedule = make(n, me);
        const auto runner = mesh.MakeRunner(&schedule, me);
        const Bytes input = RoughElements(dtype, 5003, me);
        Bytes source = input, data(input.size(), 'x');
        const RunPlan plan = PlanOf(schedule, {dtype, 5003, 4096}, &data, &source);
        const Status status = RunToEnd(runner.get(), plan, TimeLimit(kLimit));
        if (!status.ok()) return status.message();
        if (source != input) return "the source was written";
        return data == expected[static_cast<size_t>(me)] ? "" : "wrong values";
      }),
                "");
    }
  }
}

TEST(OrderOfSummation, TwoParticipantsGetTheSameBitsFromTheRing) {
  const Mesh mesh(LoopbackTransports(2));
  for (DType dtype : {DType::kFloat32, DType::kBfloat16}) {
    const std::vector<Bytes> expected = AllreduceOver(mesh, DirectAllreduce, dtype, 5003, 4096);
    EXPECT_EQ(AllreduceOver(mesh, RingAllreduce, dtype, 5003, 4096), expected);
  }
}

TEST(Runner, ReportsALostPeer) {
  for (const TransportKind& kind : kTransports) {
    Mesh mesh(kind.make(2));
    mesh.Close(1);
    const Schedule schedule = DirectAllreduce(2, 0);
    const auto runner = mesh.MakeRunner(&schedule, 0);
    Bytes data(1 << 20);
    const Job job{DType::kFloat32, 1 << 18, 1 << 16};
    EXPECT_EQ(RunToEnd(runner.get(), PlanOf(schedule, job, &data), TimeLimit(kLimit)).code(), Code::kPeerLost);
  }
}

TEST(Runner, AloneItAppliesTheScale) {
  for (MakeAllreduce make : kMakers) {
    const Schedule schedule = make(1, 0);
    const Mesh mesh(LoopbackTransports(1));
    const auto runner = mesh.MakeRunner(&schedule, 0);
    Bytes data = Elements(DType::kFloat32, 1000, [](int64_t i) { return Element(0, i); });
    RunPlan plan = PlanOf(schedule, {DType::kFloat32, 1000, 512}, &data);
    plan.scale.multiplier = 0.5;
    EXPECT_TRUE(RunToEnd(runner.get(), plan, TimeLimit(kLimit)).ok());
    EXPECT_EQ(data, Elements(DType::kFloat32, 1000, [](int64_t i) { return Element(0, i) * 0.5; }));
  }
}

TEST(Runner, IsDoneAtOnceWithNothingToDo) {
  const Mesh mesh(LoopbackTransports(2));
  const Schedule schedule = DirectAllreduce(2, 0);
  const auto runner = mesh.MakeRunner(&schedule, 0);
  EXPECT_TRUE(runner->done());
  runner->Start(RunPlan{});
  EXPECT_TRUE(runner->done());
}

// Sleeps whenever nothing moves.
std::string RunWithPoller(DrivenRunner* runner, const RunPlan& plan, Transport* transport) {
  Poller poller;
  Status status = poller.Open();
  if (status.ok()) status = transport->Watch(&poller, 0);
  runner->Start(plan);
  while (status.ok() && !runner->done()) {
    bool moved = false;
    status = runner->Advance(&moved);
    if (moved || runner->done()) continue;
    std::vector<uint64_t> tags;
    poller.Wait(20000, &tags);
    if (tags.empty()) return "slept in vain";
    for (uint64_t tag : tags) transport->OnReady(static_cast<uint32_t>(tag));
  }
  return status.message();
}

TEST(Runner, IsWokenWhenItCanGoOn) {
  const int n = 4;
  for (const TransportKind& kind : kTransports) {
    for (MakeAllreduce make : kMakers) {
      const Mesh mesh(kind.make(n));
      const int64_t count = kind.name == std::string("loopback") ? 1 << 16 : 1 << 20;  // more than sockets hold
      EXPECT_EQ(mesh.Run([&](int me) -> std::string {
        const Schedule schedule = make(n, me);
        const auto runner = mesh.MakeRunner(&schedule, me);
        Bytes data = Elements(DType::kInt32, count, [&](int64_t i) { return Element(me, i); });
        const RunPlan plan = PlanOf(schedule, {DType::kInt32, count, 1 << 18}, &data);
        const std::string error = RunWithPoller(runner.get(), plan, mesh.transport(me));
        if (!error.empty()) return error;
        const Bytes expected = Elements(DType::kInt32, count, [&](int64_t i) { return SumOfElements(n, i); });
        return data == expected ? "" : "wrong values";
      }),
                "")
          << kind.name;
    }
  }
}

}  // namespace
}  // namespace farandole::tests
