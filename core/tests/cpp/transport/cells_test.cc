#include "collectives/slot_reduction.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/reductions.h"

namespace farandole {
namespace {

// Zeroed memory on a cache line.
class Memory {
 public:
  explicit Memory(size_t size_bytes)
      : bytes_(static_cast<std::byte*>(std::aligned_alloc(64, (size_bytes + 63) / 64 * 64)), &std::free) {
    std::memset(bytes_.get(), 0, size_bytes);
  }
  std::byte* get() const { return bytes_.get(); }

 private:
  std::unique_ptr<std::byte, void (*)(void*)> bytes_;
};

struct Part {
  DType dtype;
  size_t element_count;
};

size_t BytesOf(const std::vector<Part>& parts) {
  size_t bytes = 0;
  for (const Part& part : parts) bytes += part.element_count * SizeOf(part.dtype);
  return bytes;
}

// The bytes that `member` puts into use `use` of the payload `key`. They are arbitrary, but every member can compute
// them.
std::string InputOf(uint32_t key, uint64_t use, int member, const std::vector<Part>& parts) {
  std::string input(BytesOf(parts), '\0');
  std::mt19937 random(key * 7919u + static_cast<uint32_t>(use) * 31u + static_cast<uint32_t>(member));
  for (char& byte : input) byte = static_cast<char>(random());
  return input;
}

std::string FoldOf(const std::vector<std::string>& inputs, const std::vector<Part>& parts, ReduceOp reduce,
                   Scale scale) {
  std::string output(inputs[0].size(), '\0');
  size_t offset = 0;
  for (const Part& part : parts) {
    std::vector<const void*> from;
    for (const std::string& input : inputs) from.push_back(input.data() + offset);
    Fold(part.dtype, reduce, from.data(), from.size(), part.element_count, scale, output.data() + offset);
    offset += part.element_count * SizeOf(part.dtype);
  }
  return output;
}

// The payload's tensors at `input`, results in place or at `output`.
std::vector<CellTensor> TensorsOf(const std::vector<Part>& parts, const char* input, char* output) {
  std::vector<CellTensor> tensors;
  size_t offset = 0;
  for (const Part& part : parts) {
    tensors.push_back({input + offset, output + offset, part.dtype, part.element_count});
    offset += part.element_count * SizeOf(part.dtype);
  }
  return tensors;
}

// One payload that is reduced many times, as the tensors of one name are in training.
struct Payload {
  Payload(int member_count, std::vector<Part> all_parts)
      : parts(std::move(all_parts)), memory(2 * CellBuffer::BytesFor(member_count, BytesOf(parts))) {
    const size_t half_bytes = CellBuffer::BytesFor(member_count, BytesOf(parts));
    for (size_t cells : {0, 1}) buffers.emplace_back(memory.get() + cells * half_bytes, member_count, BytesOf(parts));
  }
  std::vector<Part> parts;
  Memory memory;
  std::vector<CellBuffer> buffers;
};

std::string Allreduce(Payload& payload, uint64_t use, int member, std::string input, ReduceOp reduce, Scale scale) {
  CellBuffer& cells = payload.buffers[use & 1];
  const std::vector<CellTensor> tensors = TensorsOf(payload.parts, input.data(), input.data());
  cells.Put(member, tensors.data(), tensors.size(), use);
  while (!cells.AllHavePut(use)) std::this_thread::yield();
  const bool reads_own = use % 3 != 0;  // both kinds, with both buffers
  const CellReader reader{member, use, /*pauses=*/static_cast<int>(use % 2), /*half_folded=*/false};
  FoldCells(cells, reduce, scale, tensors.data(), tensors.size(), reads_own ? &reader : nullptr);
  return input;
}

void RunMembers(int member_count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int m = 0; m < member_count; ++m) threads.emplace_back(body, m);
  for (std::thread& thread : threads) thread.join();
}

class Members : public ::testing::TestWithParam<int> {};

TEST_P(Members, GetTheFoldOfAllInputsForEveryTypeReductionAndSize) {
  const int member_count = GetParam();
  for (int type = 0; type < kDTypeCount; ++type) {
    const std::vector<ReduceOp> reductions = tests::FoldedReductions(static_cast<DType>(type));
    for (const size_t element_count : {0, 1, 6, 7, 13, 29, 57, 4201}) {
      Payload payload(member_count, {{static_cast<DType>(type), element_count}});
      RunMembers(member_count, [&](int member) {
        for (uint64_t use = 1; use <= 2 * reductions.size(); ++use) {
          const ReduceOp reduce = reductions[use % reductions.size()];
          const Scale scale{1.0, use <= reductions.size() ? 1.0 : 3.0};
          std::vector<std::string> inputs;
          for (int m = 0; m < member_count; ++m) inputs.push_back(InputOf(0, use, m, payload.parts));
          const std::string mine = inputs[static_cast<size_t>(member)];
          EXPECT_EQ(Allreduce(payload, use, member, mine, reduce, scale), FoldOf(inputs, payload.parts, reduce, scale))
              << NameOf(static_cast<DType>(type)) << " x " << element_count << " " << NameOf(reduce);
        }
      });
    }
  }
}

// No barrier separates the uses, so fast members are often one use ahead of slow ones.
TEST_P(Members, MayReduceManyPayloadsInARandomOrderWithoutBarriers) {
  const int member_count = GetParam();
  std::mt19937 random(5);
  std::vector<std::unique_ptr<Payload>> payloads;
  for (int i = 0; i < 12; ++i) {
    std::vector<Part> parts;
    for (size_t left = 1 + random() % 4; left > 0; --left) {
      parts.push_back({static_cast<DType>(random() % kDTypeCount), random() % (size_t{1} << random() % 12)});
    }
    payloads.push_back(std::make_unique<Payload>(member_count, parts));
  }
  std::vector<uint32_t> order(200);
  for (uint32_t& key : order) key = static_cast<uint32_t>(random() % payloads.size());
  RunMembers(member_count, [&](int member) {
    std::vector<uint64_t> uses(payloads.size(), 0);
    for (const uint32_t key : order) {
      const uint64_t use = ++uses[key];
      const std::vector<Part>& parts = payloads[key]->parts;
      std::vector<std::string> inputs;
      for (int m = 0; m < member_count; ++m) inputs.push_back(InputOf(key, use, m, parts));
      const std::string mine = inputs[static_cast<size_t>(member)];
      ASSERT_EQ(Allreduce(*payloads[key], use, member, mine, ReduceOp::kSum, {}),
                FoldOf(inputs, parts, ReduceOp::kSum, {}));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Cells, Members, ::testing::Values(2, 3, 4, 7));

TEST(Cells, AMemberWithoutMemoryContributesZerosAndGetsNoResult) {
  Payload payload(2, {{DType::kInt32, 3}, {DType::kInt32, 2000}});
  std::vector<int32_t> values(2003, 7);
  auto* const bytes = reinterpret_cast<char*>(values.data());
  const std::vector<CellTensor> mine = TensorsOf(payload.parts, bytes, bytes);
  const std::vector<CellTensor> none = {{nullptr, nullptr, DType::kInt32, 3}, {nullptr, nullptr, DType::kInt32, 2000}};
  for (uint64_t use = 1; use <= 3; ++use) {
    CellBuffer& cells = payload.buffers[use & 1];
    cells.Put(0, mine.data(), mine.size(), use);
    cells.Put(1, none.data(), none.size(), use);
    const CellReader first{0, use, 1}, second{1, use, 1};
    FoldCells(cells, ReduceOp::kSum, {}, mine.data(), mine.size(), use % 2 == 0 ? &first : nullptr);
    FoldCells(cells, ReduceOp::kSum, {}, none.data(), none.size(), &second);
  }
  EXPECT_EQ(values, std::vector<int32_t>(2003, 7));
}

TEST(Cells, ReportsWhichMembersHavePut) {
  Payload payload(3, {{DType::kFloat32, 1}});
  float value = 1;
  const CellTensor tensor{&value, &value, DType::kFloat32, 1};
  CellBuffer& cells = payload.buffers[1];
  cells.Put(2, &tensor, 1, 1);
  EXPECT_FALSE(cells.HasPut(0, 1));
  EXPECT_TRUE(cells.HasPut(2, 1));
  EXPECT_FALSE(cells.HasPut(2, 3));
  EXPECT_FALSE(cells.AllHavePut(1));
  cells.Put(0, &tensor, 1, 1);
  cells.Put(1, &tensor, 1, 1);
  EXPECT_TRUE(cells.AllHavePut(1));
}

// Each member's own object, and one of another member.
TEST(Cells, SayTheSameToEachMemberOfWhoHasPut) {
  constexpr int kMembers = 3;
  const Memory memory(CellBuffer::BytesFor(kMembers, sizeof(float)));
  std::vector<CellBuffer> sides;
  for (int self = 0; self < kMembers; ++self) sides.emplace_back(memory.get(), kMembers, sizeof(float), self);
  float value = 1;
  const CellTensor tensor{&value, &value, DType::kFloat32, 1};
  for (uint64_t use = 1; use <= 3; ++use) {
    for (int late = 0; late < kMembers; ++late) {
      for (const CellBuffer& side : sides) EXPECT_FALSE(side.AllHavePut(use)) << "use " << use << ", member " << late;
      sides[static_cast<size_t>(late)].Put(late, &tensor, 1, use);
    }
    for (const CellBuffer& side : sides) EXPECT_TRUE(side.AllHavePut(use)) << "use " << use;
  }
}

// Two members with a payload of which each folds one half for both.
class Halves : public testing::Test {
 protected:
  static constexpr size_t kCount = 3001;

  void PutBoth(uint64_t use) {
    for (int member : {0, 1}) cells(use).Put(member, &tensors_[member], 1, use);
  }
  bool Fold(int member, uint64_t use, int pauses = 0, bool half_folded = false) {
    const CellReader reader{member, use, pauses, half_folded};
    return FoldCells(cells(use), ReduceOp::kSum, {}, &tensors_[member], 1, &reader);
  }
  CellBuffer& cells(uint64_t use) { return payload_.buffers[use & 1]; }
  float* PayloadOf(int member, uint64_t use) { return reinterpret_cast<float*>(cells(use).payload_to_write(member)); }

  Payload payload_{2, {{DType::kFloat32, kCount}}};
  std::vector<float> values_[2] = {std::vector<float>(kCount, 1), std::vector<float>(kCount, 2)};
  CellTensor tensors_[2] = {{values_[0].data(), values_[0].data(), DType::kFloat32, kCount},
                            {values_[1].data(), values_[1].data(), DType::kFloat32, kCount}};
  const std::vector<float> sums_ = std::vector<float>(kCount, 3);
};

TEST_F(Halves, TheFirstToFoldDependsOnNothingThatTheOtherDoes) {
  PutBoth(1);
  Fold(0, 1);
  EXPECT_EQ(values_[0], sums_);
}

TEST_F(Halves, TheSecondTakesTheHalfThatTheFirstHasFolded) {
  PutBoth(1);
  Fold(0, 1);
  PayloadOf(1, 1)[0] = 7;  // member 0 has folded this element; not the sum, so that it shows
  Fold(1, 1);
  EXPECT_EQ(values_[1][0], 7);
  EXPECT_EQ(std::vector<float>(values_[1].begin() + 1, values_[1].end()),
            std::vector<float>(sums_.begin() + 1, sums_.end()));
}

TEST_F(Halves, AnotherOperationInTheSameMemoryTakesNoHalfOfTheOneBefore) {
  PutBoth(1);
  Fold(0, 1);
  cells(1).Clear();
  std::fill(values_[0].begin(), values_[0].end(), 10.0f);
  PutBoth(1);
  Fold(1, 1);
  EXPECT_EQ(values_[1], std::vector<float>(kCount, 12));
}

// The one that waits leaves the bounded wait with the result, whether the other folds or not.
TEST_F(Halves, AWaitForTheOtherEnds) {
  PutBoth(1);
  Fold(1, 1, /*pauses=*/1000);
  EXPECT_EQ(values_[1], sums_);
}

TEST_F(Halves, TwoThatPutHalfAreDoneOnceBothHaveFolded) {
  for (int member : {0, 1}) cells(1).PutHalf(member, tensors_[member], 1);
  EXPECT_TRUE(cells(1).AllHavePut(1, Share::kHalf));
  EXPECT_FALSE(cells(1).AllHavePut(1, Share::kAll));
  EXPECT_FALSE(Fold(0, 1, /*pauses=*/20)) << "the other's half is nowhere yet";
  EXPECT_TRUE(Fold(1, 1));
  EXPECT_EQ(values_[1], sums_);
  EXPECT_TRUE(cells(1).AllHavePut(1, Share::kAll));
  EXPECT_TRUE(Fold(0, 1, /*pauses=*/20, /*half_folded=*/true));
  EXPECT_EQ(values_[0], sums_);
}

TEST_F(Halves, AMemberThatPutsTheRestIsNotDependedOn) {
  cells(1).PutHalf(1, tensors_[1], 1);
  EXPECT_TRUE(cells(1).PutRest(1, tensors_[1], 1, [&] { return cells(1).HasPut(0, 1); }));
  cells(1).PutHalf(0, tensors_[0], 1);
  EXPECT_FALSE(cells(1).AllHavePut(1, Share::kAll)) << "member 0 has put half";
  EXPECT_TRUE(Fold(0, 1));
  EXPECT_EQ(values_[0], sums_);
  EXPECT_TRUE(Fold(1, 1));
  EXPECT_EQ(values_[1], sums_);
}

TEST_F(Halves, NoRestIsPutForOneThatHasCome) {
  for (int member : {0, 1}) cells(1).PutHalf(member, tensors_[member], 1);
  EXPECT_FALSE(cells(1).PutRest(1, tensors_[1], 1, [&] { return cells(1).HasPut(0, 1); }));
  EXPECT_FALSE(cells(1).HasPutAll(1, 1)) << "member 0 would read what is not there";
  EXPECT_FALSE(Fold(1, 1, /*pauses=*/20));
  EXPECT_TRUE(Fold(0, 1));
  EXPECT_TRUE(Fold(1, 1, /*pauses=*/20, /*half_folded=*/true));
  for (const auto& values : values_) EXPECT_EQ(values, sums_);
}

TEST_F(Halves, OneThatPutHalfMeetsOneThatPutAll) {
  cells(1).PutHalf(0, tensors_[0], 1);
  cells(1).Put(1, &tensors_[1], 1, 1);
  EXPECT_TRUE(Fold(0, 1));
  EXPECT_TRUE(Fold(1, 1));
  for (const auto& values : values_) EXPECT_EQ(values, sums_);
}

TEST_F(Halves, AnotherOperationInTheSameMemoryIsNotAllPutByTheOneBefore) {
  PutBoth(1);
  cells(1).Clear();
  for (int member : {0, 1}) cells(1).PutHalf(member, tensors_[member], 1);
  EXPECT_FALSE(cells(1).AllHavePut(1, Share::kAll));
}

// For a small payload only one line of 64 bytes crosses. No two members share a line.
TEST(Cells, SmallPayloadsFitTheLineOfTheirSequenceNumber) {
  EXPECT_EQ(CellBuffer::BytesFor(2, 4), CellBuffer::BytesFor(2, 56));
  EXPECT_GE(CellBuffer::BytesFor(2, 57), 2u * (64 + 57));
}

}  // namespace
}  // namespace farandole
