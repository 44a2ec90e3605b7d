#include "controller/simulated_job.h"

#include <algorithm>
#include <cstring>

#include "collectives/slot_reduction.h"

namespace farandole {

Layout MakeNodes(const std::vector<int>& sizes) {
  std::vector<PeerInfo> peers;
  for (size_t g = 0; g < sizes.size(); ++g) {
    for (int i = 0; i < sizes[g]; ++i) peers.push_back({"host", "machine" + std::to_string(g), 1, true, ""});
  }
  return MakeLayout(peers);
}

SimulatedJob::SimulatedJob(const std::vector<int>& nodes, uint64_t seed, Planted planted, Negotiation::Limits limits)
    : layout_(MakeNodes(nodes)),
      random_(seed),
      planted_(planted),
      coordinator_(layout_, seed % 3 == 0 ? 0 : IdTable::kMaxNew) {
  for (const auto& node : layout_.nodes)
    memories_.push_back(std::make_unique<Pages>(NodeMemory::BytesFor(static_cast<int>(node.size()))));
  if (seed % 2 == 0) limits.one_phase_bytes = 0;
  for (int r = 0; r < layout_.size(); ++r) {
    std::byte* const memory = memories_[static_cast<size_t>(layout_.node_of[static_cast<size_t>(r)])]->data();
    ranks_.push_back(std::make_unique<Rank>(layout_, r, memory, limits));
  }
  to_rank_.resize(ranks_.size());
  to_coordinator_.resize(ranks_.size());
}

SimulatedJob::~SimulatedJob() = default;

void SimulatedJob::Complain(const std::string& text) {
  if (error_.empty()) error_ = text;
}

void SimulatedJob::Kill(int rank, int after_steps) { ranks_[static_cast<size_t>(rank)]->steps_to_live = after_steps; }
void SimulatedJob::Pause(int rank, bool paused) { ranks_[static_cast<size_t>(rank)]->paused = paused; }

ProcessSetPtr SimulatedJob::FindSet(int rank, int id) const {
  return ranks_[static_cast<size_t>(rank)]->negotiation.FindSet(id);
}

int SimulatedJob::failed(int rank) const { return ranks_[static_cast<size_t>(rank)]->failed; }
int SimulatedJob::done(int rank) const { return ranks_[static_cast<size_t>(rank)]->done; }
int SimulatedJob::lefts_seen(int rank) const { return ranks_[static_cast<size_t>(rank)]->lefts_seen; }

// ---- running

void SimulatedJob::Begin(const Scripts& scripts) {
  for (auto& rank : ranks_) {
    const Script& script = scripts.of(rank->number);
    rank->script.insert(rank->script.end(), script.begin(), script.end());
    rank->failed = rank->done = 0;
    for (const Call& call : script) {
      if (call.tag > 0) calls_[{call.tag, rank->number}] = call;
    }
  }
}

bool SimulatedJob::Run(const Scripts& scripts) {
  Begin(scripts);
  if (Loop() || !error_.empty()) return error_.empty();
  Complain("standstill: " + Waiting());
  return false;
}

bool SimulatedJob::RunToStandstill(const Scripts& scripts) {
  Begin(scripts);
  Loop();
  return error_.empty();
}

void SimulatedJob::Settle() {
  while (Sweep() && error_.empty()) continue;
}

// Returns false when there is an error, or nothing moves any more.
bool SimulatedJob::Loop() {
  constexpr int64_t kMaxSteps = 50'000'000;
  int idle = 0;
  for (int64_t step = 0; step < kMaxSteps; ++step) {
    if (!error_.empty()) return false;
    if (AllDone()) return true;
    idle = Step(static_cast<int>(random_() % ranks_.size())) ? 0 : idle + 1;
    if (idle < 20 * size()) continue;
    idle = 0;
    if (Sweep()) continue;
    bool asked = false;
    for (int r = 0; r < size() && time_ != Time::kNever; ++r) asked |= Stick(r);
    if (!asked) return false;
  }
  Complain("no end: " + Waiting());
  return false;
}

bool SimulatedJob::AllDone() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
    return rank->gone || (rank->script.empty() && rank->idle() && rank->to_append.empty() && !rank->has_joined);
  });
}

bool SimulatedJob::Step(int r) {
  Rank& rank = *ranks_[static_cast<size_t>(r)];
  if (rank.steps_to_live > 0 && --rank.steps_to_live == 0) rank.gone = true;
  switch (random_() % 11) {
    case 0:
    case 1:
      return Submit(r);
    case 2:
      return Advance(r);
    case 3:
      return DeliverToRank(r);
    case 4:
      return DeliverToCoordinator(r);
    case 5:
      return TakeSmall(r);
    case 6:
      return PerformWork(r);
    case 7:
      return RequestDoorbells(r);
    case 8:
      return DeliverEarly(r);
    case 9:
      return TakeEarly(r);
    default:
      if (time_ == Time::kAnytime && random_() % 20 == 0) Stick(r);
      return false;
  }
}

// Does everything that can be done, once. The job stands still when this moves nothing.
bool SimulatedJob::Sweep() {
  bool moved = false;
  for (int r = 0; r < size(); ++r) {
    while (SubmitAny(r)) moved = true;
    while (DeliverToCoordinator(r)) moved = true;
    while (DeliverToRank(r)) moved = true;
    while (Advance(r)) moved = true;
    while (TakeSmall(r)) moved = true;
    while (DeliverEarly(r)) moved = true;
    while (TakeEarly(r)) moved = true;
    while (PerformWork(r)) moved = true;
    if (!error_.empty()) return true;
  }
  return moved;
}

std::string SimulatedJob::Waiting() const {
  std::string text;
  for (const auto& rank : ranks_) {
    if (rank->gone) continue;
    text += "rank " + std::to_string(rank->number) + (rank->has_joined ? " (joined)" : "") + ":";
    for (const auto& [ticket, operation] : rank->in_flight) {
      text += " " + operation->call.description.Title() + "/" + operation->call.description.name + "@" +
              std::to_string(operation->admission.id);
    }
    if (!rank->works.empty()) {
      const Work& work = rank->works.front();
      text += " work " + work.operations[0]->call.description.Title() + " and " +
              std::to_string(rank->works.size() - 1) + " more";
    }
    if (!rank->script.empty()) text += " " + std::to_string(rank->script.size()) + " calls to come";
    text += "; ";
  }
  return text;
}

// ---- messages

bool SimulatedJob::Collect(int r) {
  const size_t before = to_coordinator_[static_cast<size_t>(r)].size();
  for (Bytes& message : ranks_[static_cast<size_t>(r)]->negotiation.outbox().Take())
    to_coordinator_[static_cast<size_t>(r)].push_back(std::move(message));
  return to_coordinator_[static_cast<size_t>(r)].size() != before;
}

bool SimulatedJob::DeliverToRank(int r) {
  Rank& rank = *ranks_[static_cast<size_t>(r)];
  std::deque<Bytes>& queue = to_rank_[static_cast<size_t>(r)];
  if (rank.gone || rank.paused || queue.empty()) return false;
  HandleAll(&rank, &rank.unhandled);
  Events events;
  const Status status = rank.negotiation.OnMessage(queue.front(), &events);
  if (!status.ok())
    Complain("rank " + std::to_string(r) + " refused message " + std::to_string(queue.front()[0]) + ": " +
             status.message());
  queue.pop_front();
  HandleAll(&rank, &events);
  return true;
}

bool SimulatedJob::DeliverToCoordinator(int r) {
  Rank& rank = *ranks_[static_cast<size_t>(r)];
  if (ranks_[0]->gone && !ranks_[0]->left) return false;
  if (!rank.gone || rank.left) Collect(r);
  std::deque<Bytes>& queue = to_coordinator_[static_cast<size_t>(r)];
  if (queue.empty()) return false;
  std::vector<Outgoing> out;
  const Bytes message = Described(queue.front());
  queue.pop_front();
  if (static_cast<MessageKind>(message[0]) == MessageKind::kJoin) joins_.push_back(r);
  const Status status = coordinator_.OnMessage(r, message, &out);
  if (!status.ok()) Complain("rank 0 refused message " + std::to_string(message[0]) + " of rank " + std::to_string(r));
  if (random_() % 2 == 0) coordinator_.Flush(&out);
  Distribute(std::move(out));
  bool more = false;
  for (const auto& other : to_coordinator_) more = more || !other.empty();
  out.clear();
  if (!more) coordinator_.Flush(&out);
  Distribute(std::move(out));
  ++messages_;
  descriptions_ += static_cast<MessageKind>(message[0]) == MessageKind::kDescribe;
  return true;
}

void SimulatedJob::Distribute(std::vector<Outgoing> out) {
  for (Outgoing& each : out) to_rank_[static_cast<size_t>(each.rank)].push_back(std::move(each.message));
}

// kNoValidation: every description gets the signature of the first.
Bytes SimulatedJob::Described(const Bytes& message) {
  if (planted_ != Planted::kNoValidation || static_cast<MessageKind>(message[0]) != MessageKind::kDescribe)
    return message;
  ByteReader reader(message);
  reader.Get<MessageKind>();
  auto description = Decode<Description>(&reader);
  const std::string key = std::to_string(description.signature.set) + description.name;
  auto& [first, count] = first_described_[key];
  if (count++ == 0) first = description.signature;
  description.signature = first;
  if (count == size()) first_described_.erase(key);
  return Encode(MessageKind::kDescribe, description);
}

// ---- the other steps

bool SimulatedJob::Advance(int r) {
  Rank& rank = *ranks_[static_cast<size_t>(r)];
  if (rank.gone || rank.paused) return false;
  const bool handled = !rank.unhandled.empty();
  HandleAll(&rank, &rank.unhandled);
  const bool appended = AppendToLog(&rank);
  const bool news = rank.negotiation.HasNews();
  const bool moved = rank.negotiation.Advance(&rank.unhandled);
  if (moved && !news) Complain("a driver would not have come to rank " + std::to_string(r));
  const bool said = Collect(r);
  return moved || handled || appended || said;
}

// By the driver, which looks at all of them, or by a thread that waits for one.
bool SimulatedJob::TakeSmall(int r) {
  Rank& rank = *ranks_[static_cast<size_t>(r)];
  if (rank.gone) return false;
  std::vector<Ticket> ready;
  if (random_() % 2 == 0 && planted_ != Planted::kEarlyReady) {
    ready = rank.negotiation.ReadySmall();
  } else {
    for (const auto& [ticket, operation] : rank.in_flight) {
      if (operation->admission.slots && IsReady(rank, *operation)) ready.push_back(ticket);
    }
  }
  bool moved = false;
  for (Ticket ticket : ready) {
    const auto found = rank.in_flight.find(ticket);
    if (found != rank.in_flight.end() && rank.negotiation.IsSmall(ticket)) moved |= GoOn(&rank, found->second);
  }
  return moved;
}

// Takes the steps of a small operation for which all data are there. Returns whether there were any.
bool SimulatedJob::GoOn(Rank* rank, const std::shared_ptr<Operation>& operation) {
  const Admission& admission = operation->admission;
  const Ticket ticket = admission.ticket;
  const bool had_reduced =
      admission.two_phase && admission.slots->HasReduced(admission.slots->self(), admission.generation());
  if (admission.two_phase && !ReduceInTwoPhases(rank, operation.get())) return !had_reduced;
  rank->negotiation.EndSmall(ticket);
  if (!admission.two_phase) {
    Take(rank, ticket);
  } else {
    Finish(rank, *Remove(rank, ticket), Status::Ok());
  }
  return true;
}

void SimulatedJob::WriteForOthers(Operation* operation) {
  const Admission& admission = operation->admission;
  for (const TensorSpec& tensor : operation->call.description.signature.tensors) {
    const auto elements = static_cast<size_t>(ElementCount(tensor.shape));
    operation->inputs.emplace_back(elements, 0);
    operation->sums.emplace_back(elements, 0);
    Fill(*operation, operation->inputs.back().data(), elements);
  }
  SlotBuffer slots = *admission.slots;
  const std::vector<SlotTensor> tensors = operation->Tensors();
  slots.WriteForOthers(tensors.data(), tensors.size(), admission.generation(), random_() % 2 == 0);
}

// Returns whether the operation is complete.
bool SimulatedJob::ReduceInTwoPhases(Rank* rank, Operation* operation) {
  const Admission& admission = operation->admission;
  const SlotBuffer& slots = *admission.slots;
  const std::vector<SlotTensor> tensors = operation->Tensors();
  if (!slots.HasReduced(slots.self(), admission.generation()))
    ReduceShare(slots, ReduceOp::kSum, {1.0, 1.0}, tensors.data(), tensors.size(), admission.generation());
  if (!slots.AllHaveReduced(admission.generation())) return false;
  CopyShares(slots, tensors.data(), tensors.size());
  for (const std::vector<int64_t>& sums : operation->sums) CheckSmall(*rank, *operation, sums);
  return true;
}

// The negotiation has ended the operation, unless it takes two phases.
void SimulatedJob::HandleTake(Rank* rank, Ticket ticket) {
  const auto found = rank->in_flight.find(ticket);
  if (found == rank->in_flight.end() || !found->second->admission.two_phase) return Take(rank, ticket);
  if (rank->negotiation.IsSmall(ticket)) GoOn(rank, std::shared_ptr<Operation>(found->second));
}

// Delivers a PUT of a random rank that has sent one.
bool SimulatedJob::DeliverEarly(int r) {
  const int first = static_cast<int>(random_() % ranks_.size());
  for (int i = 0; i < size(); ++i) {
    if (DeliverEarlyFrom((first + i) % size(), r)) return true;
  }
  return false;
}

bool SimulatedJob::DeliverEarlyFrom(int from, int to) {
  Rank& rank = *ranks_[static_cast<size_t>(to)];
  std::deque<EarlyMessage>& queue = early_messages_[{from, to}];
  if (rank.gone || rank.paused || queue.empty()) return false;
  const EarlyMessage message = std::move(queue.front());
  queue.pop_front();
  const auto means = [&message](const auto& each) {
    const Admission& admission = each.second->admission;
    return admission.early && admission.serial == message.tag.serial && admission.generation() == message.tag.operation;
  };
  const bool wanted = std::any_of(rank.in_flight.begin(), rank.in_flight.end(), means);
  if (wanted || rank.negotiation.WantsMessage(message.tag))
    rank.early[{message.tag.serial, message.tag.operation, from}] = message.data;
  return true;
}

MessageTag SimulatedJob::TagOf(const Admission& admission) {
  return {admission.id, admission.serial, admission.generation(), 0, 0, Lane::kEarly};
}

bool SimulatedJob::HasAll(const Rank& rank, const Operation& operation) const {
  const Admission& admission = operation.admission;
  int here = 0;
  for (int g = 0; g < admission.set->layout.node_count(); ++g)
    here += IsHere(rank, admission, admission.set->LeaderOf(g));
  return here == admission.set->layout.node_count() - 1;
}

bool SimulatedJob::IsHere(const Rank& rank, const Admission& admission, int leader) const {
  const auto found = rank.early.find({admission.serial, admission.generation(), leader});
  return found != rank.early.end() && (!found->second.empty() || planted_ == Planted::kHeadIsEnough);
}

bool SimulatedJob::TakeEarly(int r) {
  Rank& rank = *ranks_[static_cast<size_t>(r)];
  if (rank.gone) return false;
  for (const auto& [ticket, operation] : rank.in_flight) {
    if (!operation->admission.early) continue;
    const std::shared_ptr<Operation> early = operation;
    if (GoOnWithEarly(&rank, early)) return true;
  }
  return false;
}

bool SimulatedJob::RequestDoorbells(int r) {
  Rank& rank = *ranks_[static_cast<size_t>(r)];
  if (rank.gone || !rank.negotiation.has_small()) return false;
  rank.negotiation.RequestDoorbells();
  return false;
}

// Lets time pass for the unnamed operations of a rank; each asks once.
bool SimulatedJob::Stick(int r) {
  Rank& rank = *ranks_[static_cast<size_t>(r)];
  bool asked = false;
  for (const auto& [ticket, operation] : rank.in_flight) {
    if (rank.gone || operation->stuck_reported || operation->invited || !operation->call.unnamed) continue;
    operation->stuck_reported = asked = true;
    rank.negotiation.ReportStuck(ticket);
  }
  if (asked) Collect(r);
  return asked;
}

// ---- reports

std::set<int> SimulatedJob::MissingFor(int rank) const {
  std::set<int> all;
  const Rank& here = *ranks_[static_cast<size_t>(rank)];
  for (const auto& [ticket, operation] : here.in_flight) {
    const std::vector<int> missing = here.negotiation.MissingRanks(ticket);
    all.insert(missing.begin(), missing.end());
    const Admission& admission = operation->admission;
    if (!missing.empty() || !admission.early || admission.set->member() != 0) continue;
    for (int g = 0; g < admission.set->layout.node_count(); ++g) {
      const bool is_alone = admission.set->layout.nodes[static_cast<size_t>(g)].size() == 1;
      const int leader = admission.set->LeaderOf(g);
      if (is_alone && leader != rank && !IsHere(here, admission, leader)) all.insert(leader);
    }
  }
  return all;
}

std::set<int> SimulatedJob::MissingForCoordinator() const {
  std::set<int> all;
  for (const Absence& absence : coordinator_.Absences()) all.insert(absence.ranks.begin(), absence.ranks.end());
  return all;
}

bool SimulatedJob::Waits(int rank) const {
  const Rank& here = *ranks_[static_cast<size_t>(rank)];
  return !here.gone && (!here.in_flight.empty() || !here.works.empty());
}

bool SimulatedJob::HasToAppend(int rank) const { return !ranks_[static_cast<size_t>(rank)]->to_append.empty(); }

std::set<int> SimulatedJob::NotInFront(int rank) const {
  std::set<int> absent;
  const Rank& here = *ranks_[static_cast<size_t>(rank)];
  if (here.works.empty()) return absent;
  const ProcessSet& set = *here.works.front().set;
  for (int member : set.ranks) {
    const Rank& other = *ranks_[static_cast<size_t>(member)];
    if (other.gone || other.works.empty() || other.works.front().set->id != set.id) absent.insert(member);
  }
  return absent;
}

// As Engine::Refuse does it. Returns false while the name is in flight: that call comes first.
bool SimulatedJob::RefuseCall(Rank* rank, const Call& call) {
  const int set = call.description.signature.set;
  const int64_t number = call.unnamed ? rank->sequence_numbers[set]++ : -1;
  const std::string name = call.unnamed ? "" : call.description.name;
  if (!rank->negotiation.Refuse(RefusalOf(set, name, number, "", call.description.refusal))) return false;
  ++rank->failed;
  return true;
}

}  // namespace farandole
