// Allreduce through staging: reduce-scatter in the group, exchange of each shard between the groups, allgather in the
// group, all three chunk by chunk.
//
//   put      my whole chunk -> my slot                    (without the shards I own when they can be read in place)
//   combine  my shards of all members -> their results     (one fold in order R), then across the groups
//   finish   the other members' shards <- their results
//
// Two members fold into the other's slot, where the shard came from, and the other reads it there. So a cache line
// changes hands twice, written by one and then by the other. With a place for results of its own it would be four
// times, because lines that the other has just read must be asked back before they are written again. Two members,
// float32, microseconds, on cores that are near each other and on cores that are not; the limit is the time to read as
// many bytes that the other has just written:
//
//              near  limit  results apart   in slots      far  limit  results apart   in slots
//   64 KB              1.1            3.3        1.8             2.1            8.1        3.5
//   1 MB                19             39         27              30            103         39
//   4 MB                73            143        104             137            407        154
//
// More members have results of their own (staging.h says why).
//
// Each byte crosses the memory bus about as often as in a ring over shared memory, but with two waits per chunk instead
// of 2 (n-1).
#pragma once

#include "collectives/iovector.h"
#include "collectives/stages.h"

namespace farandole {

class StagedAllreduce final : public CrossingOperation {
 public:
  StagedAllreduce(const Staging* staging, uint64_t first_round, const Task* task, ShardExchange* exchange);

 protected:
  void Put(uint64_t t) override;
  void Make(uint64_t t) override;
  void Exchanged(uint64_t t) override;
  bool Finish(uint64_t t) override;

 private:
  struct Chunk {
    size_t offset_bytes;
    int64_t element_count;
  };
  Chunk chunk(uint64_t t) const;
  Range Owns(int member, uint64_t t) const;  // in bytes of the chunk
  bool FoldsIntoSlots() const { return staging_->count() == 2; }
  std::byte* ResultOf(int member, uint64_t t) const;  // where the shards that it owns lie once combined
  void FoldOwnShards(uint64_t t);
  void FoldInPieces(uint64_t t, Range own);
  void FindInputs(uint64_t t, Range own);
  void WriteOutput(uint64_t t, Range range, int owner);
  bool OutputIsFinal() const { return exchange_->partition().group_count() == 1; }  // when it is folded
  bool ScalesInGroup() const;

  const Task* task_;
  IoVector vector_;
  size_t element_bytes_;
  size_t chunk_bytes_;
  int shard_count_;
  int finished_members_ = 0;
  std::vector<const void*> inputs_;
};

// Pure: how many bytes of a vector make a round. member_count matters, and is equal everywhere, in one group only.
size_t ChunkBytes(size_t total_bytes, int member_count, int group_count);

}  // namespace farandole
