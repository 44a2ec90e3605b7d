#include "backends/registry.h"

#include "backends/native/native.h"

namespace farandole {

Registry::Registry(World* world, const Settings& settings) { backends_.push_back(MakeNativeBackend(world, settings)); }

Backend* Registry::Find(const Work& work) const {
  for (const auto& backend : backends_) {
    if (backend->Supports(work)) return backend.get();
  }
  return nullptr;
}

void Registry::Forget(int set_id) {
  for (const auto& backend : backends_) backend->Forget(set_id);
}

std::vector<std::string> Registry::Names() { return {kNativeName}; }

size_t Registry::StagingBytesPerMember() { return NativeStagingBytesPerMember(); }

int Registry::MostRanks(OpKind kind) { return NativeMostRanks(kind); }

}  // namespace farandole
