// From double to an integer type.
#pragma once

#include <limits>

#include "reduce/half.h"

namespace farandole {

// Rounds toward zero. A value that does not fit becomes the nearest one that does, and a NaN becomes 0. The code has no
// branches, so the compiler can vectorize it.
template <class T>
FRD_INLINE T Truncate(double value) {
  // Both limits are exact in double; kAbove is the first whole number that does not fit.
  constexpr double kLowest = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double kAbove = static_cast<double>(std::numeric_limits<T>::max() / 2 + 1) * 2.0;
  const bool below = value <= kLowest;
  const bool above = value >= kAbove;
  const bool fits = value > kLowest && value < kAbove;
  const T truncated = static_cast<T>(fits ? value : 0.0);
  return below ? std::numeric_limits<T>::min() : above ? std::numeric_limits<T>::max() : truncated;
}

}  // namespace farandole
