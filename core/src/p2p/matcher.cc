#include "p2p/matcher.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace farandole {
namespace {

// Removes and returns the first element that fits, or returns null.
template <typename Pointer, typename Fits>
Pointer TakeFirst(std::deque<Pointer>* from, Fits fits) {
  const auto found = std::find_if(from->begin(), from->end(), fits);
  if (found == from->end()) return nullptr;
  Pointer taken = std::move(*found);
  from->erase(found);
  return taken;
}

}  // namespace

std::string Transfer::Title() const {
  const std::string whom = peer == kAnySource ? "any rank" : "rank " + std::to_string(peer);
  return Text(sends ? "send to " : "recv from ", whom, " with tag ", key.tag,
              key.context == 0 ? "" : Text(" in process set ", key.context));
}

ArrivalPtr Matcher::Post(const TransferPtr& receive) {
  Waiting& here = waiting_[receive->key];
  const auto fits = [&receive](const ArrivalPtr& each) {
    return receive->peer == kAnySource || receive->peer == each->source;
  };
  ArrivalPtr arrival = TakeFirst(&here.arrivals, fits);
  if (!arrival) here.receives.push_back(receive);
  EraseIfEmpty(waiting_.find(receive->key));
  return arrival;
}

TransferPtr Matcher::Arrive(const MessageKey& key, int source) {
  const auto here = waiting_.find(key);
  if (here == waiting_.end()) return nullptr;
  TransferPtr receive = TakeFirst(&here->second.receives, [source](const TransferPtr& each) {
    return each->peer == kAnySource || each->peer == source;
  });
  EraseIfEmpty(here);
  return receive;
}

void Matcher::Keep(const MessageKey& key, ArrivalPtr arrival) { waiting_[key].arrivals.push_back(std::move(arrival)); }

bool Matcher::Cancel(const TransferPtr& receive) {
  const auto here = waiting_.find(receive->key);
  if (here == waiting_.end()) return false;
  const bool was_waiting =
      TakeFirst(&here->second.receives, [&receive](const TransferPtr& each) { return each == receive; }) != nullptr;
  EraseIfEmpty(here);
  return was_waiting;
}

std::vector<TransferPtr> Matcher::TakeReceives(int source) {
  return TakeReceives([source](const Transfer& each) { return source == kAnySource || each.peer == source; });
}

std::vector<TransferPtr> Matcher::TakeReceives(const std::function<bool(const Transfer&)>& is_taken) {
  std::vector<TransferPtr> taken;
  for (auto here = waiting_.begin(); here != waiting_.end();) {
    std::deque<TransferPtr>& receives = here->second.receives;
    const auto stays = [&is_taken](const TransferPtr& each) { return !is_taken(*each); };
    const auto first = std::stable_partition(receives.begin(), receives.end(), stays);
    taken.insert(taken.end(), first, receives.end());
    receives.erase(first, receives.end());
    EraseIfEmpty(here++);
  }
  return taken;
}

void Matcher::DropArrivals(const std::function<bool(Arrival&)>& is_gone) {
  for (auto here = waiting_.begin(); here != waiting_.end();) {
    std::deque<ArrivalPtr>& arrivals = here->second.arrivals;
    arrivals.erase(std::remove_if(arrivals.begin(), arrivals.end(), [&](ArrivalPtr& each) { return is_gone(*each); }),
                   arrivals.end());
    EraseIfEmpty(here++);
  }
}

size_t Matcher::waiting() const {
  size_t count = 0;
  for (const auto& [key, here] : waiting_) count += here.receives.size() + here.arrivals.size();
  return count;
}

void Matcher::EraseIfEmpty(std::map<MessageKey, Waiting>::iterator at) {
  if (at->second.receives.empty() && at->second.arrivals.empty()) waiting_.erase(at);
}

}  // namespace farandole
