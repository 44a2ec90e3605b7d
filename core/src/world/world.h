// World: all connections to the other ranks, and all that is known about them, for one epoch. Bootstrap makes it from a
// WorldSpec.
//
//   peers     what each rank said about itself           layout  which ranks share memory
//   node      shared memory, doorbells of this machine   pidfds  become readable when a rank of this machine ends
//   control   every rank <-> rank 0, small messages      transport  tensor data, to the ranks of other nodes
//   acceptors where ranks connect for messages (p2p)      arrived    ranks that did so during the start
//
// The engine owns the World until the epoch ends. Its connections belong to the thread that drives the progress loop;
// peers and layout do not change, and any thread may read them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/descriptor.h"
#include "common/status.h"
#include "transport/connections.h"
#include "transport/handshake.h"
#include "transport/message_stream.h"
#include "transport/transport.h"
#include "world/layout.h"
#include "world/shm_node.h"

namespace farandole {

inline constexpr const char* kMessagePurpose = "messages";  // of connections for single messages, in the handshake

struct World {
  int rank = 0;
  int size = 1;
  std::vector<PeerInfo> peers;
  Layout layout;
  std::optional<ShmNode> node;           // always set once the world is made
  std::vector<MessageStream> control;    // by rank: all but itself on rank 0, only [0] elsewhere
  std::unique_ptr<Transport> transport;  // never null, but in one node nothing is connected
  std::vector<Descriptor> pidfds;        // by rank, invalid where there is none
  Key key{};                             // the secret of this world's ranks
  std::vector<Acceptor> acceptors;
  std::vector<AuthenticatedPeer> arrived;

  bool one_node() const { return layout.node_count() == 1; }
  bool shares_cores() const { return SharesCores(peers, rank); }
  bool leader() const { return node->member() == 0; }
  // "rank 3 (host b, pid 4711)"
  std::string NameOf(int other) const { return NameOfRank(peers, other); }
};

struct WorldSpec {
  int rank = 0;
  int size = 1;
  std::string rendezvous_endpoint;       // where rank 0 listens, see transport/socket.h; unused when size is 1
  std::shared_ptr<Descriptor> listener;  // of rank 0, if it listens there already
  Key key{};                             // the secret of this world's ranks
  uint32_t epoch = 0;                    // of an elastic job: the number of this world
  std::string recording_path;            // of the flight recorder's file; empty: nothing is recorded
  std::string run;                       // the name of the job there
  bool shares_memory = true;
  std::string interface_address;  // where data links listen; empty: the engine takes the address of the settings
  SegmentPlan plan;
  SharedSettings settings;  // must be the same on every rank
};

// Starts a job together with the other ranks. Blocks until the world is made, the start has failed, or the deadline has
// passed. Depends only on its arguments; any thread may call it. On failure *culprits, if given, gets the ranks that
// caused it.
Status Bootstrap(const WorldSpec& spec, Deadline deadline, std::unique_ptr<World>* world,
                 std::vector<int>* culprits = nullptr);

}  // namespace farandole
