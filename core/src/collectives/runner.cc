#include "collectives/runner.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "common/failpoint.h"

namespace farandole {
namespace {

constexpr size_t kSlotAlignment = 64;
constexpr size_t kWholeRound = size_t{1} << 40;  // more than any round has, so that it is one chunk
constexpr size_t kKeptBytes = 16 << 20;

std::vector<int> FoldSteps(const Schedule& schedule) {
  std::vector<int> steps;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    if (schedule.steps[i].kind == StepKind::kFold) steps.push_back(static_cast<int>(i));
  }
  return steps;
}

std::vector<bool> StepsBeforeAnyWrite(const Schedule& schedule) {
  std::vector<bool> written(static_cast<size_t>(schedule.block_count), false), before;
  for (const Step& step : schedule.steps) {
    const auto block = static_cast<size_t>(step.block);
    before.push_back(!written[block]);
    if (step.kind == StepKind::kRecvData || step.kind == StepKind::kFold) written[block] = true;
  }
  return before;
}

std::vector<Range> RangesOf(const std::vector<BlockMemory>& blocks) {
  std::vector<Range> ranges;
  for (const BlockMemory& block : blocks) ranges.push_back({0, static_cast<int64_t>(block.size_bytes)});
  return ranges;
}

ChunkMap ChunksOf(const RunPlan& plan, int block_count, size_t chunk_bytes) {
  return plan.blocks.empty() ? ChunkMap::OfElements(plan.element_count, SizeOf(plan.dtype), block_count, chunk_bytes)
                             : ChunkMap::OfBlocks(RangesOf(plan.blocks), chunk_bytes);
}

size_t SlotBytesOf(const ChunkMap& chunks) {
  return (chunks.largest_block_bytes() + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
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
      under_way_(under_way),
      reads_source_(StepsBeforeAnyWrite(*schedule)),
      progress_(schedule, under_way),
      folds_(*schedule, FoldSteps(*schedule), under_way) {
  // Queues stand in the order in which the schedule names the peers: it spreads the load over the receivers.
  for (const Step& step : schedule->steps) {
    if (step.kind == StepKind::kFold) continue;
    const bool sends = step.kind == StepKind::kSend;
    const auto same = [&](const PeerQueue& queue) { return queue.peer == step.peer && queue.sends == sends; };
    if (std::none_of(queues_.begin(), queues_.end(), same)) queues_.push_back(MakeQueue(step.peer, sends));
  }
}

Runner::PeerQueue Runner::MakeQueue(int peer, bool sends) {
  std::vector<int> steps;
  for (size_t i = 0; i < schedule_->steps.size(); ++i) {
    const Step& step = schedule_->steps[i];
    const bool mine = step.kind != StepKind::kFold && step.peer == peer && (step.kind == StepKind::kSend) == sends;
    if (mine) steps.push_back(static_cast<int>(i));
  }
  const StepCursor cursor(*schedule_, steps, under_way_);
  return {this, peer, sends, cursor, cursor};
}

void Runner::Start(const RunPlan& plan, const MessageTag& tag) {
  tag_ = tag;
  rounds_.clear();
  lacking_bytes_ = 0;
  Prepare(&whole_, plan, plan.chunk_bytes);
  supplied_ = whole_.chunks.chunk_count();
  Restart(supplied_);
}

void Runner::StartRounds(int64_t rounds, int64_t most_at_once, const MessageTag& tag) {
  tag_ = tag;
  rounds_.resize(static_cast<size_t>(most_at_once));
  lacking_bytes_ = 0;
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
  round->slot_bytes = SlotBytesOf(round->chunks);
  const size_t copies = std::min<int64_t>(round->chunks.chunk_count(), Progress::kSlotDepth);
  const size_t partial_bytes = copies * static_cast<size_t>(schedule_->slot_count) * round->slot_bytes;
  const bool null_blocks = TouchesNull(plan);
  const size_t needed_bytes = partial_bytes + (null_blocks ? 2 * round->slot_bytes : 0);
  round->slots = reinterpret_cast<char*>(round->scratch.Get(needed_bytes));
  if (needed_bytes > 0 && round->slots == nullptr) lacking_bytes_ = needed_bytes;
  round->plan = std::move(plan);
  if (lacking_bytes_ > 0 || !null_blocks) return;
  round->zeros = round->slots + partial_bytes;
  round->nowhere = round->zeros + round->slot_bytes;
  std::memset(round->zeros, 0, round->slot_bytes);
}

void Runner::Restart(int64_t chunk_count) {
  progress_.Restart(chunk_count);
  folds_.Restart(chunk_count);
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
  FoldReady(moved);
  return Status::Ok();
}

Status Runner::Post(bool* moved) {
  FRD_RETURN_IF_ERROR(failed_);
  if (lacking_bytes_ > 0) {
    return Internal("no memory: " + std::to_string(lacking_bytes_) + " bytes for received partials");
  }
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
    const Memory memory = MemoryOf(queue->next.chunk(), step);
    if (memory.size_bytes == 0) continue;
    if (queue->sends) {
      const char* const from = ReadFrom(memory, queue->next.step());
      transport_->PostSend(rank, tag_, queue->part++, from, memory.size_bytes, context);
    } else {
      const bool to_slot = step.kind == StepKind::kRecvScratch;
      char* const to = to_slot ? SlotMemory(queue->next.chunk(), step.slot) : memory.data;
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

void Runner::FoldReady(bool* moved) {
  for (; IsReady(folds_); Finish(&folds_), *moved = true) Fold(folds_.chunk(), folds_.step());
}

void Runner::Fold(int64_t chunk, int index) {
  FRD_FAILPOINT("run.fold");
  const Step& step = schedule_->steps[index];
  const RunPlan& plan = RoundOf(chunk).plan;
  const Memory block = MemoryOf(chunk, step);
  const size_t count = step.operands.size(), element_count = block.size_bytes / SizeOf(plan.dtype);
  const Scale scale = step.scale ? plan.scale : Scale{};
  if (block.size_bytes == 0) return;
  const bool by_pairs = IsHalf(plan.dtype) && count > 2;
  const char* own = ReadFrom(block, index);
  if (by_pairs && own != block.data) {  // the fold overwrites its operands, and must not overwrite the source
    std::memcpy(block.data, own, block.size_bytes);
    own = block.data;
  }
  operands_.clear();
  for (int operand : step.operands) operands_.push_back(operand == kOwnData ? own : SlotMemory(chunk, operand));
  if (by_pairs) {
    FoldRounded(plan.dtype, plan.reduce, operands_.data(), count, element_count, scale, block.data);
  } else if (count > 1 || !scale.IsIdentity() || own != block.data) {
    farandole::Fold(plan.dtype, plan.reduce, operands_.data(), count, element_count, scale, block.data);
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

Runner::Memory Runner::MemoryOf(int64_t chunk, const Step& step) const {
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
    const bool writes = step.kind == StepKind::kRecvData || step.kind == StepKind::kFold;
    const bool reads = (step.kind == StepKind::kSend || step.kind == StepKind::kFold) && reads_source_[i];
    if ((writes && block.data == nullptr) || (reads && block.source == nullptr)) return true;
  }
  return false;
}

}  // namespace farandole
