// The native back end: shared memory inside a group, links between groups, everything on the host. The
// driver alone uses it.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "common/config.h"
#include "world/world.h"

namespace farandole {

inline constexpr char kNativeName[] = "native";

size_t NativeStagingBytesPerMember();
int NativeMostRanks(OpKind kind);
std::unique_ptr<Backend> MakeNativeBackend(World* world, const Settings& settings);

}  // namespace farandole
