// PeerInfo is what each rank says about itself when the job starts. CheckPeers says whether the ranks fit together, and
// MergeTunings which limits of algorithms they use, of those that were measured on their machines.
//
//   a rank's file or variable --text--> PeerInfo --> MergeTunings, alike on all ranks --> Tuning of the World
//   nothing measured, one host: the ranks measure (_start/tuning.py), and each calls Use with the same limits
//
// Values; any thread. The World owns the PeerInfos of all ranks, and they do not change while the job runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/cache.h"
#include "common/status.h"
#include "common/wire.h"

namespace farandole {

// Settings that must be equal everywhere, by the names of their variables.
using SharedSettings = std::vector<std::pair<std::string, std::string>>;

inline constexpr size_t kMostSettings = 64;
inline constexpr size_t kMostCoreWords = 256;  // of 64 cores each

struct PeerInfo {
  std::string host;     // for messages
  std::string machine;  // ranks with equal machines can share memory: boot id, network namespace, user
  int64_t pid = 0;
  bool shares_memory = true;     // false: FARANDOLE_ARENAS=0, or the rank could not open its segment endpoint
  std::string segment_endpoint;  // where this rank hands out the segment if it leads its group
  std::string version = CoreVersion();
  int size = 0;  // the number of ranks that this one was started for
  SharedSettings settings = {};
  std::string tuning = {};           // limits measured on its machine (below); "": none yet
  std::vector<uint64_t> cores = {};  // which ones it may use: bit k % 64 of word k / 64; empty: unknown

  // Version and host are the first fields in all versions, so that messages can name ranks of other versions.
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
    visit("tuning", self.tuning...);
    visit("cores", self.cores...);
  }
  bool IsValid() const { return settings.size() <= kMostSettings && cores.size() <= kMostCoreWords; }

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

// ---- limits that differ between processors

// Limits for allreduces among this many ranks, which share memory. Results do not depend on them: they decide how data
// travel, not in which order they are folded.
struct TunedLimits {
  int ranks = 0;           // 0: nothing has been measured
  int64_t cell_bytes = 0;  // the largest one that goes through cells
  int64_t round_bytes = 0;
  // 1: each of two ranks writes its result over what it has read in cells, and each of more may take the lines of that
  // (CellReader); 0: they do not. It is measured for two ranks.
  int64_t overwrites = 1;
  int64_t cost_ns = 0;  // of a sum of 1 MiB, by which hosts are compared
};

inline constexpr char kUntuned[] = "0";  // text of a rank that has no limits and is to measure none

// "ranks:cell bytes:round bytes:overwrites:cost". Nullopt for any other text.
std::optional<TunedLimits> ParseTuning(const std::string& text);

// Returns the text that holds for all ranks. In one group it is that of rank 0, since ranks may have read the file
// before and after somebody wrote it; else that of the slowest host. "" asks the ranks, which are one group then, to
// measure, unless one of them does not measure (kUntuned).
std::string MergeTunings(const std::vector<PeerInfo>& peers, bool one_group);

// The limits in use. Any thread may read the numbers. REQUIRES: all ranks call Use at the same place in their order of
// operations, while none is under way, and no other thread reads the text meanwhile.
class Tuning {
 public:
  explicit Tuning(int64_t second_level_cache_bytes = SecondLevelCacheBytes())
      : usually_overwrites_(second_level_cache_bytes < kLargeSecondLevelBytes), overwrites_(usually_overwrites_) {}
  // Returns false, and does nothing, for a text that is none of those above.
  bool Use(const std::string& text);
  const std::string& text() const { return text_; }

  // Each returns 0 where nothing has been measured for this many ranks.
  int64_t cell_bytes(int ranks) const { return ranks == ranks_ ? cell_bytes_.load() : 0; }
  int64_t round_bytes(int ranks) const { return ranks == ranks_ ? round_bytes_.load() : 0; }
  bool overwrites() const { return overwrites_.load(std::memory_order_relaxed); }  // as measured, or by the cache

 private:
  std::string text_ = kUntuned;
  std::atomic<int> ranks_{0};
  std::atomic<int64_t> cell_bytes_{0}, round_bytes_{0};
  const bool usually_overwrites_;
  std::atomic<bool> overwrites_;
};

}  // namespace farandole
