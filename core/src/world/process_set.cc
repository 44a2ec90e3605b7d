#include "world/process_set.h"

#include <algorithm>
#include <numeric>

namespace farandole {

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

}  // namespace farandole
