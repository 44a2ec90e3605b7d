#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collectives/task.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

Plan PlanOfSum(const std::vector<int>& nodes, size_t size_bytes, const std::string& algorithm = "auto") {
  std::vector<PeerInfo> peers;
  const ProcessSet set = WholeWorld(LayoutOfNodes(nodes, &peers), 0);
  Task task;
  task.set = &set;
  task.buffers = {{nullptr, nullptr, size_bytes}};
  Settings settings;
  settings.algorithm = algorithm;
  return PlanOf(task, settings);
}

// Up to 32 KiB the leaders exchange the whole vector; larger ones are divided among the members of a node.
TEST(PlanOf, TheScheduleIsChosenForOneShard) {
  EXPECT_EQ(PlanOfSum({8, 8, 8, 8}, 32 << 10).algorithm, Algorithm::kDirect);
  EXPECT_EQ(PlanOfSum({8, 8, 8, 8}, 128 << 10).algorithm, Algorithm::kExchange);
  EXPECT_EQ(PlanOfSum({1, 1, 1, 1}, 128 << 10).algorithm, Algorithm::kDirect);
}

TEST(PlanOf, TheUsersAlgorithmIsTaken) {
  EXPECT_EQ(PlanOfSum({1, 1, 1}, 4, "ring").algorithm, Algorithm::kRing);
  EXPECT_EQ(PlanOfSum({2, 2}, 4, "tree").algorithm, Algorithm::kTree);
}

}  // namespace
}  // namespace farandole
