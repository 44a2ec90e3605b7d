// Exchanges messages between two ranks over a connected, non-blocking socket:
//
//   | header, 64 bytes | payload | header | payload | ...
//
// The lanes (lanes.h) and the control connections (message_stream.h) derive from FrameStream and decide where received
// payloads go. Payloads move directly between the socket and that memory. may_read() and may_write() report when the
// socket is empty or full, so a poller can watch for changes only (edge-triggered).
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
  kAnnounced = 2,  // announces a payload that follows after a grant
  kGrant = 3,      // the receive for an announced message is posted
  kGranted = 4,    // carries a payload that was announced
  kCredit = 5,     // only reports taken_bytes
  kGoodbye = 6,    // tag.id: the rank that is leaving
  kControl = 7,    // a message of a control connection
};

// Sent exactly as it is laid out in memory. Its size is a cache line: the kernel copies aligned payloads faster.
struct FrameHeader {
  FrameKind kind{};
  uint32_t part = 0;
  uint64_t size_bytes = 0;   // size of the message
  uint64_t taken_bytes = 0;  // early payload that the header's sender has taken so far
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

  // name: the peer's name in errors. reads_ahead: one call may receive several short messages, at the cost of one more
  // copy; REQUIRES if true: OnHeader never sets *waits.
  FrameStream(Descriptor socket, std::string name, bool reads_ahead)
      : socket_(std::move(socket)), name_(std::move(name)), reads_ahead_(reads_ahead) {}
  virtual ~FrameStream() = default;
  FrameStream(FrameStream&&) = default;
  FrameStream& operator=(FrameStream&&) = default;

  bool open() const { return socket_.valid(); }
  const Descriptor& socket() const { return socket_; }
  int descriptor() const { return socket_.get(); }
  void Close();

  // Reads the payload until the message is sent, or copies it now. Flush completes the context once the message is
  // sent.
  void Queue(const FrameHeader& header, const void* payload, uint64_t context, bool copies = false);
  bool flushed() const { return outgoing_.empty(); }
  bool is_dropped() const { return dropped_; }  // true after DropQueue: messages are discarded
  size_t unsent_bytes() const { return unsent_bytes_; }
  // Sends part of the queue if the socket accepts it. Sets *moved if bytes were sent.
  Status Flush(std::vector<Transport::Completion>* sent, bool* moved);
  // Copies the operation's unsent payloads, so that their memory is no longer read; their messages lose their context.
  void Detach(const MessageTag& operation);
  // Discards everything queued now or later, and returns the contexts.
  std::vector<uint64_t> DropQueue();

  // Receives part of what has arrived. Returns kPeerLost at the end of the stream.
  Status Receive(bool* moved);
  bool waits() const { return waits_; }
  bool is_in_payload() const { return left_bytes_ > 0; }
  const FrameHeader& header() const { return header_; }  // of the message that waits or is being received
  void DropPayload() { to_ = nullptr; }                  // discards the rest of the current payload

  // False if the last call found the socket empty or full, respectively.
  bool may_read() const { return may_read_; }
  bool may_write() const { return may_write_; }
  void OnReady() { may_read_ = may_write_ = true; }

 protected:
  // Returns memory that may receive the next message's payload in the same system call as its header. If OnHeader then
  // chooses this memory, nothing is copied. The memory may be overwritten in any case.
  virtual iovec Expected() { return {}; }
  // Sets *to to where the payload goes; null discards it. If *waits is set, the payload is left unread until the next
  // Receive, which calls OnHeader again; REQUIRES: Expected returned nothing. An error ends the stream.
  virtual Status OnHeader(const FrameHeader& header, std::byte** to, bool* waits) = 0;
  // Called when the whole message has arrived.
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
  size_t first_sent_bytes_ = 0;  // bytes of the first message that are sent, with its header
  size_t unsent_bytes_ = 0;      // including headers
  bool dropped_ = false;

  // Receive state. Invariants:
  // 1. Bytes of a payload are written only to Expected(), *to_, or a private buffer.
  // 2. If left_bytes_ == 0, a header is being received, and header_bytes_ of it have arrived; a complete header waits.
  // 3. If left_bytes_ > 0, the rest of header_'s payload is being received, and header_bytes_ == 0.
  FrameHeader header_;
  size_t header_bytes_ = 0;
  bool waits_ = false;
  std::byte* to_ = nullptr;  // where the next payload byte goes; null: it is discarded
  size_t left_bytes_ = 0;    // payload bytes still to come
};

}  // namespace farandole
