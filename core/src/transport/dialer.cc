#include "transport/dialer.h"

#include <algorithm>

namespace farandole {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{2};
constexpr milliseconds kLongestPause{100};
constexpr milliseconds kLongestAttempt{5000};  // then the name is looked up again: a restarted host may have moved

}  // namespace

Dialer::Dialer(std::string endpoint, const Key& key, Hello mine, TimePoint now)
    : endpoint_(std::move(endpoint)), key_(key), mine_(std::move(mine)), next_(now) {}

void Dialer::Watch(PollSet* set) const {
  if (handshake_) {
    set->Add(connection_, handshake_->events());
    set->WakeAt(handshake_->limit());
  } else {
    set->Add(connection_, POLLOUT);
    set->WakeAt(next_);
  }
}

Status Dialer::Step(TimePoint now) {
  const Status status = Attempt(now);
  // Where the other end has ended nobody will be there when we come again; who does not know the key hangs up again.
  const bool may_have_ended = handshake_ && handshake_->hung_up_on() && ++hung_up_on_ == 1;
  if (status.code() != Code::kPeerLost && status.code() != Code::kDeadline && !may_have_ended) return status;
  Retry(status.message(), now);
  return Status::Ok();
}

Status Dialer::Attempt(TimePoint now) {
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

void Dialer::Retry(const std::string& reason, TimePoint now) {
  last_refusal_ = reason;
  connection_.Reset();
  handshake_.reset();
  next_ = now + pause_;
  pause_ = std::clamp(pause_ * 2, kFirstPause, kLongestPause);
}

}  // namespace farandole
