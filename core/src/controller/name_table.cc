#include "controller/name_table.h"

#include <algorithm>
#include <utility>

#include "common/cache.h"

namespace farandole {
// ---- process sets

NameTable::NameTable(const NodeMembers& node)
    : rank_(node.rank()), sets_(node.world(), node.rank()), outside_(sets_.Find(0)) {
  everybody_ = (by_set_[0] = std::make_unique<SetNames>(sets_.Find(0))).get();
}

Status NameTable::CanRemove(int set) const {
  const SetNames* const names = Names(set);
  if (names == nullptr) return Status::Ok();  // rank 0 says that there is none
  for (const auto& [key, name] : names->names) {
    if (name->in_flight) return InUse(set, name->description.Title(), rank_);
  }
  return Status::Ok();
}

// A removal may be called again before the log says that the set is gone, hence a count.
void NameTable::Close(const Signature& removal) {
  const auto set = static_cast<int>(removal.ranks.at(0));
  if (SetNames* const names = Names(set); names != nullptr && set != 0) ++names->removals;
}

void NameTable::Reopen(const Signature& removal) {
  SetNames* const names = Names(static_cast<int>(removal.ranks.at(0)));
  if (names != nullptr && names->removals > 0) --names->removals;
}

// Rank 0 has checked before that the change is possible.
bool NameTable::ChangeSets(const Signature& change, int* new_set) {
  if (change.kind == OpKind::kAddProcessSet) {
    *new_set = sets_.Add({change.ranks.begin(), change.ranks.end()});
    if (*new_set < 0) return false;
    by_set_[*new_set] = std::make_unique<SetNames>(sets_.Find(*new_set));
  } else if (change.kind == OpKind::kRemoveProcessSet) {
    const auto id = static_cast<int>(change.ranks.at(0));
    if (id == 0) return false;
    sets_.Remove(id);
    SetNames* const names = Names(id);
    if (names == nullptr) return true;
    names->removed = true;  // its ids are evicted one by one
    if (names->names.empty()) by_set_.erase(id);
  }
  return true;
}

// ---- names and ids

Name* NameTable::Find(int set, std::string_view name) const {
  const SetNames* const names = Names(set);
  return names == nullptr ? nullptr : names->Find(name);
}

Name* NameTable::FindOrAdd(SetNames* names, std::string_view name) {
  if (Name* const found = names->Find(name)) return found;
  auto added = std::make_unique<Name>(names, name);
  Name* const result = added.get();
  names->names.emplace(result->key, std::move(added));
  return result;
}

Name* NameTable::FindAwaiting(const SetNames& names, int64_t sequence_number) {
  const auto found = std::find_if(names.names.begin(), names.names.end(), [&](const auto& each) {
    return each.second->AwaitsId() && each.second->description.sequence_number == sequence_number;
  });
  return found == names.names.end() ? nullptr : found->second.get();
}

void NameTable::EraseIfIdle(Name* name) {
  if (name->id >= 0 || name->in_flight || name->ids_held > 0) return;
  SetNames* const names = name->of;
  names->names.erase(names->names.find(name->key));
  if (names->removed && names->names.empty()) by_set_.erase(names->set->id);
}

std::optional<IdProperties> PropertiesOf(const Assignment& assignment, const ProcessSet& set, const NodeMembers& node) {
  const Signature& signature = assignment.description.signature;
  OperationFacts facts = FactsOf(signature, set);
  facts.has_early_lanes = HasEarlyLanes(node.world());
  if (!IsPossible(assignment.protocol, facts)) return std::nullopt;
  IdProperties properties;
  properties.buffers = {assignment.buffer_offset, BufferBytesOf(signature, set, assignment.protocol)};
  const bool has_buffers = properties.buffers.offset != -1;
  if (has_buffers != (properties.buffers.size_bytes > 0) || (has_buffers && !properties.buffers.IsValid()))
    return std::nullopt;
  properties.protocol = assignment.protocol;
  const bool has_data = assignment.protocol != Protocol::kNegotiated;
  properties.payload_bytes = has_data ? static_cast<size_t>(signature.TotalBytes()) : 0;
  properties.counts_per_rank = signature.CountsPerRank(set.size());
  properties.serial = assignment.serial;
  properties.once = assignment.once;
  properties.local_members = static_cast<int>(node.MembersIn(set).size());
  properties.collects = CollectsInSlots(assignment.protocol, set.layout) && properties.local_members > 1;
  return properties;
}

void NameTable::Assign(Name* name, int id, const IdProperties& properties, const ProcessSetPtr& set) {
  ids_[static_cast<size_t>(id)] = {name, properties, set};
  if (name == nullptr) return;
  name->id = id;
  name->properties = properties;
  name->use = 0;
  name->evicting = properties.once;
  ++name->ids_held;
}

void NameTable::Forget(int id) {
  Name*& name = ids_[static_cast<size_t>(id)].name;
  --name->ids_held;
  name = nullptr;
}

// ---- in flight

void UsesInFlight::CancelArrival(Name* name) {
  Leave(name);
  name->counted = false;
}

void UsesInFlight::Leave(Name* name) {
  if (!name->counted) return;
  if (name->small()) RemoveSmall(name);
}

// Moves the last small operation to the place of this one.
void UsesInFlight::RemoveSmall(Name* name) {
  small_[name->small_at] = small_.back();
  small_[name->small_at]->small_at = name->small_at;
  small_.pop_back();
  small_count_.store(small_.size(), std::memory_order_relaxed);
}

void UsesInFlight::End(Name* name) {
  Leave(name);
  tickets_.End(name->ticket);
  name->in_flight = false;
}

void UsesInFlight::EndWith(NegotiationEvent::Kind kind, Name* name, NegotiationEvents* events) {
  events->push_back(NegotiationEvent::About(kind, name->ticket));
  End(name);
}

// ---- small operations

// A leader that evicts the id sets the flag first and counts then, with a full fence in between. This rank looks for
// the flag after it has seen all data. If it does not see the flag, the leader sees all data, too, and the use counts
// as completed for all. So once a rank has reduced its share, the others will reduce theirs. For the data of others the
// order of two loads suffices; for this rank's own it takes the fence since it wrote them.
bool UsesInFlight::CanAdvance(int id, const SlotBuffer& slots, bool two_phase, uint64_t generation) const {
  if (two_phase && slots.HasReduced(slots.self(), generation)) return slots.AllHaveReduced(generation);
  if (!slots.AllHaveWritten(generation)) return false;
  LoadLoadFence();
  return !counters_.IsEvicted(id);
}

bool UsesInFlight::HasReduced(const Name& name, int position) const {
  return SlotsOf(name, name.use).HasReduced(position, GenerationOfUse(name));
}

std::vector<Ticket> UsesInFlight::Ready() const {
  std::vector<Ticket> ready;
  for (const Name* name : small_) {
    const SlotBuffer slots = SlotsOf(*name, name->use);
    if (CanAdvance(name->id, slots, IsTwoPhase(*name), GenerationOfUse(*name))) ready.push_back(name->ticket);
  }
  return ready;
}

std::vector<int> UsesInFlight::RequestDoorbells() const {
  std::vector<int> late;
  for (const Name* name : small_) {
    const ProcessSet& set = name->set();
    SlotsOf(*name, name->use).RequestDoorbell(set.position);
    if (!IsTwoPhase(*name) || !HasReduced(*name, set.position)) continue;
    for (int p = 0; p < set.size(); ++p) {
      if (!HasReduced(*name, p)) late.push_back(set.ranks[static_cast<size_t>(p)]);
    }
  }
  return late;
}

}  // namespace farandole
