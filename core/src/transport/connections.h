// Both ends of a connection that has still to prove that it belongs to the job. An Acceptor makes many handshakes at
// once, so that a stranger who says nothing keeps nobody else waiting.
//
//   Acceptor   listener -> [ handshake | handshake | ... at most kSeats ] -> AuthenticatedPeer, who holds the key
//
// A stranger costs one descriptor and some hundred bytes, for kHandshakeTimeout at most. When all seats are taken, the
// oldest handshake is closed; a rank of the job whose handshake that was retries.
//
//   Connector   connects to another rank and proves that it belongs to the job
//
// It retries, every few milliseconds and then less often, while nobody listens there yet or the other end hangs up
// before it has proved itself (its listener may belong to an epoch that is just ending, or be crowded by strangers). It
// blocks only to look a name up. One thread.
#pragma once

#include <list>
#include <optional>
#include <string>
#include <vector>

#include "common/descriptor.h"
#include "transport/handshake.h"
#include "transport/poll.h"

namespace farandole {

struct AuthenticatedPeer {
  Descriptor connection;
  Hello hello;
};

class Acceptor {
 public:
  static constexpr size_t kSeats = 128;

  void Open(Descriptor listener, const Key& key, Hello mine);
  // Strangers and those who wait in the listener's queue are closed.
  void Close();
  bool open() const { return listener_.valid(); }
  size_t seated() const { return seats_.size(); }

  void Watch(PollSet* set) const;
  // Appends those who have proved themselves. An error means the listener itself.
  Status Step(const PollSet& set, TimePoint now, std::vector<AuthenticatedPeer>* peers);

  // How many were turned away, and why the last one was: a rank that is missed may be among them.
  size_t turned_away() const { return turned_away_; }
  const std::string& last_reason() const { return last_reason_; }
  void TurnAway(const std::string& reason);

 private:
  struct Seat {
    Descriptor connection;
    Handshake handshake;
  };

  Status AcceptAll(TimePoint now);
  // False when its connection is of no further use.
  bool Advance(Seat* seat, TimePoint now);

  Descriptor listener_;
  std::string endpoint_;
  Key key_{};
  Hello mine_;
  std::list<Seat> seats_;  // in order of arrival
  size_t turned_away_ = 0;
  std::string last_reason_;
};

class Connector {
 public:
  Connector(std::string endpoint, const Key& key, Hello mine, TimePoint now);

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
