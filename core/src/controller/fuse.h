// Fuse says which tensors of a batch travel together. Pure, and equal on every rank because its input is.
#pragma once

#include <cstdint>
#include <vector>

#include "common/types.h"
#include "reduce/reduce.h"

namespace farandole {

struct FuseItem {
  int set = 0;
  OpKind kind = OpKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;
  Scale scale;  // not its quotient: integers are scaled by one after the other
  int64_t size_bytes = 0;
  int backend = 0;  // who performs it
};

// Indices of `items`, each exactly once, in groups ordered by their first item. Within a process set, allreduces of one
// dtype, reduction and scale (not of Adasum, which looks at each tensor as a whole), and broadcasts of one root
// (whatever the dtype: bytes are bytes), share a group up to threshold_bytes. A larger item is alone, as is everything
// that cannot be concatenated.
std::vector<std::vector<size_t>> Fuse(const std::vector<FuseItem>& items, int64_t threshold_bytes);

}  // namespace farandole
