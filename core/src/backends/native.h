// The native back end: shared memory inside a group, links between groups, everything on the host. The
// driver alone uses it.
#pragma once

#include "backends/backend.h"

namespace farandole {

extern const BackendKind kNative;

size_t NativeStagingBytesPerMember();
int NativeMostRanks(OpKind kind);

}  // namespace farandole
