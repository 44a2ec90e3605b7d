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

// The first description that is not a refusal; null if there is none.
const Description* FirstOfWaiting(const DescriptionsByRank& descriptions) {
  const auto found = std::find_if(descriptions.begin(), descriptions.end(),
                                  [](const auto& each) { return each.second.refusal.empty(); });
  return found == descriptions.end() ? nullptr : &found->second;
}

}  // namespace

Coordinator::Coordinator(const Layout& layout, int max_new)
    : leaders_(layout), sets_(layout, kCoordinatorRank), ids_(sets_, leaders_, max_new) {}

Status Coordinator::OnMessage(int from, const Bytes& message, std::vector<Outgoing>* out) {
  return Read(from, message, out) ? Status::Ok() : Unreadable(from);
}

bool Coordinator::Read(int from, const Bytes& message, std::vector<Outgoing>* out) {
  if (auto description = ReadAs<Description>(message, MessageKind::kDescribe))
    return OnDescribe(from, std::move(*description), out);
  if (auto report = ReadAs<Report>(message)) return OnReport(from, std::move(*report), out);
  if (const auto stuck = ReadAs<IdMessage>(message, MessageKind::kStuck)) return OnStuck(from, stuck->id, out);
  if (const auto join = ReadAs<Join>(message, MessageKind::kJoin)) return OnJoin(from, *join, out);
  if (const auto question = ReadAs<Question>(message)) return OnQuestion(from, *question, message, out);
  if (const auto answer = ReadAs<Answer>(message)) return OnAnswer(from, *answer, message, out);
  if (const auto leave = ReadAs<Leave>(message)) return leave->rank == from && OnLeave(from, message, out);
  if (ReadAs<Abort>(message)) return OnAbort(from, message, out);
  return false;
}

// A rank that leaves tells its own node. The coordinator tells the leaders of the others, after everything that was
// ready before. When rank 0 leaves, it tells each of their ranks, since its connections end, and a leader may be slow
// to write to the log.
bool Coordinator::OnLeave(int from, const Bytes& message, std::vector<Outgoing>* out) {
  Flush(out);
  for (const auto& node : leaders_.world().nodes) {
    if (leaders_.NodeOf(from) == leaders_.NodeOf(node[0])) continue;
    for (int rank : node) {
      if (rank == node[0] || from == kCoordinatorRank) out->push_back({rank, message});
    }
  }
  return true;
}

// Forwards the first abort only: a rank that hears of one may abort in turn, and to forward all would take ranks times
// ranks messages. The first rank gets its own back, since it may wait to learn which abort came first.
bool Coordinator::OnAbort(int from, const Bytes& message, std::vector<Outgoing>* out) {
  if (std::exchange(aborted_, true)) return true;
  for (int rank = 0; rank < leaders_.world().size(); ++rank) {
    if (rank != from || rank != kCoordinatorRank) out->push_back({rank, message});
  }
  return true;
}

// ---- unknown names

bool Coordinator::OnDescribe(int from, Description description, std::vector<Outgoing>* out) {
  const ProcessSetPtr set = sets_.Find(description.signature.set);
  if (!set || set->PositionOf(from) < 0 || joined_.count(from) > 0) return false;
  if (!FitsSet(description, set->size(), leaders_.world().size())) return false;
  std::set<int> members;
  if (description.IsByMembers()) members = MembersOfChanged(description.signature);
  if (!members.empty() && members.count(from) == 0) return false;
  ids_.Replace(description.replaces, set->id, out);
  const bool refuses = !description.refusal.empty();
  const auto key = KeyOf(description);
  auto [place, end] = incomplete_.equal_range(key);
  for (; place != end && place->second.count(from) > 0; ++place) {
    const bool is_repeated = refuses && description.IsByMembers() && FirstOfWaiting(place->second) == nullptr;
    if (is_repeated) return true;  // a rank may try a removal again and again before another member comes to it
  }
  if (place == end) place = incomplete_.emplace(key, DescriptionsByRank());
  place->second[from] = std::move(description);
  // The members of this description alone are looked at first, since a look at all descriptions takes longer.
  if ((refuses || HaveDescribed(members, place->second)) && IsComplete(*place)) TakeComplete(place, out);
  return true;
}

bool Coordinator::HasJoined(const ProcessSet& set) const {
  return std::any_of(joined_.begin(), joined_.end(), [&](int rank) { return set.PositionOf(rank) >= 0; });
}

// The members of the set that is added or removed; none if there is no such set.
std::set<int> Coordinator::MembersOfChanged(const Signature& signature) const {
  if (signature.kind == OpKind::kAddProcessSet) return {signature.ranks.begin(), signature.ranks.end()};
  const ProcessSetPtr set = sets_.Find(static_cast<int>(signature.ranks[0]));
  return set ? std::set<int>(set->ranks.begin(), set->ranks.end()) : std::set<int>();
}

// Returns the ranks that must describe the operation, unless they have joined. If members alone change a set, or refuse
// to, and disagree about it, these are all that any of them takes for a member, so that each of them gets the error.
std::vector<int> Coordinator::CallersOf(const Incomplete::value_type& entry) const {
  std::set<int> callers;
  for (const auto& [rank, description] : entry.second) {
    if (description.IsByMembers()) {
      callers.merge(MembersOfChanged(description.signature));
      callers.insert(rank);
    } else if (description.refusal.empty()) {
      return sets_.Find(entry.first.first)->ranks;
    }
  }
  if (callers.empty()) return sets_.Find(entry.first.first)->ranks;
  return {callers.begin(), callers.end()};
}

// Every rank that must describe the operation has done so or has joined.
bool Coordinator::IsComplete(const Incomplete::value_type& entry) const {
  return HaveDescribed(CallersOf(entry), entry.second);
}

template <typename Ranks>
bool Coordinator::HaveDescribed(const Ranks& ranks, const DescriptionsByRank& descriptions) const {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return descriptions.count(rank) > 0 || joined_.count(rank) > 0; });
}

// Some operation of the set waits for descriptions.
bool Coordinator::HasIncomplete(int set) const {
  return std::any_of(incomplete_.lower_bound({set, ""}), incomplete_.lower_bound({set + 1, ""}),
                     [](const auto& each) { return FirstOfWaiting(each.second) != nullptr; });
}

void Coordinator::TakeComplete(Incomplete::iterator complete, std::vector<Outgoing>* out) {
  const DescriptionsByRank descriptions = std::move(complete->second);
  incomplete_.erase(complete);
  AssignOrRefuse(descriptions, out);
}

// Nobody waits for an operation that all ranks have refused.
void Coordinator::AssignOrRefuse(const DescriptionsByRank& descriptions, std::vector<Outgoing>* out) {
  if (FirstOfWaiting(descriptions) == nullptr) return;
  const Signature& signature = descriptions.begin()->second.signature;
  const ProcessSetPtr set = sets_.Find(signature.set);
  Status decided = Refusal(descriptions, *set);
  if (decided.ok()) decided = ChangeSets(signature, out);
  if (decided.ok()) return ids_.Assign(descriptions, HasJoined(*set), out);
  for (const auto& [rank, description] : descriptions) {
    if (!description.refusal.empty()) continue;
    const Error error{set->id, description.name, decided.code(), decided.message(), decided.kinds()};
    out->push_back({rank, Encode(error)});
  }
}

Status Coordinator::Refusal(const DescriptionsByRank& descriptions, const ProcessSet& set) const {
  const Description& first = descriptions.begin()->second;
  FRD_RETURN_IF_ERROR(FindMismatch(descriptions));
  if (CountsBufferBytes(first.signature, set) > static_cast<int64_t>(kBufferPoolBytes) / 4)
    return Invalid(first.Title(), " has more tensors than fit; call it with fewer at a time");
  if (HasRoot(first.signature.kind) && joined_.count(first.signature.root) > 0) {
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
    if (HasIncomplete(id) || ids_.HasWaiting(id))
      return Invalid("process set ", id, " cannot be removed while it has operations in flight");
    ids_.EvictWhere([id](const ProcessSet& set) { return set.id == id; }, out);
    incomplete_.erase(incomplete_.lower_bound({id, ""}), incomplete_.lower_bound({id + 1, ""}));  // refusals
    sets_.Remove(id);
  }
  return Status::Ok();
}

// ---- known names

bool Coordinator::OnReport(int from, Report report, std::vector<Outgoing>* out) {
  for (Completion& completion : report.completed) {
    if (!ids_.OnCompleted(from, std::move(completion), out)) return false;
  }
  for (const Closing& closing : report.closed) {
    if (!ids_.OnClosed(from, closing)) return false;
  }
  return std::all_of(report.finished.begin(), report.finished.end(),
                     [&](int32_t id) { return ids_.OnFinished(from, id, out); });
}

bool Coordinator::OnStuck(int from, int id, std::vector<Outgoing>* out) {
  const IdTable::Id& stuck = ids_.at(id);
  if (stuck.state == IdTable::Id::kLive && stuck.set->PositionOf(from) >= 0) ids_.StartEviction(id, out);
  return true;
}

// ---- ranks that have no more data

bool Coordinator::OnJoin(int from, const Join& join, std::vector<Outgoing>* out) {
  if (!joined_.insert(from).second) return false;
  for (const auto& [set, sequence_number] : join.sequence_numbers)
    sequence_numbers_[set] = std::max(sequence_numbers_[set], sequence_number);
  if (joined_.size() == static_cast<size_t>(leaders_.world().size())) {
    EndJoin(from, out);
    return true;
  }
  ids_.EvictWhere([from](const ProcessSet& set) { return set.PositionOf(from) >= 0; }, out);
  // One at a time: a decision may remove a set.
  const auto next = [this] {
    return std::find_if(incomplete_.begin(), incomplete_.end(), [this](const auto& each) { return IsComplete(each); });
  };
  for (auto complete = next(); complete != incomplete_.end(); complete = next()) TakeComplete(complete, out);
  return true;
}

// No rank has anything in flight. The logs say where the join ends, so whatever is begun afterwards comes behind it.
void Coordinator::EndJoin(int last, std::vector<Outgoing>* out) {
  Flush(out);
  const Bytes result = Encode(MessageKind::kJoinEnd, Join{last, std::exchange(sequence_numbers_, {})});
  for (int rank = 0; rank < leaders_.world().size(); ++rank) out->push_back({rank, result});
  joined_.clear();
  incomplete_.clear();  // refusals
}

// ---- who waits for whom

bool Coordinator::OnQuestion(int from, const Question& question, const Bytes& message,
                             std::vector<Outgoing>* out) const {
  if (question.asker != from) return false;
  if (question.ranks.empty()) out->push_back({from, Encode(Answer{from, Answer::kNobody, "", Absences()})});
  for (int32_t rank : question.ranks) {
    if (!leaders_.IsRank(rank)) return false;
    out->push_back({rank, message});
  }
  return true;
}

bool Coordinator::OnAnswer(int from, const Answer& answer, const Bytes& message, std::vector<Outgoing>* out) const {
  if (answer.rank != from || !leaders_.IsRank(answer.asker)) return false;
  out->push_back({answer.asker, message});
  return true;
}

// When only some nodes have completed a known operation, all ranks of the others count as absent: the coordinator
// cannot tell which of them are.
std::vector<Absence> Coordinator::Absences() const {
  std::vector<Absence> all;
  const auto add = [&](const std::string& title, const std::vector<int>& ranks, const auto& is_here) {
    Absence absence{title, {}, {}};
    for (int rank : ranks) {
      if (is_here(rank)) {
        absence.here.push_back(rank);
      } else if (joined_.count(rank) == 0) {
        absence.ranks.push_back(rank);
      }
    }
    all.push_back(std::move(absence));
  };
  for (const Incomplete::value_type& entry : incomplete_) {
    const DescriptionsByRank& described = entry.second;
    const Description* const waiting = FirstOfWaiting(described);
    if (waiting == nullptr || !sets_.Find(entry.first.first)) continue;
    add(waiting->Title(), CallersOf(entry), [&described](int rank) { return described.count(rank) > 0; });
  }
  for (int id = 0; id < kMaxIds; ++id) {
    const Completion& partial = ids_.at(id).partial;
    if (partial.counts.empty()) continue;
    add(ids_.TitleOf(id, partial.generation), ids_.at(id).set->ranks,
        [&](int rank) { return partial.counts.count(leaders_.NodeOf(rank)) > 0; });
  }
  if (!joined_.empty())
    add(NameOf(OpKind::kJoin), sets_.Find(0)->ranks, [this](int rank) { return joined_.count(rank) > 0; });
  return all;
}

}  // namespace farandole
