#include "transport/put_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/failpoint.h"
#include "transport/socket.h"

namespace farandole {
namespace {

// At a time, so that sending and receiving take turns and what has come is folded while it lies in a cache.
constexpr size_t kStretchBytes = 512 << 10;
// Read with a head and copied to where it belongs: a small payload comes with one system call.
constexpr size_t kBufferBytes = 8 << 10;
constexpr size_t kMostPieces = 16;
constexpr size_t kJoinedBytes = 64 << 10;  // copies that are queued one after the other become one piece up to here

}  // namespace

PutStream::PutStream(Descriptor socket) : socket_(std::move(socket)) {
  const int on = 1;  // a Unix socket refuses, and has no delay
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// False: it goes nowhere.
bool PutStream::Count(size_t size_bytes) {
  queued_bytes_ += size_bytes;
  if (dropped_) sent_bytes_ = queued_bytes_;
  return size_bytes > 0 && !dropped_;
}

void PutStream::Queue(const void* data, size_t size_bytes) {
  if (!Count(size_bytes)) return;
  if (pieces_.empty() || pieces_.back().own.empty() || pieces_.back().size_bytes > kJoinedBytes) pieces_.emplace_back();
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
  if (sent < 0) return {Code::kPeerLost, SystemError("data connection").message()};
  *moved = true;
  sent_bytes_ += static_cast<uint64_t>(sent);
  first_sent_bytes_ += static_cast<size_t>(sent);
  while (!pieces_.empty() && first_sent_bytes_ >= pieces_.front().size_bytes) {
    first_sent_bytes_ -= pieces_.front().size_bytes;
    pieces_.pop_front();
  }
  return Status::Ok();
}

Status PutStream::Receive(Receiver* receiver, bool* moved) {
  FRD_RETURN_IF_ERROR(FRD_FAILPOINT_STATUS("put.recv"));
  for (;;) {
    size_t moved_bytes = 0, wanted_bytes = 0;
    FRD_RETURN_IF_ERROR(Read(receiver, &moved_bytes, &wanted_bytes));
    if (moved_bytes > 0) *moved = true;
    // A second try would find the socket empty. A whole stretch is enough for once.
    if (moved_bytes < wanted_bytes || moved_bytes >= kStretchBytes) return Status::Ok();
  }
}

// Data go where they belong; what comes behind them, or while no data are due, through a buffer.
Status PutStream::Read(Receiver* receiver, size_t* moved_bytes, size_t* wanted_bytes) {
  uint8_t buffer[kBufferBytes];
  const size_t direct_bytes = to_ != nullptr ? std::min(left_bytes_, kStretchBytes) : 0;
  iovec parts[2] = {{to_, direct_bytes}, {buffer, direct_bytes < kStretchBytes ? kBufferBytes : 0}};
  msghdr message{};
  message.msg_iov = direct_bytes > 0 ? parts : parts + 1;
  message.msg_iovlen = direct_bytes > 0 ? 2 : 1;
  const ssize_t got = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  *wanted_bytes = direct_bytes + parts[1].iov_len;
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Status::Ok();
  if (got < 0) return {Code::kPeerLost, SystemError("data connection").message()};
  if (got == 0) return {Code::kPeerLost, "data connection closed"};
  *moved_bytes = static_cast<size_t>(got);
  const size_t in_place = std::min(*moved_bytes, direct_bytes);
  if (in_place > 0) FRD_RETURN_IF_ERROR(Take(receiver, in_place));
  for (size_t at = 0; at < *moved_bytes - in_place;) {
    const uint8_t* const from = buffer + at;
    const size_t here = *moved_bytes - in_place - at;
    const size_t part_bytes =
        left_bytes_ > 0 ? std::min(here, left_bytes_) : std::min(here, kPutHeadBytes - head_bytes_);
    if (left_bytes_ == 0) {
      std::memcpy(head_.data() + head_bytes_, from, part_bytes);
    } else if (to_ != nullptr) {
      std::memcpy(to_, from, part_bytes);
    }
    FRD_RETURN_IF_ERROR(Take(receiver, part_bytes));
    at += part_bytes;
  }
  return Status::Ok();
}

// So many bytes more of the head or of the data are where they belong.
Status PutStream::Take(Receiver* receiver, size_t size_bytes) {
  if (left_bytes_ == 0) {
    head_bytes_ += size_bytes;
    if (head_bytes_ < kPutHeadBytes) return Status::Ok();
    head_bytes_ = 0;
    to_ = nullptr;
    return receiver->OnHead(head_, &to_, &left_bytes_);
  }
  left_bytes_ -= size_bytes;
  if (to_ == nullptr) return Status::Ok();
  to_ = left_bytes_ > 0 ? to_ + size_bytes : nullptr;
  receiver->OnData(size_bytes);
  return Status::Ok();
}

void PutStream::EndSending() {
  if (open()) shutdown(socket_.get(), SHUT_WR);
}

}  // namespace farandole
