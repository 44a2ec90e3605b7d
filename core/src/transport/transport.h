// Transport moves data between this rank and others: posts, and completions when they are done.
//
//   PostSend ----> PostReceive   matched by peer, channel and order. A step of a schedule is one post (runner.h)
//   PostPut  ----> PutSink       data for which the peer has posted nothing: a head says where they belong (eager.h)
//   Poll, PollPuts               move what can be moved now, and tell what is complete
//   BeginQuiesce                 cancels all posts; once is_quiet(), no post touches memory
//
// No call waits, so the holder of the ProgressLock never does. A transport belongs to one epoch, and the next epoch
// makes another one. The World owns it. One thread at a time uses it: the one that drives the progress loop.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/descriptor.h"
#include "common/status.h"
#include "transport/poll.h"

namespace farandole {

struct Slice {
  std::byte* data = nullptr;
  size_t size_bytes = 0;
};

inline constexpr size_t kPutHeadBytes = 64;
using PutHead = std::array<uint8_t, kPutHeadBytes>;

// The layer above implements it, since that layer knows where the data that a peer puts belong.
class PutSink {
 public:
  virtual ~PutSink() = default;
  // Memory that may receive the next data in the same system call as their head. If OnHead then names this memory, the
  // data are not copied. In any case the memory is overwritten.
  virtual Slice Expected(int peer) = 0;
  // Says where the `*size_bytes` bytes behind the head go; null: they are dropped. Its error ends the connection.
  virtual Status OnHead(int peer, const PutHead& head, std::byte** to, size_t* size_bytes) = 0;
  // `size_bytes` more bytes of the data have arrived.
  virtual void OnData(int peer, size_t size_bytes) = 0;
  // The connection is broken. kPeerLost: the peer has ended it, and everything that it had put has arrived.
  virtual void OnEnd(int peer, const Status& status) = 0;
};

// How the connections to a peer have done so far, as the kernel counts.
struct LinkFacts {
  int peer = 0;
  uint64_t sent_bytes = 0;  // which the peer's kernel has acknowledged
  uint64_t received_bytes = 0;
  uint64_t sending_us = 0;  // the time with data on their way, but for that in which the peer did not read them
  uint64_t retransmits = 0;
  uint32_t round_trip_us = 0;  // smoothed, of the connection for posts
};

class Transport {
 public:
  // A post that is over. After an error the connection to the peer is, too; kPeerLost: the peer closed or reset it.
  struct Completion {
    uint64_t context = 0;
    Status status;
  };

  Transport() = default;
  virtual ~Transport() = default;  // ends all posts at once
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Posts match by peer, channel and order. Channels move independently of each other in some transports and not in
  // others. So both ends post to each other in the same order, over all channels, with equal sizes; none may be posted
  // only because a later one is complete. The memory belongs to the post until its completion.
  // REQUIRES: size_bytes > 0; the peer is connected.
  virtual void PostSend(int peer, uint32_t channel, const void* data, size_t size_bytes, uint64_t context) = 0;
  virtual void PostReceive(int peer, uint32_t channel, void* data, size_t size_bytes, uint64_t context) = 0;
  // Moves what can be moved now, and appends completions: those of one peer, channel and direction in their order.
  // Returns whether it moved or completed anything; then calling again may do more.
  virtual bool Poll(std::vector<Completion>* completions) = 0;

  // Puts to a peer arrive in their order. PostPut returns its position: the put's memory is read until sent(peer) has
  // reached it. The head is copied.
  virtual bool CanPut(int /*peer*/) const { return false; }  // until the connection for puts has ended
  virtual uint64_t PostPut(int /*peer*/, const PutHead& /*head*/, const std::vector<Slice>& /*data*/) { return 0; }
  virtual uint64_t sent(int /*peer*/) const { return 0; }
  // Lets the memory of all puts to the peer go: what is not sent yet is copied.
  virtual void Detach(int /*peer*/) {}
  // So many more operations expect the peer to put data, or fewer.
  virtual void AwaitPuts(int /*peer*/, int /*more*/) {}
  // Moves what can be moved now; returns whether it moved anything.
  virtual bool PollPuts(PutSink* /*sink*/) { return false; }
  // True when PollPuts finds what is awaited by itself, without OnReady.
  virtual bool finds_puts() const { return true; }

  // Lets the poller watch for what Poll and PollPuts wait for, with tags of `tag` and a number in the low 32 bits.
  virtual Status Watch(Poller* poller, uint64_t tag) = 0;
  // The poller has reported a tag with this number. Returns whether PollPuts has something to do.
  virtual bool OnReady(uint32_t number) = 0;

  // True when the peer, which is connected, has closed its connections or lost them, even if data stand unread there.
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
  bool for_puts = false;  // else for PostSend and PostReceive
  Descriptor socket;
  std::string name;  // of the peer in errors, "rank 3 (host b, pid 4711)"
};

// The one transport there is: TCP; Unix sockets work, too. Buffer sizes are set before connect or listen.
std::unique_ptr<Transport> MakeTransport(std::vector<PeerConnection> connections);

}  // namespace farandole
