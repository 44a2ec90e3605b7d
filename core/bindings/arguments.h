// Python's numbers into the core's words.
#pragma once

#include <string>

#include "common/status.h"
#include "common/types.h"

namespace farandole {

template <typename Enumeration>
Status ToEnumeration(int value, int count, const char* what, Enumeration* result) {
  if (value < 0 || value >= count) return Invalid(std::string("unknown ") + what + " " + std::to_string(value));
  *result = static_cast<Enumeration>(value);
  return Status::Ok();
}

}  // namespace farandole
