// The first member of a node leads it: it writes what the coordinator says into the log, and tells the coordinator
// what the node has completed and closed.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/status.h"
#include "controller/admission.h"
#include "controller/messages.h"
#include "controller/name_table.h"
#include "controller/node_memory.h"

namespace farandole {

// Owns how far the leader has reported the ids that it leads.
//
// Thread rule: the holder of the ProgressLock, under the lock of Operations; HasNews needs the ProgressLock alone. A
// rank that does not lead owns nothing here, and refuses these messages.
class NodeLeader {
 public:
  NodeLeader(const NodeMembers& node, NodeMemory* memory, LogQueue* log, NameTable* names, Outbox* outbox)
      : node_(node), memory_(*memory), log_(*log), names_(*names), outbox_(*outbox) {}

  bool is_leader() const { return node_.is_leader(); }

  bool HasNews() const;
  // Returns whether anything was done.
  bool Advance();

  // Leads an id from now on. REQUIRES: it has just been assigned.
  void Track(int id);
  bool Tracks(int id) const { return IsId(id) && names_[id].set != nullptr; }
  // Handle messages from the coordinator. They return false for an impossible message.
  bool OnLog(const LogItems& log);
  bool OnEvict(int id);

  void Append(const LogEntry& entry);

 private:
  bool IsValid(const LogItem& item) const;
  SlotBuffer SlotsOf(int id, uint64_t use) const;  // REQUIRES: the id is small, or collects
  Closing Close(int id);
  std::vector<uint64_t> LatestGenerations(int id) const;
  std::vector<int64_t> CountsHere(int id, uint64_t use) const;
  bool CanReport(const Closing& closing) const;
  void AddCompleted(Report* report);
  void AddClosed(Report* report);
  void AddFinished(Report* report);

  const NodeMembers& node_;
  NodeMemory& memory_;
  LogQueue& log_;
  NameTable& names_;
  Outbox& outbox_;
  uint64_t completed_head_ = 0;                     // how far the completed ids are reported
  std::array<uint64_t, kMaxIds> completes_sent_{};  // by id: uses that are reported as completed
  std::vector<Closing> closed_;                     // to be reported
  std::vector<int> awaiting_readers_;               // evicted, but members may still be reading of it
};

}  // namespace farandole
