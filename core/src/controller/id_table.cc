#include "controller/id_table.h"

#include <algorithm>

namespace farandole {
namespace {

// The buffers of oversized slots, those above SlotLimitBytes, which only awaited operations have, take no more than
// this together. Each name has memory of its own, and those that the user has named may all be used in turn, so that
// their data leave the caches. Unnamed operations have one name for each signature, and a program uses few signatures
// at a time (docs/benchmarks/shared-memory.md#slots-or-staging).
constexpr int64_t kMaxOversizedSlotsBytes = 64 << 20, kMaxNamedOversizedSlotsBytes = 16 << 20;

bool HasOversizedSlots(Protocol protocol, const Signature& signature, const ProcessSet& set) {
  return protocol == Protocol::kSlots && signature.TotalBytes() > SlotLimitBytes(set.size());
}

// Some ids are always left for operations that need one only once.
constexpr size_t kMaxLive = kMaxIds - 256;

int64_t Rounded(int64_t size_bytes) {
  int64_t rounded = kBufferAlignment;
  while (rounded < size_bytes) rounded *= 2;
  return rounded;
}

}  // namespace

// ---- buffers

int64_t BufferAllocator::Take(int64_t size_bytes) {
  if (size_bytes <= 0 || size_bytes > capacity_bytes_) return -1;
  const int64_t wanted = Rounded(size_bytes);
  std::vector<int64_t>& free = free_[wanted];
  if (!free.empty()) {
    const int64_t offset = free.back();
    free.pop_back();
    return offset;
  }
  return end_ + wanted > capacity_bytes_ ? -1 : std::exchange(end_, end_ + wanted);
}

void BufferAllocator::GiveBack(int64_t offset, int64_t size_bytes) {
  if (offset >= 0) free_[Rounded(size_bytes)].push_back(offset);
}

void BufferAllocator::Clear() {
  end_ = 0;
  free_.clear();
}

// ---- names

bool RecentNames::Add(const Description& description) {
  std::string name = description.name;
  if (!description.named()) name.resize(name.rfind('.') + 1);  // all names of the pool are one
  const size_t hash = std::hash<std::string>()(std::to_string(description.signature.set) + " " + name);
  const bool seen = latest_.count(hash) + before_.count(hash) > 0;
  latest_.insert(hash);
  if (latest_.size() == kEachGeneration) before_ = std::exchange(latest_, {});
  return seen;
}

// ---- leaders

int Leaders::MembersOf(int node, const ProcessSet& set) const {
  const auto& ranks = world_.nodes[static_cast<size_t>(node)];
  return static_cast<int>(
      std::count_if(ranks.begin(), ranks.end(), [&](int rank) { return set.PositionOf(rank) >= 0; }));
}

bool Leaders::IsLeaderIn(int rank, const ProcessSet& set) const {
  return world_.member_of[static_cast<size_t>(rank)] == 0 && MembersOf(NodeOf(rank), set) > 0;
}

void Leaders::SendTo(const ProcessSet& set, const Bytes& message, std::vector<Outgoing>* out) const {
  for (int g = 0; g < world_.node_count(); ++g) {
    if (MembersOf(g, set) > 0) out->push_back({world_.nodes[static_cast<size_t>(g)][0], message});
  }
}

// ---- ids

IdTable::IdTable(const ProcessSets& sets, const Leaders& leaders, int max_new)
    : sets_(sets),
      leaders_(leaders),
      max_new_(max_new),
      buffers_(static_cast<int64_t>(kBufferPoolBytes)),
      ids_(kMaxIds) {
  for (int id = 0; id < kMaxIds; ++id) free_.push_back(id);
}

bool IdTable::HasWaiting(int set) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const Waiting& each) { return each.descriptions.begin()->second.signature.set == set; });
}

std::string IdTable::TitleOf(int id, uint64_t generation) const {
  const Id& of = at(id);
  return farandole::TitleOf(of.signature.kind, of.signature.set, of.name, SequenceNumberOf(generation));
}

// ---- giving out

void IdTable::Assign(DescriptionsByRank descriptions, bool once, std::vector<Outgoing>* out) {
  const Description& first = descriptions.begin()->second;
  const bool is_new = !seen_.Add(first) && static_cast<int>(live_.size()) >= max_new_;
  const bool changes_sets = ChangesSets(first.signature.kind);
  waiting_.push_back({std::move(descriptions), once || is_new || changes_sets});
  AssignWaiting(out);
}

// Liveness: if the first in the queue does not fit, either some ids are live, and this evicts all of them, or some id
// is being released, and OnFinished calls this again. Once all ids are free, all memory is one piece again.
void IdTable::AssignWaiting(std::vector<Outgoing>* out) {
  while (!waiting_.empty()) {
    if (free_.empty()) return;
    const auto& [descriptions, once] = waiting_.front();
    const Signature& signature = descriptions.begin()->second.signature;
    const ProcessSetPtr set = sets_.Find(signature.set);
    Protocol protocol = once ? Protocol::kNegotiated : ChooseProtocolOf(descriptions, *set);
    const int64_t wanted_bytes = BufferBytesOf(signature, *set, protocol);
    const bool is_full = !once && live_.size() == kMaxLive;
    const int64_t buffer_offset = is_full ? -1 : buffers_.Take(wanted_bytes);
    const bool no_buffers = buffer_offset < 0 && wanted_bytes > 0;
    // Without buffers a small tensor is merely slower, but counts have no other place.
    if (is_full || (no_buffers && protocol == Protocol::kNegotiated))
      return EvictWhere([](const ProcessSet&) { return true; }, out);
    if (no_buffers) protocol = Protocol::kNegotiated;
    SendAssignment(AllocateId(waiting_.front(), protocol, buffer_offset), waiting_.front(), out);
    waiting_.pop_front();
  }
}

Protocol IdTable::ChooseProtocolOf(const DescriptionsByRank& descriptions, const ProcessSet& set) const {
  const Signature& signature = descriptions.begin()->second.signature;
  OperationFacts facts = FactsOf(signature, set);
  facts.has_early_lanes = HasEarlyLanes(leaders_.world());
  facts.awaited =
      std::all_of(descriptions.begin(), descriptions.end(), [](const auto& of) { return of.second.awaited; });
  const Protocol protocol = ChooseProtocol(facts);
  if (!HasOversizedSlots(protocol, signature, set)) return protocol;
  const int64_t max_bytes =
      descriptions.begin()->second.named() ? kMaxNamedOversizedSlotsBytes : kMaxOversizedSlotsBytes;
  const bool has_room = oversized_slots_bytes_ + BufferBytesOf(signature, set, protocol) <= max_bytes;
  return has_room ? protocol : Protocol::kNegotiated;
}

int IdTable::AllocateId(const Waiting& waiting, Protocol protocol, int64_t buffer_offset) {
  const DescriptionsByRank& descriptions = waiting.descriptions;
  const int number = free_.front();
  free_.pop_front();
  Id& id = ids_[static_cast<size_t>(number)];
  id = Id();
  id.state = waiting.once ? Id::kEvicted : Id::kLive;
  id.name = descriptions.begin()->second.name;
  id.signature = descriptions.begin()->second.signature;
  id.serial = ++last_serial_;
  id.set = sets_.Find(id.signature.set);
  id.protocol = protocol;
  id.buffer_offset = buffer_offset;
  if (HasOversizedSlots(protocol, id.signature, *id.set))
    oversized_slots_bytes_ += BufferBytesOf(id.signature, *id.set, protocol);
  if (!waiting.once) live_[id.serial] = number;
  return number;
}

// Ranks that described the operation get the id, joined ranks are invited, leaders lead it, and ranks outside of a set
// that its members change read the change from the log. The first use is ready.
void IdTable::SendAssignment(int number, const Waiting& waiting, std::vector<Outgoing>* out) {
  const auto& [descriptions, once] = waiting;
  const Id& id = at(number);
  const size_t each = id.signature.CountsPerRank(id.set->size());
  const Description& first = descriptions.begin()->second;
  const bool names_differ = std::any_of(descriptions.begin(), descriptions.end(),
                                        [&](const auto& of) { return of.second.name != first.name; });
  Assignment assignment{number, id.protocol, id.buffer_offset, id.serial, names_differ, once, first};
  assignment.description.counts.assign(each, 0);
  const Bytes message = Encode(assignment);
  std::vector<int64_t> counts;
  for (int rank = 0; rank < leaders_.world().size(); ++rank) {
    const bool is_member = id.set->PositionOf(rank) >= 0;
    if (is_member || leaders_.IsLeaderIn(rank, *id.set)) out->push_back({rank, message});
    const auto theirs = descriptions.find(rank);
    const bool described = theirs != descriptions.end();
    if (described) counts.insert(counts.end(), theirs->second.counts.begin(), theirs->second.counts.end());
    if (is_member && !described) counts.insert(counts.end(), each, 0);
  }
  AddReady(id, number, 0, std::move(counts));
}

// ---- the log

void IdTable::AddReady(const Id& id, int number, uint64_t use, std::vector<int64_t> counts) {
  const LogKind kind = id.set->local() ? LogKind::kReady : LogKind::kReadyInterNode;
  log_.emplace_back(LogItem{kind, number, id.set->id, use, std::move(counts)}, id.set);
}

// Each leader gets all that concerns its node in one message, so that all nodes of a set cut the same batches.
void IdTable::Flush(std::vector<Outgoing>* out) {
  if (log_.empty()) return;
  const Layout& world = leaders_.world();
  for (int g = 0; g < world.node_count(); ++g) {
    LogItems log;
    bool has_batch = false;
    for (const auto& [item, set] : log_) {
      if (leaders_.MembersOf(g, *set) == 0) continue;
      log.items.push_back(item);
      has_batch = has_batch || item.kind == LogKind::kReadyInterNode;
    }
    if (has_batch) log.items.push_back({LogKind::kEndOfBatch, 0, 0, 0, {}});
    if (!log.items.empty()) out->push_back({world.nodes[static_cast<size_t>(g)][0], Encode(log)});
  }
  log_.clear();
}

// ---- what leaders report

bool IdTable::OnCompleted(int from, Completion completion, std::vector<Outgoing>* out) {
  const int number = completion.id;
  Id& id = ids_[static_cast<size_t>(number)];
  if (!id.IsInUse() || id.protocol == Protocol::kEarly || !leaders_.IsLeaderIn(from, *id.set)) return false;
  if (!AreCountsOf(id, leaders_.NodeOf(from), completion)) return false;
  const uint64_t use = completion.use();
  if (!id.partial.Merge(std::move(completion))) {
    // These nodes disagreed before about unnamed operations. Their ranks describe the operation anew, and the
    // coordinator pairs them by sequence number.
    id.closing.min_uses = std::min(id.closing.min_uses, use - 1);
    if (id.state == Id::kLive) StartEviction(number, out);
  } else if (id.partial.counts.size() == static_cast<size_t>(id.set->layout.node_count())) {
    AddReady(id, number, use, InPositionOrder(id));
    id.partial = Completion();
  }
  return true;
}

bool IdTable::AreCountsOf(const Id& id, int node, const Completion& completion) const {
  const auto found = completion.counts.find(node);
  if (completion.counts.size() != 1 || found == completion.counts.end()) return false;
  const size_t each = id.signature.CountsPerRank(id.set->size());
  if (found->second.size() != each * static_cast<size_t>(leaders_.MembersOf(node, *id.set))) return false;
  return std::all_of(found->second.begin(), found->second.end(), [](int64_t count) { return count >= 0; });
}

// Merges the counts of the nodes, each of which are in the order of its members' positions.
std::vector<int64_t> IdTable::InPositionOrder(const Id& id) const {
  const size_t each = id.signature.CountsPerRank(id.set->size());
  std::vector<int64_t> counts;
  if (each == 0) return counts;
  std::map<int, size_t> read;  // by node: how many of its members are merged
  for (int rank : id.set->ranks) {
    const int node = leaders_.NodeOf(rank);
    const auto begin = id.partial.counts.at(node).begin() + static_cast<std::ptrdiff_t>(each * read[node]++);
    counts.insert(counts.end(), begin, begin + static_cast<std::ptrdiff_t>(each));
  }
  return counts;
}

// Ready operations come first in every log; an operation that only some nodes had completed is described again.
bool IdTable::OnClosed(int from, const Closing& closing) {
  Id& id = ids_[static_cast<size_t>(closing.id)];
  if (id.state != Id::kEvicting || closing.nodes != 1 || !leaders_.IsLeaderIn(from, *id.set)) return false;
  id.closing.Merge(closing);
  if (id.closing.nodes < id.set->layout.node_count()) return true;
  id.state = Id::kEvicted;
  id.partial = Completion();
  log_.emplace_back(LogItem{LogKind::kEvicted, closing.id, id.set->id, id.closing.uses(), {}}, id.set);
  return true;
}

bool IdTable::OnFinished(int from, int number, std::vector<Outgoing>* out) {
  if (!IsId(number)) return false;
  Id& id = ids_[static_cast<size_t>(number)];
  if (id.state != Id::kEvicted || !leaders_.IsLeaderIn(from, *id.set)) return false;
  if (++id.finished < id.set->layout.node_count()) return true;
  const int64_t buffer_bytes = BufferBytesOf(id.signature, *id.set, id.protocol);
  buffers_.GiveBack(id.buffer_offset, buffer_bytes);
  if (HasOversizedSlots(id.protocol, id.signature, *id.set)) oversized_slots_bytes_ -= buffer_bytes;
  id = Id();
  free_.push_back(number);
  if (free_.size() == ids_.size()) buffers_.Clear();
  AssignWaiting(out);
  return true;
}

// ---- eviction

void IdTable::StartEviction(int number, std::vector<Outgoing>* out) {
  Id& id = ids_[static_cast<size_t>(number)];
  id.state = Id::kEvicting;
  live_.erase(id.serial);
  leaders_.SendTo(*id.set, EncodeIdMessage(MessageKind::kEvict, number), out);
}

void IdTable::Replace(uint32_t serial, int set, std::vector<Outgoing>* out) {
  const auto live = live_.find(serial);
  if (live != live_.end() && at(live->second).set->id == set) StartEviction(live->second, out);
}

void IdTable::EvictWhere(const std::function<bool(const ProcessSet&)>& is_chosen, std::vector<Outgoing>* out) {
  for (int number = 0; number < kMaxIds; ++number) {
    if (at(number).state == Id::kLive && is_chosen(*at(number).set)) StartEviction(number, out);
  }
}

}  // namespace farandole
