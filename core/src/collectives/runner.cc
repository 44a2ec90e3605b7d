#include "collectives/runner.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "common/failpoint.h"

namespace farandole {
namespace {

constexpr size_t kSlotAlignment = 64;
constexpr size_t kWholeRound = size_t{1} << 40;  // more than any round has, so that it is one chunk
constexpr size_t kKeptBytes = 16 << 20;

template <typename IsMeant>
StepCursor StepsThat(const Schedule& schedule, int under_way, IsMeant is_meant) {
  std::vector<int> steps;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    if (is_meant(schedule.steps[i])) steps.push_back(static_cast<int>(i));
  }
  return StepCursor(schedule, steps, under_way);
}

bool IsReduction(const Step& step) { return step.kind == StepKind::kFold; }
bool Sends(const Step& step) { return step.kind == StepKind::kSend; }
bool Writes(const Step& step) { return step.kind == StepKind::kRecvData || IsReduction(step); }

std::vector<bool> StepsBeforeAnyWrite(const Schedule& schedule) {
  std::vector<bool> written(static_cast<size_t>(schedule.block_count), false), before;
  for (const Step& step : schedule.steps) {
    const auto block = static_cast<size_t>(step.block);
    before.push_back(!written[block]);
    if (Writes(step)) written[block] = true;
  }
  return before;
}

ChunkMap ChunksOf(const RunPlan& plan, int block_count, size_t chunk_bytes) {
  if (plan.blocks.empty())
    return ChunkMap::OfElements(plan.element_count, SizeOf(plan.dtype), block_count, chunk_bytes);
  std::vector<Range> ranges;
  for (const BlockMemory& block : plan.blocks) ranges.push_back({0, static_cast<int64_t>(block.size_bytes)});
  return ChunkMap::OfBlocks(std::move(ranges), chunk_bytes);
}

}  // namespace

std::byte* Scratch::Get(size_t size_bytes) {
  if (size_bytes <= size_bytes_) return memory_.get();
  memory_.reset();
  memory_.reset(static_cast<std::byte*>(::operator new(size_bytes, std::align_val_t{kSlotAlignment}, std::nothrow)));
  size_bytes_ = memory_ ? size_bytes : 0;
  return memory_.get();
}

void Scratch::Release() {
  if (size_bytes_ <= kKeptBytes) return;
  memory_.reset();
  size_bytes_ = 0;
}

void Scratch::Free::operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t{kSlotAlignment}); }

Runner::Runner(const Schedule* schedule, Transport* transport, std::vector<int> ranks, int under_way)
    : schedule_(schedule),
      transport_(transport),
      ranks_(std::move(ranks)),
      reads_source_(StepsBeforeAnyWrite(*schedule)),
      progress_(schedule, under_way),
      reductions_(StepsThat(*schedule, under_way, IsReduction)) {
  // Queues stand in the order in which the schedule names the peers: it spreads the load over the receivers.
  for (const Step& first : schedule->steps) {
    const auto is_same = [&](const PeerQueue& queue) {
      return queue.peer == first.peer && queue.sends == Sends(first);
    };
    if (IsReduction(first) || std::any_of(queues_.begin(), queues_.end(), is_same)) continue;
    const StepCursor cursor = StepsThat(*schedule, under_way, [&](const Step& step) {
      return !IsReduction(step) && step.peer == first.peer && Sends(step) == Sends(first);
    });
    queues_.push_back({this, first.peer, Sends(first), cursor, cursor});
  }
}

void Runner::Start(const RunPlan& plan, const MessageTag& tag) {
  tag_ = tag;
  rounds_.clear();
  Prepare(&whole_, plan, plan.chunk_bytes);
  supplied_ = whole_.chunks.chunk_count();
  Restart(supplied_);
}

void Runner::StartRounds(int64_t rounds, int64_t most_at_once, const MessageTag& tag) {
  tag_ = tag;
  rounds_.resize(static_cast<size_t>(most_at_once));
  supplied_ = 0;
  Restart(rounds);
}

void Runner::Supply(RunPlan plan) {
  Prepare(&rounds_[static_cast<size_t>(supplied_) % rounds_.size()], std::move(plan), kWholeRound);
  ++supplied_;
}

void Runner::Prepare(Round* round, RunPlan plan, size_t chunk_bytes) {
  if (plan.source == nullptr) plan.source = plan.data;
  round->chunks = ChunksOf(plan, schedule_->block_count, chunk_bytes);
  round->slot_bytes = (round->chunks.largest_block_bytes() + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  const size_t copies = std::min<int64_t>(round->chunks.chunk_count(), Progress::kSlotDepth);
  const size_t partial_bytes = copies * static_cast<size_t>(schedule_->slot_count) * round->slot_bytes;
  const bool null_blocks = TouchesNull(plan);
  const size_t needed_bytes = partial_bytes + (null_blocks ? 2 * round->slot_bytes : 0);
  round->slots = reinterpret_cast<char*>(round->scratch.Get(needed_bytes));
  if (needed_bytes > 0 && round->slots == nullptr)
    failed_ = Internal("no memory: ", needed_bytes, " bytes for received partials");
  round->plan = std::move(plan);
  if (!failed_.ok() || !null_blocks) return;
  round->zeros = round->slots + partial_bytes;
  round->nowhere = round->zeros + round->slot_bytes;
  std::memset(round->zeros, 0, round->slot_bytes);
}

void Runner::Restart(int64_t chunk_count) {
  progress_.Restart(chunk_count);
  reductions_.Restart(chunk_count);
  for (PeerQueue& queue : queues_) {
    queue.next.Restart(chunk_count);
    queue.last.Restart(chunk_count);
    queue.posted = 0;
    queue.part = 0;
  }
}

Status Runner::Advance(bool* moved) {
  FRD_RETURN_IF_ERROR(Post(moved));
  FRD_RETURN_IF_ERROR(Poll(moved));
  ReduceReady(moved);
  return Status::Ok();
}

Status Runner::Post(bool* moved) {
  FRD_RETURN_IF_ERROR(failed_);
  for (PeerQueue& queue : queues_) {
    Post(&queue);
    *moved |= FinishEmpty(&queue);
  }
  return Status::Ok();
}

void Runner::Post(PeerQueue* queue) {
  const int rank = ranks_[static_cast<size_t>(queue->peer)];
  const auto context = reinterpret_cast<uint64_t>(queue);
  for (; IsReady(queue->next); queue->next.Next(), ++queue->posted) {
    const Step& step = schedule_->steps[queue->next.step()];
    const BlockMemory memory = MemoryOf(queue->next.chunk(), step);
    if (memory.size_bytes == 0) continue;
    if (queue->sends) {
      const void* const from = ReadFrom(memory, queue->next.step());
      transport_->PostSend(rank, tag_, queue->part++, from, memory.size_bytes, context);
    } else {
      const bool to_slot = step.kind == StepKind::kRecvScratch;
      void* const to = to_slot ? SlotMemory(queue->next.chunk(), step.slot) : memory.data;
      transport_->PostReceive(rank, tag_, queue->part++, to, memory.size_bytes, context);
    }
  }
}

Status Runner::Poll(bool* moved) {
  *moved |= PollAll(transport_, &completions_);
  return failed_;
}

// The runner of a post that failed says so in its next Post or Poll.
bool Runner::PollAll(Transport* transport, std::vector<Transport::Completion>* completions) {
  completions->clear();  // an exception may have left some
  const bool moved = transport->Poll(completions);
  for (const Transport::Completion& completion : *completions) {
    auto* const queue = reinterpret_cast<PeerQueue*>(completion.context);
    if (!completion.status.ok()) {
      queue->runner->failed_ = completion.status;
      continue;
    }
    queue->runner->Finish(&queue->last);
    --queue->posted;
    queue->runner->FinishEmpty(queue);
  }
  completions->clear();
  return moved;
}

// Steps without bytes are complete when those before them are. There may be no connection to the peer.
bool Runner::FinishEmpty(PeerQueue* queue) {
  const int64_t before = queue->posted;
  for (; queue->posted > 0; --queue->posted, Finish(&queue->last)) {
    if (MemoryOf(queue->last.chunk(), schedule_->steps[queue->last.step()]).size_bytes > 0) break;
  }
  return queue->posted < before;
}

void Runner::ReduceReady(bool* moved) {
  for (; IsReady(reductions_); Finish(&reductions_), *moved = true) Reduce(reductions_.chunk(), reductions_.step());
}

void Runner::Reduce(int64_t chunk, int index) {
  FRD_FAILPOINT("run.fold");
  const Step& step = schedule_->steps[index];
  const RunPlan& plan = RoundOf(chunk).plan;
  const BlockMemory block = MemoryOf(chunk, step);
  const size_t count = step.operands.size(), element_count = block.size_bytes / SizeOf(plan.dtype);
  const Scale scale = step.scale ? plan.scale : Scale{};
  if (block.size_bytes == 0) return;
  const bool by_pairs = IsHalf(plan.dtype) && count > 2;
  const void* own = ReadFrom(block, index);
  if (by_pairs && own != block.data) {  // reducing by pairs overwrites operands, and must not overwrite the source
    std::memcpy(block.data, own, block.size_bytes);
    own = block.data;
  }
  operands_.clear();
  for (int operand : step.operands) operands_.push_back(operand == kOwnData ? own : SlotMemory(chunk, operand));
  if (by_pairs) {
    FoldRounded(plan.dtype, plan.reduce, operands_.data(), count, element_count, scale, block.data);
  } else if (count > 1 || !scale.IsIdentity() || own != block.data) {
    Fold(plan.dtype, plan.reduce, operands_.data(), count, element_count, scale, block.data);
  }
}

bool Runner::WaitsToRecv(int participant) const {
  return std::any_of(queues_.begin(), queues_.end(), [&](const PeerQueue& queue) {
    return queue.peer == participant && !queue.sends && queue.posted > 0;
  });
}

void Runner::Finish(StepCursor* cursor) {
  progress_.Complete(cursor->chunk(), cursor->step());
  cursor->Next();
}

BlockMemory Runner::MemoryOf(int64_t chunk, const Step& step) const {
  const Round& round = RoundOf(chunk);
  if (round.chunks.chunk_count() == 0) return {};
  const Range bytes = round.chunks.Bytes(rounds_.empty() ? chunk : 0, step.block);
  const auto size_bytes = static_cast<size_t>(bytes.size());
  if (round.plan.blocks.empty()) {
    return {static_cast<const char*>(round.plan.source) + bytes.begin,
            static_cast<char*>(round.plan.data) + bytes.begin, size_bytes};
  }
  const BlockMemory& memory = round.plan.blocks[static_cast<size_t>(step.block)];
  return {memory.source ? static_cast<const char*>(memory.source) + bytes.begin : round.zeros,
          memory.data ? static_cast<char*>(memory.data) + bytes.begin : round.nowhere, size_bytes};
}

char* Runner::SlotMemory(int64_t chunk, int slot) const {
  const Round& round = RoundOf(chunk);
  const int64_t copy = rounds_.empty() ? chunk % Progress::kSlotDepth : 0;
  return round.slots + static_cast<size_t>(copy * schedule_->slot_count + slot) * round.slot_bytes;
}

// True when the schedule reads a null source or writes null data.
bool Runner::TouchesNull(const RunPlan& plan) const {
  if (plan.blocks.empty()) return false;
  for (size_t i = 0; i < schedule_->steps.size(); ++i) {
    const Step& step = schedule_->steps[i];
    const BlockMemory& block = plan.blocks[static_cast<size_t>(step.block)];
    if (block.size_bytes == 0) continue;
    const bool reads = (Sends(step) || IsReduction(step)) && reads_source_[i];
    if ((Writes(step) && block.data == nullptr) || (reads && block.source == nullptr)) return true;
  }
  return false;
}

}  // namespace farandole
