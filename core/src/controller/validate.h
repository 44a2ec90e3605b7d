// Do the ranks mean the same operation? Pure.
#pragma once

#include <map>

#include "common/status.h"
#include "controller/description.h"

namespace farandole {

// Ok when all descriptions agree, else kMismatch: one sentence with the operation, the first two ranks that differ, and
// both their values. REQUIRES: descriptions is not empty.
Status FindMismatch(const std::map<int, Description>& descriptions);

}  // namespace farandole
