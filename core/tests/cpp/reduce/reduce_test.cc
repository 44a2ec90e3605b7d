// Every element type, operation, instruction set, number of inputs and awkward size, bit by bit against the definition.
#include "reduce/reduce.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "reduce/reduce_oracle.h"
#include "support/reductions.h"

namespace farandole {
namespace {

constexpr size_t kMaxInputs = 9;
// Sizes around the steps of all vectors (8 to 128 elements), around blocks of 4 KB, and larger ones.
constexpr size_t kSizes[] = {0,  1,  2,   7,   8,   9,   15,  17,   31,   32,   33,
                             63, 65, 127, 128, 129, 511, 513, 1023, 1025, 4095, 4097};
constexpr size_t kMaxElements = 4097;

std::vector<Isa> Isas() {
  std::vector<Isa> isas;
  for (int isa = 0; isa <= static_cast<int>(BestIsa()); ++isa) isas.push_back(static_cast<Isa>(isa));
  return isas;
}

class IsaScope {
 public:
  explicit IsaScope(Isa isa) : before_(ActiveIsa()) { UseIsa(isa); }
  ~IsaScope() { UseIsa(before_); }
  IsaScope(const IsaScope&) = delete;
  IsaScope& operator=(const IsaScope&) = delete;

 private:
  const Isa before_;
};

// Small whole numbers and fractions as floats, so that sums round; anything else as it comes.
void WriteOrdinary(DType dtype, std::mt19937_64* random, char* to) {
  const double value = static_cast<double>(static_cast<int64_t>((*random)() % 8192) - 4096) / 512.0;
  if (dtype == DType::kFloat16) tests::NarrowOracle<tests::Float16Oracle>::Write(static_cast<float>(value), to);
  if (dtype == DType::kBfloat16) tests::NarrowOracle<tests::Bfloat16Oracle>::Write(static_cast<float>(value), to);
  if (dtype == DType::kFloat32) tests::PlainOracle<float>::Write(static_cast<float>(value) * 1.1f, to);
  if (dtype == DType::kFloat64) tests::PlainOracle<double>::Write(value * 1.1, to);
}

// Three quarters ordinary numbers, one quarter any bits: NaN of every kind, infinities, subnormals, both zeros.
std::string RandomBuffer(DType of, uint64_t seed) {
  std::mt19937_64 random(seed);
  const DType dtype = ReducedAs(of);
  const size_t element_bytes = SizeOf(dtype);
  std::string buffer(kMaxElements * SizeOf(of), '\0');
  for (size_t i = 0; i < buffer.size() / element_bytes; ++i) {
    const uint64_t choice = random() % 16;
    uint64_t bits = random();
    if (choice == 0) bits = uint64_t{1} << (8 * element_bytes - 1);  // -0
    if (choice == 1) bits = 0;
    if (dtype == DType::kBool) bits &= 1;
    std::memcpy(&buffer[i * element_bytes], &bits, element_bytes);
    if (choice >= 4) WriteOrdinary(dtype, &random, &buffer[i * element_bytes]);
  }
  return buffer;
}

const std::vector<std::string>& RandomInputs(DType dtype) {
  static std::vector<std::vector<std::string>> made(kDTypeCount);
  std::vector<std::string>& inputs = made[static_cast<size_t>(dtype)];
  for (uint64_t k = inputs.size(); k < kMaxInputs; ++k) inputs.push_back(RandomBuffer(dtype, 100 + k));
  return inputs;
}

std::vector<const char*> FirstOf(const std::vector<std::string>& buffers, size_t count) {
  std::vector<const char*> pointers;
  for (size_t k = 0; k < count; ++k) pointers.push_back(buffers[k].data());
  return pointers;
}

std::vector<std::pair<DType, ReduceOp>> AllReductions() {
  std::vector<std::pair<DType, ReduceOp>> reductions;
  for (int type = 0; type < kDTypeCount; ++type) {
    const auto dtype = static_cast<DType>(type);
    for (const ReduceOp reduce : tests::ElementwiseReductions(dtype)) reductions.emplace_back(dtype, reduce);
  }
  return reductions;
}

class ReduceMatrix : public ::testing::TestWithParam<std::pair<DType, ReduceOp>> {
 protected:
  DType dtype() const { return GetParam().first; }
  ReduceOp reduce() const { return GetParam().second; }
  size_t element_bytes() const { return SizeOf(dtype()); }

  std::string Reduced(const std::vector<const char*>& inputs, size_t element_count) const {
    std::string output(element_count * element_bytes(), '\x5a');
    const std::vector<const void*> pointers(inputs.begin(), inputs.end());
    Reduce(dtype(), reduce(), pointers.data(), pointers.size(), element_count, Scale{}, output.data());
    return output;
  }
};

TEST_P(ReduceMatrix, EveryInstructionSetGivesTheBitsOfTheDefinition) {
  for (size_t input_count = 2; input_count <= kMaxInputs; ++input_count) {
    const std::vector<const char*> inputs = FirstOf(RandomInputs(dtype()), input_count);
    const std::string expected = tests::Oracle(dtype(), reduce(), inputs, kMaxElements);
    for (const Isa isa : Isas()) {
      const IsaScope scope(isa);
      for (const size_t size : kSizes) {
        ASSERT_EQ(Reduced(inputs, size), expected.substr(0, size * element_bytes()))
            << input_count << " inputs of " << size << " elements, isa " << static_cast<int>(isa);
      }
    }
  }
}

TEST_P(ReduceMatrix, OneInputIsCopiedBitByBit) {
  const std::vector<const char*> input = FirstOf(RandomInputs(dtype()), 1);
  for (const Isa isa : Isas()) {
    const IsaScope scope(isa);
    for (const size_t size : kSizes) EXPECT_EQ(Reduced(input, size), std::string(input[0], size * element_bytes()));
  }
}

TEST_P(ReduceMatrix, UnalignedBuffersGiveTheSameBitsAndNothingElseIsWritten) {
  constexpr size_t kElements = 1100;
  const size_t bytes = kElements * element_bytes();
  for (const size_t input_count : {2, 3, 4, 7}) {
    std::vector<std::string> shifted;
    for (size_t k = 0; k < input_count; ++k) shifted.push_back(std::string(k + 1, 'x') + RandomInputs(dtype())[k]);
    std::vector<const void*> inputs;
    for (size_t k = 0; k < input_count; ++k) inputs.push_back(shifted[k].data() + k + 1);
    const std::string expected =
        tests::Oracle(dtype(), reduce(), FirstOf(RandomInputs(dtype()), input_count), kElements);
    for (const Isa isa : Isas()) {
      const IsaScope scope(isa);
      std::string output(bytes + 200, '\x5a');
      Reduce(dtype(), reduce(), inputs.data(), input_count, kElements, Scale{}, &output[3]);
      ASSERT_EQ(output, "ZZZ" + expected + std::string(197, 'Z'))
          << input_count << " inputs, isa " << static_cast<int>(isa);
    }
  }
}

TEST_P(ReduceMatrix, TheOutputMayBeAnyOfTheInputs) {
  constexpr size_t kElements = 1100;
  for (const size_t input_count : {1, 2, 3, 4, 6}) {
    const std::string expected = Reduced(FirstOf(RandomInputs(dtype()), input_count), kElements);
    for (const Isa isa : Isas()) {
      const IsaScope scope(isa);
      for (size_t target = 0; target < input_count; ++target) {
        std::vector<std::string> copies(RandomInputs(dtype()).begin(), RandomInputs(dtype()).begin() + input_count);
        const std::vector<const char*> pointers = FirstOf(copies, input_count);
        const std::vector<const void*> inputs(pointers.begin(), pointers.end());
        Reduce(dtype(), reduce(), inputs.data(), input_count, kElements, Scale{}, copies[target].data());
        ASSERT_EQ(copies[target].substr(0, expected.size()), expected) << input_count << " inputs, into " << target;
      }
    }
  }
}

// Both copies replace an input, as when two members reduce into each other's memory. Nothing behind them may be
// touched.
TEST_P(ReduceMatrix, TwiceStoresTheSameBitsInBothPlaces) {
  for (const Scale scale : {Scale{}, Scale{1.0, 3.0}}) {
    if (dtype() == DType::kBool && !scale.IsIdentity()) continue;
    for (const size_t size : kSizes) {
      const std::vector<std::string>& inputs = RandomInputs(dtype());
      const void* const pointers[] = {inputs[0].data(), inputs[1].data()};
      std::string expected(size * element_bytes(), '\0');
      Reduce(dtype(), reduce(), pointers, 2, size, scale, expected.data());
      for (const Isa isa : Isas()) {
        const IsaScope scope(isa);
        const std::string left = "x" + inputs[0].substr(0, expected.size()) + "left behind";
        const std::string right = "xy" + inputs[1].substr(0, expected.size()) + "right behind";
        for (const bool swapped : {false, true}) {
          std::string a = left, b = right;
          void* const output = swapped ? &b[2] : &a[1];
          void* const copy = swapped ? &a[1] : &b[2];
          ReduceWithCopy(dtype(), reduce(), &a[1], &b[2], size, scale, output, copy);
          ASSERT_EQ(a, "x" + expected + "left behind") << size << " elements, isa " << static_cast<int>(isa);
          ASSERT_EQ(b, "xy" + expected + "right behind") << size << " elements, isa " << static_cast<int>(isa);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReduceMatrix, ::testing::ValuesIn(AllReductions()), [](const auto& info) {
  return std::string(NameOf(info.param.first)) + "_" + NameOf(info.param.second);
});

}  // namespace
}  // namespace farandole
