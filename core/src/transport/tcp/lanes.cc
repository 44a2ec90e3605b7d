#include "transport/tcp/lanes.h"

#include <sys/socket.h>

#include <cstring>
#include <new>
#include <tuple>
#include <utility>

#include "common/failpoint.h"

namespace farandole {
namespace {

// More than all ids with two uses and some parts each.
constexpr size_t kMostKept = 1 << 14;

Mismatch::Side SideOf(const FrameHeader& header, Lane lane) {
  return {header.Tag(lane), header.part, header.size_bytes};
}

Status Unreadable(int peer) { return {Code::kMismatch, "rank ", peer, " sent a message that cannot be read"}; }
// The sink has told more (OnMismatch).
Status Different(int peer) { return {Code::kMismatch, "rank ", peer, " sent a message for another operation"}; }

}  // namespace

// ---- the ordered lane

void OrderedLane::PostSend(const MessageTag& tag, uint32_t part, const void* data, size_t size_bytes,
                           uint64_t context) {
  if (!failed_.ok()) return lost_.push_back(context);
  stream_.Queue(MakeHeader(FrameKind::kData, tag, part, size_bytes), data, context);
}

void OrderedLane::PostReceive(const MessageTag& tag, uint32_t part, void* data, size_t size_bytes, uint64_t context) {
  receives_.push_back({tag, part, static_cast<std::byte*>(data), size_bytes, context});
}

bool OrderedLane::Flush(std::vector<Transport::Completion>* completions) {
  bool moved = false;
  for (bool may_go_on = true; failed_.ok() && may_go_on; may_go_on = sends() && stream_.may_write()) {
    failed_ = FRD_FAILPOINT_STATUS("link.send");
    if (failed_.ok()) failed_ = stream_.Flush(&done_, &moved);
  }
  for (uint64_t context : done_) completions->push_back({context, Status::Ok()});
  done_.clear();
  return Fail(completions) || moved;
}

bool OrderedLane::Receive(std::vector<Transport::Completion>* completions) {
  bool moved = false;
  if (failed_.ok() && awaits()) failed_ = FRD_FAILPOINT_STATUS("link.recv");
  if (failed_.ok()) failed_ = stream_.Receive(this, &moved);
  for (uint64_t context : done_) completions->push_back({context, Status::Ok()});
  done_.clear();
  return Fail(completions) || moved;
}

// The first post completes with the error, and the others are dropped. If the sink knows the reason, which says more,
// none completes.
bool OrderedLane::Fail(std::vector<Transport::Completion>* completions) {
  if (failed_.ok()) return false;
  std::vector<uint64_t> posted = stream_.DropQueue();
  for (const Receiving& each : receives_) posted.push_back(each.context);
  posted.insert(posted.end(), lost_.begin(), lost_.end());
  receives_.clear();
  lost_.clear();
  if (!posted.empty() && !told_sink_) completions->push_back({posted.front(), failed_});
  return !posted.empty();
}

FrameSink::Slice OrderedLane::Expected() {
  if (receives_.empty()) return {};
  return {receives_.front().data, receives_.front().size_bytes};
}

Status OrderedLane::OnHeader(const FrameHeader& header, std::byte** to, bool* waits) {
  if (header.kind != FrameKind::kData) return Unreadable(peer_);
  *waits = receives_.empty();
  if (*waits) {
    CheckPlan(header);
    return Status::Ok();
  }
  const Receiving& next = receives_.front();
  const auto as_tuple = [](const MessageTag& tag) { return std::tie(tag.id, tag.operation, tag.channel, tag.plan); };
  const bool agrees = as_tuple(header.Tag(Lane::kOrdered)) == as_tuple(next.tag) && header.part == next.part &&
                      header.size_bytes == next.size_bytes;
  if (!agrees) {
    shared_->sink->OnMismatch(peer_, {SideOf(header, Lane::kOrdered), {next.tag, next.part, next.size_bytes}});
    told_sink_ = true;
    return Different(peer_);
  }
  *to = next.data;
  return Status::Ok();
}

Status OrderedLane::OnMessage(const FrameHeader&) {
  done_.push_back(receives_.front().context);
  receives_.pop_front();
  return Status::Ok();
}

void OrderedLane::OnBegin() {
  if (stream_.waits() && receives_.empty()) CheckPlan(stream_.header());
}

// No receive is posted for this message. Operations without a number are steps of another one.
void OrderedLane::CheckPlan(const FrameHeader& header) {
  const auto found = shared_->begun.find(header.id);
  if (found == shared_->begun.end() || header.operation == 0) return;
  const MessageTag& ours = found->second;
  if (header.operation > ours.operation) return;
  if (header.operation == ours.operation && header.plan == ours.plan) return;
  shared_->sink->OnMismatch(peer_, {SideOf(header, Lane::kOrdered), {ours, 0, 0}});
}

void OrderedLane::Quiesce() {
  stream_.DropQueue();
  receives_.clear();
}

// ---- the early lane: posts

void EarlyLane::PostSend(const MessageTag& tag, uint32_t part, const void* data, size_t size_bytes, uint64_t context) {
  if (sent_bytes_ - peer_took_bytes_ + size_bytes <= credit_bytes_) {
    sent_bytes_ += size_bytes;
    Queue(MakeHeader(FrameKind::kData, tag, part, size_bytes), data, context);
  } else {
    announced_.push_back({KeyOf(tag, part), tag, data, size_bytes, context});
    Queue(MakeHeader(FrameKind::kAnnounced, tag, part, size_bytes));
  }
}

void EarlyLane::PostReceive(const MessageTag& tag, uint32_t part, void* data, size_t size_bytes, uint64_t context) {
  receives_.push_back({KeyOf(tag, part), tag, static_cast<std::byte*>(data), size_bytes, context});
  const auto receiving = receives_.end() - 1;
  const auto kept = Find(kept_, receiving->key);
  if (kept == kept_.end()) return;
  if (!Agrees(kept->header, *receiving)) return receives_.pop_back();  // it never completes
  receiving->heard = true;
  if (!kept->data) {
    Queue(MakeHeader(FrameKind::kGrant, tag, part, size_bytes));
    kept_.erase(kept);
  } else if (kept->complete) {
    TakeKept(kept, receiving);
  }
}

void EarlyLane::PostGoodbye(int left) {
  MessageTag tag;
  tag.id = left;
  Queue(MakeHeader(FrameKind::kGoodbye, tag, 0, 0));
}

// The header says how much this rank has taken.
void EarlyLane::Queue(FrameHeader header, const void* payload, uint64_t context) {
  header.taken_bytes = told_bytes_ = taken_bytes_;
  stream_.Queue(header, payload, context);
}

void EarlyLane::Cancel(const MessageTag& tag) {
  const auto is_of = [&tag](const auto& each) { return each.key.IsOf(tag); };
  for (const Receiving& each : receives_) {
    if (is_of(each) && stream_.is_receiving(each.data, each.size_bytes)) stream_.DropPayload();
  }
  receives_.erase(std::remove_if(receives_.begin(), receives_.end(), is_of), receives_.end());
  completed_.erase(std::remove_if(completed_.begin(), completed_.end(), is_of), completed_.end());
  announced_.erase(std::remove_if(announced_.begin(), announced_.end(), is_of), announced_.end());
  DropKept(is_of);
  stream_.Detach([&tag](const FrameHeader& header) { return KeyOf(header).IsOf(tag); });
}

void EarlyLane::Drop(uint32_t serial) {
  DropKept([serial](const Kept& each) { return each.key.serial == serial; });
}

template <typename IsMeant>
void EarlyLane::DropKept(IsMeant is_meant) {
  for (const Kept& each : kept_) {
    if (!is_meant(each) || !each.data) continue;
    kept_bytes_ -= each.header.size_bytes;
    if (each.complete) {
      Take(each.header);
    } else {
      stream_.DropPayload();
    }
  }
  kept_.erase(std::remove_if(kept_.begin(), kept_.end(), is_meant), kept_.end());
}

bool EarlyLane::HasHeard(const MessageTag& tag) const {
  return std::none_of(receives_.begin(), receives_.end(), [&tag](const Receiving& each) {
    return each.key.IsOf(tag) && each.key.part == 0 && !each.heard;
  });
}

// ---- the early lane: moving

// That the peer has closed its end is not an end yet, since reading finds that behind all that it has sent. Then what
// cannot be sent any more counts as sent.
bool EarlyLane::Flush(std::vector<Transport::Completion>* completions) {
  bool moved = false;
  Status status = FRD_FAILPOINT_STATUS("early.send");
  if (status.ok()) status = stream_.Flush(&sent_, &moved);
  if (!status.ok()) DropSends();
  for (uint64_t context : sent_) completions->push_back({context, Status::Ok()});
  sent_.clear();
  if (!status.ok() && status.code() != Code::kPeerLost) End(status, completions);
  return moved || !status.ok();
}

bool EarlyLane::Receive(std::vector<Transport::Completion>* completions) {
  bool moved = !completed_.empty();
  Status status = FRD_FAILPOINT_STATUS("early.recv");
  if (status.ok() && stream_.open()) status = stream_.Receive(this, &moved);
  for (const Receiving& each : completed_) completions->push_back({each.context, Status::Ok()});
  completed_.clear();
  if (!status.ok()) End(status, completions);
  return moved || !status.ok();
}

void EarlyLane::DropSends() {
  for (uint64_t context : stream_.DropQueue()) sent_.push_back(context);
  for (const Announced& each : announced_) sent_.push_back(each.context);
  announced_.clear();
}

// What cannot be sent any more counts as sent, here as in Flush.
void EarlyLane::End(const Status& status, std::vector<Transport::Completion>* completions) {
  DropSends();
  for (uint64_t context : sent_) completions->push_back({context, Status::Ok()});
  sent_.clear();
  stream_.Close();
  shared_->sink->OnEnd(peer_, status);
}

// The data of the oldest receive come next, unless the peer submits in another order.
FrameSink::Slice EarlyLane::Expected() {
  const auto next = std::find_if(receives_.begin(), receives_.end(), [](const Receiving& each) { return !each.heard; });
  if (next == receives_.end()) return {};
  return {next->data, next->size_bytes};
}

Status EarlyLane::OnHeader(const FrameHeader& header, std::byte** to, bool*) {
  const bool is_possible = header.taken_bytes >= peer_took_bytes_ && header.taken_bytes <= sent_bytes_;
  if (!is_possible) return Unreadable(peer_);
  peer_took_bytes_ = header.taken_bytes;
  const auto receiving = Find(receives_, KeyOf(header));
  switch (header.kind) {
    case FrameKind::kGranted:
    case FrameKind::kData:
      if (receiving == receives_.end()) return header.kind == FrameKind::kData ? Keep(header, to) : Status::Ok();
      if (!Agrees(header, *receiving)) return Different(peer_);
      receiving->heard = true;
      *to = receiving->data;
      return Status::Ok();
    case FrameKind::kAnnounced:
      if (receiving == receives_.end()) return Keep(header, to);
      if (!Agrees(header, *receiving)) return Different(peer_);
      receiving->heard = true;
      Queue(MakeHeader(FrameKind::kGrant, receiving->tag, receiving->key.part, receiving->size_bytes));
      return Status::Ok();
    case FrameKind::kGrant:
      SendGranted(KeyOf(header));
      return Status::Ok();
    case FrameKind::kGoodbye:
      shared_->sink->OnGoodbye(peer_, header.id);
      return Status::Ok();
    case FrameKind::kCredit:
      return Status::Ok();
  }
  return Unreadable(peer_);
}

// No receive is posted for this message.
Status EarlyLane::Keep(const FrameHeader& header, std::byte** to) {
  bool wanted = false;
  FRD_RETURN_IF_ERROR(shared_->sink->OnArrival(peer_, header.Tag(Lane::kEarly), &wanted));
  if (!wanted) return Status::Ok();
  if (kept_.size() >= kMostKept || Find(kept_, KeyOf(header)) != kept_.end()) return Unreadable(peer_);
  Kept kept{KeyOf(header), header, nullptr};
  if (header.has_payload()) {
    const auto size_bytes = static_cast<size_t>(header.size_bytes);
    if (size_bytes > credit_bytes_ - kept_bytes_) return Unreadable(peer_);
    kept.data.reset(new (std::nothrow) std::byte[size_bytes]);
    if (!kept.data) return Internal("there is no memory for ", size_bytes, " bytes that rank ", peer_, " has sent");
    kept_bytes_ += size_bytes;
    *to = kept.data.get();
  }
  kept_.push_back(std::move(kept));
  return Status::Ok();
}

// A message that was cancelled meanwhile is granted in vain.
void EarlyLane::SendGranted(const Key& key) {
  const auto found = Find(announced_, key);
  if (found == announced_.end()) return;
  Queue(MakeHeader(FrameKind::kGranted, found->tag, key.part, found->size_bytes), found->data, found->context);
  announced_.erase(found);
}

Status EarlyLane::OnMessage(const FrameHeader& header) {
  if (!header.has_payload()) return Status::Ok();
  const auto kept = Find(kept_, KeyOf(header));
  const auto receiving = Find(receives_, KeyOf(header));
  // A receive that was posted while its payload was dropped never completes.
  const bool is_received = receiving != receives_.end() && receiving->heard;
  if (kept != kept_.end() && kept->data) {
    kept->complete = true;
    if (is_received) TakeKept(kept, receiving);
    return Status::Ok();
  }
  Take(header);
  if (is_received) Complete(receiving);
  return Status::Ok();
}

void EarlyLane::TakeKept(std::vector<Kept>::iterator kept, std::vector<Receiving>::iterator receiving) {
  std::memcpy(receiving->data, kept->data.get(), receiving->size_bytes);
  kept_bytes_ -= receiving->size_bytes;
  Take(kept->header);
  kept_.erase(kept);
  Complete(receiving);
}

void EarlyLane::Complete(std::vector<Receiving>::iterator receiving) {
  completed_.push_back(*receiving);
  receives_.erase(receiving);
}

void EarlyLane::Take(const FrameHeader& header) {
  if (header.kind != FrameKind::kData) return;
  taken_bytes_ += header.size_bytes;
  if (taken_bytes_ - told_bytes_ >= credit_bytes_ / 2) Queue(MakeHeader(FrameKind::kCredit, {}, 0, 0));
}

// Returns false, and tells the sink, where the two ranks do not run the operation in the same way.
bool EarlyLane::Agrees(const FrameHeader& header, const Receiving& receiving) {
  if (header.size_bytes == receiving.size_bytes && header.plan == receiving.tag.plan) return true;
  shared_->sink->OnMismatch(peer_,
                            {SideOf(header, Lane::kEarly), {receiving.tag, receiving.key.part, receiving.size_bytes}});
  return false;
}

// ---- the early lane: its end

void EarlyLane::Quiesce() {
  stream_.DropQueue();
  stream_.DropPayload();
  receives_.clear();
  completed_.clear();
  announced_.clear();
  kept_.clear();
}

void EarlyLane::DrainBeforeClose() {
  char unread[4096];
  while (stream_.open() && recv(stream_.descriptor(), unread, sizeof unread, MSG_DONTWAIT) > 0) continue;
}

}  // namespace farandole
