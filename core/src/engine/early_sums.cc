#include "engine/early_sums.h"

#include <algorithm>
#include <utility>

#include "algorithms/plan.h"
#include "engine/failures.h"

namespace farandole {
namespace {

constexpr size_t kMaxIdle = 32;  // of a process set; each keeps the memory of its last sum

// Wakes the other members of this node that take part.
void RingNode(const World& world, const EarlySum& sum) {
  const ProcessSet& set = sum.set();
  for (int position : set.layout.nodes[static_cast<size_t>(set.node())]) {
    const int rank = set.ranks[static_cast<size_t>(position)];
    if (rank != world.rank) world.node->RingMember(world.layout.member_of[static_cast<size_t>(rank)]);
  }
}

auto HasTicket(Ticket ticket) {
  return [ticket](const auto& sum) { return sum->admission().ticket == ticket; };
}

// "rank 2 by inter-node links with the ring schedule (operation 5 of process set 0, part 1, 64 bytes)"
std::string TextOf(int rank, const Message& message) {
  std::string which = Text("operation ", message.tag.operation, " of process set ", message.tag.id);
  if (message.tag.lane == Lane::kEarly) which = Text("use ", UseOf(message.tag.operation), " of name ", message.tag.id);
  if (message.size_bytes > 0) which += Text(", part ", message.part, ", ", message.size_bytes, " bytes");
  return Text("rank ", rank, " by ", TextOfPlan(message.tag.plan), " (", which, ")");
}

}  // namespace

// ---- operations

EarlySums::EarlySums(Operations* operations) : world_(operations->world), operations_(operations) {
  transport().Listen(this);
}

bool EarlySums::Advance(std::vector<HostCopies::Completed>* done, std::vector<PeerEvent>* events) {
  bool moved = BeginSubmitted();
  moved |= PollSlots();
  moved |= Runner::PollAll(&transport(), &completions_);
  moved |= std::exchange(is_woken_, false);
  if (moved) AdvanceAll(done);
  if (moved) ReportClosed();
  events->swap(events_);
  return moved;
}

void EarlySums::AdvanceAll(std::vector<HostCopies::Completed>* done) {
  done->reserve(done->size() + running_.size());  // nothing throws while an operation is taken out of its place
  for (size_t i = 0; i < running_.size();) {
    bool is_done = false;
    const Status status = running_[i]->Advance(&is_done);
    if (!status.ok()) events_.push_back({world_->rank, PeerEvent::kBroken, status});
    if (!is_done) {
      ++i;
      continue;
    }
    if (running_[i]->leads() && running_[i]->collects()) RingNode(*world_, *running_[i]);
    {
      std::lock_guard<std::mutex> lock(operations_->mutex);
      operations_->negotiation.EndEarly(running_[i]->admission().ticket);
      operations_->TakeEnded(running_[i]->admission().ticket);
    }
    done->push_back({running_[i]->TakeOperation(), Status::Ok()});
    MakeIdle(running_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// ---- beginning

bool EarlySums::BeginSubmitted() {
  if (!operations_->has_early.exchange(false)) return false;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    submitted_.swap(operations_->early);
  }
  for (OperationPtr& operation : submitted_) Begin(std::move(operation));
  submitted_.clear();
  return true;
}

void EarlySums::Begin(OperationPtr operation) {
  running_.push_back(TakeIdle(operation->admission.set));
  EarlySum* const sum = running_.back().get();
  sum->Begin(std::move(operation));
  if (!sum->collects()) return StartExchange(sum);
  sum->WriteInput();
  RingFence();
  const int leader = sum->set().LeaderOf(sum->set().node());
  if (!sum->leads() && sum->HasAllInputs())
    world_->node->RingMember(world_->layout.member_of[static_cast<size_t>(leader)]);
}

std::unique_ptr<EarlySum> EarlySums::TakeIdle(const ProcessSetPtr& set) {
  Sums& idle = idle_[set->id];
  idle.reserve(kMaxIdle);  // so that MakeIdle does not throw
  if (idle.empty()) return std::make_unique<EarlySum>(set, &transport());
  std::unique_ptr<EarlySum> taken = std::move(idle.back());
  idle.pop_back();
  return taken;
}

void EarlySums::Forget(int set) {
  idle_.erase(set);
  transport().ForgetSet(set);
}

void EarlySums::MakeIdle(Sums::iterator sum) {
  Sums& idle = idle_[(*sum)->set().id];
  if (idle.size() < kMaxIdle) idle.push_back(std::move(*sum));
  running_.erase(sum);
}

// Finds what other members of this node have written.
bool EarlySums::PollSlots() {
  bool found = false;
  for (const auto& sum : running_) {
    if (!sum->collects()) continue;
    if (!sum->leads()) {
      found |= sum->HasResult();
    } else if (!sum->has_started() && sum->HasAllInputs()) {
      StartExchange(sum.get());
      found = true;
    }
  }
  return found;
}

void EarlySums::StartExchange(EarlySum* sum) {
  const Status started = sum->StartExchange();
  if (!started.ok()) events_.push_back({world_->rank, PeerEvent::kBroken, started});
}

// ---- callbacks of the transport

Status EarlySums::OnArrival(int /*peer*/, const MessageTag& tag, bool* wanted) {
  std::lock_guard<std::mutex> lock(operations_->mutex);
  *wanted = operations_->negotiation.WantsMessage(tag);
  return Status::Ok();
}

void EarlySums::OnGoodbye(int peer, int left) {
  if (left < 0 || left >= world_->size) return;
  if (left == peer) events_.push_back({peer, PeerEvent::kGoodbye});
  goodbyes_.emplace(peer, left);
}

void EarlySums::OnMismatch(int peer, const Mismatch& mismatch) {
  const Status status =
      Internal(world_->NameOf(peer), " and ", world_->NameOf(world_->rank),
               " run the same operation in different ways: ", TextOf(peer, mismatch.theirs), ", ",
               TextOf(world_->rank, mismatch.ours),
               ". This is a bug in Farandole, please report it; FARANDOLE_ALGORITHM=direct on all ranks may avoid it");
  events_.push_back({peer, PeerEvent::kBroken, status});
}

void EarlySums::OnEnd(int peer, const Status& status) {
  if (status.code() == Code::kInternal)
    events_.push_back({world_->rank, PeerEvent::kBroken, EndBecauseOf(*world_, status).status});
  if (status.code() == Code::kMismatch)
    events_.push_back({peer, PeerEvent::kBroken, {Code::kPeerLost, status.message()}});
}

// ---- ending

// The members of the node end the sum by themselves, for the reason that this rank has, or once they see that there
// will be no result. Described anew, the operation waits for the programs of the other ranks.
void EarlySums::Cancel(Ticket ticket) {
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    if (Operation* const operation = operations_->by_ticket.Find(ticket)) operation->admission.early = false;
    std::vector<OperationPtr>& submitted = operations_->early;  // since the last pass
    const auto is_it = [ticket](const OperationPtr& operation) { return operation->admission.ticket == ticket; };
    submitted.erase(std::remove_if(submitted.begin(), submitted.end(), is_it), submitted.end());
  }
  const auto found = std::find_if(running_.begin(), running_.end(), HasTicket(ticket));
  if (found == running_.end()) return;
  EarlySum& sum = **found;
  if (sum.leads()) transport().Cancel(sum.Tag());
  if (sum.leads() && sum.collects()) {
    sum.GiveUp();
    RingNode(*world_, sum);
  }
  sum.Drop();
  sum.TakeOperation();  // its memory must not outlive it here
  MakeIdle(found);
}

const EarlySum* EarlySums::Find(Ticket ticket) const {
  const auto found = std::find_if(running_.begin(), running_.end(), HasTicket(ticket));
  return found == running_.end() ? nullptr : found->get();
}

void EarlySums::Drop() {
  submitted_.clear();
  std::lock_guard<std::mutex> lock(operations_->mutex);
  operations_->early.clear();
}

// ---- what goes wrong

// Reports a closed connection only while an operation waits for it: ranks may also leave.
void EarlySums::ReportClosed() {
  for (const auto& sum : running_) {
    for (int node = 0; sum->leads() && node < sum->set().layout.node_count(); ++node) {
      const int leader = sum->set().LeaderOf(node);
      if (!sum->WaitsFor(node) || transport().CanSendEarly(leader)) continue;
      if (reported_closed_.insert(leader).second) events_.push_back({leader, PeerEvent::kClosed});
    }
  }
}

// A leader of a larger node stands for members that are not known here.
std::vector<int> EarlySums::MissingRanks(Ticket ticket) const {
  std::vector<int> missing;
  const EarlySum* const sum = Find(ticket);
  if (sum == nullptr || !sum->leads()) return missing;
  const ProcessSet& set = sum->set();
  for (int node = 0; node < set.layout.node_count(); ++node) {
    const bool is_alone = set.layout.nodes[static_cast<size_t>(node)].size() == 1;
    if (is_alone && sum->WaitsFor(node)) missing.push_back(set.LeaderOf(node));
  }
  return missing;
}

bool EarlySums::MayComplete(const Operation& operation, const std::vector<int>& left) const {
  const EarlySum* const sum = Find(operation.admission.ticket);
  return sum != nullptr && std::none_of(left.begin(), left.end(), [&](int rank) {
           return sum->set().PositionOf(rank) >= 0 && !MayHaveSent(*sum, rank);
         });
}

// A rank leaves when its operations are complete. So if the one that has left took part in this one, all have sent
// their data: those of its node are in the slots here, or on their way from its leader, whose goodbye follows them.
bool EarlySums::MayHaveSent(const EarlySum& sum, int left) const {
  const ProcessSet& set = sum.set();
  if (sum.collects() && (sum.HasGivenUp() || !sum.HasAllInputs())) return false;
  const int node = set.layout.node_of[static_cast<size_t>(set.PositionOf(left))];
  if (node == set.node() || !sum.leads()) return true;  // the leader ends what cannot be completed
  const int leader = set.LeaderOf(node);
  return !HasGoodbye(leader, left) || !sum.has_started() || transport().HasHeader(leader, sum.Tag());
}

void EarlySums::SendGoodbyes(int left) {
  const std::vector<int>& node_of = world_->layout.node_of;
  if (node_of[static_cast<size_t>(left)] != node_of[static_cast<size_t>(world_->rank)]) return;
  for (int other = 0; other < world_->size; ++other) {
    if (transport().CanSendEarly(other)) transport().PostGoodbye(other, left);
  }
  if (left == world_->rank) Runner::PollAll(&transport(), &completions_);
}

}  // namespace farandole
