#include "transport/frame_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/socket_io.h"

namespace farandole {
namespace {

constexpr size_t kHeaderBytes = sizeof(FrameHeader);
// The limit for one system call, so that sending and receiving alternate.
constexpr size_t kMaxBytesPerCall = kHeaderBytes + (512 << 10);
// Messages share a system call up to this total size. Longer ones are sent one at a time, so that this rank receives
// and reduces in between (docs/benchmarks/tcp.md#messages-in-one-call).
constexpr size_t kGatheredBytes = 16 << 10;
constexpr size_t kReadAheadBuffer = 8 << 10;  // for messages after the expected one
constexpr size_t kMaxPieces = 16;
constexpr uint64_t kMaxPayloadBytes = uint64_t{1} << 40;

}  // namespace

bool FrameHeader::IsValid() const {
  const bool is_known = kind >= FrameKind::kData && kind <= FrameKind::kControl && tag.lane <= Lane::kEarly;
  const bool has_size = size_bytes > 0 || !has_payload();
  return is_known && has_size && size_bytes <= kMaxPayloadBytes && zero[0] == 0 && zero[1] == 0;
}

void FrameStream::Close() {
  DropQueue();
  socket_.Reset();
}

// ---- sending

void FrameStream::Queue(const FrameHeader& header, const void* payload, uint64_t context, bool copies) {
  if (dropped_) return;
  Outgoing message{header, payload, context};
  if (copies) message.Copy();
  outgoing_.push_back(std::move(message));
  unsent_bytes_ += outgoing_.back().size_bytes();
}

void FrameStream::Outgoing::Copy() {
  if (header.payload_bytes() == 0 || !copy.empty()) return;
  const auto* const from = static_cast<const char*>(payload);
  copy.assign(from, from + header.payload_bytes());
  payload = copy.data();
}

std::vector<uint64_t> FrameStream::DropQueue() {
  std::vector<uint64_t> contexts;
  for (const Outgoing& each : outgoing_) {
    if (each.context != kNoContext) contexts.push_back(each.context);
  }
  outgoing_.clear();
  first_sent_bytes_ = unsent_bytes_ = 0;
  dropped_ = true;
  return contexts;
}

void FrameStream::Detach(const MessageTag& operation) {
  for (Outgoing& each : outgoing_) {
    if (!each.header.tag.IsOf(operation)) continue;
    each.context = kNoContext;
    each.Copy();
  }
}

Status FrameStream::Flush(std::vector<Transport::Completion>* sent, bool* moved) {
  iovec parts[kMaxPieces];
  size_t count = 0, wanted_bytes = 0, skipped_bytes = first_sent_bytes_;
  const auto add = [&](const void* data, size_t size_bytes) {
    const size_t part_bytes = std::min(size_bytes - skipped_bytes, kMaxBytesPerCall - wanted_bytes);
    auto* const begin = const_cast<char*>(static_cast<const char*>(data)) + skipped_bytes;
    if (part_bytes > 0) parts[count++] = {begin, part_bytes};
    wanted_bytes += part_bytes;
    skipped_bytes = 0;
  };
  for (const Outgoing& each : outgoing_) {
    const size_t payload_bytes = each.header.payload_bytes();
    const bool is_full = count + 2 > kMaxPieces || wanted_bytes + payload_bytes > kGatheredBytes;
    if (count > 0 && is_full) break;
    if (skipped_bytes < kHeaderBytes) {
      add(&each.header, kHeaderBytes);
    } else {
      skipped_bytes -= kHeaderBytes;
    }
    add(each.payload, payload_bytes);
  }
  if (count == 0) return Status::Ok();
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  const ssize_t done = sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (done < 0 && errno == EINTR) return Status::Ok();
  may_write_ = done >= 0 && static_cast<size_t>(done) == wanted_bytes;
  if (done < 0) return errno == EAGAIN ? Status::Ok() : MoveFailed("sending to " + name_);
  *moved = true;
  first_sent_bytes_ += static_cast<size_t>(done);
  unsent_bytes_ -= static_cast<size_t>(done);
  for (; !outgoing_.empty() && first_sent_bytes_ >= outgoing_.front().size_bytes(); outgoing_.pop_front()) {
    first_sent_bytes_ -= outgoing_.front().size_bytes();
    if (outgoing_.front().context != kNoContext) sent->push_back({outgoing_.front().context, {}});
  }
  return Status::Ok();
}

// ---- receiving

Status FrameStream::Receive(bool* moved) {
  if (waits_) FRD_RETURN_IF_ERROR(BeginPayload());
  while (!waits_) {
    std::byte buffer[kReadAheadBuffer];
    iovec places[3];
    msghdr message{};
    message.msg_iov = places;
    message.msg_iovlen = BuildIovec(buffer, places);
    ssize_t got;
    do {
      got = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got <= 0) may_read_ = false;
    if (got < 0) return errno == EAGAIN ? Status::Ok() : MoveFailed("receiving from " + name_);
    if (got == 0) return {Code::kPeerLost, name_ + " left: it closed the connection to this rank"};
    *moved = true;
    size_t left = static_cast<size_t>(got), wanted_bytes = 0;
    for (const iovec* place = places; place != places + message.msg_iovlen; ++place) {
      const size_t here = std::min(left, place->iov_len);
      if (here > 0) FRD_RETURN_IF_ERROR(Dispatch(static_cast<std::byte*>(place->iov_base), here));
      wanted_bytes += place->iov_len;
      left -= here;
    }
    // After a short read the socket is empty, but the end of the stream may follow without another edge. So the socket
    // counts as readable until a call finds nothing.
    if (static_cast<size_t>(got) < wanted_bytes || static_cast<size_t>(got) >= kMaxBytesPerCall) return Status::Ok();
  }
  return Status::Ok();
}

// Fills `places` with the destinations of the next read: payload that is due or expected goes directly to its memory,
// everything else into `buffer`. Returns the number of places.
size_t FrameStream::BuildIovec(std::byte* buffer, iovec* places) {
  size_t count = 0;
  const auto add = [&](void* to, size_t size_bytes) {
    if (to != nullptr && size_bytes > 0) places[count++] = {to, size_bytes};
  };
  if (left_bytes_ > 0) {
    add(to_, std::min(left_bytes_, kMaxBytesPerCall));
  } else {
    add(reinterpret_cast<std::byte*>(&header_) + header_bytes_, kHeaderBytes - header_bytes_);
    const iovec expected = Expected();
    add(expected.iov_base, std::min(expected.iov_len, kMaxBytesPerCall));
  }
  const bool is_dropped = left_bytes_ > 0 && to_ == nullptr;
  if (is_dropped) {
    add(buffer, std::min(kReadAheadBuffer, reads_ahead_ ? kReadAheadBuffer : left_bytes_));
  } else if (reads_ahead_ && left_bytes_ <= kMaxBytesPerCall) {
    add(buffer, kReadAheadBuffer);
  }
  return count;
}

// Moves each byte to its destination, unless it is already there. Uses memmove, because data received into the expected
// memory may belong at a lower address of that memory.
Status FrameStream::Dispatch(const std::byte* from, size_t size_bytes) {
  while (size_bytes > 0) {
    const bool of_header = left_bytes_ == 0;
    const size_t part_bytes = std::min(size_bytes, of_header ? kHeaderBytes - header_bytes_ : left_bytes_);
    std::byte* const to = of_header ? reinterpret_cast<std::byte*>(&header_) + header_bytes_ : to_;
    if (to != nullptr && to != from) std::memmove(to, from, part_bytes);
    from += part_bytes;
    size_bytes -= part_bytes;
    if (of_header) {
      header_bytes_ += part_bytes;
      if (header_bytes_ == kHeaderBytes) FRD_RETURN_IF_ERROR(BeginPayload());
    } else {
      left_bytes_ -= part_bytes;
      if (to_ != nullptr) to_ += part_bytes;
      if (left_bytes_ == 0) FRD_RETURN_IF_ERROR(OnMessage(header_));
    }
  }
  return Status::Ok();
}

// Decides where the payload goes. REQUIRES: the header is complete.
Status FrameStream::BeginPayload() {
  if (!header_.IsValid()) return {Code::kMismatch, name_ + " sent an invalid frame header"};
  to_ = nullptr;
  waits_ = false;
  FRD_RETURN_IF_ERROR(OnHeader(header_, &to_, &waits_));
  if (waits_) return Status::Ok();
  header_bytes_ = 0;
  left_bytes_ = header_.payload_bytes();
  return left_bytes_ == 0 ? OnMessage(header_) : Status::Ok();
}

}  // namespace farandole
