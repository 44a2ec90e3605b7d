// The two meetings of bootstrap: members of one machine around their arena, counterparts of different groups over tcp.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "transport/socket.h"
#include "world/bootstrap.h"

namespace farandole {

// Gives world->group and the pidfds of its members. The lowest rank makes the arena and serves at `listener`; the
// others connect to the endpoint on its card. A group of one needs no listener.
Status MeetGroup(const WorldSpec& spec, int listener, Deadline deadline, World* world);

// Gives world->links to all counterparts: connects to lower ranks, then accepts higher ones, so that no cycle of
// waiting can arise.
Status ConnectLinks(const WorldSpec& spec, int listener, const std::vector<std::string>& endpoints, Deadline deadline,
                    World* world);

}  // namespace farandole
