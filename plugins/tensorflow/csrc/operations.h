// The operations as TensorFlow sees them: definitions, inference of shapes, kernels.
//
//   FarandoleAllreduce, -Broadcast, -Allgather, -Reducescatter   tensors: T, token: int32 -> results: T (several types)
//   FarandoleAlltoall                                            tensor: T, splits: int64, token -> result: T, received
//   FarandoleBarrier, FarandoleJoin                              -> nothing; last: int64
//   FarandoleNeedsJitCompileFalse                                -> token: int32   (XLA names what it cannot compile)
//   FarandolePlace                                               -> place: int32
//
// A place is a number for the name of its node, by which operations are paired: the copies of a function, and the
// iterations of a loop, have different ones.
//
// Operations with tensors are stateless, since TensorFlow would run stateful ones one after the other. Other means
// prevent what it may do to stateless ones. Every node has a name among its attributes, so that no two are equal and
// merged. It depends on the graph's token, which is no constant for TensorFlow because a stateful operation makes it,
// so no node is computed when the graph is optimized. A node that nothing depends on is dropped, on all ranks alike for
// the same program.
#pragma once

#include <string>

namespace farandole_tensorflow {

// Registers all with the TensorFlow of this process. Returns "", or why that is not possible. device_of_core: on
// devices of this type ("GPU") allreduce and broadcast pass tensors to the core as they lie there; elsewhere TensorFlow
// copies them to host memory. Null: it copies everywhere.
std::string RegisterOperations(const char* device_of_core);

}  // namespace farandole_tensorflow
