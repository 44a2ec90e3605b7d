#include "engine/eager.h"

#include <algorithm>
#include <new>
#include <utility>

#include "engine/control.h"
#include "reduce/reduce.h"

namespace farandole {
namespace {

// Data up to this size are copied into the stream; beyond, copying costs more than a list of pieces for the system
// call.
constexpr size_t kCopiedBytes = 16 << 10;
// Up to this many streams are read in every pass while operations run; with more, the poller says which.
constexpr size_t kAskedStreams = 4;
constexpr size_t kKeptBytes = 16 << 20;
// The least to fold at a time, while the rest is on its way.
constexpr size_t kFoldBytes = 64 << 10;
constexpr int kSmallestExponent = 6;

int ExponentOf(size_t size_bytes) {
  int exponent = kSmallestExponent;
  while ((size_t{1} << exponent) < size_bytes) ++exponent;
  return exponent;
}

}  // namespace

Eager::Eager(World* world, Operations* operations, Poller* poller)
    : world_(world), operations_(operations), poller_(poller) {
  const auto size = static_cast<size_t>(world->size);
  world_->puts.resize(size);
  for (int r = 0; r < world_->size; ++r) {
    if (stream(r).open()) others_.push_back(r);
  }
  credit_used_.resize(size);
  landings_.resize(size);
  spares_.resize(size);
  watched_for_writing_.resize(size);
  reported_closed_.resize(size);
  readable_.resize(size);
}

Status Eager::Open() {
  for (int rank : others_) FRD_RETURN_IF_ERROR(poller_->Watch(stream(rank).descriptor(), MakeTag(TagKind::kPut, rank)));
  return Status::Ok();
}

bool Eager::Advance(std::vector<OperationPtr>* done, std::vector<Sign>* signs) {
  bool moved = BeginSubmitted();
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

// Each rank begins with its next neighbour, so that not all send to the same rank first.
void Eager::Begin(OperationPtr operation) {
  auto running = std::make_unique<Running>();
  const ProcessSet& set = *operation->admission.set;
  running->operation = std::move(operation);
  running->rank = world_->rank;
  running->reduction = ReductionOf(running->operation->request, set.size());
  running->tensors.reserve(running->operation->request.tensors.size());
  running->peers.reserve(set.ranks.size());
  for (const Tensor& tensor : running->operation->request.tensors) {
    const auto elements = static_cast<size_t>(ElementCount(tensor.shape));
    running->tensors.push_back({tensor.input, tensor.output, tensor.dtype, elements});
  }
  running->MakeOwn();
  for (int rank : set.ranks) running->peers.push_back({rank});
  for (int distance = 1; distance < set.size(); ++distance)
    PutTo(running.get(), (set.position + distance) % set.size());
  running_.push_back(std::move(running));
}

// A rank that has not arrived takes data on credit, which bounds what waits in its memory. Beyond that it gets the head
// alone, and the data once it has arrived.
void Eager::PutTo(Running* running, int position) {
  Peer& peer = running->peers[static_cast<size_t>(position)];
  size_t& used = credit_used_[static_cast<size_t>(peer.rank)];
  const bool has_come = running->admission().inbox->at(running->use(), peer.rank).stamp != 0;
  if (!has_come && used + running->payload_bytes() > kCreditBytes) return SendHead(*running, peer.rank, 0);
  if (!has_come) {
    used += running->payload_bytes();
    peer.on_credit = true;
  }
  SendData(running, &peer);
}

void Eager::SendHead(const Running& running, int rank, size_t payload_bytes) {
  const Admission& admission = running.admission();
  const Bytes head = EncodePut(
      {admission.id, admission.serial, admission.stamp(), admission.round, static_cast<uint32_t>(payload_bytes)});
  static_assert(kEagerPutBytes == kPutHeadBytes);
  stream(rank).Queue(head.data(), head.size());
}

// Small data are copied behind their head. Large ones are sent from the tensor, which stays until they are sent.
void Eager::SendData(Running* running, Peer* peer) {
  PutStream& to = stream(peer->rank);
  SendHead(*running, peer->rank, running->payload_bytes());
  const bool copied = running->payload_bytes() <= kCopiedBytes;
  const auto put = [&](const void* data, size_t size_bytes) {
    copied ? to.Queue(data, size_bytes) : to.QueueReference(data, size_bytes);
  };
  if (!running->own.empty()) {
    put(running->own.data(), running->own.size());
  } else {
    for (const CellTensor& tensor : running->tensors) put(tensor.input, tensor.size_bytes());
  }
  peer->sent_at = to.queued_bytes();
}

// ---- moving bytes

bool Eager::asks() const { return !running_.empty() && others_.size() <= kAskedStreams; }

// With few streams a look at each costs less than poll; with many only those that poll has reported are read.
bool Eager::MoveBytes(std::vector<Sign>* signs) {
  bool moved = false;
  for (int rank : others_) {
    if (!stream(rank).open()) continue;
    if (!stream(rank).flushed()) Flush(rank, &moved, signs);
    const auto at = static_cast<size_t>(rank);
    if (stream(rank).open() && (asks() || readable_[at])) Receive(rank, &moved, signs);
    readable_[at] = false;
  }
  return moved;
}

void Eager::Flush(int rank, bool* moved, std::vector<Sign>* signs) {
  bool sent = false;
  PutStream& to = stream(rank);
  const Status status = to.Flush(&sent);
  *moved |= sent;
  const auto at = static_cast<size_t>(rank);
  // Wakes a sleeping rank when there is room again.
  const bool blocked = status.ok() && !sent;
  if (blocked != watched_for_writing_[at] && (blocked || to.flushed())) {
    poller_->WatchWriting(to.descriptor(), MakeTag(TagKind::kPut, rank), blocked);
    watched_for_writing_[at] = blocked;
  }
  // Reading finds that the other end has closed, behind what it sent before.
  if (!status.ok() && status.code() != Code::kPeerLost) signs->push_back({rank, Sign::kBroken, status});
  if (!status.ok()) to.Drop();
}

void Eager::Receive(int rank, bool* moved, std::vector<Sign>* signs) {
  receiving_from_ = rank;
  refused_ = Status::Ok();
  is_farewell_ = false;
  PutStream& from = stream(rank);
  const Status status = from.Receive(this, moved);
  if (is_farewell_) signs->push_back({rank, Sign::kFarewell});
  if (status.ok()) return;
  *moved = true;
  poller_->Forget(from.descriptor());
  from.Close();
  if (!refused_.ok() || status.code() != Code::kPeerLost) signs->push_back({rank, Sign::kBroken, status});
}

// If one operation is under way, its data come next, unless that rank submits in another order.
PutStream::Slice Eager::Expected() {
  if (running_.size() != 1) return {};
  const Running& running = *running_.front();
  const bool is_other = running.admission().set->PositionOf(receiving_from_) >= 0;
  if (!is_other || running.admission().inbox->at(running.use(), receiving_from_).has_data) return {};
  Spare& spare = spares_[static_cast<size_t>(receiving_from_)];
  if (spare.size_bytes != running.payload_bytes()) {
    if (spare.data) memory_.GiveBack(std::move(spare.data), spare.size_bytes);
    spare = {memory_.Take(running.payload_bytes()), running.payload_bytes()};
  }
  return {spare.data.get(), spare.data ? spare.size_bytes : 0};
}

Status Eager::OnHead(const PutHead& head, std::byte** to, size_t* size_bytes) {
  is_farewell_ = IsFarewell(head.data(), head.size());
  if (is_farewell_) return Status::Ok();
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

// ---- folding

// Makes a copy of data that are scaled before they are sent, that the fold overwrites, or that do not exist, since a
// rank that has joined sends zeros.
void Eager::Running::MakeOwn() {
  const auto is_own = [&](const CellTensor& tensor) {
    const bool scaled = ScalesBeforeCrossing(tensor.dtype, reduction.reduce);
    const bool is_room = IsHalf(tensor.dtype) && admission().set->size() > 2;
    return tensor.input == nullptr || is_room || (scaled && !reduction.scale.IsIdentity());
  };
  if (std::none_of(tensors.begin(), tensors.end(), is_own)) return;
  const FloatingPointScope scope;
  own.resize(payload_bytes());
  std::byte* to = own.data();
  for (const CellTensor& tensor : tensors) {
    const bool scaled = ScalesBeforeCrossing(tensor.dtype, reduction.reduce);
    if (tensor.input != nullptr) {
      Fold(tensor.dtype, reduction.reduce, &tensor.input, 1, tensor.element_count, scaled ? reduction.scale : Scale(),
           to);
    }
    to += tensor.size_bytes();
  }
}

// Returns whether everything is folded and sent.
bool Eager::Progress(Running* running) {
  running->FoldUpTo(Advanced(running));
  if (!running->folded()) return false;
  return std::all_of(running->peers.begin(), running->peers.end(), [&](const Peer& peer) {
    return peer.rank == world_->rank || stream(peer.rank).sent_bytes() >= peer.sent_at;
  });
}

// Returns how many bytes have arrived from each rank and been sent to each, the least of all. Also sends data that
// waited for a rank to arrive.
size_t Eager::Advanced(Running* running) {
  size_t least = running->payload_bytes();
  for (Peer& peer : running->peers) {
    if (peer.rank == world_->rank) continue;
    const Inbox::Slot& slot = running->admission().inbox->at(running->use(), peer.rank);
    if (slot.stamp != 0) {
      if (std::exchange(peer.on_credit, false))
        credit_used_[static_cast<size_t>(peer.rank)] -= running->payload_bytes();
      if (peer.sent_at == Peer::kNotQueued) SendData(running, &peer);
    }
    // With another stamp the rank means another operation, see IdTable::UsesSaid.
    least = std::min(least, slot.stamp == running->admission().stamp() ? slot.received_bytes : 0);
    const uint64_t sent = stream(peer.rank).sent_bytes();
    const uint64_t begin = peer.sent_at == Peer::kNotQueued ? sent : peer.sent_at - running->payload_bytes();
    least = std::min<uint64_t>(least, sent > begin ? sent - begin : 0);
  }
  return least;
}

// Folds in pieces of at least kFoldBytes, while the rest is under way, and the end of a tensor however short it is.
void Eager::Running::FoldUpTo(size_t available_bytes) {
  while (!folded()) {
    const CellTensor& folding = tensors[folded_tensors];
    const size_t width = SizeOf(folding.dtype);
    const size_t here = available_bytes > offset_bytes ? available_bytes - offset_bytes : 0;
    const size_t count = std::min(here / width, folding.element_count) - element;
    const bool last = element + count == folding.element_count;
    if (!last && count * width < kFoldBytes) return;
    if (count > 0) FoldElements(count);
    element += count;
    if (!last) return;
    offset_bytes += folding.size_bytes();
    element = 0;
    ++folded_tensors;
  }
}

// Gives the same bits as an exchange by schedule, see AllreduceOnLinks and Runner::Fold.
void Eager::Running::FoldElements(size_t count) {
  const CellTensor& folding = tensors[folded_tensors];
  if (folding.output == nullptr) return;
  const FloatingPointScope scope;
  const size_t done_bytes = element * SizeOf(folding.dtype), at = offset_bytes + done_bytes;
  inputs.clear();
  for (const Peer& peer : peers) {
    const std::byte* input = admission().inbox->at(use(), peer.rank).data.get() + at;
    if (peer.rank == rank)
      input = own.empty() ? static_cast<const std::byte*>(folding.input) + done_bytes : own.data() + at;
    inputs.push_back(input);
  }
  const Scale scale = ScalesBeforeCrossing(folding.dtype, reduction.reduce) ? Scale() : reduction.scale;
  void* const output = static_cast<std::byte*>(folding.output) + done_bytes;
  const bool rounded = IsHalf(folding.dtype) && inputs.size() > 2;
  (rounded ? FoldRounded : Fold)(folding.dtype, reduction.reduce, inputs.data(), inputs.size(), count, scale, output);
}

// ---- ending

// Clears the slots before the negotiation may give this buffer of the inbox to a later use.
OperationPtr Eager::End(Running* running) {
  const Admission& admission = running->admission();
  for (const Peer& peer : running->peers) {
    Inbox::Slot& slot = admission.inbox->at(running->use(), peer.rank);
    if (slot.data) memory_.GiveBack(std::move(slot.data), running->payload_bytes());
    slot = Inbox::Slot();
  }
  std::lock_guard<std::mutex> lock(operations_->mutex);
  operations_->negotiation.EndEager(admission.ticket);
  operations_->by_ticket.Take(admission.ticket);
  return running->operation;
}

// ---- what goes wrong

// Reports a closed connection only while an operation waits for it: ranks may also leave.
void Eager::ReportClosed(std::vector<Sign>* signs) {
  for (const auto& running : running_) {
    for (const Peer& peer : running->peers) {
      const auto at = static_cast<size_t>(peer.rank);
      if (peer.rank == world_->rank || stream(peer.rank).open() || reported_closed_[at]) continue;
      Inbox& inbox = *running->admission().inbox;
      if (inbox.IsComplete(inbox.at(running->use(), peer.rank))) continue;
      reported_closed_[at] = true;
      signs->push_back({peer.rank, Sign::kClosed});
    }
  }
}

void Eager::Recall(Ticket ticket) {
  ForgetSubmitted(ticket);
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [ticket](const auto& running) { return running->admission().ticket == ticket; });
  if (found == running_.end()) return;
  for (const Peer& peer : (*found)->peers) {
    if (peer.rank == world_->rank) continue;
    if (peer.on_credit) credit_used_[static_cast<size_t>(peer.rank)] -= (*found)->payload_bytes();
    stream(peer.rank).Detach();
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
  const Admission& admission = operation.admission;
  const bool runs = std::any_of(running_.begin(), running_.end(),
                                [&](const auto& running) { return running->operation.get() == &operation; });
  return runs && std::none_of(left.begin(), left.end(), [&](int rank) {
           if (admission.set->PositionOf(rank) < 0 || world_->puts[static_cast<size_t>(rank)].open()) return false;
           return admission.inbox->at(UsesIn(admission.stamp()), rank).stamp == 0;
         });
}

void Eager::Drop() {
  for (int rank : others_) stream(rank).Drop();
  running_.clear();
  std::lock_guard<std::mutex> lock(operations_->mutex);
  operations_->eager.clear();
}

void Eager::SayFarewell() {
  const Bytes farewell = EncodeFarewell();
  for (int rank : others_) {
    bool moved = false;
    stream(rank).Queue(farewell.data(), farewell.size());
    static_cast<void>(stream(rank).Flush(&moved));
  }
}

void Eager::EndSending() {
  for (int rank : others_) stream(rank).EndSending();
}

// Reads everything first, since closing with unread bytes would discard what was sent last.
void Eager::Close() {
  for (int rank : others_) {
    bool moved = true;
    std::vector<Sign> ignored;
    while (stream(rank).open() && std::exchange(moved, false)) Receive(rank, &moved, &ignored);
    stream(rank).Close();
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
