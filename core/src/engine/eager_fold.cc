// Eager: what is computed.
#include <algorithm>
#include <utility>

#include "engine/eager.h"
#include "reduce/reduce.h"

namespace farandole {
namespace {

// Folded at a time, while the rest is on its way.
constexpr size_t kFoldBytes = 64 << 10;

}  // namespace

// Data that are scaled before they travel, that the fold uses as room, or that are not there: a rank that has joined
// puts zeros.
void Eager::MakeOwn(Running* running) const {
  const auto is_own = [&](const CellSegment& segment) {
    const bool scaled = ScalesBeforeCrossing(segment.dtype, running->reduction.reduce);
    const bool is_room = IsHalf(segment.dtype) && running->plan().set->size() > 2;
    return segment.input == nullptr || is_room || (scaled && !running->reduction.scale.IsIdentity());
  };
  if (std::none_of(running->segments.begin(), running->segments.end(), is_own)) return;
  const FloatingPointScope scope;
  running->own.resize(running->payload_bytes());
  std::byte* to = running->own.data();
  for (const CellSegment& segment : running->segments) {
    const bool scaled = ScalesBeforeCrossing(segment.dtype, running->reduction.reduce);
    if (segment.input != nullptr) {
      Fold(segment.dtype, running->reduction.reduce, &segment.input, 1, segment.element_count,
           scaled ? running->reduction.scale : Scale(), to);
    }
    to += segment.size_bytes();
  }
}

bool Eager::Progress(Running* running) {
  FoldUpTo(running, Advanced(running));
  if (running->segment < running->segments.size()) return false;
  return std::all_of(running->peers.begin(), running->peers.end(), [&](const Peer& peer) {
    return peer.rank == world_->rank || stream(peer.rank).sent_bytes() >= peer.sent_at;
  });
}

// How many bytes are here from all and sent to all. Sends what had to wait for somebody who has come now.
size_t Eager::Advanced(Running* running) {
  size_t least = running->payload_bytes();
  for (Peer& peer : running->peers) {
    if (peer.rank == world_->rank) continue;
    const Inbox::Slot& slot = running->plan().inbox->at(running->use(), peer.rank);
    if (slot.sequence != 0) {
      if (std::exchange(peer.on_credit, false))
        credit_used_[static_cast<size_t>(peer.rank)] -= running->payload_bytes();
      if (peer.sent_at == Peer::kNotQueued) SendData(running, &peer);
    }
    // Otherwise it means another operation, see Coordinator::UsesSaid.
    least = std::min(least, slot.sequence == running->plan().sequence() ? slot.received_bytes : 0);
    const uint64_t sent = stream(peer.rank).sent_bytes();
    const uint64_t begin = peer.sent_at == Peer::kNotQueued ? sent : peer.sent_at - running->payload_bytes();
    least = std::min<uint64_t>(least, sent > begin ? sent - begin : 0);
  }
  return least;
}

void Eager::FoldUpTo(Running* running, size_t available_bytes) {
  while (running->segment < running->segments.size()) {
    const CellSegment& segment = running->segments[running->segment];
    const size_t width = SizeOf(segment.dtype);
    const size_t here = available_bytes > running->offset_bytes ? available_bytes - running->offset_bytes : 0;
    const size_t count = std::min(here / width, segment.element_count) - running->element;
    const bool last = running->element + count == segment.element_count;
    if (!last && count * width < kFoldBytes) return;
    if (count > 0) FoldElements(*running, count);
    running->element += count;
    if (!last) return;
    running->offset_bytes += segment.size_bytes();
    running->element = 0;
    ++running->segment;
  }
}

// The same bits as an exchange by schedule, see LinkOperation::StartAllreduce and Runner::Fold.
void Eager::FoldElements(const Running& running, size_t count) {
  const CellSegment& segment = running.segments[running.segment];
  if (segment.output == nullptr) return;
  const FloatingPointScope scope;
  const ReduceOp reduce = running.reduction.reduce;
  const size_t done_bytes = running.element * SizeOf(segment.dtype), at = running.offset_bytes + done_bytes;
  inputs_.clear();
  for (const Peer& peer : running.peers) {
    const std::byte* input = running.plan().inbox->at(running.use(), peer.rank).data.get() + at;
    if (peer.rank == world_->rank)
      input = running.own.empty() ? static_cast<const std::byte*>(segment.input) + done_bytes : running.own.data() + at;
    inputs_.push_back(input);
  }
  const Scale scale = ScalesBeforeCrossing(segment.dtype, reduce) ? Scale() : running.reduction.scale;
  void* const output = static_cast<std::byte*>(segment.output) + done_bytes;
  const bool rounded = IsHalf(segment.dtype) && inputs_.size() > 2;
  (rounded ? FoldRounded : Fold)(segment.dtype, reduce, inputs_.data(), inputs_.size(), count, scale, output);
}

}  // namespace farandole
