#include "reduce/adasum.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "reduce/conversions.h"

namespace farandole {
namespace {

// A squared length below this fraction of the sum of its terms' magnitudes is a rounding error: the vector is zero.
constexpr double kZeroLength = 1e-13;

template <class Memory, class Convert>
void ReadEach(const void* from, size_t element_count, Convert convert, double* to) {
  for (size_t i = 0; i < element_count; ++i) {
    Memory value;
    std::memcpy(&value, static_cast<const char*>(from) + i * sizeof value, sizeof value);
    to[i] = static_cast<double>(convert(value));
  }
}

void Read(DType dtype, const void* from, size_t first, size_t element_count, double* to) {
  const char* const at = static_cast<const char*>(from) + first * SizeOf(dtype);
  switch (dtype) {
    case DType::kFloat16:
      return ReadEach<uint16_t>(at, element_count, Float16ToFloat, to);
    case DType::kBfloat16:
      return ReadEach<uint16_t>(at, element_count, Bfloat16ToFloat, to);
    case DType::kFloat32:
      return ReadEach<float>(at, element_count, [](float value) { return value; }, to);
    default:
      std::memcpy(to, at, element_count * sizeof(double));
  }
}

template <class Convert>
void WriteEach(const double* from, size_t element_count, Convert convert, char* to) {
  for (size_t i = 0; i < element_count; ++i) {
    const auto value = convert(from[i]);
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  }
}

// The 16-bit types are rounded from float32, as in every reduction.
void Write(DType dtype, const double* from, size_t first, size_t element_count, void* to) {
  char* const at = static_cast<char*>(to) + first * SizeOf(dtype);
  const auto narrow = [](double value) { return static_cast<float>(value); };
  switch (dtype) {
    case DType::kFloat16:
      return WriteEach(from, element_count, [&](double value) { return FloatToFloat16(narrow(value)); }, at);
    case DType::kBfloat16:
      return WriteEach(from, element_count, [&](double value) { return FloatToBfloat16(narrow(value)); }, at);
    case DType::kFloat32:
      return WriteEach(from, element_count, narrow, at);
    default:
      std::memcpy(at, from, element_count * sizeof(double));
  }
}

// Adds in separate lanes, so that the compiler can vectorize the loop without changing the order of summation.
double Product(const double* a, const double* b, size_t count) {
  constexpr size_t kLanes = 8;
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  double sum = 0;
  for (; i < count; ++i) sum += a[i] * b[i];
  for (double lane : sums) sum += lane;
  return sum;
}

// The tree of Adasum over the inputs. A node is stored as the coefficients of its inputs, never as a vector.
class Tree {
 public:
  Tree(size_t n, const std::vector<double>& gram) : n_(n), gram_(gram), coefficients_(n, 1.0) {}

  // Combines inputs [begin, end) into one node.
  void Combine(size_t begin, size_t end) {
    if (end - begin <= 1) return;
    const size_t middle = begin + LeftSubtreeSize(end - begin);
    Combine(begin, middle);
    Combine(middle, end);
    const double product = Sum(begin, middle, middle, end, false);
    const double left = Share(product, begin, middle), right = Share(product, middle, end);
    for (size_t i = begin; i < end; ++i) coefficients_[i] *= i < middle ? left : right;
  }

  std::vector<double> Take() { return std::move(coefficients_); }

 private:
  // The scalar product of two nodes; or, with `magnitudes`, the sum of the magnitudes of its terms.
  double Sum(size_t a_begin, size_t a_end, size_t b_begin, size_t b_end, bool magnitudes) const {
    double sum = 0;
    for (size_t i = a_begin; i < a_end; ++i) {
      for (size_t j = b_begin; j < b_end; ++j) {
        const double term = coefficients_[i] * coefficients_[j] * gram_[GramIndex(std::min(i, j), std::max(i, j), n_)];
        sum += magnitudes ? std::fabs(term) : term;
      }
    }
    return sum;
  }

  // The factor of one of two nodes: 1 - a.b / 2|a|^2, and 1 for a node of length 0.
  double Share(double product, size_t begin, size_t end) const {
    const double square = Sum(begin, end, begin, end, false);
    if (!(square > kZeroLength * Sum(begin, end, begin, end, true))) return 1;
    return 1 - product / (2 * square);
  }

  size_t n_;
  const std::vector<double>& gram_;
  std::vector<double> coefficients_;
};

}  // namespace

void AddGram(DType dtype, const std::vector<const void*>& vectors, size_t element_count, std::vector<double>* gram) {
  const size_t n = vectors.size();
  std::vector<double> values(n * kGramStretch);
  for (size_t first = 0; first < element_count; first += kGramStretch) {
    const size_t count = std::min(kGramStretch, element_count - first);
    for (size_t i = 0; i < n; ++i) Read(dtype, vectors[i], first, count, &values[i * kGramStretch]);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = i; j < n; ++j) {
        (*gram)[GramIndex(i, j, n)] += Product(&values[i * kGramStretch], &values[j * kGramStretch], count);
      }
    }
  }
}

std::vector<double> AdasumCoefficients(size_t n, const std::vector<double>& gram) {
  Tree tree(n, gram);
  tree.Combine(0, n);
  return tree.Take();
}

void AddWeighted(DType dtype, const std::vector<const void*>& vectors, const std::vector<double>& coefficients,
                 size_t element_count, Scale scale, void* output) {
  constexpr size_t kStretch = 256;
  const double factor = scale.multiplier / scale.divisor;
  double value[kStretch], sum[kStretch];
  for (size_t first = 0; first < element_count; first += kStretch) {
    const size_t count = std::min(kStretch, element_count - first);
    std::fill_n(sum, count, 0.0);
    for (size_t v = 0; v < vectors.size(); ++v) {
      Read(dtype, vectors[v], first, count, value);
      for (size_t i = 0; i < count; ++i) sum[i] += coefficients[v] * value[i];
    }
    for (size_t i = 0; i < count; ++i) sum[i] *= factor;
    Write(dtype, sum, first, count, output);
  }
}

}  // namespace farandole
