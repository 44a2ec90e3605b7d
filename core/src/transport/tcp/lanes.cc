#include "transport/tcp/lanes.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <tuple>

#include "common/failpoint.h"

namespace farandole {
namespace {

// More than all ids with two uses and some parts each.
constexpr size_t kMaxKept = 1 << 14;

bool IsSame(const Message& a, const Message& b) { return a.tag.IsOf(b.tag) && a.part == b.part; }

template <typename Entries>
auto Find(Entries& entries, const Message& message) {
  return std::find_if(entries.begin(), entries.end(), [&](const auto& each) { return IsSame(each.message, message); });
}

// Whether both ends of an early message run the operation in the same way.
bool Agree(const Message& a, const Message& b) { return a.size_bytes == b.size_bytes && a.tag.plan == b.tag.plan; }

}  // namespace

// ---- both lanes

bool PeerLane::Poll(bool asks, std::vector<Transport::Completion>* completions) {
  bool moved = false;
  for (bool tries = asks || may_write(); tries && failed_.ok() && !flushed(); tries = may_write()) {
    failed_ = FRD_FAILPOINT_STATUS(lane_ == Lane::kOrdered ? "link.send" : "early.send");
    if (failed_.ok()) failed_ = Flush(&done_, &moved);
    if (failed_.code() != Code::kPeerLost) continue;
    failed_ = OnSendLost(failed_);
    moved = true;
  }
  if (failed_.ok() && ((asks && awaits()) || may_read())) {
    if (awaits()) failed_ = FRD_FAILPOINT_STATUS(lane_ == Lane::kOrdered ? "link.recv" : "early.recv");
    if (failed_.ok()) failed_ = Receive(&moved);
  }
  EndPosts(&moved);
  moved |= !done_.empty();
  std::move(done_.begin(), done_.end(), std::back_inserter(*completions));
  done_.clear();
  return moved;
}

Status PeerLane::ReportMismatch(const Message& theirs, const Message& ours) {
  shared_->sink->OnMismatch(peer_, {theirs, ours});
  return {Code::kMismatch, "rank ", peer_, " sent a message for another operation"};
}

// ---- the ordered lane

void OrderedLane::PostSend(const Post& post) {
  if (!failed_.ok()) return receives_.push_back(post);
  Queue({FrameKind::kData, post.message.part, post.message.size_bytes, 0, post.message.tag}, post.data, post.context);
}

iovec OrderedLane::Expected() {
  if (receives_.empty()) return {};
  return {receives_.front().data, static_cast<size_t>(receives_.front().message.size_bytes)};
}

Status OrderedLane::OnHeader(const FrameHeader& header, std::byte** to, bool* waits) {
  if (header.kind != FrameKind::kData) return Malformed();
  *waits = receives_.empty();
  if (*waits) {
    CheckPlan(header.message());
    return Status::Ok();
  }
  const auto as_tuple = [](const Message& message) {
    const MessageTag& tag = message.tag;
    return std::tie(tag.id, tag.operation, tag.channel, tag.plan, message.part, message.size_bytes);
  };
  const Message theirs = header.message(), &ours = receives_.front().message;
  if (as_tuple(theirs) != as_tuple(ours)) {
    is_reported_ = true;
    return ReportMismatch(theirs, ours);
  }
  *to = receives_.front().data;
  return Status::Ok();
}

Status OrderedLane::OnMessage(const FrameHeader&) {
  done_.push_back({receives_.front().context, {}});
  receives_.pop_front();
  return Status::Ok();
}

// After an error the first post completes with it, and the others are dropped. If the sink knows the reason, which says
// more, none completes.
void OrderedLane::EndPosts(bool* moved) {
  if (failed_.ok()) return;
  std::vector<uint64_t> posted = DropQueue();
  for (const Post& each : receives_) posted.push_back(each.context);
  receives_.clear();
  if (posted.empty()) return;
  *moved = true;
  if (!is_reported_) done_.push_back({posted.front(), failed_});
}

void OrderedLane::OnBegin() {
  if (waits() && receives_.empty()) CheckPlan(header().message());
}

// No receive is posted for this message. Operations without a number are steps of another one.
void OrderedLane::CheckPlan(const Message& theirs) {
  const auto found = shared_->begun.find(theirs.tag.id);
  if (found == shared_->begun.end() || theirs.tag.operation == 0) return;
  const MessageTag& ours = found->second;
  if (theirs.tag.operation > ours.operation) return;
  if (theirs.tag.operation == ours.operation && theirs.tag.plan == ours.plan) return;
  shared_->sink->OnMismatch(peer_, {theirs, {ours}});
}

void OrderedLane::Quiesce() {
  DropQueue();
  receives_.clear();
}

// ---- the early lane: posts

void EarlyLane::PostSend(const Post& post) {
  if (is_dropped()) return done_.push_back({post.context, {}});  // as DropSends
  if (sent_bytes_ - peer_took_bytes_ + post.message.size_bytes <= shared_->credit_bytes) {
    sent_bytes_ += post.message.size_bytes;
    QueueFrame(FrameKind::kData, post.message, post.data, post.context);
  } else {
    announced_.push_back(post);
    QueueFrame(FrameKind::kAnnounced, post.message);
  }
}

void EarlyLane::PostReceive(const Post& post) {
  const auto kept = Find(kept_, post.message);
  if (kept == kept_.end()) return receives_.push_back({post});
  if (!Agree(kept->message, post.message))  // then the receive never completes
    return shared_->sink->OnMismatch(peer_, {kept->message, post.message});
  if (!kept->kept) QueueFrame(FrameKind::kGrant, post.message);
  has_complete_ |= kept->complete;
  kept->data = post.data;
  kept->context = post.context;
  receives_.push_back(std::move(*kept));
  kept_.erase(kept);
}

void EarlyLane::PostGoodbye(int left) {
  Message goodbye;
  goodbye.tag.id = left;
  QueueFrame(FrameKind::kGoodbye, goodbye);
}

// The header says how much this rank has taken.
void EarlyLane::QueueFrame(FrameKind kind, const Message& message, const void* payload, uint64_t context) {
  reported_bytes_ = taken_bytes_;
  Queue({kind, message.part, message.size_bytes, taken_bytes_, message.tag}, payload, context);
}

void EarlyLane::Cancel(const MessageTag& operation) {
  const auto is_of = [&operation](const Post& each) { return each.message.tag.IsOf(operation); };
  DropIncoming(&receives_, is_of);
  DropIncoming(&kept_, is_of);
  announced_.erase(std::remove_if(announced_.begin(), announced_.end(), is_of), announced_.end());
  Detach(operation);
}

void EarlyLane::Drop(uint32_t serial) {
  DropIncoming(&kept_, [serial](const Post& each) { return each.message.tag.serial == serial; });
}

template <typename IsMeant>
void EarlyLane::DropIncoming(std::vector<Incoming>* from, IsMeant is_meant) {
  for (const Incoming& each : *from) {
    if (!is_meant(each)) continue;
    if (is_in_payload() && IsSame(header().message(), each.message)) DropPayload();
    ReleaseKept(each);
  }
  from->erase(std::remove_if(from->begin(), from->end(), is_meant), from->end());
}

bool EarlyLane::HasHeader(const MessageTag& operation) const {
  return std::none_of(receives_.begin(), receives_.end(), [&operation](const Incoming& each) {
    return each.message.tag.IsOf(operation) && each.message.part == 0 && !each.heard;
  });
}

// ---- the early lane: moving

// That the peer has closed its end is not an end yet, since reading finds that behind all that it has sent.
Status EarlyLane::OnSendLost(const Status&) {
  DropSends();
  return Status::Ok();
}

// What cannot be sent any more counts as sent.
void EarlyLane::DropSends() {
  for (uint64_t context : DropQueue()) done_.push_back({context, {}});
  for (const Post& each : announced_) done_.push_back({each.context, {}});
  announced_.clear();
}

// The data of the oldest receive come next, unless the peer submits in another order.
iovec EarlyLane::Expected() {
  const auto next = std::find_if(receives_.begin(), receives_.end(), [](const Incoming& each) { return !each.heard; });
  if (next == receives_.end()) return {};
  return {next->data, static_cast<size_t>(next->message.size_bytes)};
}

Status EarlyLane::OnHeader(const FrameHeader& header, std::byte** to, bool*) {
  if (header.kind == FrameKind::kControl) return Malformed();
  if (header.taken_bytes < peer_took_bytes_ || header.taken_bytes > sent_bytes_) return Malformed();
  peer_took_bytes_ = header.taken_bytes;
  const Message message = header.message();
  if (header.kind == FrameKind::kGrant) SendGranted(message);
  if (header.kind == FrameKind::kGoodbye) shared_->sink->OnGoodbye(peer_, header.tag.id);
  if (header.kind != FrameKind::kAnnounced && !header.has_payload()) return Status::Ok();
  const auto receive = Find(receives_, message);
  if (receive == receives_.end()) return header.kind == FrameKind::kGranted ? Status::Ok() : Keep(header, to);
  if (receive->complete) return Malformed();
  if (!Agree(message, receive->message)) return ReportMismatch(message, receive->message);
  receive->heard = true;
  if (header.kind == FrameKind::kAnnounced) QueueFrame(FrameKind::kGrant, receive->message);
  if (header.has_payload()) *to = receive->data;
  return Status::Ok();
}

// No receive is posted for this message.
Status EarlyLane::Keep(const FrameHeader& header, std::byte** to) {
  bool wanted = false;
  FRD_RETURN_IF_ERROR(shared_->sink->OnArrival(peer_, header.tag, &wanted));
  if (!wanted) return Status::Ok();
  if (kept_.size() >= kMaxKept || Find(kept_, header.message()) != kept_.end()) return Malformed();
  Incoming incoming{{header.message(), nullptr, kNoContext}, /*heard=*/true};
  if (header.has_payload()) {
    const auto size_bytes = static_cast<size_t>(header.size_bytes);
    if (size_bytes > shared_->credit_bytes - kept_bytes_) return Malformed();
    incoming.kept.reset(new (std::nothrow) std::byte[size_bytes]);
    if (!incoming.kept) return Internal("there is no memory for ", size_bytes, " bytes that rank ", peer_, " has sent");
    kept_bytes_ += size_bytes;
    *to = incoming.kept.get();
  }
  kept_.push_back(std::move(incoming));
  return Status::Ok();
}

// A message that was cancelled meanwhile is granted in vain.
void EarlyLane::SendGranted(const Message& message) {
  const auto found = Find(announced_, message);
  if (found == announced_.end()) return;
  QueueFrame(FrameKind::kGranted, found->message, found->data, found->context);
  announced_.erase(found);
}

// The payload may be of a message that was dropped. A receive that was posted for it meanwhile never completes.
Status EarlyLane::OnMessage(const FrameHeader& header) {
  if (!header.has_payload()) return Status::Ok();
  const auto kept = Find(kept_, header.message());
  if (kept != kept_.end() && kept->kept) {
    kept->complete = true;
    return Status::Ok();
  }
  const auto receive = Find(receives_, header.message());
  const bool is_received = receive != receives_.end() && receive->heard;
  if (is_received) receive->complete = has_complete_ = true;
  if (header.kind == FrameKind::kData && !(is_received && receive->kept)) Take(header.size_bytes);
  return Status::Ok();
}

void EarlyLane::Take(uint64_t size_bytes) {
  taken_bytes_ += size_bytes;
  if (taken_bytes_ - reported_bytes_ >= shared_->credit_bytes / 2) QueueFrame(FrameKind::kCredit, {});
}

// A payload that is still arriving is taken at its end.
void EarlyLane::ReleaseKept(const Incoming& incoming) {
  if (!incoming.kept) return;
  kept_bytes_ -= static_cast<size_t>(incoming.message.size_bytes);
  if (incoming.complete) Take(incoming.message.size_bytes);
}

// ---- the early lane: ends

void EarlyLane::EndPosts(bool* moved) {
  for (auto each = receives_.begin(); has_complete_ && each != receives_.end();) {
    if (!each->complete) {
      ++each;
      continue;
    }
    if (each->kept) std::memcpy(each->data, each->kept.get(), static_cast<size_t>(each->message.size_bytes));
    ReleaseKept(*each);
    done_.push_back({each->context, {}});
    each = receives_.erase(each);
  }
  has_complete_ = false;
  if (failed_.ok() || !open()) return;
  DropSends();
  Close();
  shared_->sink->OnEnd(peer_, failed_);
  *moved = true;
}

void EarlyLane::Quiesce() {
  DropQueue();
  DropPayload();
  receives_.clear();
  announced_.clear();
  kept_.clear();
}

}  // namespace farandole
