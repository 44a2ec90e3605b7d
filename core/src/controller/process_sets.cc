#include "controller/process_sets.h"

#include <algorithm>
#include <array>

#include "controller/board.h"

namespace farandole {

ProcessSets::ProcessSets(const Layout& world, int my_rank) : world_(world), my_rank_(my_rank) {
  sets_[0] = std::make_shared<const ProcessSet>(WholeWorld(world, my_rank));
}

ProcessSetPtr ProcessSets::Find(int id) const {
  const auto found = sets_.find(id);
  return found == sets_.end() ? nullptr : found->second;
}

int ProcessSets::Add(std::vector<int> ranks) {
  const int channel = FreeChannel(ranks);
  if (channel < 0 || next_id_ > kMaxSetId) return -1;
  const int id = next_id_++;
  sets_[id] = std::make_shared<const ProcessSet>(MakeProcessSet(world_, my_rank_, id, std::move(ranks), channel));
  return id;
}

void ProcessSets::Remove(int id) { sets_.erase(id); }

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
