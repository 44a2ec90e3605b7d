#include "common/types.h"

#include <array>

namespace farandole {
namespace {

struct DTypeRow {
  const char* name;
  size_t size_bytes;
};

constexpr std::array<DTypeRow, kDTypeCount> kDTypes = {{{"uint8", 1},
                                                        {"int8", 1},
                                                        {"uint16", 2},
                                                        {"int16", 2},
                                                        {"int32", 4},
                                                        {"int64", 8},
                                                        {"float16", 2},
                                                        {"bfloat16", 2},
                                                        {"float32", 4},
                                                        {"float64", 8},
                                                        {"bool", 1}}};
constexpr std::array<const char*, kReduceOpCount> kReduceOps = {"sum", "average", "min", "max", "product", "adasum"};
constexpr std::array<const char*, kOpKindCount> kOpKinds = {"allreduce", "allgather",       "broadcast",
                                                            "barrier",   "alltoall",        "reducescatter",
                                                            "join",      "add_process_set", "remove_process_set"};

}  // namespace

size_t SizeOf(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].size_bytes; }
const char* NameOf(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }
const char* NameOf(ReduceOp reduce) { return kReduceOps[static_cast<size_t>(reduce)]; }
const char* NameOf(OpKind kind) { return kOpKinds[static_cast<size_t>(kind)]; }

int64_t ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (int64_t dimension : shape) count *= dimension;
  return count;
}

std::string ToString(const Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace farandole
