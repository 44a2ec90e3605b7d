// Pools on the fake device: returned blocks are reused once no work uses them any more.
#include "device/block_pools.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "support/await_all.h"
#include "support/fake_cuda.h"

namespace farandole {
namespace {

class PinnedPoolTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_.Reset();
    memory_ = fake_.Allocate(0, 8);
    ASSERT_TRUE(Devices(FakeCudaPath()).Find(DeviceKind::kCuda, memory_, &device_).ok());
    pinned_before_ = fake_.pinned_bytes();
    pool_ = std::make_unique<PinnedPool>(device_);
  }
  void TearDown() override {
    pool_.reset();
    EXPECT_EQ(fake_.pinned_bytes(), pinned_before_) << "the pool leaves memory behind";
    fake_.Free(memory_);
  }
  Block Take(size_t size_bytes) {
    Block block;
    const Status status = pool_->Take(size_bytes, &block);
    EXPECT_TRUE(status.ok()) << status.message();
    return block;
  }
  int allocations() { return fake_.calls("cuMemHostAlloc"); }

  FakeCuda& fake_ = OpenFakeCuda();
  void* memory_ = nullptr;
  Device* device_ = nullptr;
  size_t pinned_before_ = 0;
  std::unique_ptr<PinnedPool> pool_;
};

TEST_F(PinnedPoolTest, BlocksHoldWhatIsAskedForAndWasteAtMostAQuarter) {
  for (size_t size = 1; size < (size_t{1} << 30); size += size / 7 + 1) {
    const size_t rounded = IdleBlocks::RoundUp(size);
    ASSERT_GE(rounded, size);
    ASSERT_LE(rounded, std::max(size_t{64} << 10, size + size / 4 + 1));
    ASSERT_EQ(IdleBlocks::RoundUp(rounded), rounded);
  }
}

TEST_F(PinnedPoolTest, AReturnedBlockIsReused) {
  const Block first = Take(1'000'000);
  pool_->GiveBack(first);
  const Block second = Take(999'000);
  EXPECT_EQ(second.memory, first.memory);
  const Block third = Take(1'000'000);
  EXPECT_NE(third.memory, second.memory) << "given twice";
  EXPECT_EQ(allocations(), 2);
  pool_->GiveBack(second);
  pool_->GiveBack(third);
}

TEST_F(PinnedPoolTest, IdleBytesAreBounded) {
  std::vector<Block> blocks;
  for (size_t total = 0; total <= IdleBlocks::kBytes; total += 64 << 20) blocks.push_back(Take(64 << 20));
  for (const Block& block : blocks) pool_->GiveBack(block);
  EXPECT_EQ(fake_.calls("cuMemFreeHost"), 0) << "which would wait for the device";
  pool_->FreeSurplus();
  EXPECT_LE(fake_.pinned_bytes() - pinned_before_, IdleBlocks::kBytes);
  EXPECT_EQ(fake_.calls("cuMemFreeHost"), 1);
  std::vector<Block> again;
  for (size_t i = 1; i < blocks.size(); ++i) again.push_back(Take(64 << 20));
  EXPECT_EQ(allocations(), static_cast<int>(blocks.size())) << "the others should have stayed";
  for (const Block& block : again) {
    EXPECT_NE(block.memory, blocks[0].memory) << "it was idle for longest";
    pool_->GiveBack(block);
  }
}

TEST_F(PinnedPoolTest, ASingleBlockBeyondTheBoundIsKept) {
  const Block large = Take(IdleBlocks::kBytes * 2);
  pool_->GiveBack(large);
  const Block again = Take(IdleBlocks::kBytes * 2);
  EXPECT_EQ(again.memory, large.memory);
  pool_->GiveBack(again);
}

TEST_F(PinnedPoolTest, NoMemoryIsAllocatedForZeroBytes) {
  EXPECT_EQ(Take(0).memory, nullptr);
  EXPECT_EQ(allocations(), 0);
}

TEST_F(PinnedPoolTest, ARefusalNamesTheCall) {
  fake_.Fail("cuMemHostAlloc", 2);
  Block block;
  EXPECT_EQ(pool_->Take(100, &block).message(),
            "cuMemHostAlloc failed on CUDA device 0: CUDA_ERROR_OUT_OF_MEMORY (2), out of memory");
  EXPECT_EQ(block.memory, nullptr);
}

using Memory = std::shared_ptr<std::byte>;

class ResultPoolTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_.Reset();
    known_ = fake_.Allocate(0, 8);
    ASSERT_TRUE(Devices(FakeCudaPath()).Find(DeviceKind::kCuda, known_, &device_).ok());
    stream_ = fake_.MakeStream(0);
    pool_ = std::make_shared<ResultPool>(device_);
  }
  void TearDown() override {
    pool_.reset();
    EXPECT_EQ(fake_.calls("cuMemAlloc_v2") - refused_, fake_.calls("cuMemFree_v2")) << "the pool leaves memory behind";
    EXPECT_EQ(fake_.calls("cuEventCreate"), fake_.calls("cuEventDestroy_v2")) << "the pool leaves events behind";
    fake_.Free(known_);
  }
  Memory Take(size_t size_bytes) {
    Memory memory;
    const Status status = pool_->Take(size_bytes, &memory);
    EXPECT_TRUE(status.ok()) << status.message();
    return memory;
  }
  int allocations() { return fake_.calls("cuMemAlloc_v2"); }

  FakeCuda& fake_ = OpenFakeCuda();
  void* known_ = nullptr;
  void* stream_ = nullptr;
  Device* device_ = nullptr;
  int refused_ = 0;
  std::shared_ptr<ResultPool> pool_;
};

TEST_F(ResultPoolTest, AReturnedBlockIsReusedWithoutWaitingForTheDevice) {
  Memory first = Take(1'000'000);
  const void* const address = first.get();
  first.reset();
  AwaitAll(device_);
  const Memory second = Take(999'000);
  EXPECT_EQ(second.get(), address);
  EXPECT_NE(Take(999'000).get(), address) << "given twice";
  EXPECT_EQ(allocations(), 2);
  EXPECT_EQ(fake_.calls("cuMemFree_v2"), 0);
}

TEST_F(ResultPoolTest, MemoryThatTheFrameworkStillReadsIsNotReused) {
  std::atomic<bool> may_end{false};
  Memory first = Take(100);
  const void* const address = first.get();
  fake_.Launch(stream_, [&may_end] {
    while (!may_end) std::this_thread::yield();
  });
  first.reset();  // while an earlier kernel still works on it
  Memory other = Take(100);
  EXPECT_NE(other.get(), address);
  may_end = true;
  AwaitAll(device_);
  EXPECT_EQ(Take(100).get(), address);
}

TEST_F(ResultPoolTest, IdleBlocksAreFreedWhenMemoryRunsOut) {
  Take(10 << 20);
  AwaitAll(device_);
  fake_.Fail("cuMemAlloc_v2", 2);
  refused_ = 1;
  const Memory memory = Take(1 << 20);
  EXPECT_NE(memory, nullptr);
  EXPECT_EQ(fake_.calls("cuMemFree_v2"), 1);
}

TEST_F(ResultPoolTest, ARefusalNamesTheCall) {
  fake_.Fail("cuMemAlloc_v2", 2);
  refused_ = 1;
  Memory memory;
  EXPECT_EQ(pool_->Take(100, &memory).message(),
            "cuMemAlloc_v2 failed on CUDA device 0: CUDA_ERROR_OUT_OF_MEMORY (2), out of memory");
}

TEST_F(ResultPoolTest, ABlockThatCannotBeMarkedIsFreed) {
  Memory memory = Take(100);
  fake_.Fail("cuCtxRecordEvent", 900);
  memory.reset();
  EXPECT_EQ(fake_.calls("cuMemFree_v2"), 1);
}

TEST_F(ResultPoolTest, IdleBytesAreBounded) {
  std::vector<Memory> blocks;
  for (size_t total = 0; total <= IdleBlocks::kBytes; total += 64 << 20) blocks.push_back(Take(64 << 20));
  blocks.clear();
  EXPECT_EQ(fake_.calls("cuMemFree_v2"), 1) << "64 MiB beyond the bound";
}

TEST_F(ResultPoolTest, AResultMayOutliveTheOwnerOfThePool) {
  Memory memory = Take(100);
  pool_.reset();
  EXPECT_EQ(fake_.calls("cuMemFree_v2"), 0);
  memory.reset();
  EXPECT_EQ(fake_.calls("cuMemFree_v2"), 1);
}

}  // namespace
}  // namespace farandole
