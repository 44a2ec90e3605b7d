// The coordinator's ids: which name has which, where their spans lie, how they retire, and in which order complete
// operations run.
//
//   id:  free -> live -> retiring (RETIRE to leaders, RETIRE_INFO back) -> retired (RETIRED into the logs)
//        -> FREE by all -> free
//
// Pure state machines on rank 0: messages in, messages out. Thread rule: the holder of the ProgressLock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "controller/messages.h"
#include "controller/signature.h"
#include "world/process_set.h"

namespace farandole {

// Descriptions of one operation, by rank.
using Gathering = std::map<int, Description>;

// Owns which pieces of the span memory are free, and gives them out in powers of two.
//
// A buddy allocator: Take splits a block in two until it fits, and GiveBack merges the two parts once both are free. So
// however the memory was cut, it is in one piece again once all of it is back.
class SpanAllocator {
 public:
  explicit SpanAllocator(int64_t capacity_bytes);

  // Returns the offset of at least size_bytes, or -1 when there is no room or size_bytes is 0.
  int64_t Take(int64_t size_bytes);
  // REQUIRES: offset came from Take(size_bytes).
  void GiveBack(int64_t offset, int64_t size_bytes);

 private:
  std::map<int64_t, std::set<int64_t>> free_;  // size, a power of two -> offsets, multiples of the size
};

// The leaders: the first rank of each group speaks for it. A value that does not change.
class Leaders {
 public:
  explicit Leaders(const Layout& world) : world_(world) {}

  const Layout& world() const { return world_; }
  int GroupOf(int rank) const { return world_.group_of[static_cast<size_t>(rank)]; }
  // Returns how many members of that group are in the set.
  int MembersOf(int group, const ProcessSet& set) const;
  // True when the rank leads a group that has members in the set.
  bool IsLeaderIn(int rank, const ProcessSet& set) const;
  void Tell(const ProcessSet& set, const Bytes& message, std::vector<Outgoing>* out) const;

 private:
  const Layout world_;
};

// Owns which groups have completed the current use of an id, and in which order complete uses run.
class BatchOrder {
 public:
  explicit BatchOrder(const Leaders& leaders) : leaders_(leaders) {}

  // A use that only some groups have completed.
  struct Partial {
    uint64_t stamp = 0;                          // what the first group said
    std::map<int, std::vector<int64_t>> counts;  // by group of the world
  };
  // Returns null while no group has completed the current use.
  const Partial* FindPartial(int id) const;
  // Returns false when an earlier group had another stamp, so that the groups mean different operations.
  bool Complete(int group, const ProcessSetPtr& set, const Signature& signature, Completion completion);
  void ForgetPartial(int id) { partial_.erase(id); }

  void Add(ReadyItem item, ProcessSetPtr set) { ready_.emplace_back(std::move(item), std::move(set)); }
  // Sends what has become ready since the last call as one batch.
  void Flush(std::vector<Outgoing>* out);

 private:
  std::vector<int64_t> InPositionOrder(const Partial& partial, const ProcessSet& set, size_t each) const;

  const Leaders& leaders_;
  std::map<int, Partial> partial_;  // by id
  std::vector<std::pair<ReadyItem, ProcessSetPtr>> ready_;
};

// Owns the ids, their names and spans, and the operations that wait for an id.
class IdTable {
 public:
  // All arguments outlive the table.
  IdTable(const ProcessSets& sets, const Leaders& leaders, BatchOrder* order);

  struct Id {
    enum { kFree, kLive, kRetiring, kRetired } state = kFree;
    std::map<int, std::string> names;  // by rank, or one for kAllRanks
    Signature signature;
    ProcessSetPtr set;
    Protocol protocol{};
    int64_t span_offset = -1;
    // While it retires.
    int answers = 0;               // RETIRE_INFO, then FREE
    uint64_t uses = ~uint64_t{0};  // the least that any group has completed
    uint64_t said = 0;             // early: the last stamp of the first group that answered; 0: none knows it
    bool differ = false;           // early: another group had another stamp
    uint64_t most_uses = 0;        // early: the most that any group said

    bool IsInUse() const { return state == kLive || state == kRetiring; }
  };
  const Id& at(int id) const { return ids_[static_cast<size_t>(id)]; }
  std::optional<int> LiveIdOf(int rank, int set, const std::string& name) const;
  // Live ids, oldest first, without those that were retired to make room.
  const std::deque<int>& live() const { return live_; }
  // True when some operation of the set waits for an id.
  bool IsAwaited(int set) const;
  std::string TitleOf(int id, uint64_t stamp) const;

  // Gives the operation an id, as soon as one is free. REQUIRES: all its ranks agree.
  void Assign(Gathering gathering, std::vector<Outgoing>* out);
  void StartRetiring(int id, std::vector<Outgoing>* out);
  void RetireSet(int set, std::vector<Outgoing>* out);
  // Two groups disagree about this use: it is not complete, and all describe it anew.
  void OnDisagreement(int id, uint64_t use, std::vector<Outgoing>* out);
  // STUCK, RETIRE_INFO and FREE.
  Status OnIdMessage(int from, MessageKind kind, int id, uint64_t value, std::vector<Outgoing>* out);

 private:
  void OnRetireInfo(int id, uint64_t value, std::vector<Outgoing>* out);
  static uint64_t UsesSaid(Id* id, uint64_t value);
  void OnFree(int id, std::vector<Outgoing>* out);
  void AssignWaiting(std::vector<Outgoing>* out);
  Protocol ChooseProtocolOf(const Gathering& gathering, const ProcessSet& set) const;
  void AssignNow(const Gathering& gathering, Protocol protocol, int64_t span_offset, std::vector<Outgoing>* out);
  int Take(const Gathering& gathering, Protocol protocol, int64_t span_offset);
  void TellRanks(int id, const Gathering& gathering, std::vector<Outgoing>* out);
  void RetireOldest(std::vector<Outgoing>* out);

  const ProcessSets& sets_;
  const Leaders& leaders_;
  BatchOrder* const order_;
  SpanAllocator spans_;
  int64_t large_cells_bytes_ = 0;  // the spans of large cells
  std::vector<Id> ids_;
  std::deque<int> free_;
  std::deque<int> live_;
  // Live ids by rank, set and name, since the ranks may count unnamed operations differently after a disagreement.
  std::map<std::pair<int, std::pair<int, std::string>>, int> by_name_;
  std::deque<Gathering> waiting_;
  uint32_t last_serial_ = 0;
};

}  // namespace farandole
