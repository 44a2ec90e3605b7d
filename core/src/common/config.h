// Settings of the core, read from the environment once per init: the only place in C++ that reads the environment.
//
// The engine owns the settings of its epoch and hands copies or references down. They do not change after ReadSettings,
// so any thread may read them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"

namespace farandole {

// Names in capitals are the variables; docs/guide/README.md explains them to users.
struct Settings {
  bool shares_memory = true;       // FARANDOLE_ARENAS=0: this rank shares no memory, as if on a machine of its own
  std::string algorithm = "auto";  // FARANDOLE_ALGORITHM: auto, direct, ring, tree, exchange
  bool any_order = false;          // FARANDOLE_ORDER=any: sums need not be reduced in the fixed tree order
  // FARANDOLE_BACKEND, a list with commas: the backends to use, the preferred one first. Empty: the default
  std::vector<std::string> backends;
  // FARANDOLE_<NAME>_LIB for each backend of the list: its library, a name or a path
  std::map<std::string, std::string> libraries;
  // Backends of the list with FARANDOLE_<NAME>_NETWORK=0: their library has no network between hosts
  std::set<std::string> without_network;
  std::string launcher;  // "openmpi" or "mpich" where the variables of its launcher are set in this process
  int64_t fusion_threshold_bytes =
      4 << 20;                         // FARANDOLE_FUSION_THRESHOLD: tensors are packed together up to this many bytes
  int64_t start_timeout_ms = 120'000;  // FARANDOLE_START_TIMEOUT (seconds): how long init waits for the other ranks
  int64_t warn_after_ms = 10'000;      // FARANDOLE_WARN_AFTER (seconds): when a missing rank is first named
  int64_t timeout_ms = 1'800'000;  // FARANDOLE_TIMEOUT (seconds, 0 = never): when waiting for a rank becomes an error
  int64_t silence_timeout_ms = 4000;  // FARANDOLE_SILENCE_TIMEOUT (seconds): when a silent host counts as lost
  std::string interface_address = "127.0.0.1";  // FARANDOLE_ADDRESS: where data links to other machines listen
  std::string cuda_driver = "libcuda.so.1";     // FARANDOLE_CUDA_DRIVER: the driver's library, a name or a path
  std::string nvtx;                  // FARANDOLE_NVTX: the NVTX library, which marks ranges for profilers; "": none
  int log_level = 1;                 // FARANDOLE_LOG_LEVEL: error, warning, info, debug = 0 .. 3
  uint64_t log_entries = 0;          // for tests: capacity of a node's log, in entries; 0: the default
  int64_t abort_patience_ms = 5000;  // for tests: how long the core waits for a library to obey an abort
  std::string failpoints;            // FARANDOLE_FAILPOINTS: test builds only, see failpoint.h
};

// The settings that must be the same on every rank, as variables and values. Ranks that differ in them would wait for
// different operations, or sum in different orders.
std::vector<std::pair<std::string, std::string>> SharedSettingsOf(const Settings& settings);

// FARANDOLE_<NAME>_NETWORK of each backend of the list, which must be the same on every rank as well.
std::vector<std::pair<std::string, std::string>> NetworksOf(const Settings& settings);

// FARANDOLE_<NAME>_LIB of each name, "" where it is not set.
std::map<std::string, std::string> ReadLibraries(const std::vector<std::string>& names);

// Reads all variables anew, so that a later init sees their changes. A setting whose variable is unset or empty keeps
// its default. kInvalid names the variable, its value and what is allowed.
//
// REQUIRES: no other thread changes the environment meanwhile.
Status ReadSettings(Settings* settings);

}  // namespace farandole
