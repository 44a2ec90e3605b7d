// Packing turns a task into what libraries of collectives take: one input and one output without holes, and no scale.
//
//   task   buffers, a joined rank without memory, a scale        library   input -> output, one operation of one dtype
//
//   Pack     gives out the user's memory itself where possible. It copies together several buffers, takes memory
//            for a rank that has joined, and scales 16-bit floats before they are rounded.
//   Unpack   copies results back to where they belong, and scales everything else.
//
// One task at a time; the memory is kept for the next. It belongs to one library, and the thread that performs the
// library's tasks calls.
#pragma once

#include <cstddef>

#include "collectives/links.h"

namespace farandole {

class Packing {
 public:
  // kInternal when there is no memory. `task` stays valid until Unpack.
  Status Pack(const Task& task);

  //   allreduce        the same vector each
  //   broadcast        one vector, the same pointer twice
  //   allgather        this rank's part, and all parts
  //   alltoall         the parts for all positions, and those of all
  //   reducescatter    the whole vector, and this rank's part
  //
  // They are equal where the operation is performed in place; an allgather's input may lie at its place in the output.
  const void* input() const { return input_; }
  void* output() const { return output_; }
  size_t input_bytes() const { return input_bytes_; }
  size_t output_bytes() const { return output_bytes_; }

  // REQUIRES: the library has written the output.
  void Unpack();

 private:
  void Gather(std::byte* to) const;
  void Scatter() const;
  bool IsRoot() const { return task_->root == task_->set->position; }
  bool ScalesBefore() const;
  Status Short(size_t size_bytes) const;

  const Task* task_ = nullptr;
  const void* input_ = nullptr;
  void* output_ = nullptr;
  size_t input_bytes_ = 0, output_bytes_ = 0;
  Scratch inputs_, outputs_;  // what libraries read and write where the user's memory cannot be used
};

}  // namespace farandole
