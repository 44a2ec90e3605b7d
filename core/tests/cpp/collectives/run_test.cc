// Schedules carried out over transports, participants as threads: every algorithm, element type and awkward size.
#include "collectives/runner.h"

#include <gtest/gtest.h>

#include "algorithms/mesh.h"
#include "algorithms/operations.h"
#include "algorithms/schedule.h"

namespace farandole::tests {
namespace {

constexpr int kMaxParticipants = 5;

template <uint32_t kSeed>
Transports Seeded(int participants) {
  return LoopbackTransports(participants, kSeed);
}

const TransportKind kRunTransports[] = {
    {"loopback", Seeded<1>}, {"loopback_2", Seeded<2>}, {"loopback_3", Seeded<3>}, {"tcp", TcpTransports}};

template <typename Make>
struct Algorithm {
  const char* name;
  Make make;
};
template <typename Make>
class OverTransports : public ::testing::TestWithParam<std::tuple<TransportKind, Algorithm<Make>>> {
 protected:
  const TransportKind& transport() const { return std::get<0>(this->GetParam()); }
  Make make() const { return std::get<1>(this->GetParam()).make; }
};

// gtest names a suite after its class.
class Allreduce : public OverTransports<Schedule (*)(int, int)> {};
class Allgather : public OverTransports<Schedule (*)(int, int)> {};
class Broadcast : public OverTransports<Schedule (*)(int, int, int)> {};

template <typename Param>
std::string NameOfCase(const ::testing::TestParamInfo<Param>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
}

TEST_P(Allreduce, SumsAnySequenceOfSizes) {
  for (int n = 1; n <= kMaxParticipants; ++n) {
    const Mesh mesh(transport().make(n));
    EXPECT_EQ(mesh.Run([&](int me) -> std::string {
      const Schedule schedule = make()(n, me);
      const auto runner = mesh.MakeRunner(&schedule, me);
      for (const Job& job : Jobs(n, 1)) {
        Bytes data = Elements(job.dtype, job.element_count, [&](int64_t i) { return Element(me, i); });
        const Status status = RunToEnd(runner.get(), PlanOf(schedule, job, &data), TimeLimit(kLimit));
        const Bytes expected = Elements(job.dtype, job.element_count, [&](int64_t i) { return SumOfElements(n, i); });
        const std::string error = ErrorOf(job, status, data == expected);
        if (!error.empty()) return error;
      }
      return "";
    }),
              "")
        << n << " participants";
  }
}

TEST_P(Allreduce, AppliesTheScaleOnceToEveryElement) {
  const int n = 3;
  const Mesh mesh(transport().make(n));
  for (int64_t count : {1, 5, 1000, 20001}) {
    EXPECT_EQ(mesh.Run([&](int me) {
      const Schedule schedule = make()(n, me);
      const auto runner = mesh.MakeRunner(&schedule, me);
      const Job job{DType::kFloat64, count, 4096};
      Bytes data = Elements(job.dtype, count, [&](int64_t i) { return Element(me, i); });
      RunPlan plan = PlanOf(schedule, job, &data);
      plan.scale = {10.0, 4.0};
      const Status status = RunToEnd(runner.get(), plan, TimeLimit(kLimit));
      return ErrorOf(job, status,
                     data == Elements(job.dtype, count, [&](int64_t i) { return SumOfElements(n, i) * 10.0 / 4.0; }));
    }),
              "");
  }
}

TEST_P(Broadcast, CopiesTheRootsElements) {
  for (int n = 1; n <= kMaxParticipants; ++n) {
    const Mesh mesh(transport().make(n));
    for (int root : {0, n - 1}) {
      EXPECT_EQ(mesh.Run([&](int me) -> std::string {
        const Schedule schedule = make()(n, me, root);
        const auto runner = mesh.MakeRunner(&schedule, me);
        for (const Job& job : Jobs(n, 2)) {
          Bytes data = Elements(job.dtype, job.element_count, [&](int64_t i) { return Element(me, i); });
          const Status status = RunToEnd(runner.get(), PlanOf(schedule, job, &data), TimeLimit(kLimit));
          const Bytes expected = Elements(job.dtype, job.element_count, [&](int64_t i) { return Element(root, i); });
          const std::string error = ErrorOf(job, status, data == expected);
          if (!error.empty()) return error;
        }
        return "";
      }),
                "")
          << n << " participants, root " << root;
    }
  }
}

// Unequal blocks, some of them empty, one behind the other.
std::vector<Range> BlocksOf(int participants, std::mt19937* random) {
  std::vector<Range> blocks;
  int64_t at = 0;
  for (int p = 0; p < participants; ++p) {
    const int64_t size = (*random)() % 4 == 0 ? 0 : (*random)() % (int64_t{1} << ((*random)() % 18));
    blocks.push_back({at, at + size});
    at += size;
  }
  return blocks;
}

TEST_P(Allgather, CollectsUnequalBlocks) {
  for (int n = 1; n <= kMaxParticipants; ++n) {
    const Mesh mesh(transport().make(n));
    EXPECT_EQ(mesh.Run([&](int me) -> std::string {
      const Schedule schedule = make()(n, me);
      const auto runner = mesh.MakeRunner(&schedule, me);
      std::mt19937 random(3);  // equal on all participants
      for (int round = 0; round < 100; ++round) {
        RunPlan plan;
        const std::vector<Range> blocks = BlocksOf(n, &random);
        plan.window_bytes = size_t{64} << random() % 10;
        const auto byte = [](int64_t i) { return static_cast<char>(i * 31 >> 3); };
        Bytes data(blocks.back().end, 'x');
        for (int64_t i = blocks[me].begin; i < blocks[me].end; ++i) data[i] = byte(i);
        for (const Range& block : blocks) {
          char* const at = data.data() + block.begin;
          plan.blocks.push_back({at, at, static_cast<size_t>(block.size())});
        }
        const Status status = RunToEnd(runner.get(), plan, TimeLimit(kLimit));
        if (!status.ok()) return status.message();
        for (size_t i = 0; i < data.size(); ++i) {
          if (data[i] != byte(i)) return "round " + std::to_string(round) + ": byte " + std::to_string(i) + " is wrong";
        }
      }
      return "";
    }),
              "")
        << n << " participants";
  }
}

constexpr Algorithm<Schedule (*)(int, int)> kAllreduces[] = {
    {"direct", DirectAllreduce}, {"ring", RingAllreduce}, {"tree", TreeAllreduce}, {"exchange", ExchangeAll}};
constexpr Algorithm<Schedule (*)(int, int)> kAllgathers[] = {{"direct", DirectAllgather}, {"ring", RingAllgather}};
constexpr Algorithm<Schedule (*)(int, int, int)> kBroadcasts[] = {{"tree", TreeBroadcast}};

using ::testing::Combine;
using ::testing::ValuesIn;
INSTANTIATE_TEST_SUITE_P(Kinds, Allreduce, Combine(ValuesIn(kRunTransports), ValuesIn(kAllreduces)),
                         NameOfCase<Allreduce::ParamType>);
INSTANTIATE_TEST_SUITE_P(Kinds, Allgather, Combine(ValuesIn(kRunTransports), ValuesIn(kAllgathers)),
                         NameOfCase<Allgather::ParamType>);
INSTANTIATE_TEST_SUITE_P(Kinds, Broadcast, Combine(ValuesIn(kRunTransports), ValuesIn(kBroadcasts)),
                         NameOfCase<Broadcast::ParamType>);

}  // namespace
}  // namespace farandole::tests
