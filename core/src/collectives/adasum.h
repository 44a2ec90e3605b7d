// Adasum (reduce/adasum.h, which names its source) of one tensor over the positions of a set, however they are grouped.
// The way to distribute it is our own: an alltoall and two allgathers.
//
//   exchange   position j gets slice j of every rank's tensor
//   multiply   the products of all slices
//   gather     these products; their sums over all positions are the Gram matrix, alike on every rank
//   add        slice j of the result, with the coefficients from that matrix
//   collect    the slices of the result
//
// It computes, and names the collectives in between, which the caller performs. The driver alone uses it.
#pragma once

#include <vector>

#include "collectives/runner.h"
#include "collectives/task.h"

namespace farandole {

class Adasum {
 public:
  // REQUIRES: one tensor of a floating type; it outlives this.
  explicit Adasum(const Task* task);

  // Computes for about a millisecond, or sets *step to the next collective. REQUIRES: the one before is done.
  Status Advance(const Task** step, bool* done);

 private:
  enum class Stage { kExchange, kMultiply, kGather, kAdd, kCollect, kDone };

  Status StartExchange();
  void StartGather();
  void StartCollect();
  bool Compute();
  void ReadGathered();
  std::vector<const void*> SlicesFrom(size_t first) const;
  size_t ElementsAtOnce() const;

  const Task* task_;
  const size_t n_;
  const size_t me_;
  const size_t element_bytes_;
  std::vector<size_t> slice_bytes_;  // by position
  Stage stage_ = Stage::kExchange;
  Task moving_;     // the collective at hand
  Scratch slices_;  // slice `me_` of all positions; the result replaces this rank's own
  std::byte* slices_begin_ = nullptr;
  std::vector<double> gram_;
  std::vector<double> grams_;  // of all positions
  std::vector<double> coefficients_;
  size_t at_ = 0;  // how many elements of the slice are multiplied or added
};

}  // namespace farandole
