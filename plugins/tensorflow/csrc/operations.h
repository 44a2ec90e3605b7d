// The operations as TensorFlow sees them: definitions, what is known of shapes before, kernels.
//
//   FarandoleAllreduce, -Broadcast, -Allgather, -Reducescatter   tensors: T, token: int32 -> results: T (several types)
//   FarandoleAlltoall                                            tensor: T, splits: int64, token -> result: T, received
//   FarandoleBarrier, FarandoleJoin                              -> nothing; last: int64
//   FarandoleNeedsJitCompileFalse                                -> token: int32   (XLA names what it cannot compile)
//
// Those with tensors are stateless, since TensorFlow would run stateful ones one after the other. What it may do to
// stateless ones is prevented otherwise: every node has a name among its attributes, so that no two are alike and
// merged; it depends on the graph's token, which is no constant for TensorFlow because it comes from a stateful
// operation, so that none is computed when the graph is optimized. A node that nothing depends on is dropped, which is
// the same on all ranks for the same program.
#pragma once

#include <string>

namespace farandole_tensorflow {

// Registers all with the TensorFlow of this process; "" or why that cannot be. device_of_core: on devices of this type
// ("GPU") allreduce and broadcast give the core tensors as they lie there; elsewhere TensorFlow brings them to host
// memory. Null: everywhere.
std::string RegisterOperations(const char* device_of_core);

}  // namespace farandole_tensorflow
