// The reductions of types.def that tests go through, so that a new row is tested, too. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "common/types.h"

namespace farandole::tests {

// Those that are defined for elements of this type, and are folds of their own.
inline std::vector<ReduceOp> FoldedReductions(DType dtype) {
  std::vector<ReduceOp> reductions;
  const auto add = [&](ReduceOp reduce, std::string_view operation) {
    if (operation != "NotFolded" && Supports(dtype, reduce)) reductions.push_back(reduce);
  };
#define FRD_REDUCE_OP(enumerator, number, name, kinds, traits, operation) add(ReduceOp::enumerator, #operation);
#include "common/types.def"
  return reductions;
}

}  // namespace farandole::tests
