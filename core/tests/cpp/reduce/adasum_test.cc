// Compares Adasum's coefficients with the recursion of the paper.
#include "reduce/adasum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace farandole {
namespace {

using Vector = std::vector<double>;

double Dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Vector Pair(const Vector& a, const Vector& b) {
  const double product = Dot(a, b), aa = Dot(a, a), bb = Dot(b, b);
  const double left = aa == 0 ? 1 : 1 - product / (2 * aa), right = bb == 0 ? 1 : 1 - product / (2 * bb);
  Vector sum;
  for (size_t i = 0; i < a.size(); ++i) sum.push_back(left * a[i] + right * b[i]);
  return sum;
}

Vector Recursion(const std::vector<Vector>& vectors) {
  if (vectors.size() == 1) return vectors[0];
  size_t first = 1;
  while (2 * first < vectors.size()) first *= 2;
  const auto middle = vectors.begin() + static_cast<std::ptrdiff_t>(first);
  return Pair(Recursion({vectors.begin(), middle}), Recursion({middle, vectors.end()}));
}

Vector Computed(const std::vector<Vector>& vectors) {
  std::vector<const void*> pointers;
  for (const Vector& vector : vectors) pointers.push_back(vector.data());
  const size_t n = vectors.size(), count = vectors[0].size();
  std::vector<double> gram(GramSize(n), 0.0);
  AddGram(DType::kFloat64, pointers, count, &gram);
  Vector output(count);
  AddWeighted(DType::kFloat64, pointers, AdasumCoefficients(n, gram), count, Scale{}, output.data());
  return output;
}

void ExpectNear(const Vector& got, const Vector& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << "element " << i;
}

TEST(Adasum, IsTheRecursionForAnyNumberOfVectors) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> value(-1, 1);
  for (size_t n = 1; n <= 17; ++n) {
    for (size_t count : {1, 2, 7, 300, 1000}) {
      std::vector<Vector> vectors(n, Vector(count));
      for (Vector& vector : vectors) {
        for (double& element : vector) element = value(random) + 0.3;
      }
      ExpectNear(Computed(vectors), Recursion(vectors), 1e-9);
    }
  }
}

TEST(Adasum, AddsOrthogonalVectorsAndKeepsEqualOnes) {
  ExpectNear(Computed({{1, 0, 0}, {0, 2, 0}, {0, 0, 3}}), {1, 2, 3}, 1e-15);
  ExpectNear(Computed({{3, -4}, {3, -4}, {3, -4}, {3, -4}, {3, -4}}), {3, -4}, 1e-15);
}

TEST(Adasum, AVectorWithoutLengthChangesNothing) {
  ExpectNear(Computed({{0, 0}, {3, 4}}), {3, 4}, 0);
  ExpectNear(Computed({{3, 4}, {0, 0}, {0, 0}}), {3, 4}, 0);
  ExpectNear(Computed({{0, 0}, {0, 0}}), {0, 0}, 0);
}

// The Adasum of opposite vectors is zero. The rounding error that remains must not count as a direction.
TEST(Adasum, OppositeVectorsCancelAndLeaveTheRestAlone) {
  const Vector a{0.1, 0.7, -0.3}, b{-0.1, -0.7, 0.3}, c{5, 6, 7};
  ExpectNear(Computed({a, b, c}), c, 1e-12);
  ExpectNear(Computed({c, c, a, b}), c, 1e-12);
}

TEST(Adasum, StretchesGiveTheBitsOfTheWhole) {
  Vector a(5 * kGramStretch + 3), b(a.size());
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = 1.0 / static_cast<double>(i + 1), b[i] = std::sin(static_cast<double>(i));
  std::vector<double> whole(3, 0.0), cut(3, 0.0);
  AddGram(DType::kFloat64, {a.data(), b.data()}, a.size(), &whole);
  for (size_t first = 0; first < a.size(); first += 2 * kGramStretch) {
    AddGram(DType::kFloat64, {&a[first], &b[first]}, std::min(2 * kGramStretch, a.size() - first), &cut);
  }
  EXPECT_EQ(whole, cut);
}

TEST(Adasum, NarrowTypesAreRoundedOnceAndScaledInTheAccumulator) {
  const std::vector<float> a{1, 0, 3}, b{0, 0.1f, 0};  // orthogonal
  std::vector<float> sum(3);
  AddWeighted(DType::kFloat32, {a.data(), b.data()}, {1, 1}, 3, {1, 3}, sum.data());
  EXPECT_EQ(sum,
            (std::vector<float>{static_cast<float>(1.0 / 3), static_cast<float>(static_cast<double>(0.1f) / 3), 1}));
  std::vector<uint16_t> half{0x3c00, 0x4000};  // float16 1, 2
  AddWeighted(DType::kFloat16, {half.data(), half.data()}, {1, 0.5}, 2, Scale{}, half.data());
  EXPECT_EQ(half, (std::vector<uint16_t>{0x3e00, 0x4200}));  // 1.5, 3
}

}  // namespace
}  // namespace farandole
