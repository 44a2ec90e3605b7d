// libfarandole_gloo.so, opened once in a process and kept.
#pragma once

#include <string>

#include "backends/gloo/bridge.h"
#include "common/config.h"
#include "common/status.h"

namespace farandole {

// kInvalid says what was looked for and how to get it. Any thread.
Status OpenGloo(const Settings& settings, const FrdGlooTable** table);

}  // namespace farandole
