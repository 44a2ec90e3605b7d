#include "world/rendezvous/link_setup.h"

#include "common/failpoint.h"
#include "transport/tcp/tcp.h"

namespace farandole {
namespace {

constexpr const char* kData = "data";
constexpr const char* kPuts = "puts";

Status ListenForData(const std::string& address, Descriptor* listener) {
  const Status status = Listen("tcp:" + address + ":0", listener);
  if (status.ok()) return status;
  return {status.code(), status.message() + "; FARANDOLE_ADDRESS is " + address +
                             ", and must be an address of this host that the other machines reach: unset it or set it "
                             "to one that `ip address` lists"};
}

}  // namespace

void LinkSetup::Open(RendezvousClient* client) {
  Descriptor listener;
  std::string endpoint;
  Status status = FRD_FAILPOINT_STATUS("link.listen");
  if (status.ok()) status = ListenForData(spec_.interface_address, &listener);
  if (status.ok()) status = BoundEndpoint(listener.get(), &endpoint);
  if (status.ok()) acceptor_.Open(std::move(listener), spec_.key, {kData, static_cast<uint32_t>(spec_.rank), 0});
  client->OnListening(status, endpoint);
}

void LinkSetup::Begin(TimePoint now, RendezvousClient* client) {
  const auto call = [&](int peer, const char* purpose) {
    const Hello mine{purpose, static_cast<uint32_t>(spec_.rank), 0};
    connectors_.emplace(Connection(peer, purpose), Connector(client->endpoint_of(peer), spec_.key, mine, now));
  };
  for (int peer : client->links_to_open()) {
    call(peer, kData);
    if (HasPutStreams(client->layout())) call(peer, kPuts);
  }
  LetIn(client);
}

void LinkSetup::Watch(PollSet* set) const {
  acceptor_.Watch(set);
  for (const auto& [which, call] : connectors_) call.Watch(set);
}

void LinkSetup::Step(const PollSet& set, TimePoint now, RendezvousClient* client) {
  std::vector<AuthenticatedPeer> arrived;
  if (const Status status = acceptor_.Step(set, now, &arrived); !status.ok()) {
    acceptor_.Close();
    client->OnNoLink(spec_.rank, status.message());
  }
  for (AuthenticatedPeer& peer : arrived) {
    const bool known = peer.hello.purpose == kData || peer.hello.purpose == kPuts;
    if (known && peer.hello.rank < static_cast<uint32_t>(spec_.size))
      waiting_[{static_cast<int>(peer.hello.rank), peer.hello.purpose}] = std::move(peer.connection);
  }
  LetIn(client);
  for (auto call = connectors_.begin(); call != connectors_.end();) {
    const Connection which = call->first;
    Status status = call->second.Step(now);
    const bool other =
        status.ok() && call->second.done() && call->second.theirs().rank != static_cast<uint32_t>(which.first);
    if (other) status = Internal("somebody else answers at " + call->second.endpoint());
    const bool over = !status.ok() || call->second.done();
    if (status.ok() && over) Keep(which, call->second.Take(), client);
    call = over ? connectors_.erase(call) : std::next(call);
    if (!status.ok()) client->OnNoLink(which.first, status.message());
  }
}

void LinkSetup::LetIn(RendezvousClient* client) {
  for (auto peer = waiting_.begin(); peer != waiting_.end();) {
    if (!client->MayLink(peer->first.first)) {
      ++peer;
      continue;
    }
    Keep(peer->first, std::move(peer->second), client);
    peer = waiting_.erase(peer);
  }
}

void LinkSetup::Keep(const Connection& which, Descriptor descriptor, RendezvousClient* client) {
  made_[which] = std::move(descriptor);
  const int peer = which.first;
  const bool all =
      made_.count({peer, kData}) > 0 && (made_.count({peer, kPuts}) > 0 || !HasPutStreams(client->layout()));
  if (all) client->OnLink(peer);
}

std::string LinkSetup::detail() const {
  for (const auto& [which, call] : connectors_) {
    if (!call.last_refusal().empty()) return "rank " + std::to_string(which.first) + ": " + call.last_refusal();
  }
  return "";
}

void LinkSetup::MoveInto(World* world) {
  world->links.resize(static_cast<size_t>(world->size));
  world->puts.resize(static_cast<size_t>(world->size));
  for (auto& [which, connection] : made_) {
    const auto peer = static_cast<size_t>(which.first);
    if (which.second == kPuts) {
      world->puts[peer] = PutStream(std::move(connection));
    } else {
      world->links[peer] = std::make_unique<TcpLink>(std::move(connection), world->NameOf(which.first));
    }
  }
}

}  // namespace farandole
