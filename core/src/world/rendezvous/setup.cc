#include "world/rendezvous/setup.h"

#include <algorithm>

#include "common/failpoint.h"
#include "common/sha256.h"
#include "transport/poll.h"
#include "transport/socket.h"
#include "transport/socket_io.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

// Purposes of connections, as the handshake names them.
constexpr const char* kSegment = "segment";
constexpr const char* kOrdered = "ordered";  // the lanes of transport.h
constexpr const char* kEarly = "early";

// Only ranks that hold the key pass descriptors, all at once, so a short blocking call is enough.
constexpr milliseconds kPassTimeout{2000};

Status ListenForData(const std::string& address, Descriptor* listener) {
  const Status status = Listen("tcp:" + address + ":0", listener);
  if (status.ok()) return status;
  return {status.code(), status.message() + "; FARANDOLE_ADDRESS is " + address +
                             ", and must be an address of this host that the other machines reach: unset it or set it "
                             "to one that `ip address` lists"};
}

// A rank whose start is over earlier may have sent messages by now. A handshake that is under way would expire before
// the first message of this rank, so its rank begins anew.
void GiveAcceptor(Acceptor acceptor, std::vector<AuthenticatedPeer>* arrived, World* world) {
  acceptor.DropPending();
  if (acceptor.open()) world->acceptors.push_back(std::move(acceptor));
  for (AuthenticatedPeer& peer : *arrived) world->arrived.push_back(std::move(peer));
  arrived->clear();
}

}  // namespace

// ---- ShmSetup

// All processes of the machine can see an abstract name, so the name is random and does not identify the job.
Status ShmSetup::Open(std::string* endpoint) {
  FRD_RETURN_IF_ERROR(FRD_FAILPOINT_STATUS("shm_setup.open"));
  FRD_RETURN_IF_ERROR(OpenOwnPidfd(&pidfd_));
  uint8_t name[16];
  FRD_RETURN_IF_ERROR(RandomBytes(name, sizeof(name)));
  std::string fresh = "unix:farandole-";
  for (uint8_t byte : name) {
    static constexpr char kHex[] = "0123456789abcdef";
    fresh += {kHex[byte >> 4], kHex[byte & 15]};
  }
  Descriptor listener;
  FRD_RETURN_IF_ERROR(Listen(fresh, &listener));
  acceptor_.Open(std::move(listener), spec_.key, {kSegment, static_cast<uint32_t>(spec_.rank), 0});
  *endpoint = fresh;
  return Status::Ok();
}

size_t ShmSetup::IndexOf(int rank) const {
  return static_cast<size_t>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
}

void ShmSetup::Begin(TimePoint now, RendezvousClient* client) {
  ranks_ = client->node();
  member_ = IndexOf(spec_.rank);
  events_.resize(ranks_.size());
  pidfds_.resize(ranks_.size());
  pidfds_[member_] = std::move(pidfd_);
  Status status = MakeEvent(&events_[member_]);
  if (status.ok() && member_ == 0)
    status = SharedSegment::Create(ShmNode::SegmentBytes(spec_.plan, ranks_.size()), &segment_);
  if (!status.ok()) return client->OnNotShared(status.message());
  if (ranks_.size() == 1) acceptor_.Close();
  if (ranks_.size() == 1) return client->OnShared();
  if (member_ == 0) return;
  const std::string& endpoint = client->peers()[static_cast<size_t>(ranks_[0])].segment_endpoint;
  connector_.emplace(endpoint, spec_.key, Hello{kSegment, static_cast<uint32_t>(spec_.rank), 0}, now);
}

void ShmSetup::Watch(PollSet* set) const {
  acceptor_.Watch(set);
  if (!ranks_.empty()) {
    for (const auto& [rank, connection] : peers_) set->Add(connection, POLLIN);
  }
  if (connector_) connector_->Watch(set);
  set->Add(leader_, POLLIN);
}

void ShmSetup::Step(const PollSet& set, TimePoint now, RendezvousClient* client) {
  std::vector<AuthenticatedPeer> arrived;
  if (const Status status = acceptor_.Step(set, now, &arrived); !status.ok()) {
    acceptor_.Close();
    client->OnListenerLost(status.message());
  }
  for (AuthenticatedPeer& peer : arrived) {
    if (peer.hello.purpose == kMessagePurpose) {
      arrived_.push_back(std::move(peer));
    } else if (peer.hello.purpose == kSegment && member_ == 0) {
      peers_[static_cast<int>(peer.hello.rank)] = std::move(peer.connection);
    }
  }
  std::vector<int> ready;
  for (const auto& [rank, connection] : peers_) {
    if (set.ready(connection)) ready.push_back(rank);
  }
  for (int rank : ready) TakeHandles(rank, client);
  StepMember(set, now, client);
}

// A member's handles are its event, by which other members wake it, and its pidfd, by which they see it die.
void ShmSetup::TakeHandles(int rank, RendezvousClient* client) {
  std::vector<Descriptor> handles;
  const bool is_expected = client->is_absent(rank);  // else the member has closed the connection, or is none
  const Status received =
      is_expected ? RecvDescriptors(peers_[rank].get(), 2, &handles, After(kPassTimeout)) : Status::Ok();
  if (!is_expected || !received.ok()) {
    peers_.erase(rank);
    const bool is_of_the_peer = received.code() == Code::kPeerLost || received.code() == Code::kDeadline;
    if (!received.ok() && !is_of_the_peer) client->OnNotShared(received.message());
    return;
  }
  events_[IndexOf(rank)] = std::move(handles[0]);
  pidfds_[IndexOf(rank)] = std::move(handles[1]);
  client->OnMember(rank);
}

// Every member gets the same descriptors, in the order of TakeShared: the segment, all events, all pidfds.
void ShmSetup::HandOut(RendezvousClient* client) {
  const Status failed = FRD_FAILPOINT_STATUS("shm_setup.hand_out");
  if (!failed.ok()) return client->OnNotShared(failed.message());
  std::vector<int> all{segment_.descriptor()};
  for (const Descriptor& event : events_) all.push_back(event.get());
  for (const Descriptor& pidfd : pidfds_) all.push_back(pidfd.get());
  for (size_t m = 1; m < ranks_.size(); ++m) {
    const auto peer = peers_.find(ranks_[m]);
    if (peer == peers_.end()) continue;
    const Status sent = SendDescriptors(peer->second.get(), all, After(kPassTimeout));
    if (!sent.ok() && sent.code() != Code::kPeerLost) return client->OnNotShared(sent.message());
  }
  // The connections stay open until the start is over, since a member that has not read yet would lose the descriptors.
  client->OnShared();
}

void ShmSetup::StepMember(const PollSet& set, TimePoint now, RendezvousClient* client) {
  Status status;
  if (connector_) {
    status = connector_->Step(now);
    if (status.ok() && connector_->done()) status = SendHandles();
  } else if (leader_.valid() && set.ready(leader_)) {
    status = TakeShared();
    leader_.Reset();
    if (status.ok()) client->OnShared();
  }
  if (status.ok()) return;
  leader_.Reset();
  connector_.reset();
  if (status.code() != Code::kPeerLost) client->OnNotShared(status.message());
}

Status ShmSetup::SendHandles() {
  FRD_RETURN_IF_ERROR(FRD_FAILPOINT_STATUS("shm_setup.enter"));
  leader_ = connector_->Take();
  connector_.reset();
  const std::vector<int> mine{events_[member_].get(), pidfds_[member_].get()};
  return SendDescriptors(leader_.get(), mine, After(kPassTimeout));
}

Status ShmSetup::TakeShared() {
  std::vector<Descriptor> all;
  FRD_RETURN_IF_ERROR(RecvDescriptors(leader_.get(), 1 + 2 * ranks_.size(), &all, After(kPassTimeout)));
  for (size_t m = 0; m < ranks_.size(); ++m) {
    events_[m] = std::move(all[1 + m]);
    pidfds_[m] = std::move(all[1 + ranks_.size() + m]);
  }
  return SharedSegment::Attach(std::move(all[0]), ShmNode::SegmentBytes(spec_.plan, ranks_.size()), &segment_);
}

void ShmSetup::WriteAbortWord(const Status& why, int culprit) {
  if (segment_.size_bytes() == 0 || ranks_.size() == 1) return;
  ShmNode node(std::move(segment_), std::move(events_), spec_.plan, static_cast<int>(member_));
  node.abort_word().Set(why.code(), culprit, why.message());
}

void ShmSetup::MoveInto(World* world) {
  for (size_t m = 0; m < ranks_.size(); ++m) {
    if (m != member_) world->pidfds[static_cast<size_t>(ranks_[m])] = std::move(pidfds_[m]);
  }
  GiveAcceptor(std::move(acceptor_), &arrived_, world);
  segment_.CloseDescriptor();
  world->node.emplace(std::move(segment_), std::move(events_), spec_.plan, static_cast<int>(member_));
}

// ---- LinkSetup

// Port 0 lets the kernel choose; the PeerInfo tells the endpoint to the others.
Status LinkSetup::Open(std::string* endpoint) {
  FRD_RETURN_IF_ERROR(FRD_FAILPOINT_STATUS("link.listen"));
  Descriptor listener;
  FRD_RETURN_IF_ERROR(ListenForData(spec_.interface_address, &listener));
  FRD_RETURN_IF_ERROR(BoundEndpoint(listener.get(), endpoint));
  acceptor_.Open(std::move(listener), spec_.key, {kOrdered, static_cast<uint32_t>(spec_.rank), 0});
  return Status::Ok();
}

void LinkSetup::Begin(TimePoint now, RendezvousClient* client) {
  if (client->layout().node_count() == 1) return acceptor_.Close();
  const auto connect = [&](int peer, const char* purpose) {
    const std::string& endpoint = client->peers()[static_cast<size_t>(peer)].data_endpoint;
    const Hello mine{purpose, static_cast<uint32_t>(spec_.rank), 0};
    connectors_.emplace(Connection(peer, purpose), Connector(endpoint, spec_.key, mine, now));
  };
  for (int peer : client->ToOpen()) {
    connect(peer, kOrdered);
    if (HasEarlyLanes(client->layout())) connect(peer, kEarly);
  }
  AdmitEarly(client);
}

void LinkSetup::Watch(PollSet* set) const {
  acceptor_.Watch(set);
  for (const auto& [which, connector] : connectors_) connector.Watch(set);
}

void LinkSetup::Step(const PollSet& set, TimePoint now, RendezvousClient* client) {
  std::vector<AuthenticatedPeer> arrived;
  if (const Status status = acceptor_.Step(set, now, &arrived); !status.ok()) {
    acceptor_.Close();
    client->OnListenerLost(status.message());
  }
  for (AuthenticatedPeer& peer : arrived) {
    if (peer.hello.purpose == kMessagePurpose) {
      arrived_.push_back(std::move(peer));
      continue;
    }
    const bool known = peer.hello.purpose == kOrdered || peer.hello.purpose == kEarly;
    if (known && peer.hello.rank < static_cast<uint32_t>(spec_.size))
      early_[{static_cast<int>(peer.hello.rank), peer.hello.purpose}] = std::move(peer.connection);
  }
  AdmitEarly(client);
  for (auto each = connectors_.begin(); each != connectors_.end();) {
    const Connection which = each->first;
    Connector& connector = each->second;
    Status status = connector.Step(now);
    // The port may belong to another rank of this job by now, which has the key, too.
    const bool other = status.ok() && connector.done() && connector.theirs().rank != static_cast<uint32_t>(which.first);
    if (other) status = Internal("another rank answers at " + connector.endpoint());
    const bool over = !status.ok() || connector.done();
    if (status.ok() && over) Keep(which, connector.Take(), client);
    each = over ? connectors_.erase(each) : std::next(each);
    if (!status.ok()) client->OnNoLink(which.first, status.message());
  }
}

// A rank that receives PEERS earlier connects earlier. Its connections wait in early_ until this rank has PEERS, too.
void LinkSetup::AdmitEarly(RendezvousClient* client) {
  for (auto peer = early_.begin(); peer != early_.end();) {
    if (!client->MayLink(peer->first.first)) {
      ++peer;
      continue;
    }
    Keep(peer->first, std::move(peer->second), client);
    peer = early_.erase(peer);
  }
}

void LinkSetup::Keep(const Connection& which, Descriptor descriptor, RendezvousClient* client) {
  made_[which] = std::move(descriptor);
  const int peer = which.first;
  const bool all =
      made_.count({peer, kOrdered}) > 0 && (made_.count({peer, kEarly}) > 0 || !HasEarlyLanes(client->layout()));
  if (all) client->OnLink(peer);
}

std::string LinkSetup::detail() const {
  for (const auto& [which, connector] : connectors_) {
    if (connector.last_refusal().empty()) continue;
    return "rank " + std::to_string(which.first) + ": " + connector.last_refusal();
  }
  return "";
}

void LinkSetup::MoveInto(World* world) {
  std::vector<PeerConnection> connections;
  for (auto& [which, connection] : made_) {
    connections.push_back({which.first, which.second == kEarly ? Lane::kEarly : Lane::kOrdered, std::move(connection),
                           world->NameOf(which.first)});
  }
  world->transport = MakeTransport(std::move(connections), world->size);
  GiveAcceptor(std::move(acceptor_), &arrived_, world);
}

}  // namespace farandole
