#include "controller/coordinator.h"

#include <algorithm>

#include "controller/board.h"
#include "controller/validate.h"

namespace farandole {
namespace {

constexpr int64_t kLine = 64;

Status Unreadable(int from) {
  return {Code::kPeerLost, "rank " + std::to_string(from) + " sent a control message that cannot be read"};
}

// Unnamed operations are matched by their turn, whatever they turn out to be, so that a disagreement is seen.
std::string GatheringKey(const Description& description) {
  return description.named() ? "n" + description.name : "t" + std::to_string(description.turn);
}

}  // namespace

int64_t SpanStride(const Signature& signature) { return (signature.TotalBytes() + kLine - 1) / kLine * kLine; }

int64_t WantedSpanBytes(const Signature& signature, const Layout& layout) {
  if (signature.kind == OpKind::kAllgather) {
    return 2 * static_cast<int64_t>(sizeof(int64_t)) * layout.size() * static_cast<int64_t>(signature.tensors.size());
  }
  const bool reduces = signature.kind == OpKind::kAllreduce || signature.kind == OpKind::kBarrier;
  if (!reduces || layout.group_count() > 1 || signature.TotalBytes() > kSmallBytes) return 0;
  return 2 * (layout.size() + 1) * std::max(SpanStride(signature), kLine);
}

Coordinator::Coordinator(Layout layout)
    : layout_(std::move(layout)), spans_(static_cast<int64_t>(kSpanBytes)), ids_(kMaxIds) {
  for (int id = 0; id < kMaxIds; ++id) free_ids_.push_back(id);
}

Status Coordinator::OnMessage(int from, const Bytes& message, std::vector<Outgoing>* out) {
  ByteReader reader(message);
  const auto kind = reader.Get<MessageKind>();
  if (kind == MessageKind::kDescribe) return OnDescribe(from, &reader, out);
  if (kind == MessageKind::kComplete) return OnComplete(from, &reader);
  if (kind == MessageKind::kAbort) {
    OnAbort(from, message, out);
    return Status::Ok();
  }
  const int id = reader.Get<int32_t>();
  const auto value = reader.Get<uint64_t>();
  if (!reader.AtEnd() || id < 0 || id >= kMaxIds) return Unreadable(from);
  switch (kind) {
    case MessageKind::kStuck:
      if (ids_[static_cast<size_t>(id)].state == Id::kLive) StartRetiring(id, out);
      return Status::Ok();
    case MessageKind::kRetireInfo:
      return OnRetireInfo(id, value, out);
    case MessageKind::kFree:
      return OnFree(id, out);
    case MessageKind::kLeave:
      // Every rank tells its own group; the others hear it from here, after everything that was ready before.
      Flush(out);
      for (const auto& group : layout_.groups) {
        if (layout_.group_of[static_cast<size_t>(from)] == layout_.group_of[static_cast<size_t>(group[0])]) continue;
        out->push_back({group[0], EncodeIdMessage(MessageKind::kLeft, from)});
      }
      return Status::Ok();
    default:
      return Unreadable(from);
  }
}

Status Coordinator::OnDescribe(int from, ByteReader* reader, std::vector<Outgoing>* out) {
  Description description = Description::Decode(reader);
  if (!reader->AtEnd()) return Unreadable(from);
  const auto live = id_by_name_.find(description.name);
  if (live != id_by_name_.end()) StartRetiring(live->second, out);
  const std::string key = GatheringKey(description);
  Gathering& gathering = gathering_[key];
  gathering[from] = std::move(description);
  if (gathering.size() < static_cast<size_t>(layout_.size())) return Status::Ok();
  const Gathering complete = std::move(gathering);
  gathering_.erase(key);
  Decide(complete, out);
  return Status::Ok();
}

void Coordinator::Decide(const Gathering& gathering, std::vector<Outgoing>* out) {
  std::string refusal = FindMismatch(gathering);
  const Description& first = gathering.begin()->second;
  if (WantedSpanBytes(first.signature, layout_) > static_cast<int64_t>(kSpanBytes) / 4) {
    refusal = first.Title() + " has more tensors than fit; gather them in several calls";
  }
  if (!refusal.empty()) {
    for (const auto& [rank, description] : gathering) out->push_back({rank, EncodeError(description.name, refusal)});
    return;
  }
  waiting_for_id_.push_back(gathering);
  AssignWaiting(out);
}

void Coordinator::AssignWaiting(std::vector<Outgoing>* out) {
  while (!waiting_for_id_.empty()) {
    const Signature& signature = waiting_for_id_.front().begin()->second.signature;
    const int64_t wanted_bytes = WantedSpanBytes(signature, layout_);
    const int64_t span_offset = spans_.Take(wanted_bytes);
    // A small tensor without a span is merely slower; extents have no other way.
    const bool no_span = span_offset < 0 && signature.kind == OpKind::kAllgather;
    if (free_ids_.empty() || no_span) {
      spans_.GiveBack(span_offset, wanted_bytes);
      RetireOldest(out);
      return;
    }
    Assign(waiting_for_id_.front(), span_offset, out);
    waiting_for_id_.pop_front();
  }
}

void Coordinator::RetireOldest(std::vector<Outgoing>* out) {
  while (!live_ids_.empty()) {
    const int oldest = live_ids_.front();
    live_ids_.pop_front();
    if (ids_[static_cast<size_t>(oldest)].state != Id::kLive) continue;
    StartRetiring(oldest, out);
    return;
  }
}

void Coordinator::Assign(const Gathering& gathering, int64_t span_offset, std::vector<Outgoing>* out) {
  const Description& description = gathering.begin()->second;
  const int number = free_ids_.front();
  free_ids_.pop_front();
  Id& id = ids_[static_cast<size_t>(number)];
  id = Id();
  id.state = Id::kLive;
  id.name = description.name;
  id.signature = description.signature;
  id.span_offset = span_offset;
  id_by_name_[id.name] = number;
  live_ids_.push_back(number);
  ReadyItem item{number, 0, id.span_offset, {}};
  for (const auto& [rank, each] : gathering) {
    out->push_back({rank, EncodeAssign(each.name, number, id.span_offset)});
    item.extents.insert(item.extents.end(), each.extents.begin(), each.extents.end());
  }
  ready_.push_back(std::move(item));
}

Status Coordinator::OnComplete(int from, ByteReader* reader) {
  const int number = reader->Get<int32_t>();
  const auto turn = reader->Get<uint64_t>();
  std::vector<int64_t> extents = reader->GetList();
  if (!reader->AtEnd() || number < 0 || number >= kMaxIds) return Unreadable(from);
  Id& id = ids_[static_cast<size_t>(number)];
  id.turn = turn;
  id.completed[layout_.group_of[static_cast<size_t>(from)]] = std::move(extents);
  if (id.completed.size() < static_cast<size_t>(layout_.group_count())) return Status::Ok();
  ready_.push_back({number, turn, id.span_offset, InRankOrder(id.completed)});
  id.completed.clear();
  return Status::Ok();
}

void Coordinator::StartRetiring(int number, std::vector<Outgoing>* out) {
  Id& id = ids_[static_cast<size_t>(number)];
  id.state = Id::kRetiring;
  id.answers = 0;
  id_by_name_.erase(id.name);
  ToLeaders(EncodeIdMessage(MessageKind::kRetire, number), out);
}

Status Coordinator::OnRetireInfo(int number, uint64_t uses, std::vector<Outgoing>* out) {
  Id& id = ids_[static_cast<size_t>(number)];
  id.uses = std::min(id.uses, uses);
  if (++id.answers < layout_.group_count()) return Status::Ok();
  // What is ready comes first in every log; an operation that only some groups had completed is described again.
  Flush(out);
  id.state = Id::kRetired;
  id.answers = 0;
  id.completed.clear();
  ToLeaders(EncodeIdMessage(MessageKind::kRetired, number, id.uses), out);
  return Status::Ok();
}

Status Coordinator::OnFree(int number, std::vector<Outgoing>* out) {
  Id& id = ids_[static_cast<size_t>(number)];
  if (++id.answers < layout_.group_count()) return Status::Ok();
  spans_.GiveBack(id.span_offset, WantedSpanBytes(id.signature, layout_));
  id = Id();
  free_ids_.push_back(number);
  live_ids_.erase(std::remove(live_ids_.begin(), live_ids_.end(), number), live_ids_.end());
  AssignWaiting(out);
  return Status::Ok();
}

void Coordinator::OnAbort(int from, const Bytes& message, std::vector<Outgoing>* out) {
  for (int rank = 0; rank < layout_.size(); ++rank) {
    if (rank != from) out->push_back({rank, message});
  }
}

void Coordinator::Flush(std::vector<Outgoing>* out) {
  if (ready_.empty()) return;
  ToLeaders(EncodeReady(ready_), out);
  ready_.clear();
}

void Coordinator::ToLeaders(const Bytes& message, std::vector<Outgoing>* out) const {
  for (const auto& group : layout_.groups) out->push_back({group[0], message});
}

std::vector<int64_t> Coordinator::InRankOrder(const std::map<int, std::vector<int64_t>>& by_group) const {
  std::vector<int64_t> extents;
  for (int rank = 0; rank < layout_.size(); ++rank) {
    const auto group = static_cast<size_t>(layout_.group_of[static_cast<size_t>(rank)]);
    const std::vector<int64_t>& from = by_group.at(static_cast<int>(group));
    const size_t each = from.size() / layout_.groups[group].size();
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(each) * layout_.member_of[static_cast<size_t>(rank)];
    extents.insert(extents.end(), begin, begin + static_cast<std::ptrdiff_t>(each));
  }
  return extents;
}

std::vector<Coordinator::Waiting> Coordinator::Stalled() const {
  std::vector<Waiting> all;
  for (const auto& [key, gathering] : gathering_) {
    Waiting waiting{gathering.begin()->second.Title(), {}};
    for (int rank = 0; rank < layout_.size(); ++rank) {
      if (gathering.count(rank) == 0) waiting.missing.push_back(rank);
    }
    all.push_back(std::move(waiting));
  }
  return all;
}

}  // namespace farandole
