#include "controller/group_leader.h"

#include <algorithm>
#include <utility>

namespace farandole {
namespace {

bool FitsCells(const Lead& lead, int set_size) {  // as SpanBytesOf says
  if (lead.payload_bytes < 0 || lead.payload_bytes > CellLimitBytes(set_size, true) || set_size > kMostCellMembers)
    return false;
  const size_t buffer_bytes = CellBuffer::BytesFor(set_size, static_cast<size_t>(lead.payload_bytes));
  return 2 * static_cast<int64_t>(buffer_bytes) == lead.span_bytes;
}

bool FitsEarly(const Lead& lead, const Layout& set) {
  if (!CollectsInCells(lead.protocol, set)) return lead.span_offset < 0 && lead.payload_bytes == 0;
  if (lead.span_offset < 0 || lead.payload_bytes <= 0 || lead.payload_bytes > kMostEarlyBytes) return false;
  const size_t buffer_bytes = CellBuffer::BytesWithResult(set.shard_count(), static_cast<size_t>(lead.payload_bytes));
  return 2 * static_cast<int64_t>(buffer_bytes) == lead.span_bytes;
}

}  // namespace

// ---- what the coordinator says

// Checks what needs no process set.
bool GroupLeader::IsValid(const Lead& lead) const {
  const IdSpan span{lead.span_offset, lead.span_bytes};
  const bool has_span = lead.span_offset >= 0;
  if (leads_.count(lead.id) > 0 || (has_span && !span.IsValid())) return false;
  if (!has_span && (lead.cells() || lead.counts_per_rank > 0)) return false;
  return !lead.early() || HasEarlyLanes(group_.world());
}

Status GroupLeader::OnLead(ByteReader* reader, bool* early) {
  const auto lead = Decode<Lead>(reader);
  if (!reader->AtEnd() || !leads() || !IsValid(lead)) return Unreadable(kCoordinatorRank);
  const ProcessSetPtr set = names_.FindSet(lead.set);
  *early = !set && names_.IsFutureSet(lead.set);
  if (*early) return Status::Ok();
  if (!set || group_.SharersOf(*set) == 0) return Unreadable(kCoordinatorRank);
  const int64_t buffer_bytes = static_cast<int64_t>(sizeof(int64_t)) * lead.counts_per_rank * set->size();
  if (buffer_bytes > lead.span_bytes / 2) return Unreadable(kCoordinatorRank);
  if (lead.cells() && !FitsCells(lead, set->size())) return Unreadable(kCoordinatorRank);
  if (lead.early() && !FitsEarly(lead, set->layout)) return Unreadable(kCoordinatorRank);
  const Leading leading{lead, group_.SharersOf(*set), set};
  // An earlier id with this memory may have left stamps in it.
  const bool has_stamps = lead.cells() || leading.collects();
  for (uint64_t buffer = 0; has_stamps && buffer < 2; ++buffer) leading.CellsOf(memory_.spans, buffer).Clear();
  leads_[lead.id] = leading;
  return Status::Ok();
}

bool GroupLeader::IsValid(const ReadyItem& item) const {
  const auto found = leads_.find(item.id);
  if (found == leads_.end() || found->second.lead.set != item.set) return false;
  const size_t count = size_t{found->second.lead.counts_per_rank} * static_cast<size_t>(found->second.set->size());
  return item.counts.size() == count &&
         std::none_of(item.counts.begin(), item.counts.end(), [](int64_t count) { return count < 0; });
}

Status GroupLeader::OnReady(ByteReader* reader) {
  const auto ready = Decode<ReadyBatch>(reader);
  if (!reader->AtEnd() || !leads()) return Unreadable(kCoordinatorRank);
  const auto is_valid = [this](const ReadyItem& item) { return IsValid(item); };
  if (!std::all_of(ready.items.begin(), ready.items.end(), is_valid)) return Unreadable(kCoordinatorRank);
  // The coordinator ends the batches of sets across groups, so that all their groups have the same ones. The end
  // precedes the entries: members read them as they come, and a batch may have more than the log has room for.
  const auto across = std::count_if(ready.items.begin(), ready.items.end(),
                                    [this](const ReadyItem& item) { return !leads_.at(item.id).set->local(); });
  if (across > 0) pending_.AppendBatchEnd(across_written_ += static_cast<uint64_t>(across));
  for (const ReadyItem& item : ready.items) {
    memory_.spans.WriteCounts(leads_.at(item.id).span(), item.use, 0, item.counts);
    pending_.Append({LogKind::kReady, item.id, 0, item.set});
  }
  outbox_.Ring();
  return Status::Ok();
}

Status GroupLeader::OnIdMessage(MessageKind kind, const IdMessage& message) {
  const int id = message.id;
  const auto lead = leads_.find(id);
  if (!leads()) return Unreadable(kCoordinatorRank);
  if (kind == MessageKind::kRetire && lead != leads_.end()) {
    retiring_[id] = Retire(lead->second);
  } else if (kind == MessageKind::kRetired && lead != leads_.end() &&
             std::find(freeing_.begin(), freeing_.end(), id) == freeing_.end()) {
    pending_.Append({LogKind::kRetired, id, static_cast<uint8_t>(message.value), lead->second.lead.set});
    freeing_.push_back(id);
  } else if (kind == MessageKind::kLeft && id < group_.world().size()) {
    pending_.Append({LogKind::kLeft, id, 0, 0});
  } else if (kind == MessageKind::kJoinEnd) {
    pending_.Append({LogKind::kJoinEnd, 0, 0, 0});
  } else {
    return Unreadable(kCoordinatorRank);
  }
  outbox_.Ring();
  return Status::Ok();
}

// ---- ids that retire

// Closes the id. Returns how many uses are complete in this group, and no more will be: a member that comes later is
// told, or finds out, see UsesInFlight::IsReady. A last use with different sequence numbers does not count: the members
// meant different operations, and none takes its result. For an early id, returns the stamp of the last complete use.
uint64_t GroupLeader::Retire(const Leading& leading) {
  const uint64_t arrived = memory_.counters.Retire(leading.lead.id, leading.sharers);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::vector<uint64_t> said = SaidHere(leading);
  uint64_t most = 0, least = ~uint64_t{0};
  for (uint64_t stamp : said) {
    most = std::max(most, UsesIn(stamp));
    least = std::min(least, UsesIn(stamp));
  }
  const uint64_t uses = leading.lead.cells() ? least : arrived;
  const bool all_mean = std::all_of(said.begin(), said.end(), [&](uint64_t stamp) { return stamp == said[0]; });
  const uint64_t completed = most == uses && !all_mean ? uses - 1 : uses;
  return leading.lead.early() ? StampAmong(said, completed) : completed;
}

// Returns the stamp of that use, with an unknown sequence number when every member has begun the next one. A member
// begins the next one only when it has the result, and then all groups had the same stamp.
uint64_t GroupLeader::StampAmong(const std::vector<uint64_t>& said, uint64_t uses) {
  const auto found = std::find_if(said.begin(), said.end(), [&](uint64_t stamp) { return UsesIn(stamp) == uses; });
  return found != said.end() ? *found : UnknownStamp(uses);
}

// Returns the last stamp of each member of the set in this group.
std::vector<uint64_t> GroupLeader::SaidHere(const Leading& leading) const {
  std::vector<uint64_t> said;
  for (int m : group_.MembersIn(*leading.set)) {
    if (!leading.lead.cells()) {
      said.push_back(memory_.counters.LatestOf(m, leading.lead.id));
      continue;
    }
    uint64_t latest = 0;
    for (uint64_t buffer = 0; buffer < 2; ++buffer) {
      const CellBuffer cells = leading.CellsOf(memory_.spans, buffer);
      const uint64_t stamp = cells.LatestOf(leading.set->PositionOf(group_.RankOf(m)));
      if (UsesIn(stamp) > UsesIn(latest)) latest = stamp;
    }
    said.push_back(latest);
  }
  return said;
}

// A completed use is reported before the id is reported closed. Uses of sets inside the group are in the log, and need
// no report.
bool GroupLeader::CanReportRetired(int id, uint64_t uses) const {
  const auto leading = leads_.find(id);
  if (leading == leads_.end() || leading->second.lead.early()) return true;
  return leading->second.set->local() || completes_sent_[static_cast<size_t>(id)] == uses;
}

// ---- what the coordinator is told

bool GroupLeader::HasNews() const {
  if (!pending_.empty()) return true;
  if (!leads()) return false;
  if (memory_.log.ReadCompleted(completed_head_).has_value()) return true;
  for (const auto& [id, uses] : retiring_) {
    if (CanReportRetired(id, uses)) return true;
  }
  for (int id : freeing_) {
    if (memory_.counters.AllDoneWith(id, leads_.at(id).sharers)) return true;
  }
  return false;
}

bool GroupLeader::Advance() {
  if (!leads()) return false;
  const bool appended = pending_.AppendWaiting();
  if (appended) outbox_.Ring();
  const size_t before = outbox_.size();
  ReportCompleted();
  ReportRetired();
  FreeIds();
  return appended || outbox_.size() != before;
}

void GroupLeader::ReportCompleted() {
  while (const std::optional<int> id = memory_.log.ReadCompleted(completed_head_)) {
    const auto found = leads_.find(*id);
    if (found == leads_.end()) return;  // LEAD is still to be read
    ++completed_head_;
    const uint64_t use = ++completes_sent_[static_cast<size_t>(*id)];
    // All members of the set in this group arrived with the same stamp.
    const Leading& leading = found->second;
    const uint64_t stamp = memory_.counters.LatestOf(group_.MembersIn(*leading.set).front(), *id);
    outbox_.Send(Encode(Completion{*id, use, stamp, CountsHere(leading, use)}));
  }
}

// Returns the counts of this group's members, in the order of their positions.
std::vector<int64_t> GroupLeader::CountsHere(const Leading& leading, uint64_t use) const {
  const size_t each = leading.lead.counts_per_rank;
  std::vector<int64_t> counts;
  if (each == 0) return counts;
  for (int m : group_.MembersIn(*leading.set)) {
    const auto position = static_cast<size_t>(leading.set->PositionOf(group_.RankOf(m)));
    const std::vector<int64_t> one = memory_.spans.ReadCounts(leading.span(), use, position * each, each);
    counts.insert(counts.end(), one.begin(), one.end());
  }
  return counts;
}

void GroupLeader::ReportRetired() {
  for (auto it = retiring_.begin(); it != retiring_.end();) {
    const auto [id, uses] = *it;
    const bool reported = CanReportRetired(id, uses);
    if (reported) outbox_.Send(MessageKind::kRetireInfo, id, uses);
    it = reported ? retiring_.erase(it) : std::next(it);
  }
}

void GroupLeader::FreeIds() {
  const auto is_free = [this](int id) {
    if (!memory_.counters.AllDoneWith(id, leads_.at(id).sharers)) return false;
    memory_.counters.Reset(id);
    leads_.erase(id);
    completes_sent_[static_cast<size_t>(id)] = 0;
    outbox_.Send(MessageKind::kFree, id);
    return true;
  };
  freeing_.erase(std::remove_if(freeing_.begin(), freeing_.end(), is_free), freeing_.end());
}

}  // namespace farandole
