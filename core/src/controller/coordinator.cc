#include "controller/coordinator.h"

#include <algorithm>

#include "controller/signature.h"

namespace farandole {
namespace {

std::pair<int, std::string> KeyOf(const Description& description) {
  const std::string name =
      description.named() ? "n" + description.name : "t" + std::to_string(description.sequence_number);
  return {description.signature.set, name};
}

// A rank that waits in the operation; null where all that have described it refuse it.
const Description* FirstOfWaiting(const Gathering& gathering) {
  const auto found =
      std::find_if(gathering.begin(), gathering.end(), [](const auto& each) { return each.second.refusal.empty(); });
  return found == gathering.end() ? nullptr : &found->second;
}

}  // namespace

// ---- who has joined

void JoinTally::Add(int rank, const SequenceNumbers& sequence_numbers) {
  ranks_.insert(rank);
  for (const auto& [set, sequence_number] : sequence_numbers)
    sequence_numbers_[set] = std::max(sequence_numbers_[set], sequence_number);
}

// ---- descriptions

std::optional<Gathering> DescriptionTable::Add(int from, Description description, const ProcessSet& set) {
  const Key key = KeyOf(description);
  auto [place, end] = gathering_.equal_range(key);
  while (place != end && place->second.count(from) > 0) ++place;
  if (place == end) place = gathering_.emplace(key, Gathering());
  place->second[from] = std::move(description);
  if (!IsComplete(place->second, set)) return std::nullopt;
  Gathering complete = std::move(place->second);
  gathering_.erase(place);
  return complete;
}

std::optional<Gathering> DescriptionTable::TakeComplete(const ProcessSets& sets) {
  const auto found = std::find_if(gathering_.begin(), gathering_.end(), [&](const auto& entry) {
    return IsComplete(entry.second, *sets.Find(entry.first.first));
  });
  if (found == gathering_.end()) return std::nullopt;
  Gathering complete = std::move(found->second);
  gathering_.erase(found);
  return complete;
}

bool DescriptionTable::IsComplete(const Gathering& gathering, const ProcessSet& set) const {
  return std::all_of(set.ranks.begin(), set.ranks.end(),
                     [&](int rank) { return gathering.count(rank) > 0 || joined_.Has(rank); });
}

bool DescriptionTable::IsAwaited(int set) const {
  return std::any_of(gathering_.lower_bound({set, ""}), gathering_.lower_bound({set + 1, ""}),
                     [](const auto& each) { return FirstOfWaiting(each.second) != nullptr; });
}

void DescriptionTable::Forget(int set) {
  gathering_.erase(gathering_.lower_bound({set, ""}), gathering_.lower_bound({set + 1, ""}));
}

// ---- the coordinator

Coordinator::Coordinator(const Layout& layout)
    : leaders_(layout),
      sets_(layout, kCoordinatorRank),
      descriptions_(joined_),
      order_(leaders_),
      ids_(sets_, leaders_, &order_) {}

Status Coordinator::OnMessage(int from, const Bytes& message, std::vector<Outgoing>* out) {
  ByteReader reader(message);
  const auto kind = reader.Get<MessageKind>();
  if (kind == MessageKind::kDescribe) return OnDescribe(from, &reader, out);
  if (kind == MessageKind::kComplete) return OnComplete(from, &reader, out);
  if (kind == MessageKind::kAsk) return OnAsk(from, &reader, out);
  if (kind == MessageKind::kStacks) return OnStacks(from, &reader, out);
  if (kind == MessageKind::kJoin) return OnJoin(from, &reader, out);
  if (kind == MessageKind::kAbort) return OnAbort(from, message, out);
  const auto [id, value] = Decode<IdMessage>(&reader);
  if (!reader.AtEnd() || !IsId(id)) return Unreadable(from);
  if (kind == MessageKind::kLeave) return OnLeave(from, out);
  if (kind == MessageKind::kWhom) {
    out->push_back({from, Encode(Absent{Absences()})});
    return Status::Ok();
  }
  return ids_.OnIdMessage(from, kind, id, value, out);
}

// A rank that leaves tells its own group. The coordinator tells the leaders of the others, after everything that was
// ready before. When rank 0 leaves, it tells each of their ranks, since its connections end, and a leader may be slow
// to write to the log.
Status Coordinator::OnLeave(int from, std::vector<Outgoing>* out) {
  Flush(out);
  for (const auto& group : leaders_.world().groups) {
    if (leaders_.GroupOf(from) == leaders_.GroupOf(group[0])) continue;
    for (int rank : group) {
      if (rank == group[0] || from == kCoordinatorRank)
        out->push_back({rank, EncodeIdMessage(MessageKind::kLeft, from)});
    }
  }
  return Status::Ok();
}

// Forwards the first abort only: a rank that hears of one may abort in turn, and to forward all would take ranks times
// ranks messages. The first rank gets its own back, since it may wait to learn which abort came first.
Status Coordinator::OnAbort(int from, const Bytes& message, std::vector<Outgoing>* out) {
  if (!IsAbort(message)) return Unreadable(from);
  if (std::exchange(aborted_, true)) return Status::Ok();
  for (int rank = 0; rank < leaders_.world().size(); ++rank) {
    if (rank != from || rank != kCoordinatorRank) out->push_back({rank, message});
  }
  return Status::Ok();
}

// ---- unknown names

Status Coordinator::OnDescribe(int from, ByteReader* reader, std::vector<Outgoing>* out) {
  auto description = Decode<Description>(reader);
  const ProcessSetPtr set = sets_.Find(description.signature.set);
  if (!reader->AtEnd() || !set || set->PositionOf(from) < 0 || joined_.Has(from)) return Unreadable(from);
  if (!FitsSet(description, set->size(), leaders_.world().size())) return Unreadable(from);
  if (const std::optional<int> live = ids_.LiveIdOf(from, set->id, description.name)) ids_.StartRetiring(*live, out);
  std::optional<Gathering> complete = descriptions_.Add(from, std::move(description), *set);
  if (complete) Decide(std::move(*complete), out);
  return Status::Ok();
}

// Nobody waits for an operation that all ranks have refused.
void Coordinator::Decide(Gathering gathering, std::vector<Outgoing>* out) {
  if (FirstOfWaiting(gathering) == nullptr) return;
  const Signature& signature = gathering.begin()->second.signature;
  const ProcessSetPtr set = sets_.Find(signature.set);
  Status decided = Refusal(gathering, *set);
  if (decided.ok()) decided = ChangeSets(signature, out);
  if (decided.ok()) return ids_.Assign(std::move(gathering), out);
  for (const auto& [rank, description] : gathering) {
    if (!description.refusal.empty()) continue;
    const Failure failure{set->id, description.name, decided.code(), decided.message(), decided.kinds()};
    out->push_back({rank, Encode(failure)});
  }
}

Status Coordinator::Refusal(const Gathering& gathering, const ProcessSet& set) const {
  const Description& first = gathering.begin()->second;
  FRD_RETURN_IF_ERROR(FindMismatch(gathering));
  if (CountsSpanBytes(first.signature, set) > static_cast<int64_t>(kSpanBytes) / 4)
    return Invalid(first.Title(), " has more tensors than fit; call it with fewer at a time");
  if (HasRoot(first.signature.kind) && joined_.Has(first.signature.root)) {
    return Status(Code::kMismatch, first.Title(), ": its root, rank ", first.signature.root,
                  ", has joined and has no data to send; choose a rank that still has data");
  }
  return Status::Ok();
}

// The coordinator's sets change here, before any rank can know of it; the ranks follow when they read the log. A rank
// does not remove a set in which it has operations in flight.
Status Coordinator::ChangeSets(const Signature& signature, std::vector<Outgoing>* out) {
  if (signature.kind == OpKind::kAddProcessSet) {
    const std::vector<int> ranks(signature.ranks.begin(), signature.ranks.end());
    FRD_RETURN_IF_ERROR(sets_.CanAdd(ranks));
    sets_.Add(ranks);
  } else if (signature.kind == OpKind::kRemoveProcessSet) {
    const auto id = static_cast<int>(signature.ranks[0]);
    FRD_RETURN_IF_ERROR(sets_.CanRemove(id));
    if (descriptions_.IsAwaited(id) || ids_.IsAwaited(id))
      return Invalid("process set ", id, " cannot be removed while it has operations in flight");
    ids_.RetireSet(id, out);
    descriptions_.Forget(id);
    sets_.Remove(id);
  }
  return Status::Ok();
}

// ---- known names of sets across groups

Status Coordinator::OnComplete(int from, ByteReader* reader, std::vector<Outgoing>* out) {
  auto completion = Decode<Completion>(reader);
  if (!reader->AtEnd()) return Unreadable(from);
  const IdTable::Id& id = ids_.at(completion.id);
  if (!id.IsInUse() || id.protocol == Protocol::kEarly || !leaders_.IsLeaderIn(from, *id.set)) return Unreadable(from);
  const int group = leaders_.GroupOf(from);
  if (!AreCountsOf(id, group, completion.counts)) return Unreadable(from);
  const int number = completion.id;
  const uint64_t use = completion.use;
  if (order_.Complete(group, id.set, id.signature, std::move(completion))) {
    OpenFor(number, out);
  } else {
    // These groups disagreed before about unnamed operations. Their ranks describe the operation anew, and the
    // coordinator pairs them by sequence number.
    ids_.OnDisagreement(number, use, out);
  }
  return Status::Ok();
}

bool Coordinator::AreCountsOf(const IdTable::Id& id, int group, const std::vector<int64_t>& counts) const {
  const size_t each = id.signature.CountsPerRank(id.set->size());
  if (counts.size() != each * static_cast<size_t>(leaders_.MembersOf(group, *id.set))) return false;
  return std::all_of(counts.begin(), counts.end(), [](int64_t count) { return count >= 0; });
}

// ---- ranks that have no more data

Status Coordinator::OnJoin(int from, ByteReader* reader, std::vector<Outgoing>* out) {
  const auto joined = Decode<Joined>(reader);
  if (!reader->AtEnd() || joined_.Has(from)) return Unreadable(from);
  joined_.Add(from, joined.sequence_numbers);
  if (joined_.size() == leaders_.world().size()) {
    EndJoin(from, out);
    return Status::Ok();
  }
  out->push_back({from, EncodeIdMessage(MessageKind::kJoined, 0)});  // before any invitation
  // One at a time: a decision may remove a set.
  while (std::optional<Gathering> complete = descriptions_.TakeComplete(sets_)) Decide(std::move(*complete), out);
  for (int id = 0; id < kMaxIds; ++id) OpenFor(id, out);
  return Status::Ok();
}

// No rank has anything in flight. A message brings every rank the result. The logs say where the join ends, so whatever
// is begun afterwards comes behind it.
void Coordinator::EndJoin(int last, std::vector<Outgoing>* out) {
  Flush(out);
  const Bytes result = Encode(JoinResult{{last, joined_.sequence_numbers()}});
  for (int rank = 0; rank < leaders_.world().size(); ++rank) out->push_back({rank, result});
  for (const auto& group : leaders_.world().groups)
    out->push_back({group[0], EncodeIdMessage(MessageKind::kJoinEnd, 0)});
  joined_ = JoinTally();
  descriptions_.ForgetAll();
}

// Where all members of a group in the set have joined, none of them arrives, so the coordinator tells them that others
// wait.
void Coordinator::OpenFor(int number, std::vector<Outgoing>* out) const {
  const BatchOrder::Partial* const partial = order_.FindPartial(number);
  if (joined_.empty() || partial == nullptr) return;
  for (int rank : ids_.at(number).set->ranks) {
    const bool waited_for = partial->counts.count(leaders_.GroupOf(rank)) == 0;
    if (waited_for && joined_.Has(rank))
      out->push_back({rank, EncodeIdMessage(MessageKind::kOpen, number, partial->stamp)});
  }
}

// ---- who waits for whom

// A rank that has waited for long asks where the missing ranks are.
Status Coordinator::OnAsk(int from, ByteReader* reader, std::vector<Outgoing>* out) const {
  const auto asked = Decode<Asked>(reader);
  if (!reader->AtEnd()) return Unreadable(from);
  for (int64_t rank : asked.ranks) {
    if (rank < 0 || rank >= leaders_.world().size()) return Unreadable(from);
    out->push_back({static_cast<int>(rank), EncodeIdMessage(MessageKind::kTell, from)});
  }
  return Status::Ok();
}

Status Coordinator::OnStacks(int from, ByteReader* reader, std::vector<Outgoing>* out) const {
  auto answer = Decode<Answered>(reader);
  const int asker = std::exchange(answer.rank, from);
  if (!reader->AtEnd() || asker < 0 || asker >= leaders_.world().size()) return Unreadable(from);
  out->push_back({asker, Encode(answer)});
  return Status::Ok();
}

// When only some groups have completed a known operation, all ranks of the others count as absent: the coordinator
// cannot tell which of them are.
std::vector<Absence> Coordinator::Absences() const {
  std::vector<Absence> all;
  const auto add = [&](const std::string& title, const ProcessSet& set, const auto& is_here) {
    Absence absence{title, {}, {}};
    for (int rank : set.ranks) {
      if (is_here(rank)) {
        absence.here.push_back(rank);
      } else if (!joined_.Has(rank)) {
        absence.ranks.push_back(rank);
      }
    }
    all.push_back(std::move(absence));
  };
  for (const auto& [key, described] : descriptions_.gathering()) {
    const ProcessSetPtr set = sets_.Find(key.first);
    const Description* const waiting = FirstOfWaiting(described);
    if (!set || waiting == nullptr) continue;
    add(waiting->Title(), *set, [&by = described](int rank) { return by.count(rank) > 0; });
  }
  for (int id : ids_.live()) {
    const BatchOrder::Partial* const partial = order_.FindPartial(id);
    if (partial == nullptr) continue;
    add(ids_.TitleOf(id, partial->stamp), *ids_.at(id).set,
        [&](int rank) { return joined_.Has(rank) || partial->counts.count(leaders_.GroupOf(rank)) > 0; });
  }
  if (!joined_.empty()) add(NameOf(OpKind::kJoin), *sets_.Find(0), [this](int rank) { return joined_.Has(rank); });
  return all;
}

}  // namespace farandole
