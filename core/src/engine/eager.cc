#include "engine/eager.h"

#include <algorithm>
#include <new>
#include <utility>

namespace farandole {
namespace {

constexpr size_t kKeptBytes = 16 << 20;
constexpr int kSmallestExponent = 6;

int ExponentOf(size_t size_bytes) {
  int exponent = kSmallestExponent;
  while ((size_t{1} << exponent) < size_bytes) ++exponent;
  return exponent;
}

// Wakes the other members of this group that take part.
void RingGroup(const World& world, const EagerSum& sum) {
  const ProcessSet& set = sum.set();
  for (int position : set.layout.groups[static_cast<size_t>(set.group())]) {
    const int rank = set.ranks[static_cast<size_t>(position)];
    if (rank != world.rank) world.group->RingMember(world.layout.member_of[static_cast<size_t>(rank)]);
  }
}

}  // namespace

// ---- operations

Eager::Eager(World* world, Operations* operations) : world_(world), operations_(operations) {
  const auto size = static_cast<size_t>(world->size);
  credit_used_.resize(size);
  landings_.resize(size);
  spares_.resize(size);
  reported_closed_.resize(size);
}

bool Eager::Advance(std::vector<OperationPtr>* done, std::vector<Sign>* signs) {
  bool moved = BeginSubmitted();
  moved |= LookAtCells();
  moved |= transport().PollPuts(this);
  for (size_t i = 0; moved && i < running_.size();) {
    if (Progress(running_[i].get())) {
      done->push_back(End(running_[i].get()));
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  if (moved) ReportClosed();
  signs->swap(signs_);
  return moved;
}

// ---- putting

bool Eager::BeginSubmitted() {
  if (!operations_->has_eager.exchange(false)) return false;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    submitted_.swap(operations_->eager);
  }
  for (OperationPtr& operation : submitted_) Begin(std::move(operation));
  submitted_.clear();
  return true;
}

void Eager::Begin(OperationPtr operation) {
  running_.push_back(std::make_unique<EagerSum>(std::move(operation)));
  EagerSum* const sum = running_.back().get();
  if (sum->leads()) {
    for (const EagerSum::Peer& peer : sum->peers()) {
      if (!sum->IsMine(peer)) transport().AwaitPuts(peer.rank, 1);
    }
  }
  if (!sum->collects()) return PutToOthers(sum);
  sum->PutInput();
  RingFence();
  const int leader = sum->set().LeaderOf(sum->set().group());
  if (!sum->leads() && sum->AllHavePut())
    world_->group->RingMember(world_->layout.member_of[static_cast<size_t>(leader)]);
}

// Finds what other members of this group have put.
bool Eager::LookAtCells() {
  bool found = false;
  for (const auto& sum : running_) {
    if (!sum->collects()) continue;
    if (!sum->leads()) {
      found |= sum->HasResult();
    } else if (!sum->has_partial() && sum->AllHavePut()) {
      PutToOthers(sum.get());
      found = true;
    }
  }
  return found;
}

// Each group begins with its next neighbour, so that not all send to the same group first.
void Eager::PutToOthers(EagerSum* sum) {
  sum->MakePartial();
  const auto count = sum->peers().size(), mine = static_cast<size_t>(sum->set().group());
  for (size_t distance = 1; distance < count; ++distance) PutTo(sum, &sum->peers()[(mine + distance) % count]);
}

// A rank that has not arrived takes data on credit, which bounds what waits in its memory. Beyond that it gets the head
// alone, and the data once it has arrived.
void Eager::PutTo(EagerSum* sum, EagerSum::Peer* peer) {
  size_t& used = credit_used_[static_cast<size_t>(peer->rank)];
  const bool has_come = sum->admission().inbox->at(sum->use(), peer->rank).stamp != 0;
  if (!has_come && used + sum->payload_bytes() > kCreditBytes) {
    Put(*sum, peer->rank, 0);
    return;
  }
  if (!has_come) {
    used += sum->payload_bytes();
    peer->on_credit = true;
  }
  PutData(sum, peer);
}

// Puts the head, and the data in pieces_.
uint64_t Eager::Put(const EagerSum& sum, int rank, size_t payload_bytes) {
  const Admission& admission = sum.admission();
  const Bytes encoded = EncodePut(
      {admission.id, admission.serial, admission.stamp(), admission.round, static_cast<uint32_t>(payload_bytes)});
  static_assert(kEagerPutBytes == kPutHeadBytes);
  PutHead head;
  std::copy(encoded.begin(), encoded.end(), head.begin());
  const uint64_t position = transport().PostPut(rank, head, pieces_);
  pieces_.clear();
  return position;
}

// The data are sent from the tensor, which stays until they are sent.
void Eager::PutData(EagerSum* sum, EagerSum::Peer* peer) {
  sum->ForEachPiece([&](const void* data, size_t size_bytes) {
    pieces_.push_back({const_cast<std::byte*>(static_cast<const std::byte*>(data)), size_bytes});
  });
  peer->sent_at = Put(*sum, peer->rank, sum->payload_bytes());
}

// Says it behind everything that this rank has put, for a member of this group that has left as for this rank itself.
void Eager::SayFarewell(int left) {
  if (world_->layout.group_of[static_cast<size_t>(left)] != world_->layout.group_of[static_cast<size_t>(world_->rank)])
    return;
  const Bytes farewell = EncodeFarewell(left);
  PutHead head;
  std::copy(farewell.begin(), farewell.end(), head.begin());
  for (int other = 0; other < world_->size; ++other) {
    if (transport().CanPut(other)) transport().PostPut(other, head, {});
  }
  if (left == world_->rank) transport().PollPuts(this);
}

// ---- receiving

// If one operation is under way, its data come next, unless that rank submits in another order.
Slice Eager::Expected(int peer) {
  if (running_.size() != 1) return {};
  const EagerSum& sum = *running_.front();
  const auto at = static_cast<size_t>(peer);
  const bool is_awaited = sum.leads() && sum.HasPeer(peer);
  if (!is_awaited || sum.admission().inbox->at(sum.use(), peer).has_data) return {};
  Spare& spare = spares_[at];
  if (spare.size_bytes != sum.payload_bytes()) {
    if (spare.data) memory_.GiveBack(std::move(spare.data), spare.size_bytes);
    spare = {memory_.Take(sum.payload_bytes()), sum.payload_bytes()};
  }
  return {spare.data.get(), spare.data ? spare.size_bytes : 0};
}

// Only a stranger or a faulty rank puts what this rank refuses, so that ends the epoch.
Status Eager::OnHead(int peer, const PutHead& head, std::byte** to, size_t* size_bytes) {
  const Status status = FindPlace(peer, head, to, size_bytes);
  if (!status.ok()) signs_.push_back({peer, Sign::kBroken, status});
  return status;
}

Status Eager::FindPlace(int peer, const PutHead& head, std::byte** to, size_t* size_bytes) {
  if (const int left = FarewellOf(head.data()); left >= 0) {
    if (left == peer) signs_.push_back({peer, Sign::kFarewell});
    farewells_.emplace(peer, left);
    return left < world_->size ? Status::Ok() : Unreadable(peer);
  }
  ByteReader reader(head.data(), head.size());
  const EagerPut put = DecodePut(&reader);
  Landing& landing = landings_[static_cast<size_t>(peer)];
  landing = Landing();
  if (!reader.AtEnd()) return Unreadable(peer);
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    FRD_RETURN_IF_ERROR(operations_->negotiation.OnPut(peer, put, &landing.inbox));
  }
  *size_bytes = put.payload_bytes;
  if (!landing.inbox || put.payload_bytes == 0) return Status::Ok();
  landing.slot = &landing.inbox->at(UsesIn(put.stamp), peer);
  landing.slot->data = TakeMemoryFor(peer, put.payload_bytes);
  if (!landing.slot->data)
    return Internal("no memory for " + std::to_string(put.payload_bytes) + " bytes that another rank sent");
  *to = landing.slot->data.get();
  return Status::Ok();
}

void Eager::OnData(int peer, size_t size_bytes) {
  landings_[static_cast<size_t>(peer)].slot->received_bytes += size_bytes;
}

void Eager::OnEnd(int peer, const Status& status) {
  if (status.code() != Code::kPeerLost) signs_.push_back({peer, Sign::kBroken, status});
}

// Returns whether the result is taken, and this rank has sent all that it has to.
bool Eager::Progress(EagerSum* sum) {
  if (!sum->leads()) return sum->TakeResult();
  if (!sum->has_partial()) return false;
  if (sum->FoldUpTo(Advanced(sum)) && sum->collects()) RingGroup(*world_, *sum);
  if (!sum->folded()) return false;
  return std::all_of(sum->peers().begin(), sum->peers().end(), [&](const EagerSum::Peer& peer) {
    return sum->IsMine(peer) || transport().sent(peer.rank) >= peer.sent_at;
  });
}

// Returns how many bytes have arrived from each group and been sent to each, the least of all. Also sends data that
// waited for a group to arrive.
size_t Eager::Advanced(EagerSum* sum) {
  size_t least = sum->payload_bytes();
  for (EagerSum::Peer& peer : sum->peers()) {
    if (sum->IsMine(peer)) continue;
    const Inbox::Slot& slot = sum->admission().inbox->at(sum->use(), peer.rank);
    if (slot.stamp != 0) {
      if (std::exchange(peer.on_credit, false)) credit_used_[static_cast<size_t>(peer.rank)] -= sum->payload_bytes();
      if (peer.sent_at == EagerSum::Peer::kNotQueued) PutData(sum, &peer);
    }
    // With another stamp the group means another operation, see IdTable::UsesSaid.
    least = std::min(least, slot.stamp == sum->admission().stamp() ? slot.received_bytes : 0);
    const uint64_t sent = transport().sent(peer.rank);
    const uint64_t begin = peer.sent_at == EagerSum::Peer::kNotQueued ? sent : peer.sent_at - sum->payload_bytes();
    least = std::min<uint64_t>(least, sent > begin ? sent - begin : 0);
  }
  return least;
}

// ---- ending

// Clears the slots before the negotiation may give this buffer of the inbox to a later use.
OperationPtr Eager::End(EagerSum* sum) {
  const Admission& admission = sum->admission();
  Forget(*sum);
  for (const EagerSum::Peer& peer : sum->peers()) {
    Inbox::Slot& slot = admission.inbox->at(sum->use(), peer.rank);
    if (slot.data) memory_.GiveBack(std::move(slot.data), sum->payload_bytes());
    slot = Inbox::Slot();
  }
  std::lock_guard<std::mutex> lock(operations_->mutex);
  operations_->negotiation.EndEager(admission.ticket);
  operations_->by_ticket.Take(admission.ticket);
  return sum->operation();
}

// Nothing more is awaited for it.
void Eager::Forget(const EagerSum& sum) {
  if (!sum.leads()) return;
  for (const EagerSum::Peer& peer : sum.peers()) {
    if (!sum.IsMine(peer)) transport().AwaitPuts(peer.rank, -1);
  }
}

// ---- what goes wrong

// Reports a closed connection only while an operation waits for it: ranks may also leave.
void Eager::ReportClosed() {
  for (const auto& sum : running_) {
    if (!sum->leads()) continue;
    for (const EagerSum::Peer& peer : sum->peers()) {
      const auto at = static_cast<size_t>(peer.rank);
      if (sum->IsMine(peer) || transport().CanPut(peer.rank) || reported_closed_[at]) continue;
      Inbox& inbox = *sum->admission().inbox;
      if (inbox.IsComplete(inbox.at(sum->use(), peer.rank))) continue;
      reported_closed_[at] = true;
      signs_.push_back({peer.rank, Sign::kClosed});
    }
  }
}

// The members of the group end the operation by themselves, for the reason that this rank has, or once they see that
// there will be no result.
void Eager::Recall(Ticket ticket) {
  ForgetSubmitted(ticket);
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [ticket](const auto& sum) { return sum->admission().ticket == ticket; });
  if (found == running_.end()) return;
  EagerSum& sum = **found;
  Forget(sum);
  for (EagerSum::Peer& peer : sum.peers()) {
    if (!sum.leads() || sum.IsMine(peer)) continue;
    if (peer.on_credit) credit_used_[static_cast<size_t>(peer.rank)] -= sum.payload_bytes();
    transport().Detach(peer.rank);
  }
  if (sum.leads() && sum.collects() && !sum.folded()) {
    sum.GiveUp();
    RingGroup(*world_, sum);
  }
  running_.erase(found);
}

// Drops an operation that was submitted since the last pass and has not begun.
void Eager::ForgetSubmitted(Ticket ticket) {
  std::lock_guard<std::mutex> lock(operations_->mutex);
  std::vector<OperationPtr>& submitted = operations_->eager;
  const auto is_it = [ticket](const OperationPtr& operation) { return operation->admission.ticket == ticket; };
  submitted.erase(std::remove_if(submitted.begin(), submitted.end(), is_it), submitted.end());
}

bool Eager::MayComplete(const Operation& operation, const std::vector<int>& left) const {
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [&](const auto& sum) { return sum->operation().get() == &operation; });
  if (found == running_.end()) return false;
  const EagerSum& sum = **found;
  return std::none_of(left.begin(), left.end(),
                      [&](int rank) { return sum.set().PositionOf(rank) >= 0 && !MayHavePut(sum, rank); });
}

// A rank leaves when its operations are complete. So if the one that has left took part in this one, all have put their
// data: those of its group are in the cells here, or on their way from its leader, which says so behind them.
bool Eager::MayHavePut(const EagerSum& sum, int left) const {
  const ProcessSet& set = sum.set();
  if (sum.collects() && (sum.HasGivenUp() || !sum.AllHavePut())) return false;
  const int group = set.layout.group_of[static_cast<size_t>(set.PositionOf(left))];
  if (group == set.group() || !sum.leads()) return true;  // the leader ends what cannot be completed
  const int leader = set.LeaderOf(group);
  return !HasSaidAll(leader, left) || sum.admission().inbox->at(sum.use(), leader).stamp != 0;
}

void Eager::Drop() {
  for (const auto& sum : running_) Forget(*sum);
  running_.clear();
  std::lock_guard<std::mutex> lock(operations_->mutex);
  operations_->eager.clear();
}

// ---- memory

std::unique_ptr<std::byte[]> Eager::TakeMemoryFor(int rank, size_t size_bytes) {
  Spare& spare = spares_[static_cast<size_t>(rank)];
  if (spare.size_bytes != size_bytes) return memory_.Take(size_bytes);
  return std::exchange(spare, {}).data;
}

std::unique_ptr<std::byte[]> KeptMemory::Take(size_t size_bytes) {
  const int exponent = ExponentOf(size_bytes);
  auto& kept = kept_[exponent];
  if (kept.empty()) return std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[size_t{1} << exponent]);
  std::unique_ptr<std::byte[]> memory = std::move(kept.back());
  kept.pop_back();
  kept_bytes_ -= size_t{1} << exponent;
  return memory;
}

void KeptMemory::GiveBack(std::unique_ptr<std::byte[]> memory, size_t size_bytes) {
  const int exponent = ExponentOf(size_bytes);
  if (kept_bytes_ + (size_t{1} << exponent) > kKeptBytes) return;
  kept_bytes_ += size_t{1} << exponent;
  kept_[exponent].push_back(std::move(memory));
}

}  // namespace farandole
