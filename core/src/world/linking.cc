#include "world/linking.h"

#include "common/failpoint.h"
#include "transport/tcp_link.h"

namespace farandole {
namespace {

constexpr const char* kPurpose = "data";

}  // namespace

void Linking::Open(Applicant* applicant) {
  Descriptor listener;
  std::string endpoint;
  Status status = FRD_FAILPOINT_STATUS("link.listen");
  if (status.ok()) status = Listen("tcp:" + spec_.interface_address + ":0", &listener);
  if (status.ok()) status = BoundEndpoint(listener.get(), &endpoint);
  if (status.ok()) lobby_.Open(std::move(listener), spec_.key, {kPurpose, static_cast<uint32_t>(spec_.rank), 0});
  applicant->OnListening(status, endpoint);
}

void Linking::Begin(TimePoint now, Applicant* applicant) {
  for (int peer : applicant->links_to_open()) {
    const Hello mine{kPurpose, static_cast<uint32_t>(spec_.rank), 0};
    calls_.emplace(peer, Dialer(applicant->endpoint_of(peer), spec_.key, mine, now));
  }
  LetIn(applicant);
}

void Linking::Watch(PollSet* set) const {
  lobby_.Watch(set);
  for (const auto& [peer, call] : calls_) call.Watch(set);
}

void Linking::Step(const PollSet& set, TimePoint now, Applicant* applicant) {
  std::vector<Guest> arrived;
  if (const Status status = lobby_.Step(set, now, &arrived); !status.ok()) {
    lobby_.Close();
    applicant->OnNoLink(spec_.rank, status.message());
  }
  for (Guest& guest : arrived) {
    const bool welcome = guest.hello.purpose == kPurpose && guest.hello.rank < static_cast<uint32_t>(spec_.size);
    if (welcome) waiting_[static_cast<int>(guest.hello.rank)] = std::move(guest.connection);
  }
  LetIn(applicant);
  for (auto call = calls_.begin(); call != calls_.end();) {
    const int peer = call->first;
    Status status = call->second.Step(now);
    const bool other = status.ok() && call->second.done() && call->second.theirs().rank != static_cast<uint32_t>(peer);
    if (other) status = Internal("somebody else answers at " + call->second.endpoint());
    const bool over = !status.ok() || call->second.done();
    if (status.ok() && over) links_[peer] = call->second.Take();
    call = over ? calls_.erase(call) : std::next(call);
    if (!status.ok()) {
      applicant->OnNoLink(peer, status.message());
    } else if (over) {
      applicant->OnLink(peer);
    }
  }
}

void Linking::LetIn(Applicant* applicant) {
  for (auto guest = waiting_.begin(); guest != waiting_.end();) {
    const int peer = guest->first;
    if (!applicant->MayLink(peer)) {
      ++guest;
      continue;
    }
    links_[peer] = std::move(guest->second);
    guest = waiting_.erase(guest);
    applicant->OnLink(peer);
  }
}

std::string Linking::detail() const {
  for (const auto& [peer, call] : calls_) {
    if (!call.last_refusal().empty()) return "rank " + std::to_string(peer) + " at " + call.last_refusal();
  }
  return "";
}

void Linking::MoveInto(World* world) {
  world->links.resize(static_cast<size_t>(world->size));
  for (auto& [peer, connection] : links_) {
    world->links[static_cast<size_t>(peer)] = std::make_unique<TcpLink>(std::move(connection), world->NameOf(peer));
  }
}

}  // namespace farandole
