// The one that decides what the groups cannot decide for themselves: gives names their ids, finds that ranks disagree,
// retires ids, and, where there are several groups, puts completed operations into one order and cuts it into batches.
//
// A pure state machine on rank 0: messages in, messages out, no clock, no threads, no sockets. See messages.h for the
// words.
//
//   name: unknown --all ranks DESCRIBE, equal--> ASSIGN id --> live --DESCRIBE (changed), STUCK, full table--> retiring
//                 \--not equal--> ERROR, still unknown
//   id:   free -> live -> retiring (RETIRE to leaders, RETIRE_INFO back) -> retired (RETIRED into the logs)
//         -> FREE by all -> free
//
// Ranks that have joined describe nothing: an operation is complete without them and they are invited to it. When all
// have, everybody goes on.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "controller/messages.h"
#include "controller/spans.h"
#include "world/process_set.h"

namespace farandole {

class Coordinator {
 public:
  // second_level_cache_bytes: of a core of this machine, 0 when that is not known (spans.h).
  explicit Coordinator(const Layout& layout, int64_t second_level_cache_bytes = 0);

  // Appends what is to be sent. An error means that the message cannot have come from one of us.
  Status OnMessage(int from, const Bytes& message, std::vector<Outgoing>* out);

  // Sends what has become ready since the last call as one batch. Call it after all messages at hand are in.
  void Flush(std::vector<Outgoing>* out);

  // Ranks that have not described an operation that others have, whose group has not come to one, or that have not
  // joined as others have: for stall reports.
  struct Waiting {
    std::string title;
    std::vector<int> missing;
    std::vector<int> here;
  };
  std::vector<Waiting> Stalled() const;
  std::vector<Absence> Absences() const;  // the same, for a message

 private:
  struct Id {
    enum { kFree, kLive, kRetiring, kRetired } state = kFree;
    std::map<int, std::string> names;  // by rank, or one for kAllRanks
    Signature signature;
    ProcessSetPtr set;
    int64_t span_offset = -1;
    std::map<int, std::vector<int64_t>> completed;  // by group of the world, of the current use
    uint64_t turn = 0;
    uint64_t sequence = 0;         // what the first group said of the current use
    int answers = 0;               // RETIRE_INFO, then FREE
    uint64_t uses = ~uint64_t{0};  // the least that any group has completed
    bool eager = false;
    bool differ = false;     // what groups said last of an eager one
    uint64_t most_uses = 0;  // that any group said of an eager one
  };
  using Gathering = std::map<int, Description>;  // by rank
  using SetAndName = std::pair<int, std::string>;

  // coordinator.cc
  Status OnDescribe(int from, ByteReader* reader, std::vector<Outgoing>* out);
  Status OnComplete(int from, ByteReader* reader, std::vector<Outgoing>* out);
  Status OnAbort(int from, const Bytes& message, std::vector<Outgoing>* out);
  Status OnAsk(int from, ByteReader* reader, std::vector<Outgoing>* out);
  Status OnStacks(int from, ByteReader* reader, std::vector<Outgoing>* out);
  Status OnRefused(int from, ByteReader* reader, std::vector<Outgoing>* out);
  void TellOfRefusals(int to, const Description& description, std::vector<Outgoing>* out) const;
  void OnWhom(int from, std::vector<Outgoing>* out) const;
  std::vector<int> Missing(const Gathering& gathering, const ProcessSet& set) const;
  std::vector<int> Missing(const Id& id) const;
  static std::vector<int> OthersOf(const ProcessSet& set, const std::vector<int>& missing);
  static std::string TitleOf(const Id& id);
  void OnLeave(int from, std::vector<Outgoing>* out);
  bool IsComplete(const Gathering& gathering, const ProcessSet& set) const;
  void Decide(const Gathering& gathering, std::vector<Outgoing>* out);
  Status Refusal(const Gathering& gathering, const ProcessSet& set);
  Status ChangeSets(const Signature& signature, std::vector<Outgoing>* out);
  bool IsAwaited(int set) const;
  bool IsLeaderIn(int rank, const ProcessSet& set) const;
  bool AreExtentsOf(const Id& id, int group, const std::vector<int64_t>& extents) const;
  int MembersOf(int group, const ProcessSet& set) const;
  void ToLeaders(const ProcessSet& set, const Bytes& message, std::vector<Outgoing>* out) const;
  std::vector<int64_t> InPositionOrder(const Id& id) const;

  // coordinator_ids.cc
  std::optional<int> LiveIdOf(int rank, int set, const std::string& name) const;
  Status OnIdMessage(int from, MessageKind kind, int id, uint64_t value, std::vector<Outgoing>* out);
  Status OnRetireInfo(int id, uint64_t value, std::vector<Outgoing>* out);
  static uint64_t UsesSaid(Id* id, uint64_t value);
  Status OnFree(int id, std::vector<Outgoing>* out);
  void Assign(const Gathering& gathering, int64_t span_offset, std::vector<Outgoing>* out);
  void AssignWaiting(std::vector<Outgoing>* out);
  void RetireOldest(std::vector<Outgoing>* out);
  void StartRetiring(int id, std::vector<Outgoing>* out);
  void RetireSet(int set, std::vector<Outgoing>* out);

  // coordinator_join.cc
  Status OnJoin(int from, ByteReader* reader, std::vector<Outgoing>* out);
  void EndJoin(int last, std::vector<Outgoing>* out);
  void DecideWithout(std::vector<Outgoing>* out);
  void OpenFor(int id, std::vector<Outgoing>* out) const;
  bool HasJoined(int rank) const { return joined_.count(rank) > 0; }

  const Layout layout_;
  const int64_t second_level_cache_bytes_;
  ProcessSets sets_;
  SpanAllocator spans_;
  std::vector<Id> ids_;
  std::deque<int> free_ids_;
  std::deque<int> live_ids_;  // oldest first, for the day when the table is full
  // Live ids by rank, set and name, since the ranks may count unnamed operations differently after a disagreement.
  std::map<std::pair<int, SetAndName>, int> id_by_name_;
  std::map<SetAndName, Gathering> gathering_;  // by name, or by turn for unnamed operations
  std::map<int, Refused> refused_;             // the last by each rank
  std::deque<Gathering> waiting_for_id_;
  std::vector<ReadyItem> ready_;
  uint32_t last_serial_ = 0;
  std::set<int> joined_;
  Turns joined_turns_;
  bool aborted_ = false;
};

}  // namespace farandole
