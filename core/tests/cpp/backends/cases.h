// Random tasks and their expected results. Everything follows from the seed, so every rank makes the same tasks and
// knows the inputs of all.
#pragma once

#include <random>

#include "backends/ranks.h"
#include "backends/reduction_oracle.h"
#include "reduce/conversions.h"
#include "support/reductions.h"

namespace farandole::tests {

struct Case {
  uint32_t seed = 0;  // of the inputs
  OpKind kind = OpKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  Scale scale;
  int root = 0;
  bool in_place = false;
  std::vector<size_t> counts;               // allreduce, broadcast: elements of each tensor
  std::vector<size_t> parts;                // allgather, reducescatter: elements by position
  std::vector<std::vector<size_t>> matrix;  // alltoall: elements from position to position
  std::vector<bool> joined;                 // by position: takes part without memory

  size_t width() const { return SizeOf(dtype); }
};

// Only the ring, and a backend that allows any order, reduces these in another order.
inline bool OrderMatters(const Case& c) {
  const bool reduces = c.kind == OpKind::kAllreduce || c.kind == OpKind::kReducescatter;
  const bool rounds = IsFloating(c.dtype) || IsComplex(c.dtype);
  return reduces && rounds && (c.reduce == ReduceOp::kSum || c.reduce == ReduceOp::kProduct);
}

class CaseMaker {
 public:
  CaseMaker(uint32_t seed, size_t max_elements) : random_(seed), max_elements_(max_elements) {}

  size_t Below(size_t limit) { return random_() % limit; }

  Case Make(int positions) {
    constexpr OpKind kKinds[] = {OpKind::kAllreduce, OpKind::kAllreduce, OpKind::kBroadcast,
                                 OpKind::kAllgather, OpKind::kAlltoall,  OpKind::kReducescatter};
    constexpr Scale kScales[] = {{}, {}, {1.0, 3.0}, {0.5, 1.0}, {3.0, 7.0}};
    Case made;
    made.seed = static_cast<uint32_t>(random_());
    made.kind = kKinds[Below(std::size(kKinds))];
    made.dtype = static_cast<DType>(Below(kDTypeCount));
    std::vector<ReduceOp> reductions = ElementwiseReductions(made.dtype);
    reductions.insert(reductions.begin(), ReduceOp::kSum);
    made.reduce = reductions[Below(reductions.size())];
    made.scale = kScales[Below(std::size(kScales))];
    made.root = static_cast<int>(Below(static_cast<size_t>(positions)));
    made.in_place = Below(2) == 0;
    const auto n = static_cast<size_t>(positions);
    for (size_t tensors = Below(3) == 0 ? 1 + Below(6) : 1; tensors > 0; --tensors) made.counts.push_back(Count());
    for (size_t p = 0; p < n; ++p) made.joined.push_back(Below(12) == 0 && static_cast<int>(p) != made.root);
    for (size_t p = 0; p < n; ++p) made.parts.push_back(Count());
    made.matrix.resize(n);
    for (auto& row : made.matrix) {
      for (size_t p = 0; p < n; ++p) row.push_back(Count());
    }
    return made;
  }

 private:
  // Often nothing or little, sometimes many rounds.
  size_t Count() {
    const size_t kind = Below(12);
    if (kind < 2) return kind;
    return kind == 11 ? Below(max_elements_) : Below(size_t{1} << Below(12));
  }

  std::mt19937 random_;
  size_t max_elements_;
};

// Values of moderate size, so that products stay finite; any bits for integers.
inline std::string InputOf(const Case& c, int position, size_t element_count) {
  if (IsComplex(c.dtype)) {
    Case reals = c;
    reals.dtype = ReducedAs(c.dtype);
    return InputOf(reals, position, 2 * element_count);
  }
  std::string bytes(element_count * c.width(), '\0');
  std::minstd_rand random(c.seed + static_cast<uint32_t>(position) * 7919u);
  const auto put = [&](size_t i, auto value) { std::memcpy(&bytes[i * sizeof value], &value, sizeof value); };
  for (size_t i = 0; i < element_count; ++i) {
    const auto bits = static_cast<uint32_t>(random() >> 4);
    const float real = (static_cast<float>(bits % 100003) / 50000.0f - 1.0f) * (bits % 5 == 0 ? 30.0f : 1.0f);
    if (c.dtype == DType::kBool) {
      put(i, static_cast<uint8_t>(bits % 3 == 0));
    } else if (c.dtype == DType::kFloat16) {
      put(i, FloatToFloat16(real));
    } else if (c.dtype == DType::kBfloat16) {
      put(i, FloatToBfloat16(real));
    } else if (c.dtype == DType::kFloat32) {
      put(i, real);
    } else if (c.dtype == DType::kFloat64) {
      put(i, static_cast<double>(real) * 1.0000001);
    } else {
      const uint64_t wide = (static_cast<uint64_t>(bits) << 32 | static_cast<uint64_t>(random())) * 0x9e3779b97f4a7c15u;
      std::memcpy(&bytes[i * c.width()], &wide, c.width());
    }
  }
  return bytes;
}

}  // namespace farandole::tests
