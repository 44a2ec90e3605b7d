// Promises of the runner beyond correct results: the same bits from every algorithm, errors, and the names of what it
// waits for.
#include <gtest/gtest.h>
#include <poll.h>

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
    Runner runner(&schedule, mesh.LinksOf(me));
    results[me] = RoughElements(dtype, count, me);
    const Job job{dtype, count, chunk_bytes};
    return RunToEnd(&runner, PlanOf(job, &results[me]), TimeLimit(kLimit)).message();
  }),
            "");
  return results;
}

TEST(OrderOfSummation, DirectTreeAndExchangeGiveTheSameBitsOnAllParticipantsWhateverTheChunk) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBfloat16}) {
    for (int n = 2; n <= 7; ++n) {
      const Mesh mesh(n, LoopbackLinks);
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
  const Mesh mesh(n, LoopbackLinks);
  for (DType dtype : {DType::kFloat32, DType::kBfloat16}) {
    for (MakeAllreduce make : kMakers) {
      const std::vector<Bytes> expected = AllreduceOver(mesh, make, dtype, 5003, 4096);
      EXPECT_EQ(mesh.Run([&](int me) -> std::string {
        const Schedule schedule = make(n, me);
        Runner runner(&schedule, mesh.LinksOf(me));
        const Bytes input = RoughElements(dtype, 5003, me);
        Bytes source = input, data(input.size(), 'x');
        RunPlan plan = PlanOf({dtype, 5003, 4096}, &data);
        plan.source = source.data();
        const Status status = RunToEnd(&runner, plan, TimeLimit(kLimit));
        if (!status.ok()) return status.message();
        if (source != input) return "the source was written";
        return data == expected[static_cast<size_t>(me)] ? "" : "wrong values";
      }),
                "");
    }
  }
}

TEST(OrderOfSummation, TwoParticipantsGetTheSameBitsFromTheRing) {
  const Mesh mesh(2, LoopbackLinks);
  for (DType dtype : {DType::kFloat32, DType::kBfloat16}) {
    const std::vector<Bytes> expected = AllreduceOver(mesh, DirectAllreduce, dtype, 5003, 4096);
    EXPECT_EQ(AllreduceOver(mesh, RingAllreduce, dtype, 5003, 4096), expected);
  }
}

TEST(Runner, ReportsALostPeer) {
  for (const Transport& transport : kTransports) {
    Mesh mesh(2, transport.make);
    mesh.CloseLinksOf(1);
    const Schedule schedule = DirectAllreduce(2, 0);
    Runner runner(&schedule, mesh.LinksOf(0));
    Bytes data(1 << 20);
    const Job job{DType::kFloat32, 1 << 18, 1 << 16};
    EXPECT_EQ(RunToEnd(&runner, PlanOf(job, &data), TimeLimit(kLimit)).code(), Code::kPeerLost);
  }
}

TEST(Runner, AloneItAppliesTheScale) {
  for (MakeAllreduce make : kMakers) {
    const Schedule schedule = make(1, 0);
    Runner runner(&schedule, {nullptr});
    Bytes data = Elements(DType::kFloat32, 1000, [](int64_t i) { return Element(0, i); });
    RunPlan plan = PlanOf({DType::kFloat32, 1000, 512}, &data);
    plan.scale.multiplier = 0.5;
    EXPECT_TRUE(RunToEnd(&runner, plan, TimeLimit(kLimit)).ok());
    EXPECT_EQ(data, Elements(DType::kFloat32, 1000, [](int64_t i) { return Element(0, i) * 0.5; }));
  }
}

TEST(Runner, IsDoneAtOnceWithNothingToDo) {
  const Mesh mesh(2, LoopbackLinks);
  const Schedule schedule = DirectAllreduce(2, 0);
  Runner runner(&schedule, mesh.LinksOf(0));
  EXPECT_TRUE(runner.done());
  runner.Start(RunPlan{});
  EXPECT_TRUE(runner.done());
}

// Blocks in poll whenever nothing moves, on exactly the descriptors and directions that the runner names.
std::string RunWithPoll(Runner* runner, const RunPlan& plan, const std::vector<Link*>& links) {
  Status status;
  runner->Start(plan);
  while (status.ok() && !runner->done()) {
    bool moved = false;
    status = runner->Advance(&moved);
    if (moved) continue;
    std::vector<pollfd> waits;
    for (size_t peer = 0; peer < links.size(); ++peer) {
      const int participant = static_cast<int>(peer);
      const int events =
          (runner->WaitsToSend(participant) ? POLLOUT : 0) | (runner->WaitsToRecv(participant) ? POLLIN : 0);
      if (events != 0) waits.push_back({links[peer]->descriptor(), static_cast<short>(events), 0});
    }
    if (!runner->done() && poll(waits.data(), waits.size(), 20000) <= 0) return "poll waited in vain";
  }
  return status.message();
}

TEST(Runner, NamesWhatItWaitsFor) {
  const int n = 4;
  const Mesh mesh(n, [] { return TcpLinks(); });
  for (MakeAllreduce make : kMakers) {
    EXPECT_EQ(mesh.Run([&](int me) -> std::string {
      const Schedule schedule = make(n, me);
      Runner runner(&schedule, mesh.LinksOf(me));
      Bytes data = Elements(DType::kInt32, 1 << 20, [&](int64_t i) { return Element(me, i); });
      const RunPlan plan = PlanOf({DType::kInt32, 1 << 20, 1 << 18}, &data);
      const std::string error = RunWithPoll(&runner, plan, mesh.LinksOf(me));
      if (!error.empty()) return error;
      const Bytes expected = Elements(DType::kInt32, 1 << 20, [&](int64_t i) { return SumOfElements(n, i); });
      return data == expected ? "" : "wrong values";
    }),
              "");
  }
}

}  // namespace
}  // namespace farandole::tests
