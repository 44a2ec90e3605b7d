#include "world/process_set.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "common/types.h"

namespace farandole {

// Ranks ascend, so a binary search finds the position.
int ProcessSet::PositionOf(int rank) const {
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank);
  return found != ranks.end() && *found == rank ? static_cast<int>(found - ranks.begin()) : -1;
}

ProcessSet MakeProcessSet(const Layout& world, int my_rank, int id, std::vector<int> ranks, int channel) {
  ProcessSet set;
  set.id = id;
  set.layout = Restrict(world, ranks);
  set.ranks = std::move(ranks);
  set.channel = channel;
  set.position = set.PositionOf(my_rank);
  return set;
}

ProcessSet WholeWorld(const Layout& world, int my_rank) {
  std::vector<int> ranks(static_cast<size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return MakeProcessSet(world, my_rank, 0, std::move(ranks), 0);
}

Status NoProcessSet(int id, int my_rank) {
  return Invalid("there is no process set " + std::to_string(id) + " on rank " + std::to_string(my_rank) +
                 "; it was removed, or never added");
}

Status InUse(int id, const std::string& title, int my_rank) {
  return Invalid("process set " + std::to_string(id) + " cannot be removed while " + title + " is in flight on rank " +
                 std::to_string(my_rank) + "; wait for it first");
}

ProcessSets::ProcessSets(const Layout& world, int my_rank) : world_(world), my_rank_(my_rank) {
  sets_[0] = std::make_shared<const ProcessSet>(WholeWorld(world, my_rank));
}

ProcessSetPtr ProcessSets::Find(int id) const {
  const auto found = sets_.find(id);
  return found == sets_.end() ? nullptr : found->second;
}

Status ProcessSets::CanAdd(const std::vector<int>& ranks) const {
  const std::string what = "a process set of the ranks " + ToString(Shape(ranks.begin(), ranks.end()));
  if (next_id_ > kMaxSetId) {
    return Invalid(what + " cannot be added: this job has made " + std::to_string(kMaxSetId) +
                   ", which is all that it can; keep sets instead of adding them again and again");
  }
  if (FreeChannel(ranks) >= 0) return Status::Ok();
  return Invalid(what + " cannot be added: a rank can be in " + std::to_string(kMaxChannels - 1) +
                 " process sets at a time, and these ranks are in as many; remove one of those first");
}

Status ProcessSets::CanRemove(int id) const {
  if (id != 0 && Find(id)) return Status::Ok();
  return Invalid("there is no process set " + std::to_string(id) + " to remove");
}

int ProcessSets::Add(std::vector<int> ranks) {
  if (!CanAdd(ranks).ok()) return -1;
  const int channel = FreeChannel(ranks), id = next_id_++;
  sets_[id] = std::make_shared<const ProcessSet>(MakeProcessSet(world_, my_rank_, id, std::move(ranks), channel));
  return id;
}

void ProcessSets::Remove(int id) { sets_.erase(id); }

// Returns the lowest channel that no set with a common rank has, so that all ranks choose the same one.
int ProcessSets::FreeChannel(const std::vector<int>& ranks) const {
  std::array<bool, kMaxChannels> taken{};
  for (const auto& [id, set] : sets_) {
    const bool shares = std::any_of(ranks.begin(), ranks.end(), [&](int rank) { return set->PositionOf(rank) >= 0; });
    if (shares) taken[static_cast<size_t>(set->channel)] = true;
  }
  const auto free = std::find(taken.begin(), taken.end(), false);
  return free == taken.end() ? -1 : static_cast<int>(free - taken.begin());
}

}  // namespace farandole
