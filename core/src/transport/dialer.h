// A call to another rank: connects, proves, and tries again, every few milliseconds and then less often, while nobody
// listens there yet or the other end hangs up before it has proved itself (its listener may belong to an epoch that is
// just ending, or be crowded by strangers). Never blocks but to look a name up. One thread.
#pragma once

#include <optional>
#include <string>

#include "common/descriptor.h"
#include "transport/handshake.h"
#include "transport/poll_set.h"

namespace farandole {

class Dialer {
 public:
  Dialer(std::string endpoint, const Key& key, Hello mine, TimePoint now);

  void Watch(PollSet* set) const;
  // An error is final: what is there is not one of us, or the system refused.
  Status Step(TimePoint now);

  bool done() const { return handshake_ && handshake_->done(); }
  // REQUIRES: done().
  Descriptor Take() { return std::move(connection_); }
  const Hello& theirs() const { return handshake_->theirs(); }

  const std::string& endpoint() const { return endpoint_; }
  // Why there is no connection yet; empty while nothing was refused.
  const std::string& last_refusal() const { return last_refusal_; }

 private:
  Status Attempt(TimePoint now);
  void Retry(const std::string& reason, TimePoint now);

  std::string endpoint_;
  Key key_;
  Hello mine_;
  std::optional<Handshake> handshake_;
  Descriptor connection_;
  size_t attempts_ = 0;
  int hung_up_on_ = 0;  // times
  std::chrono::milliseconds pause_{0};
  TimePoint next_;  // when the next attempt begins, or this one is given up
  std::string last_refusal_;
};

}  // namespace farandole
