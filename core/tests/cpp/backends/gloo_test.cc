// Collectives over Gloo itself, ranks as threads. FARANDOLE_GLOO_LIB says where its library is; the error when there is
// none is tested without it.
#include "backends/table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "backends/rig.h"

namespace farandole::tests {
namespace {

Settings WithLibrary(const std::string& path) {
  Settings settings;
  settings.libraries["gloo"] = path;
  return settings;
}

TEST(Gloo, ALibraryThatIsNotThereIsSaidWithWhatToInstall) {
  std::string library;
  const Status status = kGloo.find(WithLibrary("/nowhere/libfarandole_gloo.so"), &library);
  EXPECT_EQ(status.code(), Code::kInvalid);
  EXPECT_NE(status.message().find("/nowhere/libfarandole_gloo.so"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("pip install 'farandole[gloo]'"), std::string::npos) << status.message();
}

TEST(Gloo, AnotherLibraryUnderItsNameIsRefused) {
  std::string library;
  const Status status = kGloo.find(WithLibrary("libm.so.6"), &library);
  EXPECT_NE(status.message().find("libm.so.6 is no libfarandole_gloo.so"), std::string::npos) << status.message();
}

TEST(Gloo, AdasumIsLeftToOthers) {
  EXPECT_FALSE(kGloo.supports({OpKind::kAllreduce, DType::kFloat32, ReduceOp::kAdasum, 2, false}));
  EXPECT_TRUE(kGloo.supports({OpKind::kAllreduce, DType::kBfloat16, ReduceOp::kProduct, 2, false}));
}

TEST(Gloo, AnySequenceOfCollectivesGivesWhatTheDefinitionsSay) {
  const char* const path = std::getenv("FARANDOLE_GLOO_LIB");
  if (path == nullptr) GTEST_SKIP() << "FARANDOLE_GLOO_LIB is not set";
  for (const std::vector<int>& groups : {std::vector<int>{2}, std::vector<int>{2, 1}}) {
    EXPECT_EQ(RunBackends(groups,
                          [&](Rank& rank) {
                            const Rig rig(rank, [&](World* world, Backend* host_backend) {
                              return kGloo.make(world, WithLibrary(path), host_backend);
                            });
                            return rig.PerformSequence(11, 150, true);
                          }),
              "");
  }
}

TEST(Gloo, WorkThatIsAbortedEnds) {
  const char* const path = std::getenv("FARANDOLE_GLOO_LIB");
  if (path == nullptr) GTEST_SKIP() << "FARANDOLE_GLOO_LIB is not set";
  std::atomic<bool> over{false};
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const Rig rig(rank, [&](World* world, Backend* host_backend) {
                            return kGloo.make(world, WithLibrary(path), host_backend);
                          });
                          const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
                          std::vector<float> data(1000, 1.0f);
                          Task task;
                          task.set = &set;
                          task.buffers = {{data.data(), data.data(), data.size() * sizeof(float)}};
                          if (const std::string error = rig.Perform(task); !error.empty()) return error;
                          while (rank.rank() != 0 && !over) std::this_thread::yield();
                          if (rank.rank() != 0) return "";  // does not come again
                          bool moved = false, done = false;
                          Status status = rig.backend->Start(&task);
                          for (int i = 0; i < 100 && status.ok(); ++i) status = rig.backend->Poll(&moved, &done);
                          const TimePoint begin = Now();
                          rig.backend->Abort();
                          over = true;
                          if (!status.ok() || done) return "done without the other: " + status.message();
                          return MillisecondsBetween(begin, Now()) < 4000 ? "" : "the library was not interrupted";
                        }),
            "");
}

}  // namespace
}  // namespace farandole::tests
