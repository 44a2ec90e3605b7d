#include "transport/message_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>

#include "common/clock.h"
#include "transport/socket_io.h"

namespace farandole {

void MessageStream::Queue(const Bytes& message) {
  if (!is_sending_) return;
  // Moves the rest to the front once half is sent, so that a slow reader does not make the buffer grow.
  if (sent_ > outgoing_.size() / 2) {
    outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<std::ptrdiff_t>(sent_));
    sent_ = 0;
  }
  ByteWriter header;
  header.Put<uint32_t>(static_cast<uint32_t>(message.size()));
  Bytes framed = header.Take();
  framed.insert(framed.end(), message.begin(), message.end());
  outgoing_.insert(outgoing_.end(), framed.begin(), framed.end());  // all of it or, without memory, nothing
}

Status MessageStream::Flush() {
  while (sent_ < outgoing_.size()) {
    const ssize_t moved =
        send(socket_.get(), outgoing_.data() + sent_, outgoing_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (moved < 0 && (errno == EAGAIN || errno == EINTR)) return Status::Ok();
    if (moved < 0) return MoveFailed("control connection");
    sent_ += static_cast<size_t>(moved);
  }
  outgoing_.clear();
  sent_ = 0;
  return Status::Ok();
}

void MessageStream::StopSending() {
  is_sending_ = false;
  outgoing_.clear();
  sent_ = 0;
}

Status MessageStream::Receive(std::vector<Bytes>* messages) {
  for (;;) {
    uint8_t buffer[16384];
    size_t moved = 0;
    const Status status = TryRecv(socket_.get(), buffer, sizeof(buffer), &moved);
    if (moved == 0) {
      FRD_RETURN_IF_ERROR(Take(messages));  // also those before the end of the stream
      return status;
    }
    incoming_.insert(incoming_.end(), buffer, buffer + moved);
  }
}

size_t MessageStream::NeededBytes() const {
  constexpr size_t kHeader = sizeof(uint32_t);
  if (incoming_.size() < kHeader) return kHeader - incoming_.size();
  const size_t length = ByteReader(incoming_.data(), kHeader).Get<uint32_t>();
  return length > kMessageLimitBytes ? 0 : kHeader + length - incoming_.size();
}

Status MessageStream::ReceiveOne(std::vector<Bytes>* messages) {
  while (const size_t needed = NeededBytes()) {
    uint8_t buffer[16384];
    size_t moved = 0;
    FRD_RETURN_IF_ERROR(TryRecv(socket_.get(), buffer, std::min(needed, sizeof(buffer)), &moved));
    if (moved == 0) return Status::Ok();
    incoming_.insert(incoming_.end(), buffer, buffer + moved);
  }
  return Take(messages);
}

Status MessageStream::Take(std::vector<Bytes>* messages) {
  size_t at = 0;
  while (incoming_.size() - at >= sizeof(uint32_t)) {
    const uint32_t length = ByteReader(incoming_.data() + at, sizeof(uint32_t)).Get<uint32_t>();
    if (length > kMessageLimitBytes) {
      return {Code::kPeerLost, "control message of " + std::to_string(length) + " bytes refused"};
    }
    if (incoming_.size() - at - sizeof(uint32_t) < length) break;
    const auto begin = incoming_.begin() + static_cast<std::ptrdiff_t>(at + sizeof(uint32_t));
    messages->emplace_back(begin, begin + length);
    at += sizeof(uint32_t) + length;
  }
  incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(at));
  return Status::Ok();
}

void MessageStream::EndSending() {
  if (open() && Flush().ok() && flushed()) shutdown(socket_.get(), SHUT_WR);
}

void MessageStream::CloseGently(int timeout_ms) {
  if (!open()) return;
  const TimePoint start = Now();
  while (Flush().ok() && !flushed() && MillisecondsBetween(start, Now()) < timeout_ms) {
    pollfd ready{socket_.get(), POLLOUT, 0};
    poll(&ready, 1, 10);
  }
  shutdown(socket_.get(), SHUT_WR);
  std::vector<Bytes> dropped;
  while (Receive(&dropped).ok() && MillisecondsBetween(start, Now()) < timeout_ms) {
    pollfd ready{socket_.get(), POLLIN, 0};
    poll(&ready, 1, 10);
  }
  socket_.Reset();
}

}  // namespace farandole
