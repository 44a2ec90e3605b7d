// ShmSetup makes the shared memory of a node, LinkSetup the data connections between nodes, while a job starts. A
// RendezvousClient decides; these two act, and tell it the result.
//
// bootstrap.cc owns one of each per start, and calls them in the thread of Bootstrap. No call waits for a single peer,
// except for at most two seconds when a peer passes descriptors.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/connections.h"
#include "world/rendezvous/client.h"
#include "world/world.h"

namespace farandole {

// Shares a memory segment of the leader among the ranks of a node.
//
//   member                                               leader
//     connects to the endpoint in the leader's PeerInfo    admits the ranks that its client names
//     its event, its pidfd ---------------------------->   ... until all are there
//     <---------------------------- the segment, all events, all pidfds
//
// A connection that ends is not made again: its rank, or rank 0, says why.
class ShmSetup {
 public:
  explicit ShmSetup(const WorldSpec& spec) : spec_(spec) {}

  // Finds out whether this rank can share memory, and opens the endpoint to which members connect if it leads. In a
  // node of several ranks it stays open for connections of the kMessagePurpose.
  Status Open(std::string* endpoint);

  void Begin(TimePoint now, RendezvousClient* client);  // kSetUp
  void HandOut(RendezvousClient* client);               // kHandOut
  void Watch(PollSet* set) const;
  void Step(const PollSet& set, TimePoint now, RendezvousClient* client);
  // Why the leader cannot be reached, or "".
  std::string detail() const { return connector_ ? connector_->last_refusal() : ""; }

  // REQUIRES: the client is done.
  void MoveInto(World* world);
  // Called last, when the start has failed for this rank. For other ranks of its node it may have succeeded. When they
  // see that this process ends, they read in the segment which rank is to blame.
  void WriteAbortWord(const Status& why, int culprit);

 private:
  size_t IndexOf(int rank) const;
  void TakeHandles(int rank, RendezvousClient* client);
  void StepMember(const PollSet& set, TimePoint now, RendezvousClient* client);
  Status SendHandles();
  Status TakeShared();

  const WorldSpec& spec_;
  Acceptor acceptor_;
  std::vector<AuthenticatedPeer> arrived_;  // for messages
  Descriptor pidfd_;                        // of this process
  std::vector<int> ranks_;                  // of the node, once it is known; member m has rank ranks_[m]
  size_t member_ = 0;                       // the index of this rank in ranks_
  SharedSegment segment_;
  std::vector<Descriptor> events_, pidfds_;  // by member
  std::map<int, Descriptor> peers_;          // connections of members, by rank; they may come before the node is known
  std::optional<Connector> connector_;       // on a member, until the leader has admitted it
  Descriptor leader_;                        // on a member, from then on until the member has the segment
};

// Makes the data connections to the ranks of other nodes. The higher rank connects to the lower one, twice where there
// are early lanes; a link is made when both connections are.
class LinkSetup {
 public:
  explicit LinkSetup(const WorldSpec& spec) : spec_(spec) {}

  // Listens, before it is known whether there are other nodes. If there are, the endpoint stays open for connections of
  // the kMessagePurpose.
  Status Open(std::string* endpoint);
  void Begin(TimePoint now, RendezvousClient* client);  // kSetUp
  void Watch(PollSet* set) const;
  void Step(const PollSet& set, TimePoint now, RendezvousClient* client);
  // A rank that refuses connections and its reason, or "".
  std::string detail() const;

  // REQUIRES: the client is done.
  void MoveInto(World* world);

 private:
  using Connection = std::pair<int, std::string>;  // a rank, and the purpose of the connection

  void AdmitEarly(RendezvousClient* client);
  void Keep(const Connection& which, Descriptor descriptor, RendezvousClient* client);

  const WorldSpec& spec_;
  Acceptor acceptor_;
  std::vector<AuthenticatedPeer> arrived_;      // for messages
  std::map<Connection, Connector> connectors_;  // to lower ranks
  std::map<Connection, Descriptor> early_;      // of higher ranks that received PEERS before this rank
  std::map<Connection, Descriptor> made_;
};

}  // namespace farandole
