// Everything that this rank knows and holds of the others for one epoch.
//
//   peers     what each rank said about itself           layout  which ranks share memory
//   group     shared memory and bells of this machine    pidfds  become readable when a rank of this machine ends
//   control   every rank <-> rank 0, small messages      links   tensor data, to the ranks of other groups
//   puts      data of eager operations, to all others, where no two ranks share memory
//
// Bootstrap makes it and hands it to the engine, which owns it until the epoch ends. Its connections belong to the
// thread that drives the progress loop; peers and layout do not change, and any thread may read them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/descriptor.h"
#include "transport/link.h"
#include "transport/message_stream.h"
#include "transport/tcp/put_stream.h"
#include "world/layout.h"
#include "world/shm_group.h"

namespace farandole {

struct World {
  int rank = 0;
  int size = 1;
  std::vector<PeerInfo> peers;
  Layout layout;
  std::optional<ShmGroup> group;
  std::vector<MessageStream> control;        // by rank: all but itself on rank 0, only [0] elsewhere
  std::vector<std::unique_ptr<Link>> links;  // by rank, null where there is none
  std::vector<PutStream> puts;               // by rank, not open where there is none
  std::vector<Descriptor> pidfds;            // by rank, invalid where there is none

  bool one_group() const { return layout.group_count() == 1; }
  bool leader() const { return group->member() == 0; }
  // "rank 3 (host b, pid 4711)"
  std::string NameOf(int other) const { return NameOfRank(peers, other); }
};

}  // namespace farandole
