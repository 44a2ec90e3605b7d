#include "controller/coordinator.h"

#include <algorithm>

#include "controller/board.h"
#include "controller/validate.h"

namespace farandole {
namespace {

constexpr int64_t kLine = 64;
// Nearly always all ranks have one name for an id; saying so once saves a name for each of them.
constexpr int kAllRanks = -1;

Status Unreadable(int from) {
  return {Code::kPeerLost, "rank " + std::to_string(from) + " sent a control message that cannot be read"};
}

std::map<int, std::string> NamesIn(const std::map<int, Description>& gathering) {
  std::map<int, std::string> names;
  const std::string& first = gathering.begin()->second.name;
  bool equal = true;
  for (const auto& [rank, description] : gathering) {
    equal = equal && description.name == first;
    names[rank] = description.name;
  }
  if (equal) return {{kAllRanks, first}};
  return names;
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
  if (signature.device != 0) return 0;  // who submits cannot copy what a device has not computed yet
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
  if (kind == MessageKind::kAbort) return OnAbort(from, message, out);
  const int id = reader.Get<int32_t>();
  const auto value = reader.Get<uint64_t>();
  if (!reader.AtEnd() || id < 0 || id >= kMaxIds) return Unreadable(from);
  return OnIdMessage(from, kind, id, value, out);
}

Status Coordinator::OnIdMessage(int from, MessageKind kind, int number, uint64_t value, std::vector<Outgoing>* out) {
  const auto state = ids_[static_cast<size_t>(number)].state;
  switch (kind) {
    case MessageKind::kStuck:
      if (state == Id::kLive) StartRetiring(number, out);
      return Status::Ok();
    case MessageKind::kRetireInfo:
      if (state != Id::kRetiring || !IsLeader(from)) return Unreadable(from);
      return OnRetireInfo(number, value, out);
    case MessageKind::kFree:
      if (state != Id::kRetired || !IsLeader(from)) return Unreadable(from);
      return OnFree(number, out);
    case MessageKind::kLeave:
      OnLeave(from, out);
      return Status::Ok();
    default:
      return Unreadable(from);
  }
}

// Every rank tells its own group; the others hear it from here, after everything that was ready before.
void Coordinator::OnLeave(int from, std::vector<Outgoing>* out) {
  Flush(out);
  for (const auto& group : layout_.groups) {
    if (layout_.group_of[static_cast<size_t>(from)] == layout_.group_of[static_cast<size_t>(group[0])]) continue;
    out->push_back({group[0], EncodeIdMessage(MessageKind::kLeft, from)});
  }
}

Status Coordinator::OnDescribe(int from, ByteReader* reader, std::vector<Outgoing>* out) {
  Description description = Description::Decode(reader);
  if (!reader->AtEnd()) return Unreadable(from);
  if (const std::optional<int> live = LiveIdOf(from, description.name)) StartRetiring(*live, out);
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

std::optional<int> Coordinator::LiveIdOf(int rank, const std::string& name) const {
  auto found = id_by_name_.find({rank, name});
  if (found == id_by_name_.end()) found = id_by_name_.find({kAllRanks, name});
  if (found == id_by_name_.end()) return std::nullopt;
  return found->second;
}

// Why this comes to an end: while the first in the queue does not fit, some id is live (and one more is retired here)
// or on its way to being free (and that calls this again); and once all are free, all memory is one piece again.
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
  const int number = free_ids_.front();
  free_ids_.pop_front();
  Id& id = ids_[static_cast<size_t>(number)];
  id = Id();
  id.state = Id::kLive;
  id.names = NamesIn(gathering);
  id.signature = gathering.begin()->second.signature;
  id.span_offset = span_offset;
  for (const auto& name : id.names) id_by_name_[name] = number;
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
  if (!reader->AtEnd() || number < 0 || number >= kMaxIds || !IsLeader(from)) return Unreadable(from);
  Id& id = ids_[static_cast<size_t>(number)];
  const int group = layout_.group_of[static_cast<size_t>(from)];
  const bool in_use = id.state == Id::kLive || id.state == Id::kRetiring;
  if (!in_use || !AreExtentsOf(id, group, extents)) return Unreadable(from);
  id.turn = turn;
  id.completed[group] = std::move(extents);
  if (id.completed.size() < static_cast<size_t>(layout_.group_count())) return Status::Ok();
  ready_.push_back({number, turn, id.span_offset, InRankOrder(id.completed)});
  id.completed.clear();
  return Status::Ok();
}

bool Coordinator::AreExtentsOf(const Id& id, int group, const std::vector<int64_t>& extents) const {
  const size_t each = id.signature.kind == OpKind::kAllgather ? id.signature.tensors.size() : 0;
  if (extents.size() != each * layout_.groups[static_cast<size_t>(group)].size()) return false;
  return std::all_of(extents.begin(), extents.end(), [](int64_t extent) { return extent >= 0; });
}

void Coordinator::StartRetiring(int number, std::vector<Outgoing>* out) {
  Id& id = ids_[static_cast<size_t>(number)];
  id.state = Id::kRetiring;
  id.answers = 0;
  for (const auto& name : id.names) {
    const auto found = id_by_name_.find(name);
    if (found != id_by_name_.end() && found->second == number) id_by_name_.erase(found);
  }
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

// Whoever hears of an abort may abort in turn; forwarding those too would be ranks times ranks messages.
Status Coordinator::OnAbort(int from, const Bytes& message, std::vector<Outgoing>* out) {
  if (!IsAbort(message)) return Unreadable(from);
  if (std::exchange(aborted_, true)) return Status::Ok();
  for (int rank = 0; rank < layout_.size(); ++rank) {
    if (rank != from) out->push_back({rank, message});
  }
  return Status::Ok();
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
