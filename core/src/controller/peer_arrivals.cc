#include "controller/peer_arrivals.h"

#include <algorithm>

#include "controller/name_table.h"

namespace farandole {
namespace {

// True when this rank leads its node in the set, and `from` leads another.
bool AreLeaders(int from, const ProcessSet& set) {
  const int position = set.PositionOf(from);
  if (position < 0 || !set.contains_me() || set.member() != 0) return false;
  const auto at = static_cast<size_t>(position);
  return set.layout.group_of[at] != set.group() && set.layout.member_of[at] == 0;
}

}  // namespace

std::map<int, uint64_t> PeerArrivals::ArrivedAt(const ProcessSet& set, uint64_t use) const {
  std::map<int, uint64_t> arrived;
  for (const auto& [rank, stamp] : uses_[use & 1]) {
    if (UsesIn(stamp) >= use && set.PositionOf(rank) >= 0) arrived[rank] = stamp;
  }
  return arrived;
}

void UnknownArrivals::Open(Name* name) {
  const uint32_t serial = name->properties.serial;
  last_serial_ = std::max(last_serial_, serial);
  name->arrivals.reset();
  if (!name->properties.early()) return;
  name->arrivals = ArrivalsOf(serial);
  unknown_.erase(serial);
}

// No rank begins a use before all ranks have arrived at the one before. So a message is for the use in flight here, or
// for the next one.
Status UnknownArrivals::OnArrival(int from, const MessageTag& tag, bool* wanted) {
  *wanted = true;
  if (tag.serial > last_serial_) return OnUnknown(from, tag);
  const Name* const name = IsId(tag.id) ? names_.Current(tag.id) : nullptr;
  *wanted = name != nullptr && tag.serial == name->properties.serial;
  if (!*wanted) return Status::Ok();  // the id was retired
  const uint64_t use = UsesIn(tag.operation);
  const bool current = name->in_flight && name->counted && use == name->use;
  if (!name->arrivals || !AreLeaders(from, name->set()) || (use != name->use + 1 && !current)) return Unreadable(from);
  name->arrivals->Note(from, tag);
  return Status::Ok();
}

// Other ranks may know the id before this one, and arrive at the first use after the described one. They cannot get
// further, since that use needs this rank.
Status UnknownArrivals::OnUnknown(int from, const MessageTag& tag) {
  const bool known = unknown_.count(tag.serial) > 0;
  if (!IsId(tag.id) || UsesIn(tag.operation) != 1 || from == group_.rank() ||
      (!known && unknown_.size() >= static_cast<size_t>(kMaxIds)))
    return Unreadable(from);
  ArrivalsOf(tag.serial)->Note(from, tag);
  return Status::Ok();
}

std::shared_ptr<PeerArrivals> UnknownArrivals::ArrivalsOf(uint32_t serial) {
  std::shared_ptr<PeerArrivals>& arrivals = unknown_[serial];
  if (!arrivals) arrivals = std::make_shared<PeerArrivals>();
  return arrivals;
}

}  // namespace farandole
