// Adasum through the native backend: any nodes, any number of ranks, all floating types.
#include "reduce/adasum.h"

#include <gtest/gtest.h>

#include "backends/cases.h"

namespace farandole::tests {
namespace {

Case CaseOf(DType dtype, Scale scale) {
  Case c;
  c.seed = 11;
  c.dtype = dtype;
  c.reduce = ReduceOp::kAdasum;
  c.scale = scale;
  return c;
}

Task TaskOf(const Case& c, const ProcessSet& set, IoBuffer buffer) {
  Task task;
  task.set = &set;
  task.dtype = c.dtype;
  task.reduce = ReduceOp::kAdasum;
  task.scale = c.scale;
  task.buffers = {buffer};
  return task;
}

// The value of every element, in double.
std::vector<double> Values(const Case& c, const std::string& bytes) {
  std::vector<double> values;
  for (size_t at = 0; at < bytes.size(); at += c.width()) {
    double value = 0;
    uint16_t code = 0;
    float single = 0;
    if (c.dtype == DType::kFloat64) std::memcpy(&value, &bytes[at], sizeof value);
    if (IsHalf(c.dtype)) std::memcpy(&code, &bytes[at], sizeof code);
    if (c.dtype == DType::kFloat16) value = Float16Oracle().Decode(code);
    if (c.dtype == DType::kBfloat16) value = Bfloat16Oracle().Decode(code);
    if (c.dtype == DType::kFloat32) std::memcpy(&single, &bytes[at], sizeof single), value = single;
    values.push_back(value);
  }
  return values;
}

std::vector<double> Recursion(const std::vector<std::vector<double>>& vectors) {
  if (vectors.size() == 1) return vectors[0];
  size_t first = 1;
  while (2 * first < vectors.size()) first *= 2;
  const auto middle = vectors.begin() + static_cast<std::ptrdiff_t>(first);
  const std::vector<double> a = Recursion({vectors.begin(), middle}), b = Recursion({middle, vectors.end()});
  double product = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) product += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
  const double left = aa == 0 ? 1 : 1 - product / (2 * aa), right = bb == 0 ? 1 : 1 - product / (2 * bb);
  std::vector<double> sum;
  for (size_t i = 0; i < a.size(); ++i) sum.push_back(left * a[i] + right * b[i]);
  return sum;
}

// The expected result for the inputs of all positions; those of joined ranks are zero.
std::vector<double> Expected(const Case& c, int positions, int joined, size_t element_count) {
  std::vector<std::vector<double>> vectors;
  for (int p = 0; p < positions; ++p) {
    vectors.push_back(Values(c, InputOf(c, p, element_count)));
    if (p == joined) vectors.back().assign(element_count, 0.0);
  }
  std::vector<double> expected = Recursion(vectors);
  for (double& value : expected) value *= c.scale.multiplier / c.scale.divisor;
  return expected;
}

double Tolerance(DType dtype) {
  if (dtype == DType::kFloat64) return 1e-11;
  if (dtype == DType::kFloat32) return 1e-6;
  return dtype == DType::kFloat16 ? 1e-3 : 1e-2;
}

std::string Compare(const Case& c, const std::vector<double>& got, const std::vector<double>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const double allowed = Tolerance(c.dtype) * (1 + std::fabs(expected[i]));
    if (!(std::fabs(got[i] - expected[i]) <= allowed)) {
      return std::string(NameOf(c.dtype)) + " x " + std::to_string(expected.size()) + ", element " + std::to_string(i) +
             ": " + std::to_string(got[i]) + " instead of " + std::to_string(expected[i]);
    }
  }
  return "";
}

const std::vector<int> kNodes[] = {{2}, {1, 1}, {2, 1}, {3, 1, 2}, {5}, {1, 1, 1, 1, 1, 1, 1}};
constexpr DType kDTypes[] = {DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64};

TEST(NativeAdasum, IsTheRecursionOverThePositionsInAnyNodes) {
  for (const auto& nodes : kNodes) {
    EXPECT_EQ(
        RunBackends(nodes,
                    [](Rank& rank) {
                      const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
                      std::string wrong;
                      for (DType dtype : kDTypes) {
                        for (size_t element_count : {size_t{0}, size_t{1}, size_t{63}, size_t{1000}, size_t{70001}}) {
                          const Case c = CaseOf(dtype, {2.0, 3.0});
                          std::string input = InputOf(c, set.position, element_count), output = input;
                          const std::string error =
                              rank.Perform(TaskOf(c, set, {input.data(), output.data(), element_count * c.width()}));
                          if (!error.empty()) return error;
                          if (wrong.empty())
                            wrong = Compare(c, Values(c, output), Expected(c, set.size(), -1, element_count));
                        }
                      }
                      return wrong;
                    }),
        "");
  }
}

TEST(NativeAdasum, OneNodeAndAllApartGiveTheSameBits) {
  std::string bits[2];
  const std::vector<int> nodes[] = {{4}, {1, 1, 1, 1}};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(RunBackends(nodes[i],
                          [&](Rank& rank) {
                            const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
                            const Case c = CaseOf(DType::kFloat32, {});
                            std::string data = InputOf(c, set.position, 5003);
                            const std::string error =
                                rank.Perform(TaskOf(c, set, {data.data(), data.data(), data.size()}));
                            if (rank.rank() == 2) bits[i] = data;
                            return error;
                          }),
              "");
  }
  EXPECT_EQ(bits[0], bits[1]);
  EXPECT_NE(bits[0], InputOf(CaseOf(DType::kFloat32, {}), 2, 5003));
}

TEST(NativeAdasum, ARankThatHasJoinedAddsNothing) {
  for (const auto& nodes : kNodes) {
    EXPECT_EQ(RunBackends(nodes,
                          [](Rank& rank) -> std::string {
                            const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
                            const Case c = CaseOf(DType::kFloat64, {});
                            const size_t element_count = 777;
                            std::string data = InputOf(c, set.position, element_count);
                            IoBuffer buffer{data.data(), data.data(), data.size()};
                            if (set.position == 1) buffer.input = buffer.output = nullptr;
                            const std::string error = rank.Perform(TaskOf(c, set, buffer));
                            if (!error.empty() || set.position == 1) return error;
                            return Compare(c, Values(c, data), Expected(c, set.size(), 1, element_count));
                          }),
              "");
  }
}

}  // namespace
}  // namespace farandole::tests
