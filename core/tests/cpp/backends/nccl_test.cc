// The NCCL backend, ranks as threads, over a fake NCCL and a fake CUDA driver (support/fake_nccl.h). tests/gpus has
// NVIDIA's.
#include <atomic>
#include <cmath>
#include <thread>

#include "backends/nccl/library.h"
#include "backends/nccl_rig.h"

namespace farandole::tests {
namespace {

using std::chrono::milliseconds;

TEST_F(NcclTest, AnySequenceOfWhatItSupportsGivesWhatTheDefinitionsSay) {
  cuda_.SetDelay(std::chrono::microseconds(100));
  std::atomic<int> performed_works{0};
  EXPECT_EQ(RunBackends({3},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank);
                          const ProcessSet everybody = WholeWorld(rank.world().layout, rank.rank());
                          const ProcessSet tail = MakeProcessSet(rank.world().layout, rank.rank(), 1, {1, 2}, 1);
                          std::vector<float> first(5, 1.0f);  // so that ranks which join have a device
                          if (const std::string error = Reduce(rig, &first); !error.empty()) return error;
                          CaseMaker maker(11, 3000);
                          for (int i = 0; i < 400; ++i) {
                            const ProcessSet& set = maker.Below(3) == 0 ? tail : everybody;
                            const Case c = maker.Make(set.size());
                            if (!NcclSupports(DemandOf(c, set.size())) || IsRoundedOtherwise(c)) continue;
                            if (!set.contains_me()) continue;
                            if (const std::string wrong = Check(rig, c, set); !wrong.empty()) return wrong;
                            performed_works.fetch_add(1);
                          }
                          return "";
                        }),
            "");
  EXPECT_GT(performed_works, 400);
  for (const char* call : {"ncclAllReduce", "ncclBroadcast", "ncclSend", "ncclRecv", "ncclReduce"})
    EXPECT_GT(nccl_.calls(call), 0) << call;
}

TEST_F(NcclTest, AnAverageIsWithinTheRoundingOfItsFactor) {
  EXPECT_EQ(RunBackends({3},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank);
                          std::vector<float> values(1000, static_cast<float>(rank.rank() + 1));
                          if (const std::string error = Reduce(rig, &values, {1.0, 3.0}); !error.empty()) return error;
                          return std::fabs(values[999] - 2.0f) < 1e-6f ? "" : std::to_string(values[999]);
                        }),
            "");
  EXPECT_EQ(nccl_.calls("ncclRedOpCreatePreMulSum"), 3);
  EXPECT_EQ(nccl_.calls("ncclRedOpDestroy"), 3);
}

// Equally many rows on every rank take one call.
TEST_F(NcclTest, EqualPartsAreGatheredAndScatteredByOneCall) {
  EXPECT_EQ(RunBackends({3},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank);
                          const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
                          for (const OpKind kind : {OpKind::kAllgather, OpKind::kReducescatter}) {
                            Case c;
                            c.kind = kind;
                            c.seed = 3;
                            c.parts = {70, 70, 70};
                            c.joined = {false, false, false};
                            c.matrix.resize(3, std::vector<size_t>(3));
                            if (const std::string wrong = Check(rig, c, set); !wrong.empty()) return wrong;
                          }
                          return "";
                        }),
            "");
  EXPECT_EQ(nccl_.calls("ncclAllGather"), 3);
  EXPECT_EQ(nccl_.calls("ncclReduceScatter"), 3);
}

TEST_F(NcclTest, ItWaitsForEveryTensorsReadyEvent) {
  cuda_.SetDelay(milliseconds(3));
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank);
                          const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
                          std::vector<float> first(10), second(10);
                          Task task;
                          task.set = &set;
                          task.buffers = {{first.data(), first.data(), 40}, {second.data(), second.data(), 40}};
                          OnDevice device(memories_, rank.rank(), task);
                          void* const stream = cuda_.MakeStream(rank.rank());
                          for (IoBuffer& buffer : device.task().buffers) {
                            auto* const contents = static_cast<float*>(cuda_.Contents(buffer.input));
                            cuda_.Launch(stream, [contents] { std::fill(contents, contents + 10, 4.0f); });
                            buffer.ready_event = cuda_.RecordNewEvent(stream);
                          }
                          const std::string error = rig.Perform(device.task());
                          device.CopyBack();
                          return error.empty() && (first[9] != 8.0f || second[0] != 8.0f) ? "too early" : error;
                        }),
            "");
}

TEST_F(NcclTest, ASetThatIsForgottenLeavesNoCommunicatorAndMayComeAgain) {
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank);
                          for (int round = 0; round < 3; ++round) {
                            std::vector<float> values(5, 1.0f);
                            if (const std::string error = Reduce(rig, &values); !error.empty()) return error;
                            if (values[0] != 2.0f) return "wrong values";
                            rig.backend->Forget(0);
                          }
                          return "";
                        }),
            "");
  EXPECT_EQ(nccl_.calls("ncclCommInitRankConfig"), 6);
  EXPECT_EQ(nccl_.calls("ncclCommDestroy"), 6);
}

// Each is a thread's own, before 2.27.
TEST_F(NcclTest, CommunicatorsMayBeginAndEndSideBySide) {
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank);
                          const auto reduce_in = [&](const ProcessSet& set) {
                            std::vector<float> values(5, 1.0f);
                            const OnDevice device(memories_, rank.rank(), WorkOn(set, &values));
                            return rig.Perform(device.task());
                          };
                          for (int id = 1; id <= 3; ++id) {
                            const ProcessSet set = MakeProcessSet(rank.world().layout, rank.rank(), id, {0, 1}, id);
                            if (const std::string error = reduce_in(set); !error.empty()) return error;
                          }
                          rig.backend->Forget(1);
                          rig.backend->Forget(2);
                          return reduce_in(WholeWorld(rank.world().layout, rank.rank()));
                        }),
            "");
  EXPECT_EQ(nccl_.calls("ncclCommDestroy"), 8);
}

TEST_F(NcclTest, WhoDrivesMayChangeAndEnd) {
  nccl_.HangBeforeLaunch();
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank);
                          const Ones ones(memories_, rank, rank.rank());
                          std::string error;
                          std::thread([&] { error = PerformUntilBothLaunch(rig, ones); }).join();
                          if (error != kGivenUp) return "it does not hang: " + error;
                          rig.backend->Abort();
                          return "";
                        }),
            "");
}

// Nothing wakes the driver when NCCL has launched something; the device wakes it when it has finished.
TEST_F(NcclTest, WhoDrivesDoesNotSleepWhileNcclLaunches) {
  nccl_.HangBeforeLaunch();
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank);
                          const Ones ones(memories_, rank, rank.rank());
                          if (rig.backend->LongestSleepMs() != -1) return "there is nothing to do";
                          if (PerformUntilBothLaunch(rig, ones) != kGivenUp) return "it does not hang";
                          if (rig.backend->LongestSleepMs() > 1) return "it may sleep while something is launched";
                          std::this_thread::sleep_for(milliseconds(5));
                          const int later_ms = rig.backend->LongestSleepMs();
                          rig.backend->Abort();
                          return later_ms == 1 ? "" : "later: " + std::to_string(later_ms);
                        }),
            "");
}

TEST_F(NcclTest, WhoDrivesSleepsWhileTheDeviceWorks) {
  nccl_.Hang();
  std::atomic<int> ranks_at_it{0};
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank);
                          const Ones ones(memories_, rank, rank.rank());
                          const std::string error = rig.PerformUntilAllHang(ones.device.task(), &ranks_at_it);
                          const int sleep_ms = rig.backend->LongestSleepMs();
                          rig.backend->Abort();
                          return error == kGivenUp && sleep_ms == -1 ? "" : error + std::to_string(sleep_ms);
                        }),
            "");
}

TEST_F(NcclTest, From227OnWhoeverDrivesMakesTheCalls) {
  nccl_.SetVersion(23004);
  Settings settings = FakeSettings();
  std::string& path = settings.libraries["nccl"];
  path.insert(path.rfind('/'), "/./.");  // another path, since libraries are remembered by path
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank, settings);
                          std::vector<float> values(5, 1.0f);
                          if (const std::string error = Reduce(rig, &values); !error.empty()) return error;
                          return values[4] == 2.0f ? "" : "wrong values";
                        }),
            "");
  EXPECT_EQ(nccl_.calls("ncclCommDestroy"), 2);
}

// ---- when something goes wrong

TEST_F(NcclTest, RanksThatShareAGpuAreNamedWhereNcclRefusesThem) {
  nccl_.RefuseSharedDevices();
  const std::string errors = RunBackends({3}, [&](Rank& rank) {
    const NcclRig rig(rank);
    std::vector<float> values(5, 1.0f);
    const std::string error = Reduce(rig, &values);
    rig.backend->Abort();
    return error;
  });
  EXPECT_NE(errors.find("an operation of NCCL 2.18.3 failed on CUDA device 0: invalid usage (5), the last "
                        "line of the log; rank 0 (host host0, pid 1) and rank 2 (host host0, pid 1) use the same "
                        "GPU: give each its own"),
            std::string::npos)
      << errors;
}

TEST_F(NcclTest, EveryCallThatFailsIsNamedWithNcclsWordsAndTheRank) {
  for (const char* call : {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclGroupStart", "ncclAllReduce",
                           "ncclGroupEnd", "ncclRedOpCreatePreMulSum"}) {
    nccl_.Fail(call, 1);
    std::atomic<bool> failed{false};
    const std::string errors = RunBackends({2}, [&](Rank& rank) {
      const NcclRig rig(rank);
      std::vector<float> values(5, 1.0f);
      const std::string error = Reduce(rig, &values, {1.0, 2.0}, [&failed] { return failed.load(); });
      failed = true;
      rig.backend->Abort();
      return error;
    });
    const std::string expected = std::string(call) + " of NCCL 2.18.3 failed on CUDA device ";
    const size_t at = errors.find(expected);
    ASSERT_NE(at, std::string::npos) << call << ": " << errors;
    EXPECT_NE(errors.find("unhandled cuda error (1)", at), std::string::npos) << errors;
    EXPECT_NE(errors.find("(host host0, pid 1): " + std::string(call)), std::string::npos) << errors;
  }
}

TEST_F(NcclTest, AnErrorThatComesUpWhileTheDeviceWorksEndsTheWork) {
  nccl_.Hang();
  std::atomic<int> ranks_at_it{0};
  const std::string errors = RunBackends({2}, [&](Rank& rank) -> std::string {
    const NcclRig rig(rank);
    const Ones ones(memories_, rank, rank.rank());
    if (rig.PerformUntilAllHang(ones.device.task(), &ranks_at_it) != kGivenUp) return "it did not hang";
    const TimePoint begin = Now();
    nccl_.FailLater(6);
    bool moved = false, done = false;
    Status status;
    while (status.ok() && !done) status = rig.backend->Poll(&moved, &done);
    if (MillisecondsBetween(begin, Now()) < 400) return "a death would not have been told first";
    const Status again = rig.backend->Poll(&moved, &done);
    if (again.message() != status.message()) return "it is said once only";
    rig.backend->Abort();
    return status.message();
  });
  EXPECT_NE(errors.find("remote process exited or there was a network error (6)"), std::string::npos) << errors;
}

TEST_F(NcclTest, AWorkThatHangsIsOverOnceItIsAbortedAndNoneFollows) {
  nccl_.Hang();
  std::atomic<int> ranks_at_it{0};
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank);
                          const Ones ones(memories_, rank, rank.rank());
                          if (rig.PerformUntilAllHang(ones.device.task(), &ranks_at_it) != kGivenUp) return "no hang";
                          rig.backend->Abort();
                          ones.device.CopyBack();
                          if (ones.values != std::vector<float>(5, 1.0f)) return "the memory was written";
                          return rig.backend->Start(&ones.device.task()).ok() ? "it goes on after an abort" : "";
                        }),
            "");
  EXPECT_EQ(nccl_.calls("ncclCommAbort"), 2);
}

TEST_F(NcclTest, AWorkThatHangsIsAbortedThoughOtherSetsHaveCommunicators) {
  std::atomic<int> ranks_at_it{0}, ranks_done{0};
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank);
                          const Layout& layout = rank.world().layout;
                          for (int id : {2, 1, 3}) {
                            const ProcessSet set = MakeProcessSet(layout, rank.rank(), id, {0, 1}, id);
                            std::vector<float> values(5, 1.0f);
                            const OnDevice device(memories_, rank.rank(), WorkOn(set, &values));
                            if (const std::string error = rig.Perform(device.task()); !error.empty()) return error;
                          }
                          ++ranks_done;
                          while (ranks_done < 2) std::this_thread::yield();
                          nccl_.Hang();
                          const Ones ones(memories_, rank, rank.rank());
                          if (rig.PerformUntilAllHang(ones.device.task(), &ranks_at_it) != kGivenUp) return "no hang";
                          rig.backend->Abort();
                          return "";
                        }),
            "");
  EXPECT_EQ(nccl_.calls("ncclCommAbort"), 8);
}

TEST_F(NcclTest, ARankThatDoesNotComeToTheCommunicatorIsNotWaitedForAfterAnAbort) {
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const NcclRig rig(rank);
                          std::vector<float> values(5, 1.0f);
                          if (rank.rank() == 1) return "";
                          const auto says = [&rig] { return rig.backend->WaitingOn() == std::vector<int>{1}; };
                          const std::string error = Reduce(rig, &values, Scale(), says);
                          rig.backend->Abort();
                          return error == kGivenUp ? "" : "does not say for whom it waits: " + error;
                        }),
            "");
}

TEST_F(NcclTest, AllTensorsOfASetLieOnOneDeviceOfTheRank) {
  const std::string errors = RunBackends({2}, [&](Rank& rank) -> std::string {
    const NcclRig rig(rank);
    std::vector<float> values(5, 1.0f);
    if (const std::string error = Reduce(rig, &values); !error.empty()) return error;
    const Ones elsewhere(memories_, rank, 1 - rank.rank());
    return rig.Perform(elsewhere.device.task());
  });
  EXPECT_NE(errors.find("rank 1 (host host0, pid 1): tensors of process set 0 lie on CUDA device 1 and on CUDA "
                        "device 0; with NCCL a rank has one device for all of a set"),
            std::string::npos)
      << errors;
}

TEST_F(NcclTest, MemoryForARankThatHasJoinedMayBeShort) {
  const std::string errors = RunBackends({2}, [&](Rank& rank) -> std::string {
    const NcclRig rig(rank);
    const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
    std::vector<float> values(5, 1.0f);
    if (const std::string error = Reduce(rig, &values); !error.empty()) return error;
    if (rank.rank() == 0) {
      rig.backend->Abort();  // the other rank does not end in order
      return "";
    }
    cuda_.Fail("cuMemAlloc_v2", 2);
    Task task;
    task.set = &set;
    task.buffers = {{nullptr, nullptr, 20}};
    const std::string error = rig.Perform(task);
    rig.backend->Abort();
    return error;
  });
  EXPECT_NE(errors.find("cuMemAlloc_v2 failed on CUDA device 1: CUDA_ERROR_OUT_OF_MEMORY (2)"), std::string::npos)
      << errors;
}

TEST_F(NcclTest, ARankThatJoinsBeforeItHasADeviceIsTold) {
  std::atomic<bool> told{false};
  const std::string errors = RunBackends({2}, [&](Rank& rank) -> std::string {
    const NcclRig rig(rank);
    const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
    std::vector<float> values(5, 1.0f);
    Task task;
    task.set = &set;
    task.buffers = {{nullptr, nullptr, 20}};
    const auto other_is_told = [&told] { return told.load(); };
    const std::string error = rank.rank() == 0 ? Reduce(rig, &values, Scale(), other_is_told) : rig.Perform(task);
    told = told || rank.rank() == 1;
    rig.backend->Abort();
    return error;
  });
  EXPECT_NE(errors.find("rank 1 (host host0, pid 1): this rank has joined before it had a tensor on a device"),
            std::string::npos)
      << errors;
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

// ---- the library

std::string FoundBy(const std::string& path) {
  Settings settings;
  settings.libraries["nccl"] = path;
  std::string library;
  const Status found = kNccl.find(settings, &library);
  return found.ok() ? library : found.message();
}

TEST_F(NcclTest, TheLibraryIsNamedWithItsVersion) { EXPECT_EQ(FoundBy(FakeNcclPath()), "NCCL 2.18.3"); }

TEST_F(NcclTest, ALibraryThatIsAbsentOldOrAnotherIsRefusedInOneSentence) {
  const std::string absent = FoundBy("/nowhere/libnccl.so.2");
  EXPECT_EQ(absent.find("NCCL cannot be opened: looked for /nowhere/libnccl.so.2 ("), 0u) << absent;
  EXPECT_NE(absent.find("set FARANDOLE_NCCL_LIB"), std::string::npos) << absent;
  const std::string folder = FakeNcclPath().substr(0, FakeNcclPath().rfind('/'));
  nccl_.SetVersion(21705);
  const std::string old = folder + "/./libfake_nccl.so";
  EXPECT_EQ(FoundBy(old), old +
                              " is NCCL 2.17.5, and 2.18.0 is the oldest that can be used; install a newer one and "
                              "set FARANDOLE_NCCL_LIB to its path");
  EXPECT_EQ(FoundBy(FakeCudaPath()), FakeCudaPath() +
                                         " has no function ncclGetVersion, so it is no NCCL; set "
                                         "FARANDOLE_NCCL_LIB to the path of libnccl.so.2");
}

TEST_F(NcclTest, TheLibraryIsAmongWhatRanksCompare) {
  BackendList backend_list;
  ASSERT_TRUE(BackendList::Read({"nccl", "native"}, &backend_list).ok());
  const auto found = BackendTable::Libraries(FakeSettings(), backend_list);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0], std::make_pair(std::string("library of nccl"), std::string("NCCL 2.18.3")));
  Settings absent = FakeSettings();
  absent.libraries["nccl"] = "/nowhere/libnccl.so.2";
  EXPECT_EQ(BackendTable::Libraries(absent, backend_list)[0].second, "none");
}

// ---- what it supports

TEST(NcclSupports, WhatKeepsItsMeaningAndNothingElse) {
  const auto supports = [](OpKind kind, DType dtype, ReduceOp reduce, Scale scale = Scale(), bool on_device = true) {
    return NcclSupports({kind, dtype, reduce, 4, on_device, scale});
  };
  const auto all = OpKind::kAllreduce;
  EXPECT_TRUE(supports(all, DType::kFloat32, ReduceOp::kSum));
  EXPECT_FALSE(supports(all, DType::kFloat32, ReduceOp::kSum, Scale(), false)) << "host memory";
  EXPECT_TRUE(supports(OpKind::kBroadcast, DType::kInt16, ReduceOp::kSum));
  EXPECT_FALSE(supports(OpKind::kAllgather, DType::kFloat32, ReduceOp::kSum)) << "results are wanted on the host";
  OperationFacts scaled{all, DType::kFloat32, ReduceOp::kSum, 4, true};
  scaled.prescale = 0.5;
  EXPECT_TRUE(NcclSupports(scaled));
  scaled.scale.multiplier = 2.0;
  EXPECT_TRUE(NcclSupports(scaled));
  scaled.dtype = DType::kInt64;
  EXPECT_FALSE(NcclSupports(scaled)) << "both factors are one factor of NCCL's, and operands would not be truncated";
  const OperationFacts on_device{OpKind::kAlltoall, DType::kInt16, ReduceOp::kSum, 4, true, Scale(), true};
  EXPECT_TRUE(NcclSupports(on_device));
  EXPECT_FALSE(NcclSupports({OpKind::kReducescatter, DType::kInt16, ReduceOp::kSum, 4, true, Scale(), true}));
  EXPECT_FALSE(supports(all, DType::kInt16, ReduceOp::kSum));
  EXPECT_FALSE(supports(all, DType::kFloat32, ReduceOp::kAdasum));
  EXPECT_FALSE(supports(all, DType::kFloat32, ReduceOp::kMax)) << "NaN";
  EXPECT_TRUE(supports(all, DType::kInt64, ReduceOp::kMax));
  EXPECT_FALSE(supports(all, DType::kInt64, ReduceOp::kSum, {1.0, 4.0})) << "truncated once, after the sum";
  EXPECT_TRUE(supports(all, DType::kBool, ReduceOp::kSum, {3.0, 1.0}));
  EXPECT_TRUE(supports(all, DType::kFloat16, ReduceOp::kSum, {1.0, 4.0}));
  EXPECT_FALSE(supports(all, DType::kFloat16, ReduceOp::kSum, {1e-6, 4.0})) << "the factor would lose its digits";
  EXPECT_TRUE(supports(all, DType::kBfloat16, ReduceOp::kSum, {1e-6, 4.0}));
  EXPECT_FALSE(supports(all, DType::kFloat32, ReduceOp::kProduct, {2.0, 1.0}));
}

// A communicator of one rank leaves elements out.
TEST(NcclSupports, ScaledSumsOfSeveralRanksOnly) {
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kReducescatter}) {
    const auto supports = [kind](int set_size, const Scale& scale) {
      return NcclSupports({kind, DType::kFloat32, ReduceOp::kSum, set_size, true, scale, true});
    };
    EXPECT_TRUE(supports(2, {0.5, 1.0}));
    EXPECT_FALSE(supports(1, {0.5, 1.0}));
    EXPECT_TRUE(supports(1, Scale()));
  }
}

// Inside a host nothing changes.
TEST(NcclSupports, NothingBetweenHostsWithoutANetwork) {
  BackendList backend_list;
  ASSERT_TRUE(BackendList::Read({"nccl", "native"}, &backend_list, {"nccl"}).ok());
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kBroadcast, OpKind::kAllgather, OpKind::kAlltoall}) {
    const auto chosen = [&](int node_count) {
      return backend_list.Choose({{kind, DType::kInt32, ReduceOp::kSum, 4, true, Scale(), true, node_count}});
    };
    EXPECT_EQ(BackendTable::Names()[static_cast<size_t>(chosen(1))], "nccl");
    EXPECT_EQ(chosen(2), 0) << "native";
  }
}

}  // namespace
}  // namespace farandole::tests
