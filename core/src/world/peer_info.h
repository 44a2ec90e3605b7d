// What each rank says about itself when the job starts, and whether the ranks of a job go together.
//
// Values; any thread. The World owns the PeerInfos of all ranks, by rank, and they do not change while the job runs.
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

inline constexpr size_t kMostSettings = 64;

struct PeerInfo {
  std::string host;     // for people
  std::string machine;  // ranks with equal machines can share memory: boot id, network namespace, user
  int64_t pid = 0;
  bool shares_memory = true;     // false: FARANDOLE_ARENAS=0, or this machine does not let it listen
  std::string segment_endpoint;  // where this rank, as the leader of its group, would hand out the segment
  std::string version = CoreVersion();
  int size = 0;  // the number of ranks that this one was started for
  SharedSettings settings = {};

  // The version and the host stand first in all versions, so that ranks of different versions can be named.
  template <typename Visitor, typename... Self>
  static void Visit(Visitor&& visit, Self&... self) {
    visit("version", self.version...);
    visit("host", self.host...);
    visit("machine", self.machine...);
    visit("pid", self.pid...);
    visit("shares_memory", self.shares_memory...);
    visit("segment_endpoint", self.segment_endpoint...);
    visit("size", self.size...);
    visit("settings", self.settings...);
  }
  bool IsValid() const { return settings.size() <= kMostSettings; }

  static std::string CoreVersion();
  std::string Encode() const;
  // Of another version only the version and the host are read.
  static Status Decode(const std::string& text, PeerInfo* peer_info);
};

// "rank 3 (host b, pid 4711)", or "rank 3" while its PeerInfo has not come.
std::string NameOfRank(const std::vector<PeerInfo>& peers, int rank);
// The same for some: "rank 1 (...), rank 3 (...)".
std::string NamesOfRanks(const std::vector<PeerInfo>& peers, const std::vector<int>& ranks);

// kMismatch when ranks differ in version, size or settings: a table of the values and their ranks. A rank whose
// PeerInfo has not come has an empty version and is left out. *odd: the ranks that differ from the majority.
Status CheckPeers(const std::vector<PeerInfo>& peers, std::vector<int>* odd);

}  // namespace farandole
