#include "reduce/reduce.h"

#include <atomic>
#include <cassert>
#include <cstring>

#include "reduce/isa.h"

#if FRD_X86
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace farandole {
namespace {

#if FRD_X86
constexpr unsigned kIeeeDefaults = 0x1f80;  // all exceptions masked, round to nearest even, no flush-to-zero
#endif

Isa DetectIsa() {
#if FRD_X86
  // __builtin_cpu_supports also checks that the system saves the wide registers. Not every compiler's knows F16C.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  if (!__builtin_cpu_supports("avx2") || !has_f16c) return Isa::kPortable;
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has_avx512 ? Isa::kAvx512 : Isa::kAvx2;
#else
  return Isa::kPortable;
#endif
}

std::atomic<Isa>& Active() {
  static std::atomic<Isa> active{BestIsa()};
  return active;
}

// Below this size the tails of wide vectors cost more than they gain. (float16 is the exception: only the wider
// instruction sets convert it in hardware.)
constexpr size_t kSmallBytes = 128;

Isa IsaFor(DType dtype, size_t size_bytes) {
  return size_bytes < kSmallBytes && dtype != DType::kFloat16 ? Isa::kPortable : ActiveIsa();
}

}  // namespace

Isa BestIsa() {
  static const Isa best = DetectIsa();
  return best;
}

Isa ActiveIsa() { return Active().load(std::memory_order_relaxed); }

void UseIsa(Isa isa) {
  assert(isa <= BestIsa());
  Active().store(isa, std::memory_order_relaxed);
}

ReduceFunction ChooseReduceFunction(DType dtype, ReduceOp reduce, size_t size_bytes) {
  const Isa isa = IsaFor(dtype, size_bytes);
#if FRD_X86
  if (isa == Isa::kAvx512) return ChooseAvx512(dtype, reduce);
  if (isa == Isa::kAvx2) return ChooseAvx2(dtype, reduce);
#endif
  (void)isa;
  return ChoosePortable(dtype, reduce);
}

size_t LeftSubtreeSize(size_t count) {
  size_t power = 1;
  while (2 * power < count) power *= 2;
  return power;
}

void Reduce(DType dtype, ReduceOp reduce, const void* const* inputs, size_t input_count, size_t element_count,
            Scale scale, void* output) {
  assert(input_count >= 1 && reduce != ReduceOp::kAverage);
  if (element_count == 0) return;
  const size_t size_bytes = element_count * SizeOf(dtype);
  // A single input is copied bit by bit, including the payload of a NaN. (A bool may have to become 0 or 1.)
  if (input_count == 1 && scale.IsIdentity() && dtype != DType::kBool) {
    if (inputs[0] != output) std::memcpy(output, inputs[0], size_bytes);
    return;
  }
  const ReduceFunction function = ChooseReduceFunction(dtype, reduce, size_bytes);
  function({inputs, input_count, element_count, scale, output});
}

void ReduceWithCopy(DType dtype, ReduceOp reduce, const void* left, const void* right, size_t element_count,
                    Scale scale, void* output, void* copy) {
  assert(reduce != ReduceOp::kAverage && output != copy);
  if (element_count == 0) return;
  const void* const inputs[] = {left, right};
  const ReduceFunction function = ChooseReduceFunction(dtype, reduce, element_count * SizeOf(dtype));
  function({inputs, 2, element_count, scale, output, copy});
}

namespace {

// The reduction of the operands in the fixed tree order. Returns the one that holds the result.
void* ReducePairs(DType dtype, ReduceOp reduce, const void* const* operands, size_t count, size_t element_count) {
  if (count == 1) return const_cast<void*>(operands[0]);
  const size_t first = LeftSubtreeSize(count);
  void* const low = ReducePairs(dtype, reduce, operands, first, element_count);
  const void* pair[] = {low, ReducePairs(dtype, reduce, operands + first, count - first, element_count)};
  Reduce(dtype, reduce, pair, 2, element_count, Scale(), low);
  return low;
}

}  // namespace

void ReduceRounded(DType dtype, ReduceOp reduce, const void* const* inputs, size_t input_count, size_t element_count,
                   Scale scale, void* output) {
  if (input_count == 1) return Reduce(dtype, reduce, inputs, 1, element_count, scale, output);
  const size_t first = LeftSubtreeSize(input_count);
  const void* const pair[] = {ReducePairs(dtype, reduce, inputs, first, element_count),
                              ReducePairs(dtype, reduce, inputs + first, input_count - first, element_count)};
  Reduce(dtype, reduce, pair, 2, element_count, scale, output);
}

#if FRD_X86
FloatingPointScope::FloatingPointScope() : saved_(_mm_getcsr()) { _mm_setcsr(kIeeeDefaults); }
FloatingPointScope::~FloatingPointScope() { _mm_setcsr(saved_); }
#elif defined(__aarch64__)
FloatingPointScope::FloatingPointScope() : saved_(0) {
  unsigned long control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  saved_ = static_cast<unsigned>(control);
  __asm__ volatile("msr fpcr, %0" : : "r"(0UL) : "memory");
}
FloatingPointScope::~FloatingPointScope() {
  const unsigned long control = saved_;
  __asm__ volatile("msr fpcr, %0" : : "r"(control) : "memory");
}
#else
FloatingPointScope::FloatingPointScope() : saved_(0) {}
FloatingPointScope::~FloatingPointScope() = default;
#endif

}  // namespace farandole
