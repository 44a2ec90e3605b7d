#include "controller/node_leader.h"

#include <algorithm>
#include <utility>

namespace farandole {

// ---- what the coordinator says

void NodeLeader::Track(int id) {
  const IdProperties& properties = names_[id].properties;
  // An earlier id with this memory may have left generations in it.
  const bool has_slots = properties.small() || properties.collects;
  for (uint64_t buffer = 0; has_slots && buffer < 2; ++buffer) SlotsOf(id, buffer).Clear();
  if (properties.once) awaiting_readers_.push_back(id);
}

SlotBuffer NodeLeader::SlotsOf(int id, uint64_t use) const {
  const auto& [name, properties, set] = names_[id];
  std::byte* const buffer = memory_.buffers.BufferOf(properties.buffers, use);
  if (properties.collects) return SlotBuffer::WithResult(buffer, properties.local_members, properties.payload_bytes);
  return {buffer, set->size(), properties.payload_bytes};
}

bool NodeLeader::IsValid(const LogItem& item) const {
  if (item.kind == LogKind::kEndOfBatch) return true;
  if (!Tracks(item.id) || names_[item.id].set->id != item.set) return false;
  const auto& [name, properties, set] = names_[item.id];
  if (item.kind == LogKind::kEvicted)
    return std::find(awaiting_readers_.begin(), awaiting_readers_.end(), item.id) == awaiting_readers_.end();
  const size_t count = properties.counts_per_rank * static_cast<size_t>(set->size());
  return item.kind == (set->local() ? LogKind::kReady : LogKind::kReadyInterNode) && item.counts.size() == count &&
         std::none_of(item.counts.begin(), item.counts.end(), [](int64_t count) { return count < 0; });
}

bool NodeLeader::OnLog(const LogItems& log) {
  for (const LogItem& item : log.items) {
    if (!is_leader() || !IsValid(item)) return false;
    if (item.kind == LogKind::kEvicted) awaiting_readers_.push_back(item.id);
    if (!item.counts.empty()) memory_.buffers.WriteCounts(names_[item.id].properties.buffers, item.use, 0, item.counts);
    Append({item.kind, item.id, static_cast<uint8_t>(item.use), item.set});
  }
  return true;
}

bool NodeLeader::OnEvict(int id) {
  if (!is_leader() || !Tracks(id)) return false;
  closed_.push_back(Close(id));
  return true;
}

void NodeLeader::Append(const LogEntry& entry) {
  log_.Append(entry);
  outbox_.Ring();
}

// ---- ids that are evicted

// Closes the id: a member that comes later is told, or finds out, see UsesInFlight::CanAdvance. A last use with
// different sequence numbers does not count: the members meant different operations, and none takes its result.
Closing NodeLeader::Close(int id) {
  const IdProperties& properties = names_[id].properties;
  const uint64_t arrived = memory_.counters.Evict(id, properties.local_members);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::vector<uint64_t> generations = LatestGenerations(id);
  uint64_t most = 0, least = ~uint64_t{0};
  for (uint64_t generation : generations) {
    most = std::max(most, UseOf(generation));
    least = std::min(least, UseOf(generation));
  }
  const bool all_agree = std::all_of(generations.begin(), generations.end(),
                                     [&](uint64_t generation) { return generation == generations[0]; });
  uint64_t uses = properties.small() ? least : arrived;
  if (most == uses && !all_agree) --uses;
  Closing closing{id, 1, uses, uses, 0, false};
  // If every member has announced the next use, this one is complete everywhere, and its sequence number is not needed.
  const auto last = std::find_if(generations.begin(), generations.end(),
                                 [&](uint64_t generation) { return UseOf(generation) == uses; });
  if (properties.early() && last != generations.end()) closing.generation = *last;
  return closing;
}

// Returns the last generation of each member of the set in this node.
std::vector<uint64_t> NodeLeader::LatestGenerations(int id) const {
  const auto& [name, properties, set] = names_[id];
  std::vector<uint64_t> generations;
  for (int m : node_.MembersIn(*set)) {
    if (!properties.small()) {
      generations.push_back(memory_.counters.LatestOf(m, id));
      continue;
    }
    uint64_t latest = 0;
    for (uint64_t buffer = 0; buffer < 2; ++buffer) {
      const uint64_t generation = SlotsOf(id, buffer).LatestOf(set->PositionOf(node_.RankOf(m)));
      if (UseOf(generation) > UseOf(latest)) latest = generation;
    }
    generations.push_back(latest);
  }
  return generations;
}

// A completed use is reported before the id is reported closed. Uses of sets inside the node are in the log, and need
// no report.
bool NodeLeader::CanReport(const Closing& closing) const {
  const auto& [name, properties, set] = names_[closing.id];
  return set == nullptr || properties.early() || set->local() ||
         completes_sent_[static_cast<size_t>(closing.id)] == closing.min_uses;
}

// ---- what the coordinator is told

bool NodeLeader::HasNews() const {
  if (!is_leader()) return false;
  if (memory_.log.ReadCompleted(completed_head_).has_value()) return true;
  return std::any_of(closed_.begin(), closed_.end(), [this](const Closing& closing) { return CanReport(closing); }) ||
         std::any_of(awaiting_readers_.begin(), awaiting_readers_.end(),
                     [this](int id) { return memory_.counters.AllDoneWith(id, names_[id].properties.local_members); });
}

bool NodeLeader::Advance() {
  if (!is_leader()) return false;
  Report report;
  AddCompleted(&report);
  AddClosed(&report);
  AddFinished(&report);
  if (!report.empty()) outbox_.Send(Encode(report));
  return !report.empty();
}

void NodeLeader::AddCompleted(Report* report) {
  while (const std::optional<int> id = memory_.log.ReadCompleted(completed_head_)) {
    ++completed_head_;
    const uint64_t use = ++completes_sent_[static_cast<size_t>(*id)];
    // All members of the set in this node arrived with the same generation.
    const uint64_t generation = memory_.counters.LatestOf(node_.MembersIn(*names_[*id].set).front(), *id);
    report->completed.push_back({*id, generation, {{node_.number(), CountsHere(*id, use)}}});
  }
}

// Returns the counts of this node's members, in the order of their positions.
std::vector<int64_t> NodeLeader::CountsHere(int id, uint64_t use) const {
  const auto& [name, properties, set] = names_[id];
  const size_t each = properties.counts_per_rank;
  std::vector<int64_t> counts;
  if (each == 0) return counts;
  for (int m : node_.MembersIn(*set)) {
    const auto position = static_cast<size_t>(set->PositionOf(node_.RankOf(m)));
    const std::vector<int64_t> one = memory_.buffers.ReadCounts(properties.buffers, use, position * each, each);
    counts.insert(counts.end(), one.begin(), one.end());
  }
  return counts;
}

void NodeLeader::AddClosed(Report* report) {
  const auto kept = std::stable_partition(closed_.begin(), closed_.end(),
                                          [this](const Closing& closing) { return !CanReport(closing); });
  report->closed.assign(kept, closed_.end());
  closed_.erase(kept, closed_.end());
}

void NodeLeader::AddFinished(Report* report) {
  const auto is_finished = [&](int id) {
    if (!memory_.counters.AllDoneWith(id, names_[id].properties.local_members)) return false;
    memory_.counters.Reset(id);
    names_.Release(id);
    completes_sent_[static_cast<size_t>(id)] = 0;
    report->finished.push_back(id);
    return true;
  };
  awaiting_readers_.erase(std::remove_if(awaiting_readers_.begin(), awaiting_readers_.end(), is_finished),
                          awaiting_readers_.end());
}

}  // namespace farandole
