#include "transport/message_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>

#include "common/clock.h"

namespace farandole {

void MessageStream::Queue(const Bytes& message) {
  FrameStream::Queue({FrameKind::kControl, 0, message.size(), 0, {}}, message.data(), kNoContext, /*copies=*/true);
}

Status MessageStream::Flush() {
  std::vector<Transport::Completion> none;
  for (bool moved = true; moved && !flushed();) {
    moved = false;
    FRD_RETURN_IF_ERROR(FrameStream::Flush(&none, &moved));
  }
  return Status::Ok();
}

Status MessageStream::Receive(std::vector<Bytes>* messages) {
  Status status;
  for (bool moved = true; moved && status.ok();) {
    moved = false;
    status = FrameStream::Receive(&moved);
  }
  std::move(arrived_.begin(), arrived_.end(),
            std::back_inserter(*messages));  // also those before the end of the stream
  arrived_.clear();
  return status;
}

Status MessageStream::OnHeader(const FrameHeader& header, std::byte** to, bool*) {
  if (header.kind != FrameKind::kControl || header.size_bytes > kMessageLimitBytes)
    return {Code::kPeerLost, "a control message of ", header.size_bytes, " bytes is refused"};
  incoming_.resize(static_cast<size_t>(header.size_bytes));
  *to = reinterpret_cast<std::byte*>(incoming_.data());
  return Status::Ok();
}

Status MessageStream::OnMessage(const FrameHeader&) {
  arrived_.push_back(std::move(incoming_));
  incoming_ = Bytes();
  return Status::Ok();
}

void MessageStream::EndSending() {
  if (open() && Flush().ok() && flushed()) shutdown(descriptor(), SHUT_WR);
}

void MessageStream::CloseAfterDrain(int64_t timeout_ms) {
  if (!open()) return;
  const TimePoint start = Now();
  while (Flush().ok() && !flushed() && MillisecondsBetween(start, Now()) < timeout_ms) {
    pollfd ready{descriptor(), POLLOUT, 0};
    poll(&ready, 1, 10);
  }
  shutdown(descriptor(), SHUT_WR);
  std::vector<Bytes> dropped;
  while (Receive(&dropped).ok() && MillisecondsBetween(start, Now()) < timeout_ms) {
    pollfd ready{descriptor(), POLLIN, 0};
    poll(&ready, 1, 10);
  }
  Close();
}

// Ends all sending directions first, so that the peers do not wait for each other.
void CloseAll(std::vector<MessageStream>* streams, int64_t timeout_ms) {
  for (MessageStream& each : *streams) each.EndSending();
  const TimePoint start = Now();
  for (MessageStream& each : *streams) each.CloseAfterDrain(timeout_ms - MillisecondsBetween(start, Now()));
}

}  // namespace farandole
