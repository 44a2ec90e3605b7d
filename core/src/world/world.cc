#include "world/world.h"

namespace farandole {

std::string World::NameOf(int other) const { return NameOfRank(peers, other); }

}  // namespace farandole
