// A work as libraries of collectives want it: one input and one output without holes, and no scale.
//
//   work   segments, memory of nobody, a scale        library   input -> output, one operation of one dtype
//
//   Pack    several segments, a rank without memory, or halves that are scaled before they are rounded: copied together
//           else the user's memory itself is handed out
//   Unpack  copied back to where it belongs; everything else is scaled now
//
// One task at a time; the memory is kept for the next. Whoever performs the tasks calls.
#pragma once

#include <cstddef>
#include <memory>

#include "backends/backend.h"

namespace farandole {

class Packing {
 public:
  // kInternal when there is no memory. `work` stays valid until Unpack.
  Status Pack(const Task& task);

  // allreduce: the same vector each; broadcast: one vector, the same pointer twice; allgather: this rank's part and all
  // parts; alltoall: the parts for all and of all; reducescatter: the whole vector and this rank's part. They are equal
  // where the operation is to be done in place; an allgather's input may lie at its place in the output.
  const void* input() const { return input_; }
  void* output() const { return output_; }
  size_t input_bytes() const { return input_bytes_; }
  size_t output_bytes() const { return output_bytes_; }

  // The library is done.
  void Unpack();

 private:
  struct Buffer {
    std::unique_ptr<std::byte[]> memory;
    size_t size_bytes = 0;
    std::byte* Reserve(size_t wanted_bytes);  // null when there is none
  };

  void Gather(std::byte* to) const;
  void Scatter() const;
  bool IsRoot() const { return task_->root == task_->set->position; }
  bool ScalesBefore() const;
  Status Short(size_t size_bytes) const;

  const Task* task_ = nullptr;
  const void* input_ = nullptr;
  void* output_ = nullptr;
  size_t input_bytes_ = 0, output_bytes_ = 0;
  Buffer inputs_, outputs_;
};

}  // namespace farandole
