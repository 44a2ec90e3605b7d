// Calls of NCCL that do not come back (support/fake_nccl.h): every wait for them has a limit, and what they may still
// use stays.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <tuple>

#include "backends/nccl_rig.h"
#include "support/thread_worlds.h"

namespace farandole::tests {
namespace {

// A call hangs here until the test releases it, so patience is short.
Settings Impatient() {
  Settings settings = FakeSettings();
  settings.abort_patience_ms = 50;
  return settings;
}

// ncclCommAbort may wait for a kernel that does not end.
TEST_F(NcclTest, AnAbortThatDoesNotComeBackIsLeftAlone) {
  nccl_.HangBeforeLaunch();
  nccl_.HangIn("ncclCommAbort");
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank, Impatient());
                          const Ones ones(memories_, rank, rank.rank());
                          if (PerformUntilBothLaunch(rig, ones) != kGivenUp) return "it does not hang";
                          const TimePoint begin = Now();
                          rig.backend->Abort();
                          return Now() - begin < std::chrono::seconds(30) ? "" : "it waits for the abort";
                        }),
            "");
  nccl_.Reset();
  AwaitThat([this] { return nccl_.live() == 0; });
}

struct HangingAbort {
  int version;      // before 2.27, a call that has begun belongs to its thread
  bool is_working;  // the communicator whose abort hangs has calls under way
};

class NcclTestOfAborts : public NcclTest, public ::testing::WithParamInterface<HangingAbort> {
 protected:
  // Returns when both ranks have called it for the nth time.
  void AwaitBoth(int nth) {
    ++came_;
    while (came_ < 2 * nth) std::this_thread::yield();
  }

  std::atomic<int> came_{0};
};

TEST_P(NcclTestOfAborts, AnAbortThatDoesNotComeBackKeepsNoOtherCommunicator) {
  nccl_.SetVersion(GetParam().version);
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank, Impatient());
                          const Ones first(memories_, rank, rank.rank());
                          const Ones second(memories_, rank.rank(),
                                            MakeProcessSet(rank.world().layout, rank.rank(), 1, {0, 1}, 1));
                          for (const Ones* ones : {&first, &second}) {
                            const std::string error = rig.Perform(ones->device.task());
                            if (!error.empty()) return error;
                          }
                          AwaitBoth(1);
                          if (GetParam().is_working) {
                            nccl_.HangBeforeLaunch();
                            const auto both_launch = [this] { return nccl_.calls("ncclGroupEnd") == 6; };
                            if (rig.Perform(first.device.task(), both_launch) != kGivenUp) return "it does not hang";
                          }
                          nccl_.HangInNext("ncclCommAbort");  // of one rank
                          AwaitBoth(2);
                          rig.backend->Abort();
                          return "";
                        }),
            "");
  AwaitThat([this] { return nccl_.live() == 1; });
  EXPECT_EQ(nccl_.calls("ncclCommAbort"), 4);
  nccl_.Release();
  AwaitThat([this] { return nccl_.live() == 0; });
}

INSTANTIATE_TEST_SUITE_P(Aborts, NcclTestOfAborts,
                         ::testing::Values(HangingAbort{21803, false}, HangingAbort{21803, true},
                                           HangingAbort{22700, false}, HangingAbort{22700, true}),
                         [](const auto& each) {
                           return std::to_string(each.param.version) + (each.param.is_working ? "Working" : "Idle");
                         });

class NcclTestOfCalls : public NcclTest, public ::testing::WithParamInterface<std::tuple<int, const char*>> {
 protected:
  void SetUp() override {
    NcclTest::SetUp();
    nccl_.SetVersion(std::get<0>(GetParam()));
  }
  // Waits until the abandoned threads of both ranks have ended.
  void EndWhatHangs() {
    nccl_.Release();
    const auto ends = [this] { return nccl_.calls("ncclCommAbort") + nccl_.calls("ncclCommDestroy"); };
    AwaitThat([&] { return ends() >= 2 && nccl_.live() == 0; });
  }

  const std::string call_ = std::get<1>(GetParam());
};

std::string CallAndVersion(const ::testing::TestParamInfo<std::tuple<int, const char*>>& each) {
  return std::get<1>(each.param) + std::to_string(std::get<0>(each.param));
}

TEST_P(NcclTestOfCalls, ACallThatDoesNotComeBackIsNamedAndLeftAlone) {
  nccl_.HangIn(call_);
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank, Impatient());
                          std::vector<float> values(5, 1.0f);
                          std::string told;
                          const auto both_hang = [&] {
                            told = rig.backend->StallReason();
                            return nccl_.calls(call_) == 2 && told.find(call_) != std::string::npos;
                          };
                          const std::string error = Reduce(rig, &values, {1.0, 2.0}, both_hang);
                          if (error != kGivenUp) return "it does not hang: " + error;
                          if (rig.backend->LongestSleepMs() < 0) return "nobody would see that it has come back";
                          rig.backend->Abort();
                          const std::string named = ", which has not come back from " + call_ + " on CUDA ";
                          const bool is_told = told.find("NCCL 2.") == 0 && told.find(named) != std::string::npos;
                          return is_told ? "" : told;
                        }),
            "");
  EXPECT_EQ(nccl_.calls("ncclCommAbort"), 0) << "the thread that may call it is at another call";
  EndWhatHangs();
}

const auto kVersions = ::testing::Values(21803, 22809);
INSTANTIATE_TEST_SUITE_P(Calls, NcclTestOfCalls,
                         ::testing::Combine(kVersions, ::testing::Values("ncclCommInitRankConfig", "ncclGroupEnd",
                                                                         "ncclRedOpDestroy")),
                         CallAndVersion);

// One rank makes NCCL's id, and the other waits for that rank.
TEST_F(NcclTest, AnIdThatDoesNotComeIsNamedAndLeftAlone) {
  const std::string call = "ncclGetUniqueId";
  nccl_.HangIn(call);
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank, Impatient());
                          std::vector<float> values(5, 1.0f);
                          std::string told;
                          const auto hangs = [&] {
                            told = rig.backend->StallReason();
                            const bool is_asked = rank.rank() == 1 || told.find(call) != std::string::npos;
                            return nccl_.calls(call) == 1 && is_asked;
                          };
                          const std::string error = Reduce(rig, &values, Scale(), hangs);
                          if (error != kGivenUp) return "it does not hang: " + error;
                          rig.backend->Abort();
                          return "";
                        }),
            "");
  nccl_.Release();
}

using NcclTestOfEnds = NcclTestOfCalls;

TEST_P(NcclTestOfEnds, AnEndThatDoesNotComeBackIsLeftAlone) {
  nccl_.HangIn(call_);
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) {
                          const NcclRig rig(rank, Impatient());
                          std::vector<float> values(5, 1.0f);
                          return Reduce(rig, &values);
                        }),
            "");
  EndWhatHangs();
}

INSTANTIATE_TEST_SUITE_P(Calls, NcclTestOfEnds,
                         ::testing::Combine(kVersions, ::testing::Values("ncclCommFinalize", "ncclCommDestroy")),
                         CallAndVersion);

}  // namespace
}  // namespace farandole::tests
