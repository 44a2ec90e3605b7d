#include "transport/tcp/put_stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/failpoint.h"
#include "transport/socket_io.h"

namespace farandole {
namespace {

// The most bytes of one system call, so that sending and receiving alternate. A head and 512 KB are the largest put
// that one call sends.
constexpr size_t kStretchBytes = kPutHeadBytes + (512 << 10);
// The buffer receives bytes behind the expected ones, which are then copied to where they belong. So one system call
// may receive several small puts.
constexpr size_t kBufferBytes = 8 << 10;
constexpr size_t kMostPieces = 16;
constexpr size_t kJoinedBytes = 64 << 10;  // copies that are queued one after the other form one piece up to this size

}  // namespace

bool PutStream::Count(size_t size_bytes) {
  queued_bytes_ += size_bytes;
  if (dropped_) sent_bytes_ = queued_bytes_;
  return size_bytes > 0 && !dropped_;
}

void PutStream::Queue(const void* data, size_t size_bytes) {
  if (!Count(size_bytes)) return;
  if (pieces_.empty() || pieces_.back().own.empty() || pieces_.back().size_bytes > kJoinedBytes)
    pieces_.emplace_back().own.swap(spare_);
  Piece& piece = pieces_.back();
  const auto* const bytes = static_cast<const uint8_t*>(data);
  piece.own.insert(piece.own.end(), bytes, bytes + size_bytes);
  piece.size_bytes += size_bytes;
}

void PutStream::QueueReference(const void* data, size_t size_bytes) {
  if (!Count(size_bytes)) return;
  Piece& piece = pieces_.emplace_back();
  piece.data = static_cast<const uint8_t*>(data);
  piece.size_bytes = size_bytes;
}

void PutStream::Detach() {
  for (Piece& piece : pieces_) {
    if (piece.own.empty()) piece.own.assign(piece.data, piece.data + piece.size_bytes);
  }
}

void PutStream::Drop() {
  pieces_.clear();
  dropped_ = true;
  Count(0);
}

void PutStream::Close() {
  Drop();
  socket_.Reset();
}

Status PutStream::Flush(bool* moved) {
  if (pieces_.empty()) return Status::Ok();
  FRD_RETURN_IF_ERROR(FRD_FAILPOINT_STATUS("put.send"));
  iovec parts[kMostPieces];
  size_t count = 0, wanted_bytes = 0;
  for (const Piece& piece : pieces_) {
    if (count == kMostPieces || wanted_bytes == kStretchBytes) break;
    const size_t skipped = count == 0 ? first_sent_bytes_ : 0;
    const size_t part_bytes = std::min(piece.size_bytes - skipped, kStretchBytes - wanted_bytes);
    parts[count++] = {const_cast<uint8_t*>(piece.begin()) + skipped, part_bytes};
    wanted_bytes += part_bytes;
  }
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  const ssize_t sent = sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return Status::Ok();
  if (sent < 0) return MoveFailed("data connection");
  *moved = true;
  sent_bytes_ += static_cast<uint64_t>(sent);
  first_sent_bytes_ += static_cast<size_t>(sent);
  while (!pieces_.empty() && first_sent_bytes_ >= pieces_.front().size_bytes) {
    first_sent_bytes_ -= pieces_.front().size_bytes;
    if (!pieces_.front().own.empty()) {
      spare_.swap(pieces_.front().own);
      spare_.clear();
    }
    pieces_.pop_front();
  }
  return Status::Ok();
}

Status PutStream::Receive(PutSink* sink, bool* moved) {
  FRD_RETURN_IF_ERROR(FRD_FAILPOINT_STATUS("put.recv"));
  for (;;) {
    size_t moved_bytes = 0, wanted_bytes = 0;
    FRD_RETURN_IF_ERROR(Read(sink, &moved_bytes, &wanted_bytes));
    if (moved_bytes > 0) *moved = true;
    // After a short read the socket is empty. After a whole stretch the caller sends before it receives more.
    if (moved_bytes < wanted_bytes || moved_bytes >= kStretchBytes) return Status::Ok();
  }
}

Status PutStream::Read(PutSink* sink, size_t* moved_bytes, size_t* wanted_bytes) {
  uint8_t buffer[kBufferBytes];
  iovec parts[3];
  size_t count = 0;
  const auto want = [&](void* to, size_t size_bytes) {
    if (to != nullptr && size_bytes > 0) parts[count++] = {to, size_bytes};
  };
  if (left_bytes_ > 0) {
    want(to_, std::min(left_bytes_, kStretchBytes));
  } else {
    want(head_.data() + head_bytes_, kPutHeadBytes - head_bytes_);
    const Slice slice = sink->Expected(peer_);
    want(slice.data, std::min(slice.size_bytes, kStretchBytes));
  }
  if (to_ == nullptr || left_bytes_ <= kStretchBytes) want(buffer, kBufferBytes);
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  const ssize_t got = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  for (size_t i = 0; i < count; ++i) *wanted_bytes += parts[i].iov_len;
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Status::Ok();
  if (got < 0) return {Code::kPeerLost, SystemError("data connection").message()};
  if (got == 0) return {Code::kPeerLost, "data connection closed"};
  *moved_bytes = static_cast<size_t>(got);
  size_t left = *moved_bytes;
  for (size_t i = 0; left > 0; ++i) {
    const size_t here = std::min(left, parts[i].iov_len);
    FRD_RETURN_IF_ERROR(Distribute(sink, static_cast<std::byte*>(parts[i].iov_base), here));
    left -= here;
  }
  return Status::Ok();
}

// memmove, because data that arrived in expected memory may belong at a lower address of the same memory.
Status PutStream::Distribute(PutSink* sink, const std::byte* from, size_t size_bytes) {
  while (size_bytes > 0) {
    const bool of_head = left_bytes_ == 0;
    const size_t part_bytes = std::min(size_bytes, of_head ? kPutHeadBytes - head_bytes_ : left_bytes_);
    void* const to = of_head ? static_cast<void*>(head_.data() + head_bytes_) : to_;
    if (to != nullptr && to != from) std::memmove(to, from, part_bytes);
    FRD_RETURN_IF_ERROR(Advance(sink, part_bytes));
    from += part_bytes;
    size_bytes -= part_bytes;
  }
  return Status::Ok();
}

Status PutStream::Advance(PutSink* sink, size_t size_bytes) {
  if (left_bytes_ == 0) {
    head_bytes_ += size_bytes;
    if (head_bytes_ < kPutHeadBytes) return Status::Ok();
    head_bytes_ = 0;
    to_ = nullptr;
    return sink->OnHead(peer_, head_, &to_, &left_bytes_);
  }
  left_bytes_ -= size_bytes;
  if (to_ == nullptr) return Status::Ok();
  to_ = left_bytes_ > 0 ? to_ + size_bytes : nullptr;
  sink->OnData(peer_, size_bytes);
  return Status::Ok();
}

}  // namespace farandole
