#include "collectives/task.h"

#include <algorithm>
#include <cstring>

#include "algorithms/partition.h"
#include "common/cache.h"

namespace farandole {
namespace {

// Vectors beyond this come from memory, or from a cache that all cores share.
constexpr size_t kCachedBytes = 4 << 20;

using CopyFunction = void* (*)(void* to, const void* from, size_t size_bytes);

void* CopyWithReadAhead(void* to, const void* from, size_t size_bytes) {
  CopyWithPrefetch(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), size_bytes, kReadAheadBytes);
  return to;
}

// For data in the cache it does not pay to read ahead (docs/benchmarks/shared-memory.md#prefetching).
CopyFunction CopyFor(size_t vector_bytes) { return vector_bytes > kCachedBytes ? &CopyWithReadAhead : &std::memcpy; }

void Read(const IoBuffer& buffer, size_t offset, size_t size_bytes, void* to, CopyFunction copy) {
  if (size_bytes == 0) return;
  if (buffer.input == nullptr) {
    std::memset(to, 0, size_bytes);
  } else {
    copy(to, static_cast<const char*>(buffer.input) + offset, size_bytes);
  }
}

void Write(const IoBuffer& buffer, size_t offset, size_t size_bytes, const void* from, CopyFunction copy) {
  if (size_bytes == 0 || buffer.output == nullptr) return;
  char* const to = static_cast<char*>(buffer.output) + offset;
  if (to != from) copy(to, from, size_bytes);
}

}  // namespace

Plan PlanOf(const Task& task, const Settings& settings) {
  const Layout& layout = task.set->layout;
  TaskFacts facts;
  facts.kind = task.kind;
  facts.backend = task.backend;
  facts.node_count = layout.node_count();
  facts.largest_node = layout.largest_node();
  const bool gathers = task.kind == OpKind::kAllgather;
  const size_t total_bytes = task.TotalBytes();
  facts.size_bytes = gathers ? *std::max_element(task.rank_bytes.begin(), task.rank_bytes.end())
                             : total_bytes / static_cast<size_t>(Partition{&layout}.ShardCount(total_bytes));
  facts.order_matters = OrderMatters(task.dtype, task.reduce) && !settings.any_order;
  facts.in_steps = Reduces(task.kind) && NeedsWholeTensors(task.reduce);
  facts.forced = AlgorithmNamed(settings.algorithm);
  return ChoosePlan(facts);
}

std::vector<int64_t> GivenRows(const ReportedRows&, Task*) { return {}; }

std::vector<int64_t> FindRows(const ReportedRows& reported, Task* task) {
  switch (task->kind) {
#define FRD_OP_KIND(enumerator, number, name, traits, moved, rows) \
  case OpKind::enumerator:                                         \
    return rows##Rows(reported, task);
#include "common/types.def"
  }
  return {};
}

void ReadInput(const IoBuffer& buffer, size_t offset, size_t size_bytes, void* to) {
  Read(buffer, offset, size_bytes, to, &std::memcpy);
}

void WriteOutput(const IoBuffer& buffer, size_t offset, size_t size_bytes, const void* from) {
  Write(buffer, offset, size_bytes, from, &std::memcpy);
}

IoVector::IoVector(const std::vector<IoBuffer>* buffers) : buffers_(buffers) {
  for (const IoBuffer& buffer : *buffers) {
    begins_.push_back(size_bytes_);
    size_bytes_ += buffer.size_bytes;
  }
}

// Returns the last buffer that begins at or before the offset.
size_t IoVector::Find(size_t offset) const {
  return static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), offset) - begins_.begin()) - 1;
}

template <typename Visit>
void IoVector::ForEachPiece(size_t offset, size_t size_bytes, Visit visit) const {
  size_t passed = 0;
  for (size_t i = Find(offset); passed < size_bytes; ++i) {
    const IoBuffer& buffer = (*buffers_)[i];
    const size_t within = offset + passed - begins_[i];
    const size_t piece = std::min(buffer.size_bytes - within, size_bytes - passed);
    if (piece > 0) visit(buffer, within, passed, piece);
    passed += piece;
  }
}

void IoVector::ReadInput(size_t offset, size_t size_bytes, void* to) const {
  if (size_bytes == 0) return;
  const CopyFunction copy = CopyFor(size_bytes_);
  ForEachPiece(offset, size_bytes, [&](const IoBuffer& buffer, size_t within, size_t passed, size_t piece) {
    Read(buffer, within, piece, static_cast<char*>(to) + passed, copy);
  });
}

void IoVector::WriteOutput(size_t offset, size_t size_bytes, const void* from) const {
  if (size_bytes == 0) return;
  const CopyFunction copy = CopyFor(size_bytes_);
  ForEachPiece(offset, size_bytes, [&](const IoBuffer& buffer, size_t within, size_t passed, size_t piece) {
    Write(buffer, within, piece, static_cast<const char*>(from) + passed, copy);
  });
}

const void* IoVector::Input(size_t offset, size_t size_bytes) const {
  if (size_bytes == 0) return nullptr;
  const size_t i = Find(offset);
  const IoBuffer& buffer = (*buffers_)[i];
  if (buffer.input == nullptr || offset - begins_[i] + size_bytes > buffer.size_bytes) return nullptr;
  return static_cast<const char*>(buffer.input) + (offset - begins_[i]);
}

void* IoVector::Output(size_t offset, size_t size_bytes) const {
  if (size_bytes == 0) return nullptr;
  const size_t i = Find(offset);
  const IoBuffer& buffer = (*buffers_)[i];
  if (buffer.output == nullptr || offset - begins_[i] + size_bytes > buffer.size_bytes) return nullptr;
  return static_cast<char*>(buffer.output) + (offset - begins_[i]);
}

}  // namespace farandole
