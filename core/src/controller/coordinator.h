// The one that decides what the groups cannot decide for themselves: gives names their ids, finds that ranks disagree,
// retires ids, and, where there are several groups, puts completed operations into one order and cuts it into batches.
//
// A pure state machine on rank 0: messages in, messages out, no clock, no threads, no sockets. See messages.h for the
// words.
//
//   name:   unknown --all ranks DESCRIBE, equal--> ASSIGN id --------> live --DESCRIBE (changed), STUCK, table full--> retiring
//                   \--not equal--> ERROR, still unknown                                                                |
//   id:     free -> live -> retiring (RETIRE to leaders, RETIRE_INFO back) -> retired (RETIRED into the logs) -> FREE by all -> free
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "controller/messages.h"
#include "controller/spans.h"
#include "world/layout.h"

namespace farandole {

// Bytes of span that an operation wants: two halves of the extents of all ranks, or, for a small allreduce in a world
// of one group, two halves of every member's data and the result. 0 when it wants none.
int64_t WantedSpanBytes(const Signature& signature, const Layout& layout);

// Distance between the pieces of a small allreduce's span: one per member, then the result.
int64_t SpanStride(const Signature& signature);

// The largest allreduce that the last arriver finishes alone.
inline constexpr int64_t kSmallBytes = 16 << 10;

class Coordinator {
 public:
  explicit Coordinator(Layout layout);

  // Appends what is to be sent. An error means that the message cannot have come from one of us.
  Status OnMessage(int from, const Bytes& message, std::vector<Outgoing>* out);

  // Sends what has become ready since the last call as one batch. Call it after all messages at hand are in.
  void Flush(std::vector<Outgoing>* out);

  // Ranks that have not described an operation that others have: for stall reports.
  struct Waiting {
    std::string title;
    std::vector<int> missing;
  };
  std::vector<Waiting> Stalled() const;

 private:
  struct Id {
    enum { kFree, kLive, kRetiring, kRetired } state = kFree;
    std::map<int, std::string> names;  // by rank, or one for kAllRanks
    Signature signature;
    int64_t span_offset = -1;
    std::map<int, std::vector<int64_t>> completed;  // by group, of the current use
    uint64_t turn = 0;
    int answers = 0;               // RETIRE_INFO, then FREE
    uint64_t uses = ~uint64_t{0};  // the least that any group has completed
  };
  using Gathering = std::map<int, Description>;

  Status OnDescribe(int from, ByteReader* reader, std::vector<Outgoing>* out);
  Status OnIdMessage(int from, MessageKind kind, int id, uint64_t value, std::vector<Outgoing>* out);
  Status OnComplete(int from, ByteReader* reader);
  void OnLeave(int from, std::vector<Outgoing>* out);
  Status OnRetireInfo(int id, uint64_t uses, std::vector<Outgoing>* out);
  Status OnFree(int id, std::vector<Outgoing>* out);
  Status OnAbort(int from, const Bytes& message, std::vector<Outgoing>* out);

  void Decide(const Gathering& gathering, std::vector<Outgoing>* out);
  void Assign(const Gathering& gathering, int64_t span_offset, std::vector<Outgoing>* out);
  void RetireOldest(std::vector<Outgoing>* out);
  void StartRetiring(int id, std::vector<Outgoing>* out);
  void AssignWaiting(std::vector<Outgoing>* out);
  std::optional<int> LiveIdOf(int rank, const std::string& name) const;
  bool IsLeader(int rank) const { return layout_.member_of[static_cast<size_t>(rank)] == 0; }
  bool AreExtentsOf(const Id& id, int group, const std::vector<int64_t>& extents) const;
  void ToLeaders(const Bytes& message, std::vector<Outgoing>* out) const;
  std::vector<int64_t> InRankOrder(const std::map<int, std::vector<int64_t>>& by_group) const;

  Layout layout_;
  SpanAllocator spans_;
  std::vector<Id> ids_;
  std::deque<int> free_ids_;
  std::deque<int> live_ids_;  // oldest first, for the day when the table is full
  // Live ids by (rank, name), since the ranks may count unnamed operations differently after a disagreement.
  std::map<std::pair<int, std::string>, int> id_by_name_;
  std::map<std::string, Gathering> gathering_;  // by name, or by turn for unnamed operations
  std::deque<Gathering> waiting_for_id_;
  std::vector<ReadyItem> ready_;
  bool aborted_ = false;
};

}  // namespace farandole
