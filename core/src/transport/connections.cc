#include "transport/connections.h"

#include <algorithm>

#include "common/log.h"
#include "transport/socket.h"

namespace farandole {
namespace {

constexpr int kAcceptedPerStep = 64;

bool IsPowerOfTwo(size_t number) { return (number & (number - 1)) == 0; }

}  // namespace

void Acceptor::Open(Descriptor listener, const Key& key, Hello mine) {
  listener_ = std::move(listener);
  if (!BoundEndpoint(listener_.get(), &endpoint_).ok()) endpoint_.clear();
  key_ = key;
  mine_ = std::move(mine);
}

void Acceptor::Close() {
  seats_.clear();
  listener_.Reset();
}

void Acceptor::Watch(PollSet* set) const {
  set->Add(listener_, POLLIN);
  for (const Seat& seat : seats_) {
    set->Add(seat.connection, seat.handshake.events());
    set->WakeAt(seat.handshake.limit());
  }
}

Status Acceptor::Step(const PollSet& set, TimePoint now, std::vector<AuthenticatedPeer>* peers) {
  if (!open()) return Status::Ok();
  const bool knocked = set.ready(listener_);
  for (auto seat = seats_.begin(); seat != seats_.end();) {
    const bool due = set.ready(seat->connection) || now >= seat->handshake.limit();
    const bool stays = !due || Advance(&*seat, now);
    if (stays && seat->handshake.done()) peers->push_back({std::move(seat->connection), seat->handshake.theirs()});
    seat = stays && seat->connection.valid() ? std::next(seat) : seats_.erase(seat);
  }
  return knocked ? AcceptAll(now) : Status::Ok();
}

bool Acceptor::Advance(Seat* seat, TimePoint now) {
  const Status moved = seat->handshake.Step(seat->connection.get(), now);
  if (!moved.ok()) TurnAway(moved.message());
  return moved.ok();
}

Status Acceptor::AcceptAll(TimePoint now) {
  for (int count = 0; count < kAcceptedPerStep; ++count) {
    Descriptor connection;
    const Status accepted = Accept(listener_.get(), now, &connection);
    if (accepted.code() == Code::kDeadline) break;
    if (accepted.code() == Code::kMismatch) {
      TurnAway(accepted.message());
      continue;
    }
    if (!accepted.ok() && seats_.empty()) return accepted;
    // No room, here or in this process: strangers make it first.
    if (!accepted.ok() || seats_.size() == kSeats) {
      seats_.pop_front();
      TurnAway("it had not proved itself when others needed its place");
    }
    if (accepted.ok()) seats_.push_back({std::move(connection), Handshake(Handshake::Side::kServer, key_, mine_, now)});
  }
  return Status::Ok();
}

// A flood of strangers shall not be a flood of lines.
void Acceptor::TurnAway(const std::string& reason) {
  last_reason_ = reason;
  if (!IsPowerOfTwo(++turned_away_)) return;
  const std::string count = turned_away_ == 1 ? "" : " (" + std::to_string(turned_away_) + " so far)";
  Log(LogLevel::kWarning, "turned a connection away" + AtEndpoint(endpoint_) + count + ": " + reason);
}

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{2};
constexpr milliseconds kLongestPause{100};
constexpr milliseconds kLongestAttempt{5000};  // then the name is looked up again: a restarted host may have moved

}  // namespace

Connector::Connector(std::string endpoint, const Key& key, Hello mine, TimePoint now)
    : endpoint_(std::move(endpoint)), key_(key), mine_(std::move(mine)), next_(now) {}

void Connector::Watch(PollSet* set) const {
  if (handshake_) {
    set->Add(connection_, handshake_->events());
    set->WakeAt(handshake_->limit());
  } else {
    set->Add(connection_, POLLOUT);
    set->WakeAt(next_);
  }
}

Status Connector::Step(TimePoint now) {
  const Status status = Attempt(now);
  // Where the other end has ended nobody will be there when we come again; who does not know the key hangs up again.
  const bool may_have_ended = handshake_ && handshake_->hung_up_on() && ++hung_up_on_ == 1;
  if (status.code() != Code::kPeerLost && status.code() != Code::kDeadline && !may_have_ended) return status;
  Retry(status.message(), now);
  return Status::Ok();
}

Status Connector::Attempt(TimePoint now) {
  if (!connection_.valid()) {
    if (now < next_) return Status::Ok();
    next_ = now + kLongestAttempt;
    FRD_RETURN_IF_ERROR(BeginConnect(endpoint_, attempts_++, &connection_));
  }
  if (!handshake_) {
    pollfd entry{connection_.get(), POLLOUT, 0};
    if (poll(&entry, 1, 0) <= 0)
      return now < next_ ? Status::Ok() : Status(Code::kDeadline, "no answer" + AtEndpoint(endpoint_));
    FRD_RETURN_IF_ERROR(EndConnect(endpoint_, connection_.get()));
    handshake_.emplace(Handshake::Side::kClient, key_, mine_, now);
  }
  return handshake_->Step(connection_.get(), now);
}

void Connector::Retry(const std::string& reason, TimePoint now) {
  last_refusal_ = reason;
  connection_.Reset();
  handshake_.reset();
  next_ = now + pause_;
  pause_ = std::clamp(pause_ * 2, kFirstPause, kLongestPause);
}

}  // namespace farandole
