// Fused tensors as one vector, without packing them first: a range of it is copied straight between the tensors and
// staging. Where a tensor has no memory (a rank that has joined), zeros are read and nothing is written. A value that
// points at the segments; any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/task.h"

namespace farandole {

// size_bytes of a tensor, from offset on.
void ReadInput(const Segment& segment, size_t offset, size_t size_bytes, void* to);
void WriteOutput(const Segment& segment, size_t offset, size_t size_bytes, const void* from);

class IoVector {
 public:
  explicit IoVector(const std::vector<Segment>* segments);

  size_t size_bytes() const { return size_bytes_; }
  void ReadInput(size_t offset, size_t size_bytes, void* to) const;
  void WriteOutput(size_t offset, size_t size_bytes, const void* from) const;
  // The memory itself where the range lies in one tensor that has some, else null.
  const void* Input(size_t offset, size_t size_bytes) const;
  void* Output(size_t offset, size_t size_bytes) const;

 private:
  size_t Find(size_t offset) const;
  template <typename Visit>
  void ForEachPiece(size_t offset, size_t size_bytes, Visit visit) const;

  const std::vector<Segment>* segments_;
  std::vector<size_t> begins_;
  size_t size_bytes_ = 0;
};

}  // namespace farandole
