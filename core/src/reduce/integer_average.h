// The average of integers: their exact sum, divided and truncated toward zero.
//
// The sum may not fit the element type, so it is formed in int64, where up to 2^31 ranks cannot overflow it. An element
// of up to 32 bits is one int64; one of 64 bits is two, its lower 32 bits and its upper ones, which are summed apart.
// The additions are exact, so ranks and libraries may do them in any order.
//
// Pure functions; any thread may call them. REQUIRES everywhere: an integer type, not bool.
#pragma once

#include <cstddef>

#include "reduce/reduce.h"

namespace farandole {

inline constexpr DType kWideType = DType::kInt64;
size_t WideBytes(DType dtype, size_t element_count);
void Widen(DType dtype, const void* values, size_t element_count, void* wide);
// Scale is that of the average: the divisor is the number of ranks, the multiplier the postscale factor. With one other
// than 1 the exact sum is multiplied and divided in double, as integers always are.
void AverageOfWide(DType dtype, const void* wide_sums, size_t element_count, Scale scale, void* averages);

}  // namespace farandole
