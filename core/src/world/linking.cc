#include "world/linking.h"

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

void Linking::Open(Applicant* applicant) {
  Descriptor listener;
  std::string endpoint;
  Status status = FRD_FAILPOINT_STATUS("link.listen");
  if (status.ok()) status = ListenForData(spec_.interface_address, &listener);
  if (status.ok()) status = BoundEndpoint(listener.get(), &endpoint);
  if (status.ok()) lobby_.Open(std::move(listener), spec_.key, {kData, static_cast<uint32_t>(spec_.rank), 0});
  applicant->OnListening(status, endpoint);
}

void Linking::Begin(TimePoint now, Applicant* applicant) {
  const auto call = [&](int peer, const char* purpose) {
    const Hello mine{purpose, static_cast<uint32_t>(spec_.rank), 0};
    calls_.emplace(Connection(peer, purpose), Dialer(applicant->endpoint_of(peer), spec_.key, mine, now));
  };
  for (int peer : applicant->links_to_open()) {
    call(peer, kData);
    if (HasPutStreams(applicant->layout())) call(peer, kPuts);
  }
  LetIn(applicant);
}

void Linking::Watch(PollSet* set) const {
  lobby_.Watch(set);
  for (const auto& [which, call] : calls_) call.Watch(set);
}

void Linking::Step(const PollSet& set, TimePoint now, Applicant* applicant) {
  std::vector<Guest> arrived;
  if (const Status status = lobby_.Step(set, now, &arrived); !status.ok()) {
    lobby_.Close();
    applicant->OnNoLink(spec_.rank, status.message());
  }
  for (Guest& guest : arrived) {
    const bool known = guest.hello.purpose == kData || guest.hello.purpose == kPuts;
    if (known && guest.hello.rank < static_cast<uint32_t>(spec_.size))
      waiting_[{static_cast<int>(guest.hello.rank), guest.hello.purpose}] = std::move(guest.connection);
  }
  LetIn(applicant);
  for (auto call = calls_.begin(); call != calls_.end();) {
    const Connection which = call->first;
    Status status = call->second.Step(now);
    const bool other =
        status.ok() && call->second.done() && call->second.theirs().rank != static_cast<uint32_t>(which.first);
    if (other) status = Internal("somebody else answers at " + call->second.endpoint());
    const bool over = !status.ok() || call->second.done();
    if (status.ok() && over) Keep(which, call->second.Take(), applicant);
    call = over ? calls_.erase(call) : std::next(call);
    if (!status.ok()) applicant->OnNoLink(which.first, status.message());
  }
}

void Linking::LetIn(Applicant* applicant) {
  for (auto guest = waiting_.begin(); guest != waiting_.end();) {
    if (!applicant->MayLink(guest->first.first)) {
      ++guest;
      continue;
    }
    Keep(guest->first, std::move(guest->second), applicant);
    guest = waiting_.erase(guest);
  }
}

void Linking::Keep(const Connection& which, Descriptor descriptor, Applicant* applicant) {
  made_[which] = std::move(descriptor);
  const int peer = which.first;
  const bool all =
      made_.count({peer, kData}) > 0 && (made_.count({peer, kPuts}) > 0 || !HasPutStreams(applicant->layout()));
  if (all) applicant->OnLink(peer);
}

std::string Linking::detail() const {
  for (const auto& [which, call] : calls_) {
    if (!call.last_refusal().empty()) return "rank " + std::to_string(which.first) + ": " + call.last_refusal();
  }
  return "";
}

void Linking::MoveInto(World* world) {
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
