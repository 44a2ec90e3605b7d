#include "p2p/link.h"

#include <algorithm>
#include <cstring>

namespace farandole {
namespace {

constexpr FrameKind kWithdrawn = FrameKind::kGoodbye;
constexpr uint32_t kRefused = 1;   // the part of a grant that wants no payload
constexpr uint32_t kOnCredit = 1;  // the part of an announcement of nothing that is all of the message
constexpr int kCallsPerPump = 8;   // so that one link, which may bring data without end, does not hold up the others

MessageTag TagOf(const MessageKey& key, DType dtype, uint32_t serial) {
  MessageTag tag;
  tag.id = key.context;
  tag.serial = serial;
  tag.operation = key.tag;
  tag.plan = static_cast<uint32_t>(dtype);
  return tag;
}

MessageKey KeyOf(const FrameHeader& header) { return {header.tag.id, header.tag.operation}; }
DType DTypeOf(const FrameHeader& header) { return static_cast<DType>(header.tag.plan); }

ArrivalPtr ArrivalOf(const FrameHeader& header, int source, Link* link) {
  auto arrival = std::make_shared<Arrival>();
  arrival->source = source;
  arrival->dtype = DTypeOf(header);
  arrival->size_bytes = static_cast<size_t>(header.size_bytes);
  arrival->link = link;
  arrival->serial = header.tag.serial;
  return arrival;
}

bool IsOnCredit(const FrameHeader& header) {
  const bool is_all = header.kind == FrameKind::kAnnounced && header.size_bytes == 0 && header.part == kOnCredit;
  return header.kind == FrameKind::kData || is_all;
}

std::string Amount(size_t size_bytes, DType dtype) { return Text(size_bytes, " bytes of ", NameOf(dtype)); }

}  // namespace

// ---- what the links share

void LinkContext::Complete(const TransferPtr& transfer, Status status) {
  ++ended;
  transfer->status = std::move(status);
  transfer->done.store(true, std::memory_order_release);
}

void LinkContext::Fail(const TransferPtr& transfer, const Status& reason) {
  Complete(transfer, {reason.code(), transfer->Title(), " failed on rank ", rank, ": ", reason.message()});
}

bool LinkContext::Fits(const TransferPtr& receive, int source, DType dtype, size_t size_bytes) {
  receive->source = source;
  if (receive->dtype == dtype && receive->size_bytes == size_bytes) return true;
  Fail(receive, {Code::kMismatch, "rank ", source, " has sent ", Amount(size_bytes, dtype), ", and the receive takes ",
                 Amount(receive->size_bytes, receive->dtype), "; the message is dropped"});
  return false;
}

// ---- sending

void Link::QueueFrame(FrameKind kind, const MessageTag& tag, size_t size_bytes, const void* payload, uint64_t context,
                      uint32_t part) {
  reported_bytes_ = taken_bytes_;
  Queue({kind, part, size_bytes, taken_bytes_, tag}, payload, context);
}

void Link::Send(const TransferPtr& send) {
  const size_t size_bytes = send->size_bytes;
  const MessageTag tag = TagOf(send->key, send->dtype, send->serial = ++last_serial_);
  if (size_bytes <= kEagerBytes && sent_bytes_ - peer_took_bytes_ + CostOf(size_bytes) <= context_.credit_bytes) {
    sent_bytes_ += CostOf(size_bytes);
    sends_[tag.serial] = {send};
    const FrameKind kind = size_bytes > 0 ? FrameKind::kData : FrameKind::kAnnounced;
    return QueueFrame(kind, tag, size_bytes, send->data, tag.serial, size_bytes > 0 ? 0 : kOnCredit);
  }
  QueueFrame(FrameKind::kAnnounced, tag, size_bytes);
  sends_[tag.serial] = {send, true};
}

// Returns after the first error. What the peer has sent can still be received.
Status Link::FlushAll() {
  std::vector<Transport::Completion> sent;
  Status status;
  for (bool moved = true; moved && !flushed() && status.ok();) {
    moved = false;
    status = Flush(&sent, &moved);
  }
  for (const Transport::Completion& each : sent) {
    const auto found = sends_.find(static_cast<uint32_t>(each.context));
    if (found == sends_.end()) continue;
    context_.Complete(found->second.send, Status::Ok());
    sends_.erase(found);
  }
  return status;
}

Status Link::Pump() {
  for (int call = 0; call < kCallsPerPump; ++call) {
    const Status flushed = FlushAll();
    if (flushed.code() == Code::kPeerLost) {
      DropQueue();  // reading finds the end, behind what the peer has sent
    } else {
      FRD_RETURN_IF_ERROR(flushed);
    }
    bool moved = false;
    FRD_RETURN_IF_ERROR(Receive(&moved));
    if (!moved) break;
  }
  return FlushAll().code() == Code::kInternal ? Internal("the system refused to send to rank ", peer_) : Status::Ok();
}

// ---- receiving

Status Link::OnHeader(const FrameHeader& header, std::byte** to, bool*) {
  if (header.tag.plan >= static_cast<uint32_t>(kDTypeCount)) return Malformed();
  if (header.taken_bytes < peer_took_bytes_ || header.taken_bytes > sent_bytes_) return Malformed();
  peer_took_bytes_ = header.taken_bytes;
  const bool is_new = header.kind == FrameKind::kData || header.kind == FrameKind::kAnnounced;
  if (is_new && header.tag.serial != ++last_arrived_serial_) return Malformed();
  switch (header.kind) {
    case FrameKind::kData:
      return OnData(header, to);
    case FrameKind::kAnnounced:
      return OnAnnounced(header, to);
    case FrameKind::kGrant:
      return OnGrant(header);
    case FrameKind::kGranted:
      return OnGranted(header, to);
    case kWithdrawn:
      OnWithdrawn(header.tag.serial);
      return Status::Ok();
    case FrameKind::kCredit:
      return Status::Ok();
    default:
      return Malformed();
  }
}

Status Link::OnData(const FrameHeader& header, std::byte** to) {
  const auto size_bytes = static_cast<size_t>(header.size_bytes);
  received_bytes_ += CostOf(size_bytes);
  if (size_bytes > kEagerBytes || received_bytes_ - taken_bytes_ > context_.credit_bytes) return Malformed();
  if (const TransferPtr receive = context_.matcher.Arrive(KeyOf(header), peer_)) {
    if (!context_.Fits(receive, peer_, DTypeOf(header), size_bytes)) return Status::Ok();
    receiving_ = receive;
    *to = receive->data;
    return Status::Ok();
  }
  arriving_ = ArrivalOf(header, peer_, this);
  arriving_->kept = std::make_unique<std::byte[]>(size_bytes);
  context_.matcher.Keep(KeyOf(header), arriving_);
  *to = arriving_->kept.get();
  return Status::Ok();
}

Status Link::OnAnnounced(const FrameHeader& header, std::byte** to) {
  if (IsOnCredit(header)) return OnData(header, to);
  const ArrivalPtr arrival = ArrivalOf(header, peer_, this);
  if (const TransferPtr receive = context_.matcher.Arrive(KeyOf(header), peer_)) {
    Take(*arrival, receive);
  } else {
    context_.matcher.Keep(KeyOf(header), arrival);
  }
  return Status::Ok();
}

void Link::Take(const Arrival& arrival, const TransferPtr& receive) {
  const bool fits = context_.Fits(receive, peer_, arrival.dtype, arrival.size_bytes);
  const bool needs_payload = fits && arrival.size_bytes > 0;
  if (needs_payload) expected_[arrival.serial] = receive;
  if (fits && !needs_payload) context_.Complete(receive, Status::Ok());
  const MessageTag tag = TagOf(receive->key, arrival.dtype, arrival.serial);
  QueueFrame(FrameKind::kGrant, tag, arrival.size_bytes, nullptr, kNoContext, needs_payload ? 0 : kRefused);
}

// A send that was withdrawn may be granted at the same time.
Status Link::OnGrant(const FrameHeader& header) {
  const auto found = sends_.find(header.tag.serial);
  if (found == sends_.end()) return Status::Ok();
  const TransferPtr send = found->second.send;
  if (!found->second.is_announced || header.size_bytes != send->size_bytes) return Malformed();
  if (header.part == kRefused) {
    sends_.erase(found);
    context_.Complete(send, Status::Ok());
    return Status::Ok();
  }
  if (send->size_bytes == 0) return Malformed();
  found->second.is_announced = false;
  // With its own tag, by which Cancel finds it, whatever the peer has sent.
  QueueFrame(FrameKind::kGranted, TagOf(send->key, send->dtype, send->serial), send->size_bytes, send->data,
             send->serial);
  return Status::Ok();
}

Status Link::OnGranted(const FrameHeader& header, std::byte** to) {
  const auto found = expected_.find(header.tag.serial);
  if (found == expected_.end()) return Malformed();
  receiving_ = std::move(found->second);
  expected_.erase(found);
  if (!receiving_) return Status::Ok();
  if (header.size_bytes != receiving_->size_bytes) return Malformed();
  *to = receiving_->data;
  return Status::Ok();
}

void Link::OnWithdrawn(uint32_t serial) {
  const auto found = expected_.find(serial);
  if (found == expected_.end()) {
    return context_.matcher.DropArrivals(
        [&](const Arrival& each) { return each.link == this && each.serial == serial && !each.kept; });
  }
  const TransferPtr receive = std::move(found->second);
  expected_.erase(found);
  if (receive) context_.Fail(receive, {Code::kDeadline, "rank ", peer_, " has given up its send"});
}

Status Link::OnMessage(const FrameHeader& header) {
  const bool is_on_credit = IsOnCredit(header);
  if (!is_on_credit && header.kind != FrameKind::kGranted) return Status::Ok();
  const TransferPtr receive = std::exchange(receiving_, nullptr);
  const ArrivalPtr arrival = std::exchange(arriving_, nullptr);
  if (receive) context_.Complete(receive, Status::Ok());
  if (arrival) {
    arrival->is_complete = true;
    if (!arrival->receive && !arrival->is_dropped) return Status::Ok();  // kept
    if (arrival->receive) {
      std::memcpy(arrival->receive->data, arrival->kept.get(), arrival->size_bytes);
      context_.Complete(arrival->receive, Status::Ok());
    }
  }
  if (is_on_credit) ReturnCredit(static_cast<size_t>(header.size_bytes));
  return Status::Ok();
}

// Tells the peer at once when half of its credit has come back; else the next frame tells it.
void Link::ReturnCredit(size_t payload_bytes) {
  taken_bytes_ += CostOf(payload_bytes);
  if (taken_bytes_ - reported_bytes_ >= context_.credit_bytes / 2) QueueFrame(FrameKind::kCredit, {}, 0);
}

// ---- transfers that end early

void Link::Cancel(const TransferPtr& transfer) {
  const auto sending = sends_.find(transfer->serial);
  if (transfer->sends && sending != sends_.end() && sending->second.send == transfer) {
    const MessageTag tag = TagOf(transfer->key, transfer->dtype, transfer->serial);
    sending->second.is_announced ? QueueFrame(kWithdrawn, tag, 0) : Detach(tag);
    sends_.erase(sending);
    return;
  }
  for (auto& [serial, receive] : expected_) {
    if (receive == transfer) receive = nullptr;
  }
  if (receiving_ == transfer) {
    DropPayload();
    receiving_ = nullptr;
  }
  if (arriving_ && arriving_->receive == transfer) {
    arriving_->receive = nullptr;
    arriving_->is_dropped = true;
  }
}

std::vector<TransferPtr> Link::End() {
  DropQueue();
  DropPayload();
  std::vector<TransferPtr> all;
  for (const auto& [serial, sending] : sends_) all.push_back(sending.send);
  for (const auto& [serial, receive] : expected_) all.push_back(receive);
  all.push_back(std::exchange(receiving_, nullptr));
  if (arriving_) all.push_back(std::exchange(arriving_->receive, nullptr));
  arriving_ = nullptr;
  sends_.clear();
  expected_.clear();
  all.erase(std::remove(all.begin(), all.end(), nullptr), all.end());
  context_.matcher.DropArrivals([this](Arrival& each) {
    if (each.link != this) return false;
    each.link = nullptr;
    return !each.is_complete;
  });
  return all;
}

}  // namespace farandole
