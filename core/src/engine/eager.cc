#include "engine/eager.h"

#include <algorithm>
#include <new>
#include <utility>

#include "engine/control.h"

namespace farandole {
namespace {

// Data up to this size are copied into the stream; beyond, copying costs more than a list of pieces for the system
// call.
constexpr size_t kCopiedBytes = 16 << 10;
// Up to this many streams that bring data are read in every pass; with more, the poller says which.
constexpr int kAskedStreams = 4;
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

// ---- streams

PutStreams::PutStreams(World* world, Poller* poller) : world_(world), poller_(poller) {
  const auto size = static_cast<size_t>(world->size);
  world_->puts.resize(size);
  for (int r = 0; r < world_->size; ++r) {
    if (at(r).open()) ranks_.push_back(r);
  }
  awaited_.resize(size);
  watched_for_writing_.resize(size);
  readable_.resize(size);
}

Status PutStreams::Open() {
  for (int rank : ranks_) FRD_RETURN_IF_ERROR(poller_->Watch(at(rank).descriptor(), MakeTag(TagKind::kPut, rank)));
  return Status::Ok();
}

Status PutStreams::Flush(int rank, bool* moved) {
  bool sent = false;
  PutStream& to = at(rank);
  const Status status = to.Flush(&sent);
  *moved |= sent;
  const auto place = static_cast<size_t>(rank);
  // Wakes a sleeping rank when there is room again.
  const bool blocked = status.ok() && !sent;
  if (blocked != watched_for_writing_[place] && (blocked || to.flushed())) {
    poller_->WatchWriting(to.descriptor(), MakeTag(TagKind::kPut, rank), blocked);
    watched_for_writing_[place] = blocked;
  }
  if (!status.ok()) to.Drop();
  return status;
}

void PutStreams::Close(int rank) {
  poller_->Forget(at(rank).descriptor());
  at(rank).Close();
}

bool PutStreams::AreRead() const { return awaiting_ <= kAskedStreams; }

// With few streams a look at each costs less than poll; with many only those that poll has reported are read.
bool PutStreams::IsDue(int rank) {
  const auto place = static_cast<size_t>(rank);
  const bool was_readable = readable_[place];
  readable_[place] = false;
  return was_readable || (AreRead() && IsAwaited(rank));
}

void PutStreams::OnLeft(int rank) {
  const auto place = static_cast<size_t>(rank), me = static_cast<size_t>(world_->rank);
  if (world_->layout.group_of[place] != world_->layout.group_of[me]) return;
  const Bytes farewell = EncodeFarewell(rank);
  for (int other : ranks_) {
    if (at(other).open()) at(other).Queue(farewell.data(), farewell.size());
  }
}

void PutStreams::SayFarewell() {
  const Bytes farewell = EncodeFarewell(world_->rank);
  for (int rank : ranks_) {
    bool moved = false;
    at(rank).Queue(farewell.data(), farewell.size());
    static_cast<void>(at(rank).Flush(&moved));
  }
}

void PutStreams::EndSending() {
  for (int rank : ranks_) at(rank).EndSending();
}

void PutStreams::Drop() {
  for (int rank : ranks_) at(rank).Drop();
}

// ---- operations

Eager::Eager(World* world, Operations* operations, Poller* poller)
    : world_(world), operations_(operations), streams_(world, poller) {
  const auto size = static_cast<size_t>(world->size);
  credit_used_.resize(size);
  landings_.resize(size);
  spares_.resize(size);
  reported_closed_.resize(size);
}

bool Eager::Advance(std::vector<OperationPtr>* done, std::vector<Sign>* signs) {
  bool moved = BeginSubmitted();
  moved |= LookAtCells();
  moved |= MoveBytes(signs);
  if (!moved) return false;
  for (size_t i = 0; i < running_.size();) {
    if (Progress(running_[i].get())) {
      done->push_back(End(running_[i].get()));
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  ReportClosed(signs);
  return true;
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
      if (!sum->IsMine(peer)) streams_.Await(peer.rank);
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
  if (!has_come && used + sum->payload_bytes() > kCreditBytes) return SendHead(*sum, peer->rank, 0);
  if (!has_come) {
    used += sum->payload_bytes();
    peer->on_credit = true;
  }
  SendData(sum, peer);
}

void Eager::SendHead(const EagerSum& sum, int rank, size_t payload_bytes) {
  const Admission& admission = sum.admission();
  const Bytes head = EncodePut(
      {admission.id, admission.serial, admission.stamp(), admission.round, static_cast<uint32_t>(payload_bytes)});
  static_assert(kEagerPutBytes == kPutHeadBytes);
  streams_.at(rank).Queue(head.data(), head.size());
}

// Small data are copied behind their head. Large ones are sent from the tensor, which stays until they are sent.
void Eager::SendData(EagerSum* sum, EagerSum::Peer* peer) {
  PutStream& to = streams_.at(peer->rank);
  SendHead(*sum, peer->rank, sum->payload_bytes());
  const bool copied = sum->payload_bytes() <= kCopiedBytes;
  sum->ForEachPiece([&](const void* data, size_t size_bytes) {
    copied ? to.Queue(data, size_bytes) : to.QueueReference(data, size_bytes);
  });
  peer->sent_at = to.queued_bytes();
}

// ---- moving bytes

// Reading finds that the other end has closed, behind what it sent before.
bool Eager::MoveBytes(std::vector<Sign>* signs) {
  bool moved = false;
  for (int rank : streams_.ranks()) {
    PutStream& stream = streams_.at(rank);
    if (!stream.open()) continue;
    if (!stream.flushed()) {
      const Status status = streams_.Flush(rank, &moved);
      if (!status.ok() && status.code() != Code::kPeerLost) signs->push_back({rank, Sign::kBroken, status});
    }
    if (streams_.IsDue(rank)) Receive(rank, &moved, signs);
  }
  return moved;
}

void Eager::Receive(int rank, bool* moved, std::vector<Sign>* signs) {
  receiving_from_ = rank;
  refused_ = Status::Ok();
  is_farewell_ = false;
  const Status status = streams_.at(rank).Receive(this, moved);
  if (is_farewell_) signs->push_back({rank, Sign::kFarewell});
  if (status.ok()) return;
  *moved = true;
  streams_.Close(rank);
  if (!refused_.ok() || status.code() != Code::kPeerLost) signs->push_back({rank, Sign::kBroken, status});
}

// If one operation is under way, its data come next, unless that rank submits in another order.
PutStream::Slice Eager::Expected() {
  if (running_.size() != 1) return {};
  const EagerSum& sum = *running_.front();
  const auto at = static_cast<size_t>(receiving_from_);
  if (!streams_.IsAwaited(receiving_from_) || sum.admission().inbox->at(sum.use(), receiving_from_).has_data) return {};
  Spare& spare = spares_[at];
  if (spare.size_bytes != sum.payload_bytes()) {
    if (spare.data) memory_.GiveBack(std::move(spare.data), spare.size_bytes);
    spare = {memory_.Take(sum.payload_bytes()), sum.payload_bytes()};
  }
  return {spare.data.get(), spare.data ? spare.size_bytes : 0};
}

Status Eager::OnHead(const PutHead& head, std::byte** to, size_t* size_bytes) {
  if (const int left = FarewellOf(head.data()); left >= 0) {
    is_farewell_ = is_farewell_ || left == receiving_from_;
    streams_.OnFarewell(receiving_from_, left);
    return left < world_->size ? Status::Ok() : refused_ = Unreadable(receiving_from_);
  }
  ByteReader reader(head.data(), head.size());
  const EagerPut put = DecodePut(&reader);
  Landing& landing = landings_[static_cast<size_t>(receiving_from_)];
  landing = Landing();
  if (!reader.AtEnd()) return refused_ = Unreadable(receiving_from_);
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    refused_ = operations_->negotiation.OnPut(receiving_from_, put, &landing.inbox);
  }
  FRD_RETURN_IF_ERROR(refused_);
  *size_bytes = put.payload_bytes;
  if (!landing.inbox || put.payload_bytes == 0) return Status::Ok();
  landing.slot = &landing.inbox->at(UsesIn(put.stamp), receiving_from_);
  landing.slot->data = TakeMemoryFor(receiving_from_, put.payload_bytes);
  if (!landing.slot->data)
    return refused_ = Internal("no memory for " + std::to_string(put.payload_bytes) + " bytes that another rank sent");
  *to = landing.slot->data.get();
  return Status::Ok();
}

void Eager::OnData(size_t size_bytes) {
  Landing& landing = landings_[static_cast<size_t>(receiving_from_)];
  landing.slot->received_bytes += size_bytes;
}

// Returns whether the result is taken, and this rank has sent all that it has to.
bool Eager::Progress(EagerSum* sum) {
  if (!sum->leads()) return sum->TakeResult();
  if (!sum->has_partial()) return false;
  if (sum->FoldUpTo(Advanced(sum)) && sum->collects()) RingGroup(*world_, *sum);
  if (!sum->folded()) return false;
  return std::all_of(sum->peers().begin(), sum->peers().end(), [&](const EagerSum::Peer& peer) {
    return sum->IsMine(peer) || streams_.at(peer.rank).sent_bytes() >= peer.sent_at;
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
      if (peer.sent_at == EagerSum::Peer::kNotQueued) SendData(sum, &peer);
    }
    // With another stamp the group means another operation, see IdTable::UsesSaid.
    least = std::min(least, slot.stamp == sum->admission().stamp() ? slot.received_bytes : 0);
    const uint64_t sent = streams_.at(peer.rank).sent_bytes();
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
    if (!sum.IsMine(peer)) streams_.EndAwait(peer.rank);
  }
}

// ---- what goes wrong

// Reports a closed connection only while an operation waits for it: ranks may also leave.
void Eager::ReportClosed(std::vector<Sign>* signs) {
  for (const auto& sum : running_) {
    if (!sum->leads()) continue;
    for (const EagerSum::Peer& peer : sum->peers()) {
      const auto at = static_cast<size_t>(peer.rank);
      if (sum->IsMine(peer) || streams_.at(peer.rank).open() || reported_closed_[at]) continue;
      Inbox& inbox = *sum->admission().inbox;
      if (inbox.IsComplete(inbox.at(sum->use(), peer.rank))) continue;
      reported_closed_[at] = true;
      signs->push_back({peer.rank, Sign::kClosed});
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
    streams_.at(peer.rank).Detach();
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
  return !streams_.HasSaidAll(leader, left) || sum.admission().inbox->at(sum.use(), leader).stamp != 0;
}

void Eager::Drop() {
  streams_.Drop();
  for (const auto& sum : running_) Forget(*sum);
  running_.clear();
  std::lock_guard<std::mutex> lock(operations_->mutex);
  operations_->eager.clear();
}

// Reads everything first, since closing with unread bytes would discard what was sent last.
void Eager::Close() {
  for (int rank : streams_.ranks()) {
    bool moved = true;
    std::vector<Sign> ignored;
    while (streams_.at(rank).open() && std::exchange(moved, false)) Receive(rank, &moved, &ignored);
    streams_.at(rank).Close();
  }
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
