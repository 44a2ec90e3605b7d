// The two ends of a new connection, on which the peers have not yet proved that they belong to the job.
//
//   Acceptor   listener -> [ handshake | handshake | ... at most kMaxPending ] -> AuthenticatedPeer, which has the key
//
// An Acceptor runs many handshakes at once, so a silent stranger delays no rank. A stranger costs one descriptor and a
// few hundred bytes, for at most kHandshakeTimeout. When kMaxPending handshakes are under way, the Acceptor closes the
// oldest one; if that peer is a rank, it retries.
//
//   Connector   connects to another rank and proves that it belongs to the job
//
// A Connector retries while nobody listens at the endpoint. It also retries when the other end hangs up before proving
// that it holds the key: the listener may belong to an epoch that is just ending, or may have closed this connection to
// make room. The pauses grow from milliseconds to a tenth of a second. A Connector blocks only to look up a name.
//
// The start of a job (world/rendezvous) owns both. One thread at a time uses an object.
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
  static constexpr size_t kMaxPending = 128;

  // Takes over the listener. Peers must prove that they hold `key`, and receive `mine` as this rank's hello.
  void Open(Descriptor listener, const Key& key, Hello mine);
  // Closes the pending connections and those in the listener's queue.
  void Close();
  // Closes the pending connections; their ranks retry. For an owner that will not call Step for a while.
  void DropPending() { pending_.clear(); }
  bool open() const { return listener_.valid(); }
  size_t pending() const { return pending_.size(); }

  void Watch(PollSet* set) const;
  // Appends the peers that have proved that they hold the key. Returns an error only if the listener itself fails.
  Status Step(const PollSet& set, TimePoint now, std::vector<AuthenticatedPeer>* peers);

  // The number of connections that were turned away, and the reason for the last one. A missing rank may be among them.
  size_t turned_away() const { return turned_away_; }
  const std::string& last_reason() const { return last_reason_; }
  // Counts and logs a connection that the caller or this Acceptor closes for this reason.
  void Reject(const std::string& reason);

 private:
  struct Pending {
    Descriptor connection;
    Handshake handshake;
  };

  Status AcceptAll(TimePoint now);

  Descriptor listener_;
  std::string endpoint_;
  Key key_{};
  Hello mine_;
  std::list<Pending> pending_;  // in order of arrival
  size_t turned_away_ = 0;
  std::string last_reason_;
};

class Connector {
 public:
  Connector(std::string endpoint, const Key& key, Hello mine, TimePoint now);

  void Watch(PollSet* set) const;
  // Returns an error if retrying is pointless: the other end is not a rank of this job, or the system refused.
  Status Step(TimePoint now);

  bool done() const { return handshake_ && handshake_->done(); }
  // REQUIRES: done().
  Descriptor Take() { return std::move(connection_); }
  const Hello& theirs() const { return handshake_->theirs(); }

  const std::string& endpoint() const { return endpoint_; }
  // Why the last attempt failed; empty before the first failure.
  const std::string& last_refusal() const { return last_refusal_; }
  // True if nobody listened at the last attempt. A listener that answers slowly or hangs up counts as listening.
  bool finds_nobody() const { return finds_nobody_; }
  // The other end hung up after our proof.
  bool was_closed_after_proof() const { return closed_after_proof_ > 0; }

 private:
  // Continues the current attempt, or begins the next one when it is due.
  Status Attempt(TimePoint now);

  std::string endpoint_;
  Key key_;
  Hello mine_;
  std::optional<Handshake> handshake_;
  Descriptor connection_;
  size_t attempts_ = 0;
  int closed_after_proof_ = 0;  // how often the other end closed the connection after our proof
  std::chrono::milliseconds pause_{0};
  TimePoint next_;  // between attempts: when the next one begins; during an attempt: when it fails
  std::string last_refusal_;
  bool finds_nobody_ = false;
};

}  // namespace farandole
