// What each rank says about itself when the job starts, and whether the ranks of a job go together. Values; any thread.
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
  bool shares_memory = true;     // FARANDOLE_ARENAS
  std::string segment_endpoint;  // endpoint where this rank would hand out its group's segment
  std::string version = CoreVersion();
  int size = 0;  // how many ranks this one was told there are
  SharedSettings settings = {};

  // The version and the host stand first in all versions.
  template <typename Visitor, typename... Self>
  static void Visit(Visitor&& visit, Self&... self) {
    visit("version", self.version...);
    visit("host", self.host...);
    visit("machine", self.machine...);
    visit("pid", self.pid...);
    visit("arenas", self.shares_memory...);
    visit("segment_endpoint", self.segment_endpoint...);
    visit("size", self.size...);
    visit("settings", self.settings...);
  }
  bool IsValid() const { return settings.size() <= kMostSettings; }

  static std::string CoreVersion();
  std::string Encode() const;
  // The PeerInfo of another version is read as far as its version and host.
  static Status Decode(const std::string& text, PeerInfo* peer_info);
};

// "rank 3 (host b, pid 4711)", or "rank 3" as long as its PeerInfo has not come.
std::string NameOfRank(const std::vector<PeerInfo>& peers, int rank);
// The same for some: "rank 1 (...), rank 3 (...)".
std::string NamesOfRanks(const std::vector<PeerInfo>& peers, const std::vector<int>& ranks);

// kMismatch when ranks differ in version, size or settings: a table of who has what. A rank whose PeerInfo has not come
// has an empty version. *odd: the ranks that are not like the majority.
Status CheckPeers(const std::vector<PeerInfo>& peers, std::vector<int>* odd);

}  // namespace farandole
