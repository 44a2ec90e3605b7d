// Gloo: collectives over its own TCP connections, by a library that is there where the user has built it (core/gloo/).
#pragma once

#include "backends/backend.h"

namespace farandole {

extern const BackendKind kGloo;

}  // namespace farandole
