#include "world/world.h"

namespace farandole {

std::string World::NameOf(int other) const {
  const Card& card = cards[static_cast<size_t>(other)];
  return "rank " + std::to_string(other) + " (host " + card.host + ", pid " + std::to_string(card.pid) + ")";
}

}  // namespace farandole
