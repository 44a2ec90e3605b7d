// Do the ranks mean the same operation? Pure.
#pragma once

#include <map>
#include <string>

#include "controller/description.h"

namespace farandole {

// "" when all descriptions agree, else one sentence with the operation, the first two ranks that differ, and both their
// values. REQUIRES: descriptions is not empty.
std::string FindMismatch(const std::map<int, Description>& descriptions);

}  // namespace farandole
