// The messages between two ranks, over a connected, non-blocking socket:
//
//   | header, 64 bytes | payload | header | payload | ...
//
// The lanes (lanes.h) and the control connections (message_stream.h) are streams, and say where received payloads go.
// Payloads move directly between the socket and that memory. Reading and writing say by themselves when the socket can
// do no more for now, so a poller may watch for changes only (edge-triggered).
//
// No call blocks.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/descriptor.h"
#include "common/status.h"
#include "transport/transport.h"

namespace farandole {

enum class FrameKind : uint32_t {
  kData = 1,       // counts against the sender's credit on the early lane
  kAnnounced = 2,  // the payload follows after a grant
  kGrant = 3,      // the receive of an announced message is posted
  kGranted = 4,    // the payload that was announced
  kCredit = 5,     // says only how much was taken
  kGoodbye = 6,    // tag.id: the rank that leaves
  kControl = 7,    // of a control connection
};

// Sent as it lies in memory. It has the size of a cache line: the kernel copies payloads faster when they are aligned.
struct FrameHeader {
  FrameKind kind{};
  uint32_t part = 0;
  uint64_t size_bytes = 0;   // of the message
  uint64_t taken_bytes = 0;  // of its receiver's early payloads, so far
  MessageTag tag;
  uint32_t zero[2] = {};

  bool IsValid() const;
  bool has_payload() const {
    return kind == FrameKind::kData || kind == FrameKind::kGranted || kind == FrameKind::kControl;
  }
  size_t payload_bytes() const { return has_payload() ? static_cast<size_t>(size_bytes) : 0; }
  Message message() const { return {tag, part, size_bytes}; }
};
static_assert(sizeof(FrameHeader) == 64 && std::has_unique_object_representations_v<FrameHeader>, "has no padding");

class FrameStream {
 public:
  static constexpr uint64_t kNoContext = ~uint64_t{0};

  // name: of the peer, in errors. reads_ahead: one call may receive several short messages, which are copied once more.
  // REQUIRES, if true: OnHeader never sets *waits.
  FrameStream(Descriptor socket, std::string name, bool reads_ahead)
      : socket_(std::move(socket)), name_(std::move(name)), reads_ahead_(reads_ahead) {}
  virtual ~FrameStream() = default;
  FrameStream(FrameStream&&) = default;
  FrameStream& operator=(FrameStream&&) = default;

  bool open() const { return socket_.valid(); }
  const Descriptor& socket() const { return socket_; }
  int descriptor() const { return socket_.get(); }
  void Close();

  // The payload is read until the message is sent, or copied; then Flush completes its context.
  void Queue(const FrameHeader& header, const void* payload, uint64_t context, bool copies = false);
  bool flushed() const { return outgoing_.empty(); }
  bool is_dropped() const { return dropped_; }  // what is queued is dropped
  size_t unsent_bytes() const { return unsent_bytes_; }
  // Sends a part of what is queued, if the socket takes it. Sets *moved if bytes were sent.
  Status Flush(std::vector<Transport::Completion>* sent, bool* moved);
  // Copies the payloads of the operation, so that their memory is no longer read; the messages lose their context.
  void Detach(const MessageTag& operation);
  // Drops what is queued now or later, and returns the contexts.
  std::vector<uint64_t> DropQueue();

  // Receives a part of what has arrived. kPeerLost at the end of the stream.
  Status Receive(bool* moved);
  bool waits() const { return waits_; }
  bool is_in_payload() const { return left_bytes_ > 0; }
  const FrameHeader& header() const { return header_; }  // of the message that waits, or whose payload is received
  void DropPayload() { to_ = nullptr; }                  // the rest of the one that is received

  // False when the last call found the socket empty, or full.
  bool may_read() const { return may_read_; }
  bool may_write() const { return may_write_; }
  void OnReady() { may_read_ = may_write_ = true; }

 protected:
  // Memory that may receive the payload of the next message in the same system call as its header. If OnHeader then
  // names this memory, nothing is copied. In any case the memory is overwritten.
  virtual iovec Expected() { return {}; }
  // Where the payload goes; null: it is dropped. *waits: it is not read before the next Receive, which asks again;
  // REQUIRES: Expected was empty. An error ends the stream.
  virtual Status OnHeader(const FrameHeader& header, std::byte** to, bool* waits) = 0;
  // The whole message has arrived.
  virtual Status OnMessage(const FrameHeader& header) = 0;

 private:
  struct Outgoing {
    FrameHeader header;
    const void* payload;
    uint64_t context;
    std::vector<char> copy{};  // a copy of the payload

    size_t size_bytes() const { return sizeof header + header.payload_bytes(); }
    void Copy();
  };

  size_t BuildIovec(std::byte* buffer, iovec* places);
  Status Dispatch(const std::byte* from, size_t size_bytes);
  Status BeginPayload();

  Descriptor socket_;
  std::string name_;
  bool reads_ahead_;
  bool may_read_ = true, may_write_ = true;

  std::deque<Outgoing> outgoing_;
  size_t first_sent_bytes_ = 0;  // of the first message, with its header
  size_t unsent_bytes_ = 0;      // with headers
  bool dropped_ = false;

  // The state of receiving. Invariants:
  // 1. Bytes of a payload are written only to Expected(), *to_, or a private buffer.
  // 2. left_bytes_ == 0: a header is received, of which header_bytes_ have arrived; if it is complete, it waits.
  // 3. left_bytes_ > 0: the rest of the payload of header_ is received, and header_bytes_ == 0.
  FrameHeader header_;
  size_t header_bytes_ = 0;
  bool waits_ = false;
  std::byte* to_ = nullptr;  // where the next byte of the payload goes; null: it is dropped
  size_t left_bytes_ = 0;    // of the payload
};

}  // namespace farandole
