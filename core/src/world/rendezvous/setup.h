// Shares a memory segment of the leader among the ranks of a group, as a RendezvousClient decides, and tells it the
// result.
//
//   member                                               leader
//     connects to the endpoint in the leader's PeerInfo    admits the ranks that its client names
//     its event, its pidfd ---------------------------->   ... until all are there
//     <---------------------------- the segment, all events, all pidfds
//
// The leader refuses a member that is in another round than itself; the member then retries. One thread.
//
// Makes the data connections to the ranks of other groups, as a RendezvousClient decides, and tells it the result. The
// higher rank connects to the lower one, twice where there are put streams; a link is made when both connections are.
// One thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/connections.h"
#include "world/rendezvous/bootstrap.h"
#include "world/rendezvous/client.h"

namespace farandole {

class ShmSetup {
 public:
  explicit ShmSetup(const WorldSpec& spec) : spec_(spec) {}

  // Where members would come; empty when this machine does not let us listen.
  std::string Open();

  void Begin(TimePoint now, RendezvousClient* client);  // kMeet
  void HandOut(RendezvousClient* client);               // kHandOut
  void Watch(PollSet* set) const;
  void Step(const PollSet& set, TimePoint now, RendezvousClient* client);
  // Why the leader cannot be reached, if so.
  std::string detail() const { return connector_ ? connector_->last_refusal() : ""; }

  // REQUIRES: the client is done.
  void MoveInto(World* world);
  // The start has failed for this rank. Others of its group may be on their way already: they find here because of whom
  // when they see that this process ends. The last call.
  void TellGroup(const Status& why, int culprit);

 private:
  void LetIn(AuthenticatedPeer peer, RendezvousClient* client);
  void TakeHandles(int rank, RendezvousClient* client);
  void StepMember(const PollSet& set, TimePoint now, RendezvousClient* client);
  Status Enter();
  Status TakeShared();
  Hello MyHello() const;

  const WorldSpec& spec_;
  Acceptor acceptor_;
  std::vector<int> ranks_;
  size_t member_ = 0;
  int round_ = 0;
  SharedSegment segment_;
  std::vector<Descriptor> events_, pidfds_;  // by member
  std::map<int, Descriptor> peers_;          // of the leader, by rank
  std::optional<Connector> connector_;       // of a member
  Descriptor leader_;
};

class LinkSetup {
 public:
  explicit LinkSetup(const WorldSpec& spec) : spec_(spec) {}

  void Open(RendezvousClient* client);                  // kListen
  void Begin(TimePoint now, RendezvousClient* client);  // kLink
  void Watch(PollSet* set) const;
  void Step(const PollSet& set, TimePoint now, RendezvousClient* client);
  // Which rank refuses what, if so.
  std::string detail() const;

  // REQUIRES: the client is done.
  void MoveInto(World* world);

 private:
  using Connection = std::pair<int, std::string>;  // a rank, and what it is for

  void LetIn(RendezvousClient* client);
  void Keep(const Connection& which, Descriptor descriptor, RendezvousClient* client);

  const WorldSpec& spec_;
  Acceptor acceptor_;
  std::map<Connection, Connector> connectors_;  // to lower ranks
  std::map<Connection, Descriptor> waiting_;  // higher ranks that were told earlier than this one that links are wanted
  std::map<Connection, Descriptor> made_;
};

}  // namespace farandole
