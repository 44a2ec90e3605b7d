// NCCL inside hosts and links between them, where NCCL has no network; over the same fakes.
#include <cmath>

#include "backends/nccl_rig.h"
#include "reduce/half.h"

namespace farandole::tests {
namespace {

using std::chrono::milliseconds;

// A number of elements that every host's ranks can share equally.
constexpr size_t kCutEvenly = 64 * 3 * 4 * 5 * 100;

Settings CutOff() {
  Settings settings = FakeSettings();
  settings.without_network = {"nccl"};
  return settings;
}

class NcclHosts : public NcclTest, public ::testing::WithParamInterface<std::vector<int>> {
 protected:
  // True when every rank was in one communicator of its own host, and there were no others.
  void ExpectOneCommunicatorPerHost() {
    std::vector<int> expected, sizes = nccl_.sizes();
    for (int size : GetParam()) expected.insert(expected.end(), static_cast<size_t>(size), size);
    std::sort(expected.begin(), expected.end());
    std::sort(sizes.begin(), sizes.end());
    EXPECT_EQ(sizes, expected);
  }

  // Reduces tensors of these sizes on every rank. Returns what was wrong.
  std::string ReduceAll(const std::vector<size_t>& counts, const Scale& scale, DType dtype = DType::kFloat32) {
    return RunBackends(GetParam(), [&](Rank& rank) {
      const NcclRig rig(rank, CutOff());
      const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
      Case c;
      c.seed = 5;
      c.dtype = dtype;
      c.scale = scale;
      c.counts = counts;
      const auto size = static_cast<size_t>(set.size());
      c.joined.resize(size);
      c.matrix.resize(size, std::vector<size_t>(size));
      return Check(rig, c, set);
    });
  }
};

TEST_P(NcclHosts, AnySequenceOfWhatItSupportsGivesWhatTheDefinitionsSay) {
  cuda_.SetDelay(std::chrono::microseconds(50));
  std::atomic<int> performed_works{0}, relayed{0};
  const auto body = [&](Rank& rank) -> std::string {
    const NcclRig rig(rank, CutOff());
    const Layout& layout = rank.world().layout;
    const ProcessSet everybody = WholeWorld(layout, rank.rank());
    const ProcessSet ends = MakeProcessSet(layout, rank.rank(), 1, {0, everybody.size() - 1}, 1);
    const ProcessSet first_host = MakeProcessSet(layout, rank.rank(), 2, layout.groups[0], 2);
    std::vector<float> first(5, 1.0f);  // so that ranks which join have a device
    if (const std::string error = Reduce(rig, &first); !error.empty()) return error;
    CaseMaker maker(17, 60'000);
    for (int i = 0; i < 250; ++i) {
      const size_t drawn = maker.Below(4);
      const ProcessSet& set = drawn == 0 ? ends : drawn == 1 ? first_host : everybody;
      const Case c = maker.Make(set.size());
      OperationFacts facts = DemandOf(c, set.size());
      facts.group_count = set.layout.group_count();
      facts.has_network = false;
      if (!NcclSupports(facts) || IsRoundedOtherwise(c) || !set.contains_me()) continue;
      if (const std::string wrong = Check(rig, c, set); !wrong.empty()) return wrong;
      performed_works.fetch_add(1);
      relayed.fetch_add(set.layout.group_count() > 1 ? 1 : 0);
    }
    return "";
  };
  EXPECT_EQ(RunBackends(GetParam(), body), "");
  EXPECT_GT(performed_works - relayed, 30);
  EXPECT_GT(relayed, 100);
  const std::vector<int> sizes = nccl_.sizes();
  EXPECT_LE(*std::max_element(sizes.begin(), sizes.end()), *std::max_element(GetParam().begin(), GetParam().end()));
}

TEST_P(NcclHosts, OneTensorIsScatteredInsideAHostAndGatheredThere) {
  EXPECT_EQ(ReduceAll({kCutEvenly}, Scale()), "");
  ExpectOneCommunicatorPerHost();
  EXPECT_EQ(nccl_.calls("ncclAllReduce"), 0);
  const bool equal = std::equal(GetParam().begin() + 1, GetParam().end(), GetParam().begin());
  if (!equal) return;
  EXPECT_EQ(nccl_.calls("ncclReduceScatter"), static_cast<int>(nccl_.sizes().size()));
  EXPECT_EQ(nccl_.calls("ncclAllGather"), static_cast<int>(nccl_.sizes().size()));
  EXPECT_EQ(nccl_.calls("ncclReduce") + nccl_.calls("ncclBroadcast"), 0);
}

TEST_P(NcclHosts, TensorsOfAnySizesGoTogether) {
  EXPECT_EQ(ReduceAll({7, 0, 30'001, 1, 20'000, 333}, Scale()), "");
  ExpectOneCommunicatorPerHost();
  EXPECT_GT(nccl_.calls("ncclReduce"), 0);
  EXPECT_GT(nccl_.calls("ncclBroadcast"), 0);
}

// Factors are applied once to every addend: by NCCL, except with one rank, where it leaves elements out.
TEST_P(NcclHosts, FactorsAreAppliedInsideTheHosts) {
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64}) {
    EXPECT_EQ(ReduceAll({20'000}, {0.25, 1.0}, dtype), "");
    EXPECT_EQ(ReduceAll({44'186}, {0.5, 1.0}, dtype), "");
  }
  const std::vector<int> sizes = nccl_.sizes();
  const auto of_several = std::count_if(sizes.begin(), sizes.end(), [](int size) { return size > 1; });
  const int made = nccl_.calls("ncclRedOpCreatePreMulSum");
  EXPECT_EQ(made, static_cast<int>(of_several));
  EXPECT_EQ(nccl_.calls("ncclRedOpDestroy"), made);
}

// The sum of all ranks would be infinite.
TEST_P(NcclHosts, AnAverageOf16BitFloatsDoesNotOverflow) {
  const auto body = [&](Rank& rank) -> std::string {
    const NcclRig rig(rank, CutOff());
    const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
    std::vector<uint16_t> values(1000, FloatToFloat16(40'000.0f));
    Task task;
    task.set = &set;
    task.dtype = DType::kFloat16;
    task.scale = {1.0, static_cast<double>(set.size())};
    task.buffers = {{values.data(), values.data(), values.size() * sizeof(uint16_t)}};
    const OnDevice device(memories_, rank.rank() % 2, task);
    if (const std::string error = rig.Perform(device.task()); !error.empty()) return error;
    device.CopyBack();
    const float got = Float16ToFloat(values[999]);
    return std::fabs(got - 40'000.0f) < 100 ? "" : std::to_string(got);
  };
  EXPECT_EQ(RunBackends(GetParam(), body), "");
}

TEST_P(NcclHosts, ItWaitsForEveryTensorsReadyEvent) {
  cuda_.SetDelay(milliseconds(3));
  const auto body = [&](Rank& rank) -> std::string {
    const NcclRig rig(rank, CutOff());
    const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
    std::vector<float> values(20'000);
    Task task;
    task.set = &set;
    task.buffers = {{values.data(), values.data(), values.size() * sizeof(float)}};
    OnDevice device(memories_, rank.rank() % 2, task);
    void* const stream = cuda_.MakeStream(rank.rank() % 2);
    auto* const contents = static_cast<float*>(cuda_.Contents(device.task().buffers[0].input));
    cuda_.Launch(stream, [contents] { std::fill(contents, contents + 20'000, 4.0f); });
    device.task().buffers[0].ready_event = cuda_.RecordNewEvent(stream);
    if (const std::string error = rig.Perform(device.task()); !error.empty()) return error;
    device.CopyBack();
    const auto expected = 4.0f * static_cast<float>(set.size());
    return values[0] == expected && values[19'999] == expected ? "" : "too early";
  };
  EXPECT_EQ(RunBackends(GetParam(), body), "");
}

TEST_P(NcclHosts, ASetThatIsForgottenMayComeAgain) {
  const auto body = [&](Rank& rank) -> std::string {
    const NcclRig rig(rank, CutOff());
    for (int round = 0; round < 3; ++round) {
      std::vector<float> values(20'000, 1.0f);
      if (const std::string error = Reduce(rig, &values); !error.empty()) return error;
      if (values[19'999] != static_cast<float>(rank.world().size)) return "wrong values";
      rig.backend->Forget(0);
    }
    return "";
  };
  EXPECT_EQ(RunBackends(GetParam(), body), "");
  EXPECT_EQ(nccl_.calls("ncclCommDestroy"), nccl_.calls("ncclCommInitRankConfig"));
}

// ---- when something goes wrong

// All begin, and the last host does not take part in what follows.
TEST_P(NcclHosts, WhoeverWaitsForAnotherHostNamesItsRankAndMayGiveUp) {
  const auto body = [&](Rank& rank) -> std::string {
    const NcclRig rig(rank, CutOff());
    const Layout& layout = rank.world().layout;
    const auto host_of = [&layout](int of) { return layout.group_of[static_cast<size_t>(of)]; };
    std::vector<float> values(20'000, 1.0f);
    if (const std::string error = Reduce(rig, &values); !error.empty()) return error;
    if (host_of(rank.rank()) != layout.group_count() - 1) {
      const auto names_others = [&] {
        const std::vector<int> late = rig.backend->WaitingOn();
        return !late.empty() && host_of(late[0]) != host_of(rank.rank());
      };
      if (const std::string error = Reduce(rig, &values, Scale(), names_others); error != kGivenUp)
        return "does not say for whom it waits: " + error;
    }
    rig.backend->Abort();
    const Ones ones(memories_, rank, rank.rank() % 2);
    return rig.backend->Start(&ones.device.task()).ok() ? "it goes on after an abort" : "";
  };
  EXPECT_EQ(RunBackends(GetParam(), body), "");
  EXPECT_EQ(nccl_.calls("ncclCommAbort"), static_cast<int>(nccl_.sizes().size()));
}

// Only the first host begins another task.
TEST_P(NcclHosts, AnErrorInsideAHostEndsTheWaitForTheOthers) {
  std::atomic<int> connected{0};
  const auto body = [&](Rank& rank) -> std::string {
    const NcclRig rig(rank, CutOff());
    std::vector<float> values(20'000, 1.0f);
    if (const std::string error = Reduce(rig, &values); !error.empty()) return error;
    ++connected;
    std::string error;
    if (rank.world().layout.group_of[static_cast<size_t>(rank.rank())] == 0) {
      error = Reduce(rig, &values, Scale(), [&rig] { return !rig.backend->WaitingOn().empty(); });
      while (connected < rank.world().size) std::this_thread::yield();  // the error is for all communicators
      nccl_.FailLater(1);
      bool moved = false, done = false;
      if (error == kGivenUp) error = rig.backend->Poll(&moved, &done).message();
      const bool is_named = error.find("an operation of NCCL 2.18.3 failed on CUDA device ") != std::string::npos &&
                            error.find("unhandled cuda error (1)") != std::string::npos;
      if (is_named) error.clear();
    }
    rig.backend->Abort();
    return error;
  };
  EXPECT_EQ(RunBackends(GetParam(), body), "");
}

TEST_P(NcclHosts, EveryCallThatFailsIsNamed) {
  for (const char* call : {"ncclGroupStart", "ncclReduceScatter", "ncclAllGather", "cuMemHostAlloc",
                           "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2"}) {
    nccl_.Fail(call, 1);
    cuda_.Fail(call, 2);
    std::atomic<bool> failed{false};
    const std::string complaints = RunBackends(GetParam(), [&](Rank& rank) {
      const NcclRig rig(rank, CutOff());
      std::vector<float> values(kCutEvenly, 1.0f);
      const std::string error = Reduce(rig, &values, Scale(), [&failed] { return failed.load(); });
      if (!error.empty()) failed = true;  // the rank of the other host may have all that it needs
      rig.backend->Abort();
      return error;
    });
    EXPECT_NE(complaints.find(call), std::string::npos) << complaints;
    EXPECT_NE(complaints.find(" failed on CUDA device "), std::string::npos) << complaints;
    nccl_.Reset();
    cuda_.Reset();
  }
}

TEST_F(NcclTest, HostsThatAreNotConnectedAreToldOfTheSetting) {
  nccl_.HangBeforeLaunch();
  EXPECT_EQ(RunBackends({2, 1},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank);
                          const Ones ones(memories_, rank, rank.rank() % 2);
                          const auto is_told = [&rig] {
                            const std::string why = rig.backend->StallReason();
                            return why.find("connected the ranks of the hosts host0, host1 (") != std::string::npos &&
                                   why.find("set FARANDOLE_NCCL_NETWORK=0 on all ranks") != std::string::npos;
                          };
                          const std::string error = rig.Perform(ones.device.task(), is_told);
                          rig.backend->Abort();
                          return error == kGivenUp ? "" : error;
                        }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Groups, NcclHosts,
                         ::testing::Values(std::vector<int>{2, 2}, std::vector<int>{3, 1}, std::vector<int>{2, 1, 2},
                                           std::vector<int>{1, 1, 1}));

}  // namespace
}  // namespace farandole::tests
