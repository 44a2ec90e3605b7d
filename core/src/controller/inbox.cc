#include "controller/inbox.h"

namespace farandole {

bool IsEager(const Signature& signature, const ProcessSet& set, const Layout& world) {
  PathFacts facts = FactsOf(signature, set);
  facts.can_put = HasPutStreams(world);
  return ChoosePath(facts) == PathKind::kEager;
}

}  // namespace farandole
