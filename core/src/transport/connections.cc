#include "transport/connections.h"

#include <algorithm>

#include "common/log.h"
#include "transport/socket.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

// The most connections that one step accepts, so that a flood of strangers does not keep the loop from its other work.
constexpr int kAcceptedPerStep = 64;

constexpr milliseconds kFirstPause{2};
constexpr milliseconds kLongestPause{100};
// After this time the attempt ends and the name is looked up again, since a restarted host may have a new address.
constexpr milliseconds kLongestAttempt{5000};

bool IsPowerOfTwo(size_t number) { return (number & (number - 1)) == 0; }

}  // namespace

// ---- Acceptor

void Acceptor::Open(Descriptor listener, const Key& key, Hello mine) {
  listener_ = std::move(listener);
  if (!BoundEndpoint(listener_.get(), &endpoint_).ok()) endpoint_.clear();
  key_ = key;
  mine_ = std::move(mine);
}

void Acceptor::Close() {
  pending_.clear();
  listener_.Reset();
}

void Acceptor::Watch(PollSet* set) const {
  set->Add(listener_, POLLIN);
  for (const Pending& each : pending_) {
    set->Add(each.connection, each.handshake.events());
    set->WakeAt(each.handshake.limit());
  }
}

Status Acceptor::Step(const PollSet& set, TimePoint now, std::vector<AuthenticatedPeer>* peers) {
  if (!open()) return Status::Ok();
  const bool accepts = set.ready(listener_);
  for (auto each = pending_.begin(); each != pending_.end();) {
    const bool due = set.ready(each->connection) || now >= each->handshake.limit();
    const Status moved = due ? each->handshake.Step(each->connection.get(), now) : Status::Ok();
    if (!moved.ok()) Reject(moved.message());
    // A finished handshake hands over its connection, so the next line erases its entry.
    if (each->handshake.done()) peers->push_back({std::move(each->connection), each->handshake.theirs()});
    each = moved.ok() && each->connection.valid() ? std::next(each) : pending_.erase(each);
  }
  return accepts ? AcceptAll(now) : Status::Ok();
}

Status Acceptor::AcceptAll(TimePoint now) {
  for (int count = 0; count < kAcceptedPerStep; ++count) {
    Descriptor connection;
    const Status accepted = Accept(listener_.get(), now, &connection);
    if (accepted.code() == Code::kDeadline) break;
    if (accepted.code() == Code::kMismatch) {
      Reject(accepted.message());
      continue;
    }
    if (!accepted.ok() && pending_.empty()) return accepted;
    // The list is full, or this process may open no more descriptors: closing the oldest pending one makes room.
    if (!accepted.ok() || pending_.size() == kMaxPending) {
      pending_.pop_front();
      Reject("it had not finished its handshake when newer connections needed its place");
    }
    if (accepted.ok()) {
      pending_.push_back({std::move(connection), Handshake(Handshake::Side::kServer, key_, mine_, now)});
    }
  }
  return Status::Ok();
}

// Logs only connections number 1, 2, 4, 8, ..., so that a flood of strangers does not fill the log.
void Acceptor::Reject(const std::string& reason) {
  last_reason_ = reason;
  if (!IsPowerOfTwo(++turned_away_)) return;
  const std::string count = turned_away_ == 1 ? "" : " (" + std::to_string(turned_away_) + " so far)";
  Log(LogLevel::kWarning, "turned a connection away", AtEndpoint(endpoint_), count, ": ", reason);
}

// ---- Connector

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
  // If a server closes the connection after our proof, it either lacks the key or has just ended. A server that has
  // ended does not answer the next attempt. A server that lacks the key hangs up again, and then the error is final.
  const bool may_have_ended = handshake_ && handshake_->closed_after_proof() && ++closed_after_proof_ == 1;
  if (status.code() != Code::kPeerLost && status.code() != Code::kDeadline && !may_have_ended) return status;
  last_refusal_ = status.message();
  finds_nobody_ = !handshake_ && status.code() == Code::kPeerLost;
  connection_.Reset();
  handshake_.reset();
  next_ = now + pause_;
  pause_ = std::clamp(pause_ * 2, kFirstPause, kLongestPause);
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
      return now < next_ ? Status::Ok() : Status(Code::kDeadline, "no answer", AtEndpoint(endpoint_));
    FRD_RETURN_IF_ERROR(EndConnect(endpoint_, connection_.get()));
    handshake_.emplace(Handshake::Side::kClient, key_, mine_, now);
    finds_nobody_ = false;
  }
  return handshake_->Step(connection_.get(), now);
}

}  // namespace farandole
