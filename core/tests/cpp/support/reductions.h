// The reductions of types.def, so that tests include each new row. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "common/types.h"

namespace farandole::tests {

// The reductions that are defined for this element type and have a kernel of their own.
inline std::vector<ReduceOp> ElementwiseReductions(DType dtype) {
  std::vector<ReduceOp> reductions;
  const auto add = [&](ReduceOp reduce, std::string_view operation) {
    if (operation != "NoKernel" && Supports(dtype, reduce)) reductions.push_back(reduce);
  };
#define FRD_REDUCE_OP(enumerator, number, name, kinds, traits, operation) add(ReduceOp::enumerator, #operation);
#include "common/types.def"
  return reductions;
}

}  // namespace farandole::tests
