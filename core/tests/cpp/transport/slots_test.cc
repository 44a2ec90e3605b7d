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

// The bytes that `member` writes into use `use` of the payload `key`. They are arbitrary, but every member can compute
// them.
std::string InputOf(uint32_t key, uint64_t use, int member, const std::vector<Part>& parts) {
  std::string input(BytesOf(parts), '\0');
  std::mt19937 random(key * 7919u + static_cast<uint32_t>(use) * 31u + static_cast<uint32_t>(member));
  for (char& byte : input) byte = static_cast<char>(random());
  return input;
}

std::string ReducedTensors(const std::vector<std::string>& inputs, const std::vector<Part>& parts, ReduceOp reduce,
                           Scale scale) {
  std::string output(inputs[0].size(), '\0');
  size_t offset = 0;
  for (const Part& part : parts) {
    std::vector<const void*> from;
    for (const std::string& input : inputs) from.push_back(input.data() + offset);
    Reduce(part.dtype, reduce, from.data(), from.size(), part.element_count, scale, output.data() + offset);
    offset += part.element_count * SizeOf(part.dtype);
  }
  return output;
}

// The payload's tensors at `input`, results in place or at `output`.
std::vector<SlotTensor> TensorsOf(const std::vector<Part>& parts, const char* input, char* output) {
  std::vector<SlotTensor> tensors;
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
      : parts(std::move(all_parts)), memory(2 * SlotBuffer::BytesFor(member_count, BytesOf(parts))) {
    const size_t half_bytes = SlotBuffer::BytesFor(member_count, BytesOf(parts));
    for (int member = 0; member < member_count; ++member) {
      for (size_t slots : {0, 1})
        buffers.emplace_back(memory.get() + slots * half_bytes, member_count, BytesOf(parts), member);
    }
  }
  SlotBuffer& BufferOf(int member, uint64_t use) { return buffers[2 * static_cast<size_t>(member) + (use & 1)]; }

  std::vector<Part> parts;
  Memory memory;
  std::vector<SlotBuffer> buffers;  // two of each member
};

void Yield(const std::function<bool()>& ready) {
  while (!ready()) std::this_thread::yield();
}

// Every second use of a payload for which that is possible is reduced in two phases.
std::string Allreduce(Payload& payload, uint64_t use, int member, std::string input, ReduceOp reduce, Scale scale) {
  SlotBuffer& slots = payload.BufferOf(member, use);
  const std::vector<SlotTensor> tensors = TensorsOf(payload.parts, input.data(), input.data());
  if (SlotBuffer::CanShare(input.size()) && use / 2 % 2 == 0) {
    slots.WriteForOthers(tensors.data(), tensors.size(), use, /*wants_doorbell=*/false);
    Yield([&] { return slots.AllHaveWritten(use); });
    ReduceShare(slots, reduce, scale, tensors.data(), tensors.size(), use);
    Yield([&] { return slots.AllHaveReduced(use); });
    CopyShares(slots, tensors.data(), tensors.size());
    return input;
  }
  slots.Write(tensors.data(), tensors.size(), use);
  Yield([&] { return slots.AllHaveWritten(use); });
  const bool reads_own = use % 3 != 0;  // both kinds, with both buffers
  ReduceSlots(slots, reduce, scale, tensors.data(), tensors.size(), reads_own ? member : kNoMember);
  return input;
}

void RunMembers(int member_count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int m = 0; m < member_count; ++m) threads.emplace_back(body, m);
  for (std::thread& thread : threads) thread.join();
}

class Members : public ::testing::TestWithParam<int> {};

TEST_P(Members, GetTheReductionOfAllInputsForEveryTypeOperationAndSize) {
  const int member_count = GetParam();
  for (int type = 0; type < kDTypeCount; ++type) {
    const std::vector<ReduceOp> reductions = tests::ElementwiseReductions(static_cast<DType>(type));
    for (const size_t element_count : {0, 1, 6, 7, 13, 29, 57, 4201}) {
      Payload payload(member_count, {{static_cast<DType>(type), element_count}});
      RunMembers(member_count, [&](int member) {
        for (uint64_t use = 1; use <= 2 * reductions.size(); ++use) {
          const ReduceOp reduce = reductions[use % reductions.size()];
          const Scale scale{1.0, use <= reductions.size() ? 1.0 : 3.0};
          std::vector<std::string> inputs;
          for (int m = 0; m < member_count; ++m) inputs.push_back(InputOf(0, use, m, payload.parts));
          const std::string mine = inputs[static_cast<size_t>(member)];
          EXPECT_EQ(Allreduce(payload, use, member, mine, reduce, scale),
                    ReducedTensors(inputs, payload.parts, reduce, scale))
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
                ReducedTensors(inputs, parts, ReduceOp::kSum, {}));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Slots, Members, ::testing::Values(2, 3, 4, 7));

TEST(Slots, AMemberWithoutMemoryContributesZerosAndGetsNoResult) {
  Payload payload(2, {{DType::kInt32, 3}, {DType::kInt32, 2000}});
  for (SlotBuffer& slots : payload.buffers)
    std::memset(slots.payload_to_write(slots.self()), 1, BytesOf(payload.parts));  // of an operation before
  std::vector<int32_t> values(2003, 7);
  auto* const bytes = reinterpret_cast<char*>(values.data());
  const std::vector<SlotTensor> mine = TensorsOf(payload.parts, bytes, bytes);
  const std::vector<SlotTensor> none = {{nullptr, nullptr, DType::kInt32, 3}, {nullptr, nullptr, DType::kInt32, 2000}};
  for (uint64_t use = 1; use <= 4; ++use) {
    SlotBuffer& first = payload.BufferOf(0, use);
    SlotBuffer& second = payload.BufferOf(1, use);
    if (use % 2 == 0) {
      first.WriteForOthers(mine.data(), mine.size(), use, false);
      second.WriteForOthers(none.data(), none.size(), use, false);
      ReduceShare(first, ReduceOp::kSum, {}, mine.data(), mine.size(), use);
      ReduceShare(second, ReduceOp::kSum, {}, none.data(), none.size(), use);
      CopyShares(first, mine.data(), mine.size());
      CopyShares(second, none.data(), none.size());
    } else {
      first.Write(mine.data(), mine.size(), use);
      second.Write(none.data(), none.size(), use);
      ReduceSlots(first, ReduceOp::kSum, {}, mine.data(), mine.size(), use == 1 ? 0 : kNoMember);
      ReduceSlots(second, ReduceOp::kSum, {}, none.data(), none.size(), 1);
    }
  }
  EXPECT_EQ(values, std::vector<int32_t>(2003, 7));
}

TEST(Slots, ReportsWhichMembersHaveWritten) {
  Payload payload(3, {{DType::kFloat32, 1}});
  float value = 1;
  const SlotTensor tensor{&value, &value, DType::kFloat32, 1};
  const SlotBuffer& slots = payload.BufferOf(0, 1);
  payload.BufferOf(2, 1).Write(&tensor, 1, 1);
  EXPECT_FALSE(slots.HasWritten(0, 1));
  EXPECT_TRUE(slots.HasWritten(2, 1));
  EXPECT_FALSE(slots.HasWritten(2, 3));
  EXPECT_FALSE(slots.AllHaveWritten(1));
  payload.BufferOf(0, 1).Write(&tensor, 1, 1);
  payload.BufferOf(1, 1).Write(&tensor, 1, 1);
  EXPECT_TRUE(slots.AllHaveWritten(1));
}

// Each member's own object, and one of another member.
TEST(Slots, SayTheSameToEachMemberOfWhoHasWritten) {
  constexpr int kMembers = 3;
  const Memory memory(SlotBuffer::BytesFor(kMembers, sizeof(float)));
  std::vector<SlotBuffer> sides;
  for (int self = 0; self < kMembers; ++self) sides.emplace_back(memory.get(), kMembers, sizeof(float), self);
  float value = 1;
  const SlotTensor tensor{&value, &value, DType::kFloat32, 1};
  for (uint64_t use = 1; use <= 3; ++use) {
    for (int late = 0; late < kMembers; ++late) {
      for (const SlotBuffer& side : sides)
        EXPECT_FALSE(side.AllHaveWritten(use)) << "use " << use << ", member " << late;
      sides[static_cast<size_t>(late)].Write(&tensor, 1, use);
    }
    for (const SlotBuffer& side : sides) EXPECT_TRUE(side.AllHaveWritten(use)) << "use " << use;
  }
}

// Three members with a payload of which each reduces one share for all.
class TwoPhases : public testing::Test {
 protected:
  static constexpr size_t kCount = 3001;
  static constexpr int kMembers = 3;

  SlotBuffer& slots(int member, uint64_t use = 1) { return payload_.BufferOf(member, use); }
  void Write(int member, uint64_t use = 1) { slots(member, use).WriteForOthers(&tensors_[member], 1, use, false); }
  void Reduce(int member, uint64_t use = 1) {
    ReduceShare(slots(member, use), ReduceOp::kSum, {}, &tensors_[member], 1, use);
  }
  void Copy(int member, uint64_t use = 1) { CopyShares(slots(member, use), &tensors_[member], 1); }

  Payload payload_{kMembers, {{DType::kFloat32, kCount}}};
  std::vector<float> values_[kMembers] = {std::vector<float>(kCount, 1), std::vector<float>(kCount, 2),
                                          std::vector<float>(kCount, 4)};
  SlotTensor tensors_[kMembers] = {{values_[0].data(), values_[0].data(), DType::kFloat32, kCount},
                                   {values_[1].data(), values_[1].data(), DType::kFloat32, kCount},
                                   {values_[2].data(), values_[2].data(), DType::kFloat32, kCount}};
  const std::vector<float> sums_ = std::vector<float>(kCount, 7);
};

TEST_F(TwoPhases, TheSharesAreWholeLinesAndCoverEachElementOnce) {
  for (const size_t count : {0, 1, 15, 16, 17, 31, 33, 47, 3001}) {
    const SlotTensor tensor{nullptr, nullptr, DType::kFloat32, count};
    size_t end = 0;
    for (int member = 0; member < kMembers; ++member) {
      const SlotBuffer::Elements share = slots(0).ShareOf(tensor, 0, member);
      EXPECT_EQ(share.first, end);
      EXPECT_EQ(share.first % 16, 0u);
      end += share.count;
    }
    EXPECT_EQ(end, count);
  }
}

TEST_F(TwoPhases, TheResultIsThereOnceAllHaveReduced) {
  for (int member : {2, 0, 1}) Write(member);
  EXPECT_TRUE(slots(0).AllHaveWritten(1));
  for (int member : {1, 2}) Reduce(member);
  EXPECT_TRUE(slots(0).HasReduced(1, 1));
  EXPECT_FALSE(slots(0).HasReduced(0, 1));
  EXPECT_FALSE(slots(1).AllHaveReduced(1)) << "member 0 has not";
  Reduce(0);
  for (int member : {0, 2, 1}) {
    EXPECT_TRUE(slots(member).AllHaveReduced(1));
    Copy(member);
    EXPECT_EQ(values_[member], sums_);
  }
}

// A fast member writes the next use while a slow one still copies this one.
TEST_F(TwoPhases, TheNextUseLeavesTheSharesOfThisOne) {
  for (int member : {0, 1, 2}) Write(member);
  for (int member : {0, 1, 2}) Reduce(member);
  for (int member : {1, 2}) {
    Copy(member);
    Write(member, 2);
  }
  Copy(0);
  EXPECT_EQ(values_[0], sums_);
  EXPECT_FALSE(slots(1, 2).AllHaveWritten(2));
}

TEST_F(TwoPhases, AMemberTakesItsOwnShareFromItsInputOnly) {
  for (int member : {0, 1, 2}) Write(member);
  const SlotBuffer::Elements share = slots(1).ShareOf(tensors_[1], 0, 1);
  reinterpret_cast<float*>(slots(1).payload_to_write(1))[share.first] = 100;  // nobody reads or writes this
  for (int member : {0, 1, 2}) Reduce(member);
  for (int member : {0, 1, 2}) Copy(member);
  EXPECT_EQ(values_[0], sums_);
  EXPECT_EQ(values_[1], sums_);
}

TEST_F(TwoPhases, AnotherOperationInTheSameMemoryHasNoSharesOfTheOneBefore) {
  for (int member : {0, 1, 2}) Write(member);
  for (int member : {0, 1, 2}) Reduce(member);
  slots(0).Clear();
  EXPECT_FALSE(slots(0).AllHaveWritten(1));
  for (int member : {0, 1, 2}) EXPECT_FALSE(slots(0).HasReduced(member, 1));
}

// For a small payload only one line of 64 bytes crosses. No two members share a line.
TEST(Slots, SmallPayloadsFitTheLineOfTheirSequenceNumber) {
  EXPECT_EQ(SlotBuffer::BytesFor(2, 4), SlotBuffer::BytesFor(2, 56));
  EXPECT_GE(SlotBuffer::BytesFor(2, 57), 2u * (64 + 57));
}

}  // namespace
}  // namespace farandole
