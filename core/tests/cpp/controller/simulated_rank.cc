// SimulatedJob: what a rank's engine does.
#include <algorithm>
#include <cstring>

#include "collectives/slot_reduction.h"
#include "controller/described.h"
#include "controller/simulated_job.h"
#include "operation/batch.h"

namespace farandole {
namespace {

bool IsFence(const Call& call) { return call.kind != Call::kOperation || ChangesSets(call.description.signature.kind); }

constexpr size_t kReach = 4;  // how many calls ahead a rank may submit

// Two threads of a rank may call named operations in any order; those of one name and unnamed ones keep theirs.
bool KeepOrder(const Call& a, const Call& b) {
  if (IsFence(a) || IsFence(b)) return true;
  if (a.unnamed || b.unnamed) return a.unnamed && b.unnamed;
  return a.description.name == b.description.name && a.description.signature.set == b.description.signature.set;
}

}  // namespace

// ---- submitting

// Returns the call at `pick`, or the first that must come before it.
size_t SimulatedJob::FirstBefore(const Rank& rank, size_t pick) {
  for (size_t i = 0; i < pick; ++i) {
    if (!KeepOrder(rank.script[i], rank.script[pick])) continue;
    pick = i;
    i = ~size_t{0};  // begins again with the first
  }
  return pick;
}

// One of the next few calls.
bool SimulatedJob::Submit(int r) {
  Rank& rank = *ranks_[static_cast<size_t>(r)];
  if (EnterHeld(&rank)) return true;
  return !rank.script.empty() && SubmitAt(r, random_() % std::min(kReach, rank.script.size()));
}

bool SimulatedJob::SubmitAny(int r) {
  if (EnterHeld(ranks_[static_cast<size_t>(r)].get())) return true;
  for (size_t pick = 0; pick < std::min(kReach, ranks_[static_cast<size_t>(r)]->script.size()); ++pick) {
    if (SubmitAt(r, pick)) return true;
  }
  return false;
}

bool SimulatedJob::SubmitAt(int r, size_t pick) {
  Rank& rank = *ranks_[static_cast<size_t>(r)];
  if (rank.gone || rank.has_joined) return false;
  pick = FirstBefore(rank, pick);
  const Call call = rank.script[pick];
  bool done = false;
  if (call.kind == Call::kWait) done = rank.idle();
  if (call.kind == Call::kJoin) done = rank.idle() && JoinIfIdle(&rank);
  if (call.kind == Call::kLeave) done = rank.idle() && LeaveIfIdle(&rank);
  if (call.kind == Call::kOperation) done = SubmitCall(&rank, call);
  if (done) rank.script.erase(rank.script.begin() + static_cast<std::ptrdiff_t>(pick));
  return done;
}

bool SimulatedJob::SubmitCall(Rank* rank, Call call) {
  if (!KnowsLabels(*rank, &call.description.signature)) return false;
  if (call.description.signature.kind == OpKind::kRemoveProcessSet && !rank->held.empty()) return false;
  if (!call.description.refusal.empty()) return RefuseCall(rank, call);
  auto operation = std::make_shared<Operation>();
  operation->call = call;
  const SequenceNumbers before = rank->sequence_numbers;
  std::shared_ptr<Operation> user;
  if (call.unnamed) user = NameIt(rank, &operation->call.description);
  if (user) rank->held.push_back({operation, user});
  if (user || Enter(rank, operation)) {
    if (call.unnamed) rank->slots[operation->call.description.name] = operation;
    return true;
  }
  rank->sequence_numbers = before;
  return false;
}

bool SimulatedJob::EnterHeld(Rank* rank) {
  if (rank->gone) return false;
  const auto free =
      std::find_if(rank->held.begin(), rank->held.end(), [](const Rank::Held& held) { return held.before.expired(); });
  if (free == rank->held.end() || !Enter(rank, free->operation)) return false;
  rank->held.erase(free);
  return true;
}

// As Naming (engine/operations.h) does it.
std::shared_ptr<SimulatedJob::Operation> SimulatedJob::NameIt(Rank* rank, Description* description) {
  description->sequence_number = rank->sequence_numbers[description->signature.set]++;
  if (ChangesSets(description->signature.kind)) {
    description->name = "#sets." + std::to_string(description->sequence_number);
    return nullptr;
  }
  const std::string prefix = "#" + std::to_string(Fingerprint(description->signature)) + ".";
  description->name = prefix + std::to_string(description->sequence_number % pool_size_);
  return rank->slots[description->name].lock();
}

// Returns false when the rank has to wait with this call.
bool SimulatedJob::Enter(Rank* rank, const std::shared_ptr<Operation>& operation) {
  Admission& admission = operation->admission;
  const ReadyDescription description(operation->call.description);
  const bool blocks = (operation->call.tag + static_cast<uint64_t>(rank->number)) % 2 == 0;
  if (blocks && EnterCall(rank, operation)) return true;
  const Status status = rank->negotiation.Submit(description, &admission);
  if (!status.ok()) {
    const bool later = status.message().find("in flight") != std::string::npos;
    if (!later) Complain("rank " + std::to_string(rank->number) + ": " + status.message());
    return false;
  }
  rank->in_flight[admission.ticket] = operation;
  if (admission.slots) {
    admission.two_phase ? WriteForOthers(operation.get()) : Write(*operation);
    if (random_() % 2 == 0 && IsReady(*rank, *operation)) GoOn(rank, operation);
  } else if (admission.id >= 0) {
    const Negotiation::Arrived arrived = rank->negotiation.Arrive(admission);
    if (arrived == Negotiation::Arrived::kEvicted) {
      rank->negotiation.Redescribe(admission.ticket);
      admission.early = false;
    }
    if (admission.early) {
      if (random_() % 2 == 0) GoOnWithEarly(rank, operation);
    } else if (arrived == Negotiation::Arrived::kLast) {
      rank->to_append.push_back(admission);
      if (random_() % 2 == 0) AppendToLog(rank);
    }
  }
  Collect(rank->number);
  return true;
}

// As the engine enters a blocking call. Returns false for an operation that cannot be one.
bool SimulatedJob::EnterCall(Rank* rank, const std::shared_ptr<Operation>& operation) {
  Admission& admission = operation->admission;
  Name* const name = rank->negotiation.SubmitSmall(ReadyDescription(operation->call.description), &admission);
  if (name == nullptr) return false;
  admission.set = name->of->set;
  admission.two_phase ? WriteForOthers(operation.get()) : Write(*operation);
  const bool is_ready = rank->negotiation.CanAdvance(admission);
  if (is_ready && !admission.two_phase) {
    rank->in_flight[admission.ticket] = operation;
    Take(rank, admission.ticket);  // it has none, so 0
  } else if (is_ready && random_() % 2 == 0 && ReduceInTwoPhases(rank, operation.get())) {
    Finish(rank, *operation, Status::Ok());
  } else {
    rank->negotiation.AddInFlight(name, &admission);
    rank->in_flight[admission.ticket] = operation;
  }
  Collect(rank->number);
  return true;
}

void SimulatedJob::Write(const Operation& operation) {
  WriteIntoSlots(operation, *operation.admission.slots, random_() % 2 == 0);
}

// The data say whose they are and of which call: the rank at position p of n fills the elements p, p + n, p + 2n ...
void SimulatedJob::Fill(const Operation& operation, int64_t* elements, size_t count) {
  const ProcessSet& set = *operation.admission.set;
  const auto step = static_cast<size_t>(set.size());
  for (auto i = static_cast<size_t>(set.position); i < count; i += step)
    elements[i] = static_cast<int64_t>(operation.call.tag);
}

void SimulatedJob::WriteIntoSlots(const Operation& operation, SlotBuffer slots, bool wants_doorbell) {
  const Signature& signature = operation.call.description.signature;
  std::vector<std::vector<int64_t>> data;
  std::vector<SlotTensor> tensors;
  for (const TensorSpec& tensor : signature.tensors) {
    const auto elements = static_cast<size_t>(ElementCount(tensor.shape));
    std::vector<int64_t>& values = data.emplace_back(elements, 0);
    Fill(operation, values.data(), elements);
    tensors.push_back({values.data(), nullptr, tensor.dtype, elements});
  }
  slots.Write(tensors.data(), tensors.size(), operation.admission.generation(), wants_doorbell);
}

// ---- early operations, as EarlySum (execution/early_sum.h) and EarlySums do them

// Takes one step, if one can be taken.
bool SimulatedJob::GoOnWithEarly(Rank* rank, const std::shared_ptr<Operation>& operation) {
  const Admission& admission = operation->admission;
  const bool leads = admission.set->member() == 0;
  if (!operation->begun) {
    operation->begun = true;
    if (admission.node_slots) WriteIntoSlots(*operation, *admission.node_slots, false);
    return true;
  }
  const bool collected = !admission.node_slots || admission.node_slots->AllHaveWritten(admission.generation());
  if (leads && collected && !operation->has_partial) {
    operation->has_partial = true;
    SendToOthers(rank->number, *operation);
    return true;
  }
  if (leads && operation->has_partial && HasAll(*rank, *operation)) {
    const std::vector<int64_t> sums = SumOfAll(*rank, *operation);
    if (admission.node_slots) {
      std::memcpy(admission.node_slots->result(), sums.data(), sums.size() * sizeof(int64_t));
      admission.node_slots->AnnounceResult(admission.generation());
    }
    EndEarly(rank, operation, sums);
    return true;
  }
  if (leads || !admission.node_slots->HasResult(admission.generation())) return false;
  const auto* const result = reinterpret_cast<const int64_t*>(admission.node_slots->result());
  const int64_t bytes = operation->call.description.signature.TotalBytes();
  EndEarly(rank, operation, {result, result + bytes / static_cast<int64_t>(sizeof(int64_t))});
  return true;
}

// Returns the first element and the number of elements of each tensor, in the vector of all.
std::vector<std::pair<size_t, size_t>> SimulatedJob::TensorsOf(const Operation& operation) {
  std::vector<std::pair<size_t, size_t>> tensors;
  size_t begin = 0;
  for (const TensorSpec& tensor : operation.call.description.signature.tensors) {
    tensors.emplace_back(begin, static_cast<size_t>(ElementCount(tensor.shape)));
    begin += tensors.back().second;
  }
  return tensors;
}

std::vector<int64_t> SimulatedJob::PartialOf(const Operation& operation) const {
  const Admission& admission = operation.admission;
  std::vector<int64_t> data(static_cast<size_t>(operation.call.description.signature.TotalBytes()) / sizeof(int64_t),
                            0);
  for (int m = 0; admission.node_slots && m < admission.node_slots->member_count(); ++m) {
    const auto* const theirs = reinterpret_cast<const int64_t*>(admission.node_slots->payload(m));
    for (size_t i = 0; i < data.size(); ++i) data[i] += theirs[i];
  }
  if (admission.node_slots) return data;
  for (const auto& [begin, elements] : TensorsOf(operation)) Fill(operation, data.data() + begin, elements);
  return data;
}

std::vector<int64_t> SimulatedJob::SumOfAll(const Rank& rank, const Operation& operation) const {
  const Admission& admission = operation.admission;
  std::vector<int64_t> sums = PartialOf(operation);
  for (int g = 0; g < admission.set->layout.node_count(); ++g) {
    const auto found = rank.early.find({admission.serial, admission.generation(), admission.set->LeaderOf(g)});
    if (found == rank.early.end()) continue;
    for (size_t i = 0; i < std::min(sums.size(), found->second.size()); ++i) sums[i] += found->second[i];
  }
  return sums;
}

void SimulatedJob::EndEarly(Rank* rank, const std::shared_ptr<Operation>& operation, const std::vector<int64_t>& sums) {
  const Admission& admission = operation->admission;
  for (int g = 0; g < admission.set->layout.node_count(); ++g)
    rank->early.erase({admission.serial, admission.generation(), admission.set->LeaderOf(g)});
  for (const auto& [begin, elements] : TensorsOf(*operation)) {
    const auto first = sums.begin() + static_cast<std::ptrdiff_t>(begin);
    CheckSmall(*rank, *operation, {first, first + static_cast<std::ptrdiff_t>(elements)});
  }
  rank->negotiation.EndEarly(admission.ticket);
  Remove(rank, admission.ticket);
  Finish(rank, *operation, Status::Ok());
}

// Some ranks send a head alone first, and their data later.
void SimulatedJob::SendToOthers(int r, const Operation& operation) {
  const Admission& admission = operation.admission;
  const std::vector<int64_t> data = PartialOf(operation);
  for (int g = 0; g < admission.set->layout.node_count(); ++g) {
    const int other = admission.set->LeaderOf(g);
    if (other == r) continue;
    std::deque<EarlyMessage>& queue = early_messages_[{r, other}];
    if (random_() % 4 == 0) queue.push_back({TagOf(admission), {}});
    queue.push_back({TagOf(admission), data});
  }
}

// False when nothing could be appended.
bool SimulatedJob::AppendToLog(Rank* rank) {
  const size_t before = rank->to_append.size();
  while (!rank->to_append.empty()) {
    if (!rank->negotiation.PublishComplete(rank->to_append.front())) was_log_full_ = true;
    rank->to_append.erase(rank->to_append.begin());
  }
  return rank->to_append.size() != before;
}

bool SimulatedJob::JoinIfIdle(Rank* rank) {
  if (!rank->to_append.empty()) return false;
  rank->negotiation.SendJoin(rank->sequence_numbers);
  rank->has_joined = true;
  Collect(rank->number);
  return true;
}

bool SimulatedJob::LeaveIfIdle(Rank* rank) {
  if (!rank->to_append.empty()) return false;
  HandleAll(rank, &rank->unhandled);
  if (!rank->negotiation.LogLeaving()) return false;
  rank->negotiation.SendLeaving();
  Collect(rank->number);
  rank->gone = rank->left = true;
  return true;
}

// ---- events

void SimulatedJob::HandleAll(Rank* rank, Events* events) {
  const Events all = std::exchange(*events, {});
  for (const Negotiation::Event& event : all) Handle(rank, event);
}

void SimulatedJob::Handle(Rank* rank, const Negotiation::Event& event) {
  switch (event.kind) {
    case Negotiation::Event::kBatch:
      return HandleBatch(rank, event.items);
    case Negotiation::Event::kTake:
      return HandleTake(rank, event.items[0].ticket);
    case Negotiation::Event::kCancelled:  // the receivers drop the data
      rank->in_flight.at(event.items[0].ticket)->admission.early = false;
      return;
    case Negotiation::Event::kIdEvicted:
      for (auto each = rank->early.begin(); each != rank->early.end();)
        each = std::get<0>(each->first) == event.serial ? rank->early.erase(each) : std::next(each);
      return;
    case Negotiation::Event::kFailed:
      if (const auto operation = Remove(rank, event.items[0].ticket)) Finish(rank, *operation, event.status);
      return;
    case Negotiation::Event::kInvited:
      return HandleInvitation(rank, event);
    case Negotiation::Event::kJoinEnd:
      return HandleJoinEnd(rank, event);
    case Negotiation::Event::kLeft:
      return HandleLeft(rank, event.rank);
    case Negotiation::Event::kAsked:
    case Negotiation::Event::kAnswered:
    case Negotiation::Event::kNamesDiffer:
      return;  // for reports only, which a simulation does not ask for
    case Negotiation::Event::kAbort:
      return Complain("rank " + std::to_string(rank->number) + " gave up: " + event.status.message());
  }
}

void SimulatedJob::HandleBatch(Rank* rank, std::vector<Negotiation::Item> items) {
  if (planted_ == Planted::kSwappedOrder && rank->number == size() - 1) std::reverse(items.begin(), items.end());
  std::vector<std::shared_ptr<Operation>> batch;
  std::vector<Task> tasks;
  for (const Negotiation::Item& item : items) {
    const std::shared_ptr<Operation> operation = Remove(rank, item.ticket);
    if (!operation) continue;
    const Signature& signature = operation->call.description.signature;
    CheckCounts(*rank, *operation, item.counts);
    operation->counts = item.counts;
    if (ChangesSets(signature.kind)) HandleChangeOfSets(rank, *operation, item.new_set);
    if (!CarriesTensors(signature.kind)) {
      Finish(rank, *operation, Status::Ok());
      continue;
    }
    batch.push_back(operation);
    const int64_t size_bytes = signature.CountsPerRank(1) > 0 ? 64 : signature.TotalBytes();
    Task& task = tasks.emplace_back();
    task.set = operation->admission.set.get();
    task.kind = signature.kind;
    task.dtype = signature.tensors[0].dtype;
    task.reduce = signature.reduce;
    task.root = signature.root;
    task.buffers = {{nullptr, nullptr, static_cast<size_t>(size_bytes)}};
  }
  constexpr int64_t kThresholdBytes = 1 << 20;
  std::vector<const Task*> unfused;
  for (const Task& task : tasks) unfused.push_back(&task);
  for (const std::vector<size_t>& node : Fuse(unfused, kThresholdBytes)) {
    Work work;
    for (size_t i : node) work.operations.push_back(batch[i]);
    work.set = work.operations[0]->admission.set;
    rank->works.push_back(std::move(work));
  }
}

// The sets must be the same for all.
void SimulatedJob::HandleChangeOfSets(Rank* rank, const Operation& operation, int new_set) {
  const Signature& signature = operation.call.description.signature;
  if (signature.kind == OpKind::kRemoveProcessSet) return;
  if (operation.call.label != 0) LearnLabel(operation.call.label, new_set);
  const ProcessSetPtr set = rank->negotiation.FindSet(new_set);
  if (!set && operation.invited) return;  // the others have removed it already
  if (!set) return Complain("no set " + std::to_string(new_set));
  const auto [seen, fresh] = sets_seen_.emplace(new_set, std::make_pair(set->ranks, set->channel));
  if (seen->second != std::make_pair(set->ranks, set->channel))
    Complain("set " + std::to_string(new_set) + " is not the same everywhere");
  if (!std::equal(signature.ranks.begin(), signature.ranks.end(), set->ranks.begin(), set->ranks.end()))
    Complain("set " + std::to_string(new_set) + " has other ranks than were asked for");
}

void SimulatedJob::HandleInvitation(Rank* rank, const Negotiation::Event& event) {
  auto operation = std::make_shared<Operation>();
  operation->call.description = event.description;
  operation->invited = true;
  if (!rank->has_joined) Complain("rank " + std::to_string(rank->number) + " is invited but has not joined");
  operation->admission.ticket = event.items[0].ticket;
  operation->admission.set = event.set;
  rank->in_flight[operation->admission.ticket] = operation;
}

void SimulatedJob::HandleJoinEnd(Rank* rank, const Negotiation::Event& event) {
  if (!rank->has_joined) Complain("a join ended that rank " + std::to_string(rank->number) + " did not begin");
  if (!rank->in_flight.empty())
    Complain("rank " + std::to_string(rank->number) + " goes on with operations in flight: " + Waiting());
  CheckLast(*rank, event.rank);
  ++rank->joins_seen;
  for (const auto& [set, sequence_number] : event.sequence_numbers)
    rank->sequence_numbers[set] = std::max(rank->sequence_numbers[set], sequence_number);
  rank->has_joined = false;
}

// Everything that the rank took part in is done here or can be done now.
void SimulatedJob::HandleLeft(Rank* rank, int left) {
  ++rank->lefts_seen;
  // The connections of its node end, or say that it has left, after what was sent for its operations.
  for (int member : layout_.nodes[static_cast<size_t>(layout_.node_of[static_cast<size_t>(left)])]) {
    while (DeliverEarlyFrom(member, rank->number)) continue;
  }
  for (const auto& [ticket, operation] : rank->in_flight) {
    const bool took_part = CallOf(operation->call.tag, left) != nullptr;
    const Admission& admission = operation->admission;
    bool ready = admission.slots && rank->negotiation.CanAdvance(admission);
    if (took_part && admission.early) ready = WillComplete(*rank, admission, left);
    if (took_part && !ready)
      Complain("rank " + std::to_string(left) + " left before " + operation->call.description.name);
  }
}

// As EarlySums::MayHaveSent has it.
bool SimulatedJob::WillComplete(const Rank& rank, const Admission& admission, int left) const {
  const ProcessSet& set = *admission.set;
  if (admission.node_slots && !admission.node_slots->AllHaveWritten(admission.generation())) return false;
  const int node = set.layout.node_of[static_cast<size_t>(set.PositionOf(left))];
  if (node == set.node() || set.member() != 0) return true;
  const auto found = rank.early.find({admission.serial, admission.generation(), set.LeaderOf(node)});
  return found != rank.early.end() && !found->second.empty();
}

// ---- completing

std::shared_ptr<SimulatedJob::Operation> SimulatedJob::Remove(Rank* rank, Ticket ticket) {
  const auto found = rank->in_flight.find(ticket);
  if (found == rank->in_flight.end()) {
    Complain("rank " + std::to_string(rank->number) + " completed something twice");
    return nullptr;
  }
  std::shared_ptr<Operation> operation = std::move(found->second);
  rank->in_flight.erase(found);
  if (ticket != 0) rank->negotiation.Release(ticket);  // a call that completes at once has none
  return operation;
}

bool SimulatedJob::IsReady(const Rank& rank, const Operation& operation) const {
  if (rank.negotiation.CanAdvance(operation.admission)) return true;
  if (planted_ != Planted::kEarlyReady) return false;
  int here = 0;
  for (int p = 0; p < operation.admission.set->size(); ++p)
    here += operation.admission.slots->HasWritten(p, operation.admission.generation());
  return here >= operation.admission.set->size() - 1;
}

void SimulatedJob::Take(Rank* rank, Ticket ticket) {
  const std::shared_ptr<Operation> operation = Remove(rank, ticket);
  if (!operation) return;
  Reduce(rank, *operation);
  Finish(rank, *operation, Status::Ok());
}

void SimulatedJob::Reduce(Rank* rank, const Operation& operation) {
  for (const TensorSpec& tensor : operation.call.description.signature.tensors) {
    if (tensor.dtype != DType::kInt64) return Complain("not a tensor of ours");
  }
  std::vector<std::vector<int64_t>> data;
  std::vector<SlotTensor> tensors;
  for (const TensorSpec& tensor : operation.call.description.signature.tensors) {
    data.emplace_back(static_cast<size_t>(ElementCount(tensor.shape)), 0);
    tensors.push_back({nullptr, data.back().data(), tensor.dtype, data.back().size()});
  }
  ReduceSlots(*operation.admission.slots, ReduceOp::kSum, {1.0, 1.0}, tensors.data(), tensors.size(), kNoMember);
  for (const std::vector<int64_t>& sums : data) CheckSmall(*rank, operation, sums);
}

void SimulatedJob::Finish(Rank* rank, const Operation& operation, const Status& status) {
  CheckOutcome(*rank, operation, status);
  if (status.ok()) NoteWhoHadJoined(*rank, operation);
  ++(status.ok() ? rank->done : rank->failed);
}

}  // namespace farandole
