// Element-wise reductions. Only this folder of the core reads the values of tensors.
//
// The fixed tree order. The reduction R(S) of a list S is the value itself if |S| = 1, else R(first p) + R(rest) with p
// the largest power of two below |S|. The order is our own. Every reduction follows it: first over the inputs of a node
// in the order of its ranks, then over those of the nodes. So the bits of a result depend on which ranks take part and
// which of them share memory, never on the order of arrival or the chunks. docs/design/data-plane.md lists where the
// order is decided, and which settings and libraries give it up. float16 and bfloat16 are widened, reduced and scaled
// in float32, and rounded once (to nearest even); between nodes see ReduceRounded. NaN propagates through min and max,
// -0 is less than +0; a NaN that was computed is the positive quiet one without payload. Integers wrap, before they are
// scaled; their averages do not come here (integer_average.h). A complex number is two reals. For bool, sum = max = or,
// product = min = and.
//
// BestIsa chooses the instruction set (portable, AVX2, AVX-512) once at run time; all three give the same bits.
//
// The caller owns all buffers, which may be unaligned. `output` may be one of the inputs, never a part of one.
// Functions are pure; any thread may call them.
#pragma once

#include <cstddef>

#include "common/types.h"

namespace farandole {

// Applied in the accumulator. Floats: value * (multiplier / divisor), one factor rounded to float32 (float64 for
// float64). Integers: value * multiplier / divisor in double, truncated toward zero, saturated, NaN to 0; the two are
// separate because sum * (1 / 49.0) truncates to the wrong integer. Bool: ignored.
struct Scale {
  double multiplier = 1.0;
  double divisor = 1.0;
  bool IsIdentity() const { return multiplier == divisor; }
};

// The number p of values in the left subtree: the largest power of two below `count`. REQUIRES: count >= 2.
size_t LeftSubtreeSize(size_t count);

// output[i] = scale(R(inputs[0][i], inputs[1][i], ...)).
// REQUIRES: input_count >= 1; reduce is neither kAverage (a sum with a divisor) nor kAdasum; Supports(dtype, reduce).
void Reduce(DType dtype, ReduceOp reduce, const void* const* inputs, size_t input_count, size_t element_count,
            Scale scale, void* output);

// As Reduce of two inputs, but also stores the result into the copy, whose lines another core may have written: they
// are prefetched. REQUIRES: the copy is one of the inputs or does not overlap them; it is not `output`.
void ReduceWithCopy(DType dtype, ReduceOp reduce, const void* left, const void* right, size_t element_count,
                    Scale scale, void* output, void* copy);

// The arguments of a reduction.
struct ReduceCall {
  const void* const* inputs;
  size_t input_count;
  size_t element_count;
  Scale scale;
  void* output;
  void* copy = nullptr;  // ReduceWithCopy
};
using ReduceFunction = void (*)(const ReduceCall& call);

// Returns the loop of Reduce and ReduceWithCopy for results of so many bytes. To choose it takes as long as to reduce
// some elements, so a caller who waits for data chooses before they are there. REQUIRES: as Reduce, of at least two
// inputs.
ReduceFunction ChooseReduceFunction(DType dtype, ReduceOp reduce, size_t size_bytes);

// As Reduce of 16-bit floats, but rounds after each reduction of two. Between nodes the tree sends partial results,
// which are rounded, so every other schedule must round where the tree does. The inputs serve as scratch and are lost.
void ReduceRounded(DType dtype, ReduceOp reduce, const void* const* inputs, size_t input_count, size_t element_count,
                   Scale scale, void* output);

// Returns whether a node scales its partial result before the exchange between nodes. Sums of 16-bit floats
// are rounded for the first time when they leave their node, and are scaled before that; everything else is scaled
// after the last reduction.
inline bool ScalesBeforeExchange(DType dtype, ReduceOp reduce) { return IsHalf(dtype) && reduce == ReduceOp::kSum; }

enum class Isa { kPortable = 0, kAvx2 = 1, kAvx512 = 2 };
Isa BestIsa();         // the widest that this machine has
Isa ActiveIsa();       // the one that Reduce uses
void UseIsa(Isa isa);  // tests and benchmarks only; REQUIRES: isa <= BestIsa() and no Reduce running

// Sets the floating-point control word of this thread to IEEE defaults (no flush-to-zero) for its lifetime. A framework
// may have changed it in the thread that drives the progress loop, and results must not depend on the thread.
class FloatingPointScope {
 public:
  FloatingPointScope();
  ~FloatingPointScope();
  FloatingPointScope(const FloatingPointScope&) = delete;
  FloatingPointScope& operator=(const FloatingPointScope&) = delete;

 private:
  unsigned saved_;
};

}  // namespace farandole
