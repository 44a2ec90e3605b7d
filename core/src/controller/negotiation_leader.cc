// Negotiation: what the first member does for its group.
#include <algorithm>
#include <cstring>

#include "controller/negotiation.h"

namespace farandole {

// The leader must go on reading while the log is full, since it may itself be the slowest reader.
void Negotiation::Append(const LogEntry& entry) {
  if (pending_log_.empty() && memory_.log.TryAppend(entry)) return;
  pending_log_.push_back({entry, std::nullopt});
}

void Negotiation::AppendSeal(uint64_t end) {
  if (pending_log_.empty()) {
    memory_.log.SealOrRead(SealKind::kAcross, seals_written_++, end);
  } else {
    pending_log_.push_back({{}, end});
  }
}

bool Negotiation::AppendPending() {
  const size_t before = pending_log_.size();
  while (!pending_log_.empty()) {
    const PendingEntry& next = pending_log_.front();
    if (next.seal) {
      memory_.log.SealOrRead(SealKind::kAcross, seals_written_++, *next.seal);
    } else if (!memory_.log.TryAppend(next.entry)) {
      break;
    }
    pending_log_.pop_front();
  }
  if (pending_log_.size() != before) ring_ = true;
  return pending_log_.size() != before;
}

// How many uses of the id are complete in this group, and never more: who comes later is told, or finds out, see
// IsReady. What the last use's members said counts, too: with different turns they meant different operations, and
// nobody took that use or will.
uint64_t Negotiation::RetireInGroup(const Leading& leading) {
  const int id = leading.lead.id;
  const uint64_t arrived = memory_.counters.Retire(id, leading.sharers);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::vector<uint64_t> said = SaidHere(leading);
  if (leading.lead.eager != 0) return said[0];
  uint64_t most = 0, least = ~uint64_t{0};
  for (uint64_t sequence : said) {
    most = std::max(most, UsesIn(sequence));
    least = std::min(least, UsesIn(sequence));
  }
  const uint64_t uses = leading.lead.cells != 0 ? least : arrived;
  const bool all_mean = std::all_of(said.begin(), said.end(), [&](uint64_t sequence) { return sequence == said[0]; });
  return most == uses && !all_mean ? uses - 1 : uses;
}

// What each member of the set here said last.
std::vector<uint64_t> Negotiation::SaidHere(const Leading& leading) const {
  const Lead& lead = leading.lead;
  const ProcessSet& set = *leading.set;
  std::vector<uint64_t> said;
  for (int m : group_.MembersIn(set)) {
    if (lead.cells == 0) {
      said.push_back(memory_.counters.LatestOf(m, lead.id));
      continue;
    }
    uint64_t latest = 0;
    for (uint64_t buffer = 0; buffer < 2; ++buffer) {
      const CellBuffer cells = leading.CellsOf(memory_.spans, buffer);
      const uint64_t sequence = cells.LatestOf(set.PositionOf(group_.RankOf(m)));
      if (UsesIn(sequence) > UsesIn(latest)) latest = sequence;
    }
    said.push_back(latest);
  }
  return said;
}

// A completed use is reported before the id is reported closed. Inside the group nothing is reported, the log has it.
bool Negotiation::CanReportRetired(int id, uint64_t uses) const {
  const auto leading = leads_.find(id);
  if (leading == leads_.end() || leading->second.lead.eager != 0) return true;
  return leading->second.set->local() || completes_sent_[static_cast<size_t>(id)] == uses;
}

bool Negotiation::LeaderHasNews() const {
  if (!group_.is_leader()) return false;
  if (memory_.log.ReadCompleted(completed_head_).has_value()) return true;
  for (const auto& [id, uses] : retiring_) {
    if (CanReportRetired(id, uses)) return true;
  }
  for (int id : freeing_) {
    if (memory_.counters.AllDoneWith(id, leads_.at(id).sharers)) return true;
  }
  return false;
}

bool Negotiation::AdvanceAsLeader() {
  bool moved = AppendPending();
  const size_t before = outgoing_.size();
  while (const std::optional<int> id = memory_.log.ReadCompleted(completed_head_)) {
    const auto leading = leads_.find(*id);
    if (leading == leads_.end()) break;  // LEAD is still to be read
    ++completed_head_;
    const uint64_t turn = ++completes_sent_[static_cast<size_t>(*id)];
    outgoing_.push_back(
        Encode(Completion{*id, turn, SequenceHere(leading->second), GroupExtents(leading->second, turn)}));
  }
  for (auto it = retiring_.begin(); it != retiring_.end();) {
    const auto [id, uses] = *it;
    const bool reported = CanReportRetired(id, uses);
    if (reported) outgoing_.push_back(EncodeIdMessage(MessageKind::kRetireInfo, id, uses));
    it = reported ? retiring_.erase(it) : std::next(it);
  }
  for (size_t i = 0; i < freeing_.size();) {
    const int id = freeing_[i];
    if (!memory_.counters.AllDoneWith(id, leads_.at(id).sharers)) {
      ++i;
      continue;
    }
    memory_.counters.Reset(id);
    leads_.erase(id);
    completes_sent_[static_cast<size_t>(id)] = 0;
    outgoing_.push_back(EncodeIdMessage(MessageKind::kFree, id));
    freeing_.erase(freeing_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return moved || outgoing_.size() != before;
}

// What the members of the set here said when they came; all the same.
uint64_t Negotiation::SequenceHere(const Leading& leading) const {
  return memory_.counters.LatestOf(group_.MembersIn(*leading.set).front(), leading.lead.id);
}

// The extents of the members of this group, in the order of their positions.
std::vector<int64_t> Negotiation::GroupExtents(const Leading& leading, uint64_t turn) const {
  const size_t each = leading.lead.extent_count;
  std::vector<int64_t> extents;
  if (each == 0) return extents;
  for (int m : group_.MembersIn(*leading.set)) {
    const auto position = static_cast<size_t>(leading.set->PositionOf(group_.RankOf(m)));
    const std::vector<int64_t> one = memory_.spans.ReadExtents(leading.span(), turn, position * each, each);
    extents.insert(extents.end(), one.begin(), one.end());
  }
  return extents;
}

}  // namespace farandole
