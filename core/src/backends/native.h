// The native back end: shared memory inside a group, links between groups, everything on the host. The
// driver alone uses it.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "common/config.h"
#include "world/world.h"

namespace farandole {

extern const BackendKind kNative;

size_t NativeStagingBytesPerMember();
int NativeMostRanks(OpKind kind);

}  // namespace farandole
