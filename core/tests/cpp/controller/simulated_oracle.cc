// SimulatedJob: the rules that must hold.
#include <algorithm>

#include "controller/simulated_job.h"

namespace farandole {

// Returns null when the rank does not make this call, since it has joined before.
const Call* SimulatedJob::CallOf(uint64_t tag, int rank) const {
  const auto found = calls_.find({tag, rank});
  return found == calls_.end() ? nullptr : &found->second;
}

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
  for (int member : operation.admission.set->ranks) {
    if (CallOf(operation.call.tag, member) == nullptr) had_joined_.emplace(rank.joins_seen, member);
  }
}

void SimulatedJob::CheckLast(const Rank& rank, int last) {
  const int expected = joins_.at(static_cast<size_t>((rank.joins_seen + 1) * size() - 1));
  if (last != expected)
    Complain("the last to join was rank " + std::to_string(expected) + ", not " + std::to_string(last));
  if (had_joined_.count({rank.joins_seen, last}) > 0)
    Complain("rank " + std::to_string(last) + " is said to have joined last, but had joined before a call of another");
}

}  // namespace farandole
