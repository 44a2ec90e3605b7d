#include "controller/inbox.h"

#include <algorithm>

#include "controller/name_table.h"

namespace farandole {
namespace {

Status Announce(int from, const EagerPut& put, const std::shared_ptr<Inbox>& to, std::shared_ptr<Inbox>* inbox) {
  if (put.payload_bytes > 0 && !to->Expect(put.payload_bytes)) return Unreadable(from);
  Inbox::Slot& slot = to->at(UsesIn(put.stamp), from);
  const bool again = slot.stamp != 0;
  if (again && (slot.stamp != put.stamp || slot.has_data || put.payload_bytes == 0)) return Unreadable(from);
  slot.stamp = put.stamp;
  slot.round = put.round;
  slot.has_data = put.payload_bytes > 0;
  *inbox = to;
  return Status::Ok();
}

// True when this rank leads its group in the set, and `from` leads another.
bool AreLeaders(int from, const ProcessSet& set) {
  const int position = set.PositionOf(from);
  if (position < 0 || !set.contains_me() || set.member() != 0) return false;
  const auto at = static_cast<size_t>(position);
  return set.layout.group_of[at] != set.group() && set.layout.member_of[at] == 0;
}

}  // namespace

std::vector<int> Inbox::Missing(const ProcessSet& set, uint64_t use) {
  std::vector<int> missing;
  for (int g = 0; g < set.layout.group_count(); ++g) {
    const int leader = set.LeaderOf(g);
    if (g != set.group() && !IsComplete(at(use, leader))) missing.push_back(leader);
  }
  return missing;
}

// Eager data have connections of their own, so they may be here before this rank has read that a join has ended.
// `round` keeps data of the next round apart.
std::optional<uint64_t> Inbox::Said(const ProcessSet& set, uint64_t use, uint32_t round) {
  for (int rank : set.ranks) {
    const Slot& slot = at(use, rank);
    if (slot.round == round && UsesIn(slot.stamp) >= use) return slot.stamp;
  }
  return std::nullopt;
}

bool Inboxes::Open(Name* name, uint32_t serial) {
  last_serial_ = std::max(last_serial_, serial);
  name->inbox.reset();
  if (name->path != PathKind::kEager) return true;
  const auto early = early_.find(serial);
  name->inbox = early != early_.end() ? early->second : std::make_shared<Inbox>(group_.world().size());
  if (early != early_.end()) early_.erase(early);
  return name->inbox->Expect(static_cast<size_t>(name->known.TotalBytes()));
}

// No rank begins a use before all ranks have arrived at the one before. So a PUT is for the use in flight here, or for
// the next one.
Status Inboxes::OnPut(int from, const EagerPut& put, std::shared_ptr<Inbox>* inbox) {
  if (put.serial > last_serial_) return OnEarlyPut(from, put, inbox);
  const Name* const name = names_.Current(put.id);
  const bool retired = name == nullptr || put.serial != name->serial;
  if (retired) return put.payload_bytes > Inbox::kMostBytes ? Unreadable(from) : Status::Ok();
  const uint64_t use = UsesIn(put.stamp);
  const bool current = name->in_flight && name->counted && use + 1 == name->next_use;
  if (!name->inbox || !AreLeaders(from, name->set()) || (use != name->next_use && !current)) return Unreadable(from);
  return Announce(from, put, name->inbox, inbox);
}

// Other ranks may know the id before this one, and arrive at the first use after the described one. They cannot get
// further, since that use needs this rank.
Status Inboxes::OnEarlyPut(int from, const EagerPut& put, std::shared_ptr<Inbox>* inbox) {
  const bool known = early_.count(put.serial) > 0;
  if (UsesIn(put.stamp) != 1 || from == group_.rank() || (!known && early_.size() >= kMaxIds)) return Unreadable(from);
  std::shared_ptr<Inbox>& early = early_[put.serial];
  if (!early) early = std::make_shared<Inbox>(group_.world().size());
  return Announce(from, put, early, inbox);
}

}  // namespace farandole
