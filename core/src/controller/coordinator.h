// Coordinator decides what one node cannot decide alone. It gives names their ids, finds that ranks disagree, evicts
// ids, and, where there are several nodes, puts completed operations into one order and cuts it into batches.
//
//   name: unknown --all ranks DESCRIBE, equal--> ASSIGN id --> live --DESCRIBE (changed), STUCK, full table--> evicting
//                 \--not equal--> ERROR, still unknown
//
// id_table.h draws what becomes of an id; messages.h lists the messages. Ranks that have joined describe nothing: an
// operation is complete without them, and ASSIGN invites them to it. When all ranks have joined, all go on together.
// A change of a set by its members alone (Description::IsByMembers) is also an operation of set 0, so that all ranks
// number sets alike. It is complete without the other ranks, which learn from ASSIGN what to read in the log.
//
// Invariant: no id is live whose set has a rank that has joined.
//
// A pure state machine on rank 0: messages in, messages out, no clock, no threads, no sockets. Thread rule: the holder
// of the ProgressLock. Coordinator decides; its members own the state, one each.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "controller/id_table.h"
#include "controller/messages.h"
#include "world/process_set.h"

namespace farandole {

class Coordinator {
 public:
  explicit Coordinator(const Layout& layout, int max_new = IdTable::kMaxNew);
  Coordinator(const Coordinator&) = delete;

  // Appends the messages to send. An error means that no rank of this job sends such a message.
  Status OnMessage(int from, const Bytes& message, std::vector<Outgoing>* out);

  // Sends what has become ready since the last call as one batch. Call it once all messages at hand are handled.
  void Flush(std::vector<Outgoing>* out) { ids_.Flush(out); }

  // Operations that some ranks have not reached, for stall reports. A rank is absent when it has not described the
  // operation, when its node has not completed it, or when it has not joined.
  std::vector<Absence> Absences() const;

  size_t incomplete() const { return incomplete_.size(); }  // operations that not all of their ranks have described

 private:
  // They return false for a message that no rank of this job sends.
  bool Read(int from, const Bytes& message, std::vector<Outgoing>* out);
  bool OnDescribe(int from, Description description, std::vector<Outgoing>* out);
  bool OnReport(int from, Report report, std::vector<Outgoing>* out);
  bool OnStuck(int from, int id, std::vector<Outgoing>* out);
  bool OnJoin(int from, const Join& join, std::vector<Outgoing>* out);
  bool OnQuestion(int from, const Question& question, const Bytes& message, std::vector<Outgoing>* out) const;
  bool OnAnswer(int from, const Answer& answer, const Bytes& message, std::vector<Outgoing>* out) const;
  bool OnAbort(int from, const Bytes& message, std::vector<Outgoing>* out);
  bool OnLeave(int from, const Bytes& message, std::vector<Outgoing>* out);

  // Operations that only some ranks of a set have described, by set and name. Unnamed ones are matched by their
  // sequence numbers alone, so that a disagreement is seen. A rank may refuse calls of a name before the others have
  // come to the first: then there are several, in order.
  using Incomplete = std::multimap<std::pair<int, std::string>, DescriptionsByRank>;

  bool HasJoined(const ProcessSet& set) const;  // one of its ranks
  std::set<int> MembersOfChanged(const Signature& signature) const;
  std::vector<int> CallersOf(const Incomplete::value_type& entry) const;
  bool IsComplete(const Incomplete::value_type& entry) const;
  template <typename Ranks>
  bool HaveDescribed(const Ranks& ranks, const DescriptionsByRank& descriptions) const;
  bool HasIncomplete(int set) const;
  void TakeComplete(Incomplete::iterator complete, std::vector<Outgoing>* out);
  void AssignOrRefuse(const DescriptionsByRank& descriptions, std::vector<Outgoing>* out);
  Status Refusal(const DescriptionsByRank& descriptions, const ProcessSet& set) const;
  Status ChangeSets(const Signature& signature, std::vector<Outgoing>* out);
  void EndJoin(int last, std::vector<Outgoing>* out);

  // Later members refer to earlier ones.
  const Leaders leaders_;
  ProcessSets sets_;
  std::set<int> joined_;              // since the last join ended
  SequenceNumbers sequence_numbers_;  // the highest of any of them
  Incomplete incomplete_;
  IdTable ids_;
  bool aborted_ = false;
};

}  // namespace farandole
