// Transport moves messages between this rank and others.
//
//   PostSend ----> PostReceive      a step of a schedule is one message (collectives/runner.h)
//
// There are two lanes to each peer. Messages of one never wait behind those of the other:
//
//   ordered   operations that all ranks have agreed on. Both ends post to each other in the same order. The payload
//             stays in the kernel until its receive is posted
//   early     sums that begin at submission, so a message may come before its receive is posted. Receives match by tag.
//             The receiver keeps early payloads, as far as the sender's credit reaches; what is beyond that is only
//             announced, and sent once the receive is posted
//
// Every message begins with a header. It says what the message belongs to and how its sender runs that operation, so
// two ranks that do not mean the same get an error, never wrong numbers. The next header of a lane is read even if no
// receive is posted.
//
// No call waits, so the holder of the ProgressLock never does. A transport belongs to one epoch, and the next epoch
// makes another one. The World owns it. One thread at a time uses it: the one that drives the progress loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/descriptor.h"
#include "common/status.h"
#include "transport/poll.h"

namespace farandole {

enum class Lane : uint64_t { kOrdered, kEarly };  // 64 bits, so that a MessageTag has no padding

// What a message belongs to, as its sender means it. Headers carry it as it lies in memory.
//
//              ordered lane                               early lane
//   id         the process set                            the name
//   serial     -                                          of the id's assignment
//   operation  counts the set's operations, from 1        its generation (GenerationOf)
//   channel    of the process set and the shard           -
struct MessageTag {
  int32_t id = 0;
  uint32_t serial = 0;
  uint64_t operation = 0;
  uint32_t channel = 0;
  uint32_t plan = 0;  // how the sender runs the operation (algorithms/plan.h)
  Lane lane = Lane::kOrdered;

  // True for the messages of one early operation.
  bool IsOf(const MessageTag& other) const { return serial == other.serial && operation == other.operation; }
};

// A message, as one of its ends means it.
struct Message {
  MessageTag tag;
  uint32_t part = 0;
  uint64_t size_bytes = 0;
};

// A message and what the receiver expected in its place.
struct Mismatch {
  Message theirs, ours;
};

// The layer above implements it. The transport calls it in Poll, and OnMismatch also in PostReceive and Begin.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  // An early message for which no receive is posted. Not *wanted: it is dropped. An error ends the connection.
  virtual Status OnArrival(int peer, const MessageTag& tag, bool* wanted) = 0;
  // See PostGoodbye.
  virtual void OnGoodbye(int peer, int left) = 0;
  // The two ranks do not run the same operation in the same way. The epoch must end.
  virtual void OnMismatch(int peer, const Mismatch& mismatch) = 0;
  // The early lane is broken. kPeerLost: the peer has ended it, and everything that it had sent has arrived.
  virtual void OnEnd(int peer, const Status& status) = 0;
};

// The kernel's statistics of the connections to a peer.
struct LinkFacts {
  int peer = 0;
  uint64_t sent_bytes = 0;  // which the peer's kernel has acknowledged
  uint64_t received_bytes = 0;
  uint64_t sending_us = 0;  // time with unacknowledged data, without the time in which the peer's window was closed
  uint64_t retransmits = 0;
  uint32_t round_trip_us = 0;  // smoothed, of the ordered lane's connection
};

class Transport {
 public:
  // All early payloads that this rank keeps take at most so many bytes.
  static constexpr size_t kEarlyBytes = 4 << 20;

  // A post that has ended. An error also ends the connection to the peer; kPeerLost: the peer closed or reset it.
  struct Completion {
    uint64_t context = 0;
    Status status;
  };

  Transport() = default;
  virtual ~Transport() = default;  // ends all posts at once
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Before the first post. REQUIRES: *sink outlives the use of the transport.
  virtual void Listen(MessageSink* sink) = 0;

  // A posted early receive may be overwritten by other messages before its own arrives. `part` numbers the messages of
  // the operation in this direction, and is equal on both ends. The memory belongs to the post until its completion.
  // REQUIRES: size_bytes > 0; the peer is connected; on the early lane, no part is used twice in an operation.
  virtual void PostSend(int peer, const MessageTag& tag, uint32_t part, const void* data, size_t size_bytes,
                        uint64_t context) = 0;
  virtual void PostReceive(int peer, const MessageTag& tag, uint32_t part, void* data, size_t size_bytes,
                           uint64_t context) = 0;
  // Moves what can be moved now, and appends completions; on the ordered lane, those of one peer, channel and direction
  // come in their order. Returns whether it moved or completed anything; then calling again may do more. A post on the
  // early lane never fails: the sink hears that the connection has ended, receives without data never complete, and
  // sends complete even if nothing is sent any more.
  virtual bool Poll(std::vector<Completion>* completions) = 0;
  // True while Poll reads all awaited sockets itself, so the caller need not ask the poller.
  virtual bool polls_sockets() const = 0;

  // This rank begins an operation of the ordered lane. The next message of a peer is a mismatch if it follows another
  // plan for this operation, or belongs to an earlier one, even if this rank posts no receive for it.
  virtual void Begin(const MessageTag& tag) = 0;
  // The process set is removed: it begins no further operation.
  virtual void ForgetSet(int32_t /*id*/) {}

  // ---- the early lane

  // True until its connection has ended.
  virtual bool CanSendEarly(int /*peer*/) const { return false; }
  // Ends the operation's posts: they do not complete any more, and their memory is not touched. Unsent data are copied.
  virtual void Cancel(const MessageTag& /*tag*/) {}
  // No operation of this id will want messages: drops those that are kept.
  virtual void DropEarly(uint32_t /*serial*/) {}
  // True when the peer has sent or announced its first message of the operation. REQUIRES: its receive is posted.
  virtual bool HasHeader(int /*peer*/, const MessageTag& /*tag*/) const { return false; }
  // Tells the peer, behind everything else on the lane, that `left`, which is this rank or shares its memory, leaves in
  // good order: this rank begins nothing more for an operation of that rank.
  virtual void PostGoodbye(int /*peer*/, int /*left*/) {}

  // ---- waiting and ending

  // Lets the poller watch for what Poll waits for, with tags of `tag` and a number in the low 32 bits.
  virtual Status Watch(Poller* poller, uint64_t tag) = 0;
  // The poller has reported a tag with this number.
  virtual void OnReady(uint32_t number) = 0;

  // True when the peer, which is connected, has closed its connections or lost them, even if unread data remain.
  virtual bool IsBroken(int peer) const = 0;

  // Appends the facts of each peer with a connection that the kernel counts for: of TCP.
  virtual void AppendLinkFacts(std::vector<LinkFacts>* /*facts*/) const {}

  // Cancels all posts. They do not complete any more, and later ones are dropped. is_quiet() becomes true in a Poll, or
  // is true at once, in at most a few seconds: no post touches memory any more.
  virtual void BeginQuiesce() = 0;
  virtual bool is_quiet() const = 0;
  // Ends the direction to the peers, after everything that was sent. The peers still receive that, then kPeerLost.
  virtual void EndSending() {}
};

// A connection to another rank: a stream socket, whose other end is authenticated (handshake.h).
struct PeerConnection {
  int peer = 0;
  Lane lane = Lane::kOrdered;
  Descriptor socket;
  std::string name;  // of the peer in errors, "rank 3 (host b, pid 4711)"
};

// The one transport there is: TCP; Unix sockets work, too. Buffer sizes are set before connect or listen. Each rank of
// a world of `world_size` may send a peer its part of Transport::kEarlyBytes; 0: as many ranks as have connections
// here.
std::unique_ptr<Transport> MakeTransport(std::vector<PeerConnection> connections, int world_size = 0);

}  // namespace farandole
