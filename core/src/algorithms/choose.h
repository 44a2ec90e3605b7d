// Which algorithm carries an operation between groups: a measured table. Pure functions; any thread.
#pragma once

#include <cstddef>

namespace farandole {

enum class Algorithm { kAuto, kDirect, kRing, kTree, kExchange };

// REQUIRES: participants >= 1. `order_matters` is false for integers, min and max, and when the user allows any order.
// `forced` other than kAuto is returned as it is, kRing even where order matters: who forces it wants it.
Algorithm ChooseAllreduce(size_t size_bytes, int participants, bool order_matters, Algorithm forced);

}  // namespace farandole
