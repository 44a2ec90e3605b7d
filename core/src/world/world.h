// Everything this rank knows and holds of the others for one epoch: who they are, the memory shared with some, the
// connections to the rest, and a descriptor that becomes readable when a rank of this machine dies.
//
//   control   every rank <-> rank 0, small messages     links   to counterparts in other groups, tensor data
//   puts      to all others where no two share memory, data of eager operations
//   group     shared memory and bells of this machine    pidfds  deaths on this machine
//
// Made by bootstrap.h, then used by the driver alone.
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
  std::string NameOf(int other) const;
};

}  // namespace farandole
