#include "operation/batch.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace farandole {
namespace {

using Groups = std::vector<std::vector<size_t>>;

Task Item(DType dtype, size_t size_bytes) {
  Task task;
  task.dtype = dtype;
  task.buffers = {{nullptr, nullptr, size_bytes}};
  return task;
}

Groups FuseAll(const std::vector<Task>& items, int64_t threshold_bytes) {
  std::vector<const Task*> tasks;
  for (const Task& item : items) tasks.push_back(&item);
  return Fuse(tasks, threshold_bytes);
}

TEST(FuseTest, EqualKindsShareUpToTheThreshold) {
  const std::vector<Task> items{Item(DType::kFloat32, 40), Item(DType::kFloat64, 40), Item(DType::kFloat32, 60),
                                Item(DType::kFloat32, 1)};
  EXPECT_EQ(FuseAll(items, 100), (Groups{{0, 2}, {1}, {3}}));
}

TEST(FuseTest, ALargerTensorIsAlone) {
  EXPECT_EQ(FuseAll({Item(DType::kFloat32, 101), Item(DType::kFloat32, 1), Item(DType::kFloat32, 1)}, 100),
            (Groups{{0}, {1, 2}}));
}

TEST(FuseTest, DifferentScalesReductionsAndRootsStayApart) {
  std::vector<Task> items(4, Item(DType::kFloat32, 4));
  items[1].scale.multiplier = 0.5;
  items[2].reduce = ReduceOp::kMax;
  items[3].kind = OpKind::kAllgather;
  EXPECT_EQ(FuseAll(items, 100).size(), 4u);
}

// As for an average and a sum with a factor: integers divided by 3 and multiplied by 1/3 give different results.
TEST(FuseTest, ScalesWithOneQuotientStayApart) {
  std::vector<Task> items(2, Item(DType::kInt64, 8));
  items[0].scale = {1.0, 3.0};
  items[1].scale = {1.0 / 3.0, 1.0};
  EXPECT_EQ(FuseAll(items, 100), (Groups{{0}, {1}}));
}

TEST(FuseTest, BroadcastsOfOneRootShareWhateverTheirDtype) {
  std::vector<Task> items{Item(DType::kFloat32, 4), Item(DType::kInt64, 8), Item(DType::kInt64, 8)};
  for (Task& item : items) item.kind = OpKind::kBroadcast;
  items[2].root = 1;
  EXPECT_EQ(FuseAll(items, 100), (Groups{{0, 1}, {2}}));
}

TEST(FuseTest, EveryItemIsInExactlyOneGroup) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<Task> items;
    for (size_t i = 0; i < random() % 40; ++i)
      items.push_back(Item(random() % 2 ? DType::kFloat32 : DType::kInt32, random() % 60));
    std::multiset<size_t> seen;
    for (const auto& group : FuseAll(items, 100)) {
      int64_t bytes = 0;
      for (size_t i : group) {
        seen.insert(i);
        bytes += static_cast<int64_t>(items[i].TotalBytes());
      }
      EXPECT_LE(bytes, 100);
    }
    ASSERT_EQ(seen.size(), items.size());
    ASSERT_EQ(std::set<size_t>(seen.begin(), seen.end()).size(), items.size());
  }
}

}  // namespace
}  // namespace farandole
