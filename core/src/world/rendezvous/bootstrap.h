// Makes a World: one loop that carries out what the state machines of the start decide, over real sockets.
//
//   decide; pure    RendezvousServer (rank 0)   <- messages ->   RendezvousClient (every rank)
//   act             Acceptor, streams                            Connector, stream, ShmSetup, LinkSetup
//
// Nothing in the loop waits for one peer alone: connections that come to nothing, ranks that die and rank 0's word are
// all heard at once. Blocking, with a deadline; one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/descriptor.h"
#include "common/status.h"
#include "transport/handshake.h"
#include "world/world.h"

namespace farandole {

struct WorldSpec {
  int rank = 0;
  int size = 1;
  std::string store;                     // endpoint of rank 0, unused when size is 1
  std::shared_ptr<Descriptor> listener;  // of rank 0, where it listens at the store already
  Key key{};                             // the job's secret
  bool shares_memory = true;
  std::string interface_address;  // where data links listen; the engine's: empty for that of the settings
  SegmentPlan plan;
  SharedSettings settings;  // must be the same on every rank
};

// On failure *culprits, where given, are the ranks because of whom.
Status Bootstrap(const WorldSpec& spec, Deadline deadline, std::unique_ptr<World>* world,
                 std::vector<int>* culprits = nullptr);

}  // namespace farandole
