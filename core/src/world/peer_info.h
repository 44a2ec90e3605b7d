// PeerInfo is what each rank says about itself when the job starts. CheckPeers says whether the ranks fit together.
//
// Values; any thread. The World owns the PeerInfos of all ranks, and they do not change while the job runs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "common/wire.h"

namespace farandole {

// Settings that must be equal everywhere, by the names of their variables.
using SharedSettings = std::vector<std::pair<std::string, std::string>>;

inline constexpr size_t kMaxSettings = 64;
inline constexpr size_t kMaxCoreWords = 256;  // of 64 cores each

struct PeerInfo {
  std::string host;     // for messages
  std::string machine;  // ranks with equal machines can share memory: boot id, network namespace, user
  int64_t pid = 0;
  bool shares_memory = true;     // false: FARANDOLE_ARENAS=0, or sharing_error
  std::string segment_endpoint;  // where this rank hands out the segment if it leads its node
  std::string version = CoreVersion();
  int size = 0;  // the number of ranks that this one was started for
  SharedSettings settings = {};
  std::vector<uint64_t> cores = {};  // which ones it may use: bit k % 64 of word k / 64; empty: unknown
  std::string sharing_error = {};    // why this rank cannot share memory
  std::string data_endpoint = {};    // where ranks of other nodes connect
  std::string listening_error = {};  // why there is none

  // Version and host are the first fields in all versions, so that messages can name ranks of other versions.
  FRD_FIELDS(version, host, machine, pid, shares_memory, segment_endpoint, size, settings, cores, sharing_error,
             data_endpoint, listening_error)
  bool IsValid() const { return settings.size() <= kMaxSettings && cores.size() <= kMaxCoreWords; }

  static std::string CoreVersion();
  std::string Encode() const;
  // Reads only version and host if the version differs.
  static Status Decode(const std::string& text, PeerInfo* peer_info);
};

// "rank 3 (host b, pid 4711)", or "rank 3" before its PeerInfo has arrived.
std::string NameOfRank(const std::vector<PeerInfo>& peers, int rank);
// The names of several ranks: "rank 1 (...), rank 3 (...)".
std::string NamesOfRanks(const std::vector<PeerInfo>& peers, const std::vector<int>& ranks);

// kMismatch, with a table of the values and their ranks, when ranks differ in version, size or settings. A rank whose
// PeerInfo has not arrived has an empty version and is left out. *odd gets the ranks that differ from the majority.
Status CheckPeers(const std::vector<PeerInfo>& peers, std::vector<int>* odd);

// True when the ranks of this rank's machine are more than the cores that they may use, all together: those of the
// machine or of the job's cpuset, or the cores to which each of them is bound.
bool SharesCores(const std::vector<PeerInfo>& peers, int rank);

}  // namespace farandole
