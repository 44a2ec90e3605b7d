// The coordinator's ids: which name has which, where their buffers lie, how they are evicted, and in which order
// complete operations run.
//
//   free --ASSIGN--> live --EVICT--> evicting --every node has reported it closed--> evicted (kEvicted in the logs)
//        --every node has reported that it has finished--> free
//
// Once many ids are live, a name that the table has not seen lately gets one for a single use, which is evicted from
// the beginning. So names that never repeat, such as "loss.1", "loss.2" and so on, leave the others in the table.
//
// Pure state machines on rank 0: messages in, messages out. Thread rule: the holder of the ProgressLock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/status.h"
#include "controller/messages.h"
#include "controller/signature.h"
#include "world/process_set.h"

namespace farandole {

// Descriptions of one operation, by rank.
using DescriptionsByRank = std::map<int, Description>;

// Owns which pieces of the buffer pool are free, and gives them out in powers of two.
//
// A piece that comes back is given out again in its size alone. Once all of them are back, Clear makes one piece of
// them.
class BufferAllocator {
 public:
  explicit BufferAllocator(int64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // Returns the offset of at least size_bytes, or -1 when there is no room or size_bytes is 0.
  int64_t Take(int64_t size_bytes);
  // REQUIRES: offset came from Take(size_bytes).
  void GiveBack(int64_t offset, int64_t size_bytes);
  // REQUIRES: everything that was taken is given back.
  void Clear();

 private:
  const int64_t capacity_bytes_;
  int64_t end_ = 0;                               // everything from here on is free
  std::map<int64_t, std::vector<int64_t>> free_;  // before it: size, a power of two -> offsets
};

// Remembers the names of the last kEachGeneration operations at least, and of twice as many at most.
class RecentNames {
 public:
  // Adds the name. Returns whether it was there. Unnamed operations with one signature count as one name.
  bool Add(const Description& description);

 private:
  static constexpr size_t kEachGeneration = 4 * kMaxIds;
  // Hashes. Where two names have the same, one of them takes an id for good at its first use.
  std::unordered_set<size_t> latest_, before_;
};

// The leaders: the first rank of each node speaks for it. A value that does not change.
class Leaders {
 public:
  explicit Leaders(const Layout& world) : world_(world) {}

  const Layout& world() const { return world_; }
  bool IsRank(int rank) const { return rank >= 0 && rank < world_.size(); }
  int NodeOf(int rank) const { return world_.node_of[static_cast<size_t>(rank)]; }
  // Returns how many members of that node are in the set.
  int MembersOf(int node, const ProcessSet& set) const;
  // True when the rank leads a node that has members in the set.
  bool IsLeaderIn(int rank, const ProcessSet& set) const;
  void SendTo(const ProcessSet& set, const Bytes& message, std::vector<Outgoing>* out) const;

 private:
  const Layout world_;
};

// Owns the ids, their names and buffers, the operations that wait for an id, and the order in which complete ones run.
class IdTable {
 public:
  // As long as fewer than `max_new` ids are live, new names get ids for good. Training seldom has more names.
  static constexpr int kMaxNew = 1024;
  // References outlive the table.
  IdTable(const ProcessSets& sets, const Leaders& leaders, int max_new);

  struct Id {
    enum { kFree, kLive, kEvicting, kEvicted } state = kFree;
    std::string name;  // on the first rank that described it
    Signature signature;
    ProcessSetPtr set;
    Protocol protocol{};
    uint32_t serial = 0;  // of the assignment
    int64_t buffer_offset = -1;
    Completion partial;  // of the current use, by the nodes that have completed it
    Closing closing;     // by the nodes that have closed the id
    int finished = 0;    // nodes that have finished with it

    bool IsInUse() const { return state == kLive || state == kEvicting; }
  };
  const Id& at(int id) const { return ids_[static_cast<size_t>(id)]; }
  // True when some operation of the set waits for an id.
  bool HasWaiting(int set) const;
  std::string TitleOf(int id, uint64_t generation) const;

  // Gives the operation an id, as soon as one is free; `once`: for this use alone. REQUIRES: all its ranks agree.
  void Assign(DescriptionsByRank descriptions, bool once, std::vector<Outgoing>* out);
  void StartEviction(int id, std::vector<Outgoing>* out);
  // Evicts the id that is live under this assignment, if it is one of the set.
  void Replace(uint32_t serial, int set, std::vector<Outgoing>* out);
  // Evicts the live ids of such sets.
  void EvictWhere(const std::function<bool(const ProcessSet&)>& is_chosen, std::vector<Outgoing>* out);
  // Handle the parts of a report. They return false for what a leader of this job does not report.
  bool OnCompleted(int from, Completion completion, std::vector<Outgoing>* out);
  bool OnClosed(int from, const Closing& closing);
  bool OnFinished(int from, int id, std::vector<Outgoing>* out);

  // Sends the log entries since the last call, as one batch.
  void Flush(std::vector<Outgoing>* out);

 private:
  struct Waiting {
    DescriptionsByRank descriptions;
    bool once;
  };

  bool AreCountsOf(const Id& id, int node, const Completion& completion) const;
  std::vector<int64_t> InPositionOrder(const Id& id) const;
  void AddReady(const Id& id, int number, uint64_t use, std::vector<int64_t> counts);
  void AssignWaiting(std::vector<Outgoing>* out);
  Protocol ChooseProtocolOf(const DescriptionsByRank& descriptions, const ProcessSet& set) const;
  int AllocateId(const Waiting& waiting, Protocol protocol, int64_t buffer_offset);
  void SendAssignment(int id, const Waiting& waiting, std::vector<Outgoing>* out);

  const ProcessSets& sets_;
  const Leaders& leaders_;
  const int max_new_;
  BufferAllocator buffers_;
  int64_t oversized_slots_bytes_ = 0;  // the buffers of oversized slots
  std::vector<Id> ids_;
  std::deque<int> free_;
  std::unordered_map<uint32_t, int> live_;  // by serial
  RecentNames seen_;
  std::deque<Waiting> waiting_;
  std::vector<std::pair<LogItem, ProcessSetPtr>> log_;  // to be sent
  uint32_t last_serial_ = 0;
};

}  // namespace farandole
