// Makes the data connections to the ranks of other groups, as a RendezvousClient decides, and tells it the result. The
// higher rank connects to the lower one, twice where there are put streams; a link is made when both connections are.
// One thread.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "transport/connections.h"
#include "world/rendezvous/bootstrap.h"
#include "world/rendezvous/client.h"

namespace farandole {

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
