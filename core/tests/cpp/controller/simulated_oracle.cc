// SimulatedJob: the rules that must hold.
#include <algorithm>

#include "controller/simulated_job.h"

namespace farandole {

// Returns null when the rank does not make this call, since it has joined before.
const Call* SimulatedJob::CallOf(uint64_t tag, int rank) const {
  const auto found = calls_.find({tag, rank});
  return found == calls_.end() ? nullptr : &found->second;
}

// ---- sets whose ids are not known before they are added

// Returns false while a label has no id.
bool SimulatedJob::ReplaceLabels(Signature* signature) const {
  const auto replace = [this](auto* set) {
    if (*set < kFirstLabel) return true;
    const auto found = ids_.find(static_cast<int>(*set));
    if (found != ids_.end()) *set = found->second;
    return found != ids_.end();
  };
  const bool removes = signature->kind == OpKind::kRemoveProcessSet;
  return replace(&signature->set) && (!removes || replace(&signature->ranks[0]));
}

// The same for one rank, which knows the sets that it adds itself once those calls are done.
bool SimulatedJob::KnowsLabels(const Rank& rank, Signature* signature) const {
  const Signature given = *signature;
  if (!ReplaceLabels(signature)) return false;
  if (*signature == given) return true;
  const bool adds = std::any_of(rank.in_flight.begin(), rank.in_flight.end(),
                                [](const auto& each) { return each.second->call.label != 0; });
  const int set = signature->set != given.set ? signature->set : static_cast<int>(signature->ranks[0]);
  return !adds && rank.negotiation.FindSet(set) != nullptr;
}

// The oracle compares calls by their signatures, so all of them get the id.
void SimulatedJob::LearnLabel(int label, int id) {
  const auto [known, fresh] = ids_.emplace(label, id);
  if (known->second != id) Complain("set " + std::to_string(id) + " has another id elsewhere");
  if (!fresh) return;
  for (auto& [key, call] : calls_) {
    if (call.kind == Call::kOperation) ReplaceLabels(&call.description.signature);
  }
}

// ---- works

// Returns a rank's first task, if it is the first of all ranks of its set.
bool SimulatedJob::PerformWork(int r) {
  const Rank& rank = *ranks_[static_cast<size_t>(r)];
  if (rank.gone || rank.works.empty() || !NotInFront(r).empty()) return false;
  const ProcessSetPtr set = rank.works.front().set;
  CheckWork(*set);
  if (!error_.empty()) return false;
  for (int member : set->ranks) {
    Rank& other = *ranks_[static_cast<size_t>(member)];
    for (const auto& operation : other.works.front().operations) Finish(&other, *operation, Status::Ok());
    other.works.pop_front();
  }
  return true;
}

// All ranks must mean the same by it: the same calls in the same order, and only ranks that have joined are left out.
void SimulatedJob::CheckWork(const ProcessSet& set) {
  const Work& first = ranks_[static_cast<size_t>(set.ranks[0])]->works.front();
  for (size_t i = 0; i < first.operations.size(); ++i) {
    uint64_t tag = 0;
    const Operation& one = *first.operations[i];
    for (int member : set.ranks) {
      const Work& work = ranks_[static_cast<size_t>(member)]->works.front();
      if (work.operations.size() != first.operations.size()) return Complain("works differ in what they join");
      const Operation& operation = *work.operations[i];
      if (operation.call.description.signature != one.call.description.signature || operation.counts != one.counts)
        return Complain("ranks run " + one.call.description.Title() + " differently");
      if (operation.invited) continue;
      if (tag != 0 && operation.call.tag != tag) return Complain("ranks run different calls at a time");
      tag = operation.call.tag;
    }
    for (int member : set.ranks) {
      const Operation& operation = *ranks_[static_cast<size_t>(member)]->works.front().operations[i];
      if (operation.invited == (CallOf(tag, member) != nullptr))
        return Complain("rank " + std::to_string(member) + " is invited to its own call, or not to another's");
    }
  }
}

void SimulatedJob::CheckSmall(const Rank& rank, const Operation& operation, const std::vector<int64_t>& sums) {
  if (operation.invited) return;
  const ProcessSet& set = *operation.admission.set;
  for (size_t i = 0; i < sums.size(); ++i) {
    const int rank_of_element = set.ranks[i % set.ranks.size()];
    const bool takes_part = CallOf(operation.call.tag, rank_of_element) != nullptr;
    const int64_t expected = takes_part ? static_cast<int64_t>(operation.call.tag) : 0;
    if (sums[i] != expected)
      return Complain("rank " + std::to_string(rank.number) + " took " + std::to_string(sums[i]) + " for " +
                      std::to_string(expected) + " from position " + std::to_string(i) + " of " +
                      operation.call.description.Title());
  }
}

void SimulatedJob::CheckCounts(const Rank& rank, const Operation& operation, const std::vector<int64_t>& counts) {
  if (operation.invited) return;  // compared with the others' when the work is done
  const ProcessSet& set = *operation.admission.set;
  std::vector<int64_t> expected;
  for (int member : set.ranks) {
    const Call* const call = CallOf(operation.call.tag, member);
    const std::vector<int64_t> none(operation.call.description.counts.size(), 0);
    const std::vector<int64_t>& theirs = call != nullptr ? call->description.counts : none;
    expected.insert(expected.end(), theirs.begin(), theirs.end());
  }
  if (counts != expected)
    Complain("rank " + std::to_string(rank.number) + " got " + ToString(counts) + " for " + ToString(expected) +
             " as the counts of " + operation.call.description.Title());
}

void SimulatedJob::CheckOutcome(const Rank& rank, const Operation& operation, const Status& status) {
  if (operation.invited || operation.call.may_fail) return;
  const Signature& signature = operation.call.description.signature;
  bool expected = false;
  for (int member : operation.admission.set->ranks) {
    const Call* const call = CallOf(operation.call.tag, member);
    expected = expected ||
               (call != nullptr && (call->description.signature != signature || !call->description.refusal.empty()));
  }
  if (signature.kind == OpKind::kBroadcast && CallOf(operation.call.tag, signature.root) == nullptr) expected = true;
  if (!status.ok() == expected) return;
  Complain("rank " + std::to_string(rank.number) + ": " + operation.call.description.Title() +
           (expected ? " went through though the ranks disagree" : " failed though all agree: " + status.message()));
}

// Notes that the ranks which did not make this rank's call had joined before it.
void SimulatedJob::NoteWhoHadJoined(const Rank& rank, const Operation& operation) {
  if (operation.invited) return;
  for (int member : CallersOf(operation)) {
    if (CallOf(operation.call.tag, member) == nullptr) had_joined_.emplace(rank.joins_seen, member);
  }
}

// Returns the ranks that make the call unless they have joined.
Ranks SimulatedJob::CallersOf(const Operation& operation) const {
  const Description& description = operation.call.description;
  if (!description.IsByMembers()) return operation.admission.set->ranks;
  const std::vector<int64_t>& ranks = description.signature.ranks;
  if (description.signature.kind == OpKind::kAddProcessSet) return {ranks.begin(), ranks.end()};
  return sets_seen_.at(static_cast<int>(ranks[0])).first;
}

void SimulatedJob::CheckLast(const Rank& rank, int last) {
  const int expected = joins_.at(static_cast<size_t>((rank.joins_seen + 1) * size() - 1));
  if (last != expected)
    Complain("the last to join was rank " + std::to_string(expected) + ", not " + std::to_string(last));
  if (had_joined_.count({rank.joins_seen, last}) > 0)
    Complain("rank " + std::to_string(last) + " is said to have joined last, but had joined before a call of another");
}

}  // namespace farandole
