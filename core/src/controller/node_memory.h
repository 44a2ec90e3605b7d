// The memory in which a shared-memory node negotiates: counters of arrival, the log that tells all members what comes
// next, and memory for small data.
//
// All of it lies in one piece of memory that is handed in (a segment, or the heap in simulations) and holds no
// pointers:
//
//   counters  counters  [ id 0 | id 1 | ... ]          one line each: how often members arrived, with the evicted flag
//             arrivals  [ member ][ id ]               the generation of each member's last arrival
//   log       heads     [ member 0 | member 1 | ... ]  one line each: how far the member has read the log
//             entries   [ e e e e ... ]                ring of entries in total order, tagged by lap
//             ends      [ n n n ... ]                  where batches of sets inside this node end
//             completed [ e e ... ]                    several nodes only: what the leader has to tell the coordinator
//   buffers   [ bytes ]                                per-id memory from the coordinator: small data, counts
//
// Thread rule of counters and log: any thread of any member may call, but only one thread of a member at a time may
// append to the log. A member that dies while it appends may stop the log; its death ends the epoch. REQUIRES says what
// else a caller must do.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "controller/messages.h"
#include "transport/shm/slots.h"
#include "world/layout.h"
#include "world/process_set.h"

namespace farandole {

// This rank and the ranks it shares memory with. A value that does not change.
class NodeMembers {
 public:
  NodeMembers(const Layout& world, int rank)
      : world_(world),
        rank_(rank),
        member_(world.member_of[static_cast<size_t>(rank)]),
        node_(static_cast<size_t>(world.node_of[static_cast<size_t>(rank)])) {}

  const Layout& world() const { return world_; }
  int rank() const { return rank_; }
  bool one_node() const { return world_.node_count() == 1; }
  int size() const { return static_cast<int>(world_.nodes[node_].size()); }
  int number() const { return static_cast<int>(node_); }
  int member() const { return member_; }
  bool is_leader() const { return member_ == 0; }
  int RankOf(int member) const { return world_.nodes[node_][static_cast<size_t>(member)]; }

  // Returns the members that are in the set, ascending.
  std::vector<int> MembersIn(const ProcessSet& set) const;

 private:
  const Layout world_;
  const int rank_;
  const int member_;
  const size_t node_;
};

struct MemoryLine;  // a number that has a cache line to itself

// Counts how often members arrived at an id, and closes ids. `local_members`: how many members are in the id's set.
//
// Invariants:
// 1. The evicted flag and the count are one word, so an arrival is either counted or learns that the id is evicted.
// 2. A member stores its generation before it counts itself, so whoever sees the count may read the generation.
// 3. The counter and the generations of an id are 0 when it is given out: Reset comes after every member is done with
//    it.
class ArrivalCounters {
 public:
  static size_t BytesFor(int member_count);
  // REQUIRES: the memory is aligned to a page, and zero when the first member sees it.
  ArrivalCounters(std::byte* memory, int member, int member_count);

  struct Arrival {
    bool evicted = false;  // not counted: describe instead
    bool last = false;     // this one completed the use
  };
  // `generation` tells the others which operation this member means; it is not 0.
  Arrival Arrive(int id, uint64_t generation, int local_members);
  // Undoes the arrivals of the use that has just been completed. REQUIRES: the caller arrived last.
  void TakeBack(int id, int local_members);
  // Closes the id, so that later arrivals learn it. Returns how many uses were completed.
  uint64_t Evict(int id, int local_members);
  bool IsEvicted(int id) const;
  // Says that this member will not touch the id again. Returns whether it was the last member.
  bool DoneWith(int id, int local_members);
  bool AllDoneWith(int id, int local_members) const;
  void Reset(int id);                           // REQUIRES: AllDoneWith, and the id is not yet given out again
  uint64_t LatestOf(int member, int id) const;  // its last generation; 0: it never came

 private:
  struct Counter;
  std::atomic<uint64_t>& GenerationAt(int member, int id) const {
    return arrivals_[static_cast<size_t>(member) * kMaxIds + static_cast<size_t>(id)];
  }

  int member_;
  int member_count_;
  Counter* counters_;
  std::atomic<uint64_t>* arrivals_;
};

struct LogEntry {
  LogKind kind = LogKind::kReady;
  int id = 0;
  uint8_t uses = 0;  // kEvicted: the last use that was completed, modulo 256
  int set = 0;       // kLeft: the rank, since there may be more ranks than ids

  static LogEntry Left(int rank) { return {LogKind::kLeft, 0, 0, rank}; }
  int rank() const { return set; }  // of kLeft
};

// Tells all members in one order what comes next.
//
// Invariants:
// 1. All members read the same entries in the same order; an entry does not change until all have read it.
// 2. The ring of entries does not overflow: TryAppend looks at the slowest reader first. Reading needs no user code,
//    only the engine's thread.
// 3. Every batch has an entry, so the ring of batch ends does not overflow either.
// 4. An id has at most one ready use that some member has not read, since every member takes part in the next one. So
//    eight bits of the number of uses tell a reader whether its use in flight was completed.
// 5. For the same reason an id has at most one completed use that the leader has not read. So PushCompleted needs no
//    check.
class NodeLog {
 public:
  static constexpr uint64_t kEntries = 4 * kMaxIds;
  static size_t BytesFor(int member_count);
  // entries: the log is full when some member has not read so many; equal on all members. REQUIRES: as ArrivalCounters;
  // entries <= kEntries.
  NodeLog(std::byte* memory, int member, int member_count, uint64_t entries);

  // False when the slowest reader is a whole ring behind; try again.
  bool TryAppend(const LogEntry& entry);
  std::optional<LogEntry> Read(uint64_t position) const;
  uint64_t end() const;
  void PublishHead(uint64_t position);  // this member has read everything before `position`
  // Returns where the batch of sets inside the node ends for all readers. The first to ask decides that it is
  // `proposed_end`.
  uint64_t DecideBatchEnd(uint64_t batch, uint64_t proposed_end);

  // Tells the leader that a use of the id is complete in this node (invariant 5).
  void PushCompleted(int id);
  std::optional<int> ReadCompleted(uint64_t position) const;

 private:
  struct Ring;
  uint64_t SlowestHead() const;

  int member_;
  int member_count_;
  uint64_t entries_;
  MemoryLine* heads_;
  Ring* log_;
  Ring* batch_ends_;
  Ring* completed_;
  uint64_t known_head_ = 0;  // of the slowest reader, when last read
};

// Appends this rank's entries in their order, and owns those that wait for room in the log. Thread rule: one thread at
// a time, but empty() from any.
class LogQueue {
 public:
  explicit LogQueue(NodeLog* log) : log_(*log) {}

  bool empty() const { return empty_; }
  // Returns false, and does nothing, while there is no room.
  bool TryAppend(const LogEntry& entry) { return empty() && log_.TryAppend(entry); }
  // Appends to the log, or behind the entries that wait. Returns whether it is in the log.
  bool Append(const LogEntry& entry);
  // Moves waiting entries into the log while there is room. Returns whether it moved any.
  bool AppendWaiting();
  // Adds the ranks that have left, as the waiting entries say.
  void AddLeaving(std::set<int>* leaving) const;

 private:
  NodeLog& log_;
  std::deque<LogEntry> waiting_;
  std::atomic<bool> empty_{true};
};

// Where the two buffers of an id lie in the pool.
struct BufferRange {
  int64_t offset = -1;  // -1: it has none
  int64_t size_bytes = 0;
  // True when it is aligned and lies within the pool.
  bool IsValid() const {
    const auto all_bytes = static_cast<int64_t>(kBufferPoolBytes);
    return offset >= 0 && offset % kBufferAlignment == 0 && size_bytes >= 0 && size_bytes <= all_bytes &&
           offset <= all_bytes - size_bytes;
  }
};

// The buffers of all ids. Use k of an id lies in its buffer k mod 2. REQUIRES (all): the caller takes part in that use,
// or is the leader that writes for it.
class BufferPool {
 public:
  explicit BufferPool(std::byte* memory) : memory_(memory) {}

  // Null where there are no buffers.
  std::byte* BufferOf(const BufferRange& range, uint64_t use) const {
    if (range.offset < 0) return nullptr;
    return memory_ + range.offset + static_cast<int64_t>(use & 1) * (range.size_bytes / 2);
  }
  // `first`: the index of these counts among those of all positions.
  void WriteCounts(const BufferRange& range, uint64_t use, size_t first, const std::vector<int64_t>& counts) const;
  std::vector<int64_t> ReadCounts(const BufferRange& range, uint64_t use, size_t first, size_t count) const;

 private:
  std::byte* memory_;
};

// All three in one piece of memory. REQUIRES: as ArrivalCounters and NodeLog.
struct NodeMemory {
  static size_t BytesFor(int member_count);
  NodeMemory(std::byte* memory, int member, int member_count, uint64_t log_entries = NodeLog::kEntries);

  ArrivalCounters counters;
  NodeLog log;
  BufferPool buffers;
};

}  // namespace farandole
