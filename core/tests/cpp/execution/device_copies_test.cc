// When the copies of operations begin, without an engine.
#include "execution/device_copies.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/fake_cuda.h"
#include "support/fake_framework.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

class HostCopiesTest : public testing::Test {
 protected:
  void SetUp() override { fake_.Reset(); }

  OperationPtr MakeOperation(size_t count) {
    float* const values = framework_.Compute(count, 0);
    auto operation =
        std::make_shared<Operation>(Make(OpKind::kAllreduce, {framework_.TensorOf(values, values, count)}));
    const Status made = MakeHostCopy(Devices(FakeCudaPath()), operation->request, 0, &operation->host_copy);
    EXPECT_TRUE(made.ok()) << made.message();
    return operation;
  }

  FakeCuda& fake_ = OpenFakeCuda();
  Framework framework_{fake_, 0};
};

TEST_F(HostCopiesTest, CopiesBeginAheadAsFarAsMemoryAllows) {
  constexpr size_t kCount = 1 << 18;  // 1 MB each
  HostCopies copies(-1, 2 << 20);
  std::vector<OperationPtr> operations;
  for (int k = 0; k < 4; ++k) {
    const OperationPtr operation = MakeOperation(kCount);
    copies.Await(operation);
    operations.push_back(operation);
  }
  const auto state = [&](size_t k) { return operations[k]->host_copy->state(); };
  std::vector<HostCopies::Completed> completed;
  copies.Poll(&completed);
  EXPECT_NE(state(1), HostCopy::State::kWaiting);
  EXPECT_EQ(state(2), HostCopy::State::kWaiting) << "more than 2 MB ahead";
  // The operation whose turn it is need not wait for others' memory.
  PlannedTask planned;
  planned.operations = {operations[3]};
  bool ready = false;
  ASSERT_TRUE(copies.Prepare(&planned, &ready).ok());
  EXPECT_NE(state(3), HostCopy::State::kWaiting);
  while (!ready) ASSERT_TRUE(copies.Prepare(&planned, &ready).ok());
  bool complete = false;
  ASSERT_TRUE(copies.Return(operations[3], &complete).ok());
  while (completed.empty()) copies.Poll(&completed);
  EXPECT_EQ(completed[0].operation, operations[3]);
  copies.Drop();
  copies.Drain(&completed);
  EXPECT_FALSE(copies.busy());
}

TEST_F(HostCopiesTest, MemoryThatReturnsIsAwaitedBeforeItIsCalledShort) {
  constexpr size_t kCount = 1000;
  HostCopies copies(-1);
  std::vector<OperationPtr> operations;
  for (int k = 0; k < 2; ++k) {
    const OperationPtr operation = MakeOperation(kCount);
    operations.push_back(operation);
  }
  const auto prepare = [&](size_t k) {
    PlannedTask planned;
    planned.operations = {operations[k]};
    bool ready = false;
    const Status status = copies.Prepare(&planned, &ready);
    EXPECT_TRUE(status.ok()) << status.message();
    return ready;
  };
  copies.Await(operations[0]);
  while (!prepare(0)) std::this_thread::yield();
  fake_.Fail("cuMemHostAlloc", 2, 0, true);  // no more than this one block
  copies.Await(operations[1]);
  std::vector<HostCopies::Completed> completed;
  copies.Poll(&completed);
  EXPECT_EQ(operations[1]->host_copy->state(), HostCopy::State::kWaiting);
  bool complete = false;
  fake_.SetDelay(milliseconds(5));
  ASSERT_TRUE(copies.Return(operations[0], &complete).ok());
  EXPECT_FALSE(prepare(1));
  while (!prepare(1)) copies.Poll(&completed);
  ASSERT_TRUE(copies.Return(operations[1], &complete).ok());
  while (completed.size() < 2) copies.Poll(&completed);
}

}  // namespace
}  // namespace farandole
