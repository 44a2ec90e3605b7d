#include "world/descriptors.h"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>

namespace farandole {
namespace {

// Of each other rank: its process, its bell or data connections, and on rank 0 its control connection.
constexpr rlim_t kForEachRank = 4, kForAll = 32;
constexpr rlim_t kLeastForAll = 12;  // and one for each rank

// 0 where the system does not say.
rlim_t OpenNow() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  rlim_t count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

}  // namespace

Status ProvideDescriptors(int world_size) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return SystemError("getrlimit");
  const rlim_t open = OpenNow();
  const rlim_t wanted = open + kForAll + kForEachRank * static_cast<rlim_t>(world_size);
  if (limit.rlim_cur >= wanted) return Status::Ok();
  rlimit raised = limit;
  raised.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &raised);  // where it is refused, what there is may be enough
  getrlimit(RLIMIT_NOFILE, &raised);
  const rlim_t least = open + kLeastForAll + static_cast<rlim_t>(world_size);
  if (raised.rlim_cur >= least) return Status::Ok();
  return Invalid("a world of " + std::to_string(world_size) + " ranks needs " + std::to_string(least - open) + " to " +
                 std::to_string(wanted - open) + " open files in each of them, and this process, which has " +
                 std::to_string(open) + ", may have no more than " + std::to_string(raised.rlim_cur) +
                 ": raise that with `ulimit -Hn " + std::to_string(wanted) +
                 "`, or in limits.conf, the service or the container that starts the ranks");
}

}  // namespace farandole
