// Coordinator: the life of an id.
#include <algorithm>

#include "controller/coordinator.h"

namespace farandole {
namespace {

// Nearly always all ranks have one name for an id; saying so once saves a name for each of them.
constexpr int kAllRanks = -1;

std::map<int, std::string> NamesIn(const std::map<int, Description>& gathering) {
  std::map<int, std::string> names;
  const std::string& first = gathering.begin()->second.name;
  bool equal = true;
  for (const auto& [rank, description] : gathering) {
    equal = equal && description.name == first;
    names[rank] = description.name;
  }
  if (equal) return {{kAllRanks, first}};
  return names;
}

// What a rank that has joined brings: nothing.
Description WithoutData(Description description, int set_size) {
  description.extents.assign(description.signature.ExtentCount(set_size), 0);
  return description;
}

}  // namespace

Status Coordinator::OnIdMessage(int from, MessageKind kind, int number, uint64_t value, std::vector<Outgoing>* out) {
  const Id& id = ids_[static_cast<size_t>(number)];
  switch (kind) {
    case MessageKind::kStuck:
      if (id.state == Id::kLive && id.set->PositionOf(from) >= 0) StartRetiring(number, out);
      return Status::Ok();
    case MessageKind::kRetireInfo:
      if (id.state != Id::kRetiring || !IsLeaderIn(from, *id.set)) return Unreadable(from);
      return OnRetireInfo(number, value, out);
    case MessageKind::kFree:
      if (id.state != Id::kRetired || !IsLeaderIn(from, *id.set)) return Unreadable(from);
      return OnFree(number, out);
    default:
      return Unreadable(from);
  }
}

// Why this comes to an end: while the first in the queue does not fit, some id is live (and one more is retired here)
// or on its way to being free (and that calls this again); and once all are free, all memory is one piece again.
void Coordinator::AssignWaiting(std::vector<Outgoing>* out) {
  while (!waiting_for_id_.empty()) {
    const Signature& signature = waiting_for_id_.front().begin()->second.signature;
    const ProcessSetPtr set = sets_.Find(signature.set);
    const int64_t wanted_bytes = WantedSpanBytes(signature, *set);
    const bool staged = IsBetterStaged(signature, *set, second_level_cache_bytes_);
    const int64_t span_offset = staged ? -1 : spans_.Take(wanted_bytes);
    // A small tensor without a span is merely slower; extents have no other way.
    const bool no_span = span_offset < 0 && signature.ExtentCount(set->size()) > 0;
    if (free_ids_.empty() || no_span) {
      spans_.GiveBack(span_offset, wanted_bytes);
      RetireOldest(out);
      return;
    }
    Assign(waiting_for_id_.front(), span_offset, out);
    waiting_for_id_.pop_front();
  }
}

void Coordinator::RetireOldest(std::vector<Outgoing>* out) {
  while (!live_ids_.empty()) {
    const int oldest = live_ids_.front();
    live_ids_.pop_front();
    if (ids_[static_cast<size_t>(oldest)].state != Id::kLive) continue;
    StartRetiring(oldest, out);
    return;
  }
}

void Coordinator::Assign(const Gathering& gathering, int64_t span_offset, std::vector<Outgoing>* out) {
  const int number = free_ids_.front();
  free_ids_.pop_front();
  const Description& first = gathering.begin()->second;
  Id& id = ids_[static_cast<size_t>(number)];
  id = Id();
  id.state = Id::kLive;
  id.names = NamesIn(gathering);
  id.signature = first.signature;
  id.set = sets_.Find(first.signature.set);
  id.span_offset = span_offset;
  id.eager = IsEager(id.signature, *id.set, layout_);
  for (const auto& [rank, name] : id.names) id_by_name_[{rank, {id.set->id, name}}] = number;
  live_ids_.push_back(number);
  const auto extent_count = static_cast<uint32_t>(id.signature.ExtentCount(id.set->size()));
  const bool small = span_offset >= 0 && IsSmall(id.signature, *id.set);
  ToLeaders(*id.set,
            Encode(Lead{number, id.set->id, extent_count, small, small ? id.signature.TotalBytes() : 0, span_offset,
                        WantedSpanBytes(id.signature, *id.set), id.eager}),
            out);
  ReadyItem item{number, id.set->id, 0, {}};
  const uint32_t serial = ++last_serial_;
  for (int rank : id.set->ranks) {
    const auto found = gathering.find(rank);
    if (found != gathering.end()) {
      const Description& theirs = found->second;
      out->push_back({rank, Encode(Assignment{theirs.name, id.set->id, number, span_offset, serial})});
      item.extents.insert(item.extents.end(), theirs.extents.begin(), theirs.extents.end());
    } else {
      out->push_back(
          {rank, Encode(Invited{{"", id.set->id, number, span_offset, serial}, WithoutData(first, id.set->size())})});
      item.extents.insert(item.extents.end(), extent_count, 0);
    }
  }
  ready_.push_back(std::move(item));
}

std::optional<int> Coordinator::LiveIdOf(int rank, int set, const std::string& name) const {
  auto found = id_by_name_.find({rank, {set, name}});
  if (found == id_by_name_.end()) found = id_by_name_.find({kAllRanks, {set, name}});
  if (found == id_by_name_.end()) return std::nullopt;
  return found->second;
}

void Coordinator::StartRetiring(int number, std::vector<Outgoing>* out) {
  Id& id = ids_[static_cast<size_t>(number)];
  id.state = Id::kRetiring;
  id.answers = 0;
  for (const auto& [rank, name] : id.names) {
    const auto found = id_by_name_.find({rank, {id.set->id, name}});
    if (found != id_by_name_.end() && found->second == number) id_by_name_.erase(found);
  }
  ToLeaders(*id.set, EncodeIdMessage(MessageKind::kRetire, number), out);
}

void Coordinator::RetireSet(int set, std::vector<Outgoing>* out) {
  for (int number = 0; number < kMaxIds; ++number) {
    const Id& id = ids_[static_cast<size_t>(number)];
    if (id.state == Id::kLive && id.set->id == set) StartRetiring(number, out);
  }
}

// A rank that came to an eager use has come for good, so a use is complete when all have come to it. Ranks that came to
// the same last use with different turns meant different operations: nobody took that one.
uint64_t Coordinator::UsesSaid(Id* id, uint64_t value) {
  if (!id->eager) return value;
  if (id->answers == 0) id->sequence = value;
  id->differ = id->differ || value != id->sequence;
  id->most_uses = std::max(id->most_uses, UsesIn(value));
  return UsesIn(value);
}

Status Coordinator::OnRetireInfo(int number, uint64_t value, std::vector<Outgoing>* out) {
  Id& id = ids_[static_cast<size_t>(number)];
  id.uses = std::min(id.uses, UsesSaid(&id, value));
  if (++id.answers < id.set->layout.group_count()) return Status::Ok();
  if (id.differ && id.uses == id.most_uses) --id.uses;
  // What is ready comes first in every log; an operation that only some groups had completed is described again.
  Flush(out);
  id.state = Id::kRetired;
  id.answers = 0;
  id.completed.clear();
  ToLeaders(*id.set, EncodeIdMessage(MessageKind::kRetired, number, id.uses), out);
  return Status::Ok();
}

Status Coordinator::OnFree(int number, std::vector<Outgoing>* out) {
  Id& id = ids_[static_cast<size_t>(number)];
  if (++id.answers < id.set->layout.group_count()) return Status::Ok();
  spans_.GiveBack(id.span_offset, WantedSpanBytes(id.signature, *id.set));
  id = Id();
  free_ids_.push_back(number);
  live_ids_.erase(std::remove(live_ids_.begin(), live_ids_.end(), number), live_ids_.end());
  AssignWaiting(out);
  return Status::Ok();
}

}  // namespace farandole
