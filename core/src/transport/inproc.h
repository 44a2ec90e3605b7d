// Two linked ends in one process: ranks as threads, in tests and for several ranks per process.
//
// The pair is an ArenaLink over heap memory that lives as long as either end.
// Thread rule: each end belongs to one thread at a time; making a pair is safe from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "transport/link.h"

namespace farandole {

struct InprocPair {
  std::unique_ptr<Link> first;
  std::unique_ptr<Link> second;
};

// first_name and second_name name the two ranks in each other's errors. REQUIRES: capacity_bytes >= 1 (each way).
InprocPair MakeInprocPair(size_t capacity_bytes, const std::string& first_name, const std::string& second_name);

}  // namespace farandole
