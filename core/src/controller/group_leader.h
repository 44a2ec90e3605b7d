// The first member of a group leads it: it writes what the coordinator says into the log, and tells the coordinator
// what the group has completed and closed.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "common/status.h"
#include "controller/admission.h"
#include "controller/group_memory.h"
#include "controller/messages.h"
#include "controller/name_table.h"

namespace farandole {

// Owns the ids that the group's leader leads, how far it has reported them, and what waits for room in the log.
//
// The leader goes on reading while the log is full, since it may itself be the slowest reader: what does not fit waits.
// Thread rule: the holder of the ProgressLock, under the lock of Operations; HasNews needs the ProgressLock alone. A
// rank that does not lead owns nothing here, and refuses these messages.
class GroupLeader {
 public:
  GroupLeader(const GroupMembers& group, GroupMemory* memory, const NameTable& names, Outbox* outbox)
      : group_(group), memory_(*memory), names_(names), outbox_(*outbox), pending_(&memory->log) {}

  bool leads() const { return group_.is_leader(); }

  bool HasNews() const;
  // Returns whether anything was done.
  bool Advance();

  // Handle messages from the coordinator. *early: see MessageReader.
  Status OnLead(ByteReader* reader, bool* early);
  Status OnReady(ByteReader* reader);
  Status OnIdMessage(MessageKind kind, const IdMessage& message);

  // Adds the ranks that have left, as entries that wait for room in the log say.
  void AddLeaving(std::set<int>* leaving) const { pending_.AddLeaving(leaving); }

 private:
  struct Leading {
    Lead lead;
    int sharers;  // members of this group in the set
    ProcessSetPtr set;

    IdSpan span() const { return {lead.span_offset, lead.span_bytes}; }
    bool collects() const { return CollectsInCells(lead.protocol, set->layout); }
    CellBuffer CellsOf(const SpanMemory& spans, uint64_t use) const {  // REQUIRES: lead.cells() or collects()
      const auto payload_bytes = static_cast<size_t>(lead.payload_bytes);
      if (collects()) return CellBuffer::WithResult(spans.BufferOf(span(), use), sharers, payload_bytes);
      return {spans.BufferOf(span(), use), set->size(), payload_bytes};
    }
  };

  bool IsValid(const Lead& lead) const;
  bool IsValid(const ReadyItem& item) const;
  uint64_t Retire(const Leading& leading);
  static uint64_t StampAmong(const std::vector<uint64_t>& said, uint64_t uses);
  std::vector<uint64_t> SaidHere(const Leading& leading) const;
  std::vector<int64_t> CountsHere(const Leading& leading, uint64_t use) const;
  bool CanReportRetired(int id, uint64_t uses) const;
  void ReportCompleted();
  void ReportRetired();
  void FreeIds();

  const GroupMembers& group_;
  GroupMemory& memory_;
  const NameTable& names_;
  Outbox& outbox_;
  LogQueue pending_;
  std::map<int, Leading> leads_;
  uint64_t completed_head_ = 0;                     // how far the completed ids are reported
  std::array<uint64_t, kMaxIds> completes_sent_{};  // by id: uses that are reported as completed
  uint64_t across_written_ = 0;                     // READY entries of sets across groups
  std::map<int, uint64_t> retiring_;                // id -> uses completed here, RETIRE_INFO not yet sent
  std::vector<int> freeing_;                        // RETIRED is in the log, members may still be reading
};

}  // namespace farandole
