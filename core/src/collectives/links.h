// Collectives among ranks of which no two share memory: over links, straight from and to the tensors where these are
// one piece of memory; otherwise (fused tensors, ranks without memory) by way of scratch memory.
//
//   LinkOperation        hands its work to the exchange, and finishes when that is done
//   VectorOnLinks        a LinkOperation whose result is one vector: allreduce, broadcast
//
// The driver alone uses it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "collectives/shard_exchange.h"
#include "collectives/task.h"

namespace farandole {

// An operation over links starts from these. REQUIRES: every group of the set is one rank, there are two or more; all
// outlive the operation.
struct LinkStart {
  const Task* task;
  ShardExchange* exchange;
  Scratch* scratch;
};

class LinkOperation {
 public:
  virtual ~LinkOperation() = default;

  // Hands the work to the exchange.
  virtual Status Start() = 0;
  // Called when the exchange is done.
  virtual void Finish() {}

 protected:
  explicit LinkOperation(const LinkStart& start)
      : task_(start.task),
        exchange_(start.exchange),
        scratch_(start.scratch),
        me_(static_cast<size_t>(start.task->set->position)) {}

  bool ScalesFirst() const { return ScalesBeforeCrossing(*task_) && !task_->scale.IsIdentity(); }
  // Scales the source into `place`. Afterwards *source is `place`, and *scale is the identity.
  void ScaleInto(std::byte* place, size_t size_bytes, const std::byte** source, Scale* scale) const {
    const void* const input = *source;
    Fold(task_->dtype, task_->reduce, &input, 1, size_bytes / SizeOf(task_->dtype), *scale, place);
    *source = place;
    *scale = Scale();
  }

  const Task* const task_;
  ShardExchange* const exchange_;
  Scratch* const scratch_;
  const size_t me_;
};

class VectorOnLinks : public LinkOperation {
 public:
  void Finish() override {
    if (place_ != nullptr) vector_.WriteOutput(0, vector_.size_bytes(), place_);
  }

 protected:
  explicit VectorOnLinks(const LinkStart& start) : LinkOperation(start), vector_(&start.task->buffers) {}

  // Sets place_ to the output where that is one piece of memory, else to scratch memory.
  Status FindPlace() {
    const bool one_piece = task_->buffers.size() == 1 && task_->buffers[0].output != nullptr;
    const size_t size_bytes = vector_.size_bytes();
    place_ = one_piece ? static_cast<std::byte*>(task_->buffers[0].output) : scratch_->Get(size_bytes);
    if (place_ != nullptr) return Status::Ok();
    return Internal("no memory: " + std::to_string(size_bytes) + " bytes for tensors that are exchanged together");
  }

  const IoVector vector_;
  std::byte* place_ = nullptr;  // where the result is made
};

// One function for each word of types.def for what moves data: MakeAllreduceOnLinks is in allreduce.cc.
#define FRD_OP_KIND(enumerator, number, name, traits, moved, ...) \
  std::unique_ptr<LinkOperation> Make##moved##OnLinks(const LinkStart& start);
#include "common/types.def"

}  // namespace farandole
