#include "controller/coordinator.h"

#include <algorithm>

#include "controller/signature.h"

namespace farandole {
namespace {

std::string KeyOfTurn(int64_t turn) { return "t" + std::to_string(turn); }

// Unnamed operations are matched by their turn, whatever they turn out to be, so that a disagreement is seen.
std::pair<int, std::string> GatheringKey(const Description& description) {
  const std::string name = description.named() ? "n" + description.name : KeyOfTurn(description.turn);
  return {description.signature.set, name};
}

}  // namespace

Coordinator::Coordinator(const Layout& layout, int64_t second_level_cache_bytes)
    : layout_(layout),
      second_level_cache_bytes_(second_level_cache_bytes),
      sets_(layout, 0),
      spans_(static_cast<int64_t>(kSpanBytes)),
      ids_(kMaxIds) {
  for (int id = 0; id < kMaxIds; ++id) free_ids_.push_back(id);
}

Status Coordinator::OnMessage(int from, const Bytes& message, std::vector<Outgoing>* out) {
  ByteReader reader(message);
  const auto kind = reader.Get<MessageKind>();
  if (kind == MessageKind::kDescribe) return OnDescribe(from, &reader, out);
  if (kind == MessageKind::kComplete) return OnComplete(from, &reader, out);
  if (kind == MessageKind::kAsk) return OnAsk(from, &reader, out);
  if (kind == MessageKind::kStacks) return OnStacks(from, &reader, out);
  if (kind == MessageKind::kRefused) return OnRefused(from, &reader, out);
  if (kind == MessageKind::kJoin) return OnJoin(from, &reader, out);
  if (kind == MessageKind::kAbort) return OnAbort(from, message, out);
  const int id = reader.Get<int32_t>();
  const auto value = reader.Get<uint64_t>();
  if (!reader.AtEnd() || id < 0 || id >= kMaxIds) return Unreadable(from);
  if (kind == MessageKind::kLeave) {
    OnLeave(from, out);
    return Status::Ok();
  }
  if (kind == MessageKind::kWhom) {
    OnWhom(from, out);
    return Status::Ok();
  }
  return OnIdMessage(from, kind, id, value, out);
}

// Every rank tells its own group; the others hear it from here, after everything that was ready before. When it is rank
// 0, whose connections end, it tells each of them, since the first of their group may be slow to write it down.
void Coordinator::OnLeave(int from, std::vector<Outgoing>* out) {
  Flush(out);
  for (const auto& group : layout_.groups) {
    if (layout_.group_of[static_cast<size_t>(from)] == layout_.group_of[static_cast<size_t>(group[0])]) continue;
    for (int rank : group) {
      if (rank == group[0] || from == kCoordinatorRank)
        out->push_back({rank, EncodeIdMessage(MessageKind::kLeft, from)});
    }
  }
}

Status Coordinator::OnDescribe(int from, ByteReader* reader, std::vector<Outgoing>* out) {
  auto description = Decode<Description>(reader);
  const ProcessSetPtr set = sets_.Find(description.signature.set);
  if (!reader->AtEnd() || !set || set->PositionOf(from) < 0 || HasJoined(from)) return Unreadable(from);
  if (!FitsSet(description, set->size(), layout_.size())) return Unreadable(from);
  if (const std::optional<int> live = LiveIdOf(from, set->id, description.name)) StartRetiring(*live, out);
  const auto key = GatheringKey(description);
  Gathering& gathering = gathering_[key];
  TellOfRefusals(from, description, out);
  gathering[from] = std::move(description);
  if (!IsComplete(gathering, *set)) return Status::Ok();
  const Gathering complete = std::move(gathering);
  gathering_.erase(key);
  Decide(complete, out);
  return Status::Ok();
}

// It goes on without having taken its turn, so it may still come; but nobody shall wait for it in the dark.
Status Coordinator::OnRefused(int from, ByteReader* reader, std::vector<Outgoing>* out) {
  auto refused = Decode<Refused>(reader);
  if (!reader->AtEnd() || refused.rank != from) return Unreadable(from);
  refused_[from] = std::move(refused);
  const auto waiting = gathering_.find({0, KeyOfTurn(refused_[from].turn)});
  if (waiting == gathering_.end()) return Status::Ok();
  for (const auto& [rank, description] : waiting->second) {
    if (ChangesSets(description.signature.kind)) out->push_back({rank, Encode(refused_[from])});
  }
  return Status::Ok();
}

void Coordinator::TellOfRefusals(int to, const Description& description, std::vector<Outgoing>* out) const {
  if (!ChangesSets(description.signature.kind)) return;
  for (const auto& [rank, refused] : refused_) {
    if (rank != to && refused.turn == description.turn) out->push_back({to, Encode(refused)});
  }
}

bool Coordinator::IsComplete(const Gathering& gathering, const ProcessSet& set) const {
  return std::all_of(set.ranks.begin(), set.ranks.end(),
                     [&](int rank) { return gathering.count(rank) > 0 || HasJoined(rank); });
}

void Coordinator::Decide(const Gathering& gathering, std::vector<Outgoing>* out) {
  const Signature& signature = gathering.begin()->second.signature;
  const ProcessSetPtr set = sets_.Find(signature.set);
  Status decided = Refusal(gathering, *set);
  if (decided.ok()) decided = ChangeSets(signature, out);
  if (!decided.ok()) {
    for (const auto& [rank, description] : gathering)
      out->push_back(
          {rank, Encode(Failure{set->id, description.name, decided.code(), decided.message(), decided.kinds()})});
    return;
  }
  waiting_for_id_.push_back(gathering);
  AssignWaiting(out);
}

Status Coordinator::Refusal(const Gathering& gathering, const ProcessSet& set) {
  const Description& first = gathering.begin()->second;
  FRD_RETURN_IF_ERROR(FindMismatch(gathering));
  if (WantedSpanBytes(first.signature, set) > static_cast<int64_t>(kSpanBytes) / 4)
    return Invalid(first.Title() + " has more tensors than fit; call it with fewer at a time");
  if (HasRoot(first.signature.kind) && HasJoined(first.signature.root)) {
    return {Code::kMismatch, first.Title() + ": its root, rank " + std::to_string(first.signature.root) +
                                 ", has joined and has no data to send; choose a rank that still has data"};
  }
  return Status::Ok();
}

// The table of sets changes here, before any rank can know of it; the ranks follow when they read the log.
Status Coordinator::ChangeSets(const Signature& signature, std::vector<Outgoing>* out) {
  if (signature.kind == OpKind::kAddProcessSet) {
    const std::vector<int> ranks(signature.ranks.begin(), signature.ranks.end());
    FRD_RETURN_IF_ERROR(sets_.CanAdd(ranks));
    sets_.Add(ranks);
  } else if (signature.kind == OpKind::kRemoveProcessSet) {
    const auto id = static_cast<int>(signature.ranks[0]);
    FRD_RETURN_IF_ERROR(sets_.CanRemove(id));
    if (IsAwaited(id))
      return Invalid("process set " + std::to_string(id) + " cannot be removed while it has operations in flight");
    RetireSet(id, out);
    sets_.Remove(id);
  }
  return Status::Ok();
}

// No rank of ours removes a set in which it has something in flight.
bool Coordinator::IsAwaited(int set) const {
  const auto gathering = gathering_.lower_bound({set, ""});
  if (gathering != gathering_.end() && gathering->first.first == set) return true;
  return std::any_of(waiting_for_id_.begin(), waiting_for_id_.end(),
                     [&](const Gathering& waiting) { return waiting.begin()->second.signature.set == set; });
}

Status Coordinator::OnComplete(int from, ByteReader* reader, std::vector<Outgoing>* out) {
  auto completion = Decode<Completion>(reader);
  if (!reader->AtEnd()) return Unreadable(from);
  Id& id = ids_[static_cast<size_t>(completion.id)];
  const bool in_use = id.state == Id::kLive || id.state == Id::kRetiring;
  if (!in_use || id.eager || !IsLeaderIn(from, *id.set)) return Unreadable(from);
  const int group = layout_.group_of[static_cast<size_t>(from)];
  if (!AreExtentsOf(id, group, completion.extents)) return Unreadable(from);
  if (id.completed.empty()) id.sequence = completion.sequence;
  if (id.sequence != completion.sequence) {
    // Unnamed operations of groups that disagreed before: not this use, but described anew and paired by turn.
    id.uses = std::min(id.uses, completion.turn - 1);
    if (id.state == Id::kLive) StartRetiring(completion.id, out);
    return Status::Ok();
  }
  id.turn = completion.turn;
  id.completed[group] = std::move(completion.extents);
  if (id.completed.size() < static_cast<size_t>(id.set->layout.group_count())) {
    OpenFor(completion.id, out);
    return Status::Ok();
  }
  ready_.push_back({completion.id, id.set->id, completion.turn, InPositionOrder(id)});
  id.completed.clear();
  return Status::Ok();
}

bool Coordinator::IsLeaderIn(int rank, const ProcessSet& set) const {
  const int group = layout_.group_of[static_cast<size_t>(rank)];
  return layout_.member_of[static_cast<size_t>(rank)] == 0 && MembersOf(group, set) > 0;
}

int Coordinator::MembersOf(int group, const ProcessSet& set) const {
  const auto& ranks = layout_.groups[static_cast<size_t>(group)];
  return static_cast<int>(
      std::count_if(ranks.begin(), ranks.end(), [&](int rank) { return set.PositionOf(rank) >= 0; }));
}

bool Coordinator::AreExtentsOf(const Id& id, int group, const std::vector<int64_t>& extents) const {
  const size_t each = id.signature.ExtentCount(id.set->size());
  if (extents.size() != each * static_cast<size_t>(MembersOf(group, *id.set))) return false;
  return std::all_of(extents.begin(), extents.end(), [](int64_t extent) { return extent >= 0; });
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

// Somebody waits for long, and wants to know where those are that do not come.
Status Coordinator::OnAsk(int from, ByteReader* reader, std::vector<Outgoing>* out) {
  const auto asked = Decode<Asked>(reader);
  if (!reader->AtEnd()) return Unreadable(from);
  for (int64_t rank : asked.ranks) {
    if (rank < 0 || rank >= layout_.size()) return Unreadable(from);
    out->push_back({static_cast<int>(rank), EncodeIdMessage(MessageKind::kTell, from)});
  }
  return Status::Ok();
}

void Coordinator::OnWhom(int from, std::vector<Outgoing>* out) const {
  out->push_back({from, Encode(Absent{Absences()})});
}

std::vector<Absence> Coordinator::Absences() const {
  std::vector<Absence> absences;
  for (const Waiting& waiting : Stalled()) {
    absences.push_back(
        {waiting.title, {waiting.missing.begin(), waiting.missing.end()}, {waiting.here.begin(), waiting.here.end()}});
  }
  return absences;
}

std::vector<int> Coordinator::Missing(const Gathering& gathering, const ProcessSet& set) const {
  std::vector<int> missing;
  for (int rank : set.ranks) {
    if (gathering.count(rank) == 0 && !HasJoined(rank)) missing.push_back(rank);
  }
  return missing;
}

std::vector<int> Coordinator::OthersOf(const ProcessSet& set, const std::vector<int>& missing) {
  std::vector<int> others;
  for (int rank : set.ranks) {
    if (std::find(missing.begin(), missing.end(), rank) == missing.end()) others.push_back(rank);
  }
  return others;
}

// Of a known one that some groups have come to: all of the others, since nobody here knows which of them it is.
std::vector<int> Coordinator::Missing(const Id& id) const {
  std::vector<int> missing;
  if (id.completed.empty()) return missing;
  for (int rank : id.set->ranks) {
    const bool is_in = id.completed.count(layout_.group_of[static_cast<size_t>(rank)]) > 0;
    if (!is_in && !HasJoined(rank)) missing.push_back(rank);
  }
  return missing;
}

Status Coordinator::OnStacks(int from, ByteReader* reader, std::vector<Outgoing>* out) {
  auto answer = Decode<Answered>(reader);
  const int asker = std::exchange(answer.rank, from);
  if (!reader->AtEnd() || asker < 0 || asker >= layout_.size()) return Unreadable(from);
  out->push_back({asker, Encode(answer)});
  return Status::Ok();
}

// Each leader gets what concerns its group, all of it in one message, so that all groups of a set cut alike.
void Coordinator::Flush(std::vector<Outgoing>* out) {
  if (ready_.empty()) return;
  for (int g = 0; g < layout_.group_count(); ++g) {
    ReadyBatch batch;
    for (const ReadyItem& item : ready_) {
      if (MembersOf(g, *ids_[static_cast<size_t>(item.id)].set) > 0) batch.items.push_back(item);
    }
    if (!batch.items.empty()) out->push_back({layout_.groups[static_cast<size_t>(g)][0], Encode(batch)});
  }
  ready_.clear();
}

void Coordinator::ToLeaders(const ProcessSet& set, const Bytes& message, std::vector<Outgoing>* out) const {
  for (int g = 0; g < layout_.group_count(); ++g) {
    if (MembersOf(g, set) > 0) out->push_back({layout_.groups[static_cast<size_t>(g)][0], message});
  }
}

std::vector<int64_t> Coordinator::InPositionOrder(const Id& id) const {
  const size_t each = id.signature.ExtentCount(id.set->size());
  std::vector<int64_t> extents;
  if (each == 0) return extents;
  std::map<int, size_t> read;  // by group: how many of its members' are in
  for (int rank : id.set->ranks) {
    const int group = layout_.group_of[static_cast<size_t>(rank)];
    const auto begin = id.completed.at(group).begin() + static_cast<std::ptrdiff_t>(each * read[group]++);
    extents.insert(extents.end(), begin, begin + static_cast<std::ptrdiff_t>(each));
  }
  return extents;
}

std::string Coordinator::TitleOf(const Id& id) {
  Description description;
  description.name = id.names.begin()->second;
  description.turn = TurnIn(id.sequence);
  description.signature = id.signature;
  return description.Title();
}

std::vector<Coordinator::Waiting> Coordinator::Stalled() const {
  std::vector<Waiting> all;
  for (const auto& [key, gathering] : gathering_) {
    const ProcessSetPtr set = sets_.Find(key.first);
    if (!set) continue;
    Waiting waiting{gathering.begin()->second.Title(), Missing(gathering, *set), {}};
    for (const auto& [rank, description] : gathering) waiting.here.push_back(rank);
    all.push_back(std::move(waiting));
  }
  for (int number : live_ids_) {
    const Id& id = ids_[static_cast<size_t>(number)];
    if (id.completed.empty()) continue;
    const std::vector<int> missing = Missing(id);
    all.push_back({TitleOf(id), missing, OthersOf(*id.set, missing)});
  }
  if (!joined_.empty())
    all.push_back({NameOf(OpKind::kJoin), Missing({}, *sets_.Find(0)), {joined_.begin(), joined_.end()}});
  return all;
}

}  // namespace farandole
