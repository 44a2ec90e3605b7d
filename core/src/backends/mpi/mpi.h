// The back end over MPI: a library that is looked for at run time, started by its own launcher.
#pragma once

#include "backends/backend.h"

namespace farandole {

extern const BackendKind kMpi;

}  // namespace farandole
