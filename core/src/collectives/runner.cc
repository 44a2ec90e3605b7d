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

Runner::Runner(const Schedule* schedule, std::vector<Link*> links, int under_way)
    : schedule_(schedule),
      links_(std::move(links)),
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

Runner::PeerQueue Runner::MakeQueue(int peer, bool sends) const {
  std::vector<int> steps;
  for (size_t i = 0; i < schedule_->steps.size(); ++i) {
    const Step& step = schedule_->steps[i];
    const bool mine = step.kind != StepKind::kFold && step.peer == peer && (step.kind == StepKind::kSend) == sends;
    if (mine) steps.push_back(static_cast<int>(i));
  }
  return {peer, sends, StepCursor(*schedule_, steps, under_way_), 0};
}

void Runner::Start(const RunPlan& plan) {
  plan_ = plan;
  if (plan_.source == nullptr) plan_.source = plan_.data;
  chunks_ = ChunksOf(plan, schedule_->block_count, plan.chunk_bytes);
  in_rounds_ = false;
  supplied_ = chunks_.chunk_count();
  Restart(chunks_.chunk_count());
  ReserveScratch();
}

void Runner::StartRounds(int64_t rounds, int64_t most_at_once) {
  in_rounds_ = true;
  supplied_ = 0;
  rounds_.resize(static_cast<size_t>(most_at_once));
  lacking_bytes_ = 0;
  Restart(rounds);
}

void Runner::Supply(RunPlan plan) {
  Round& round = rounds_[static_cast<size_t>(supplied_++) % rounds_.size()];
  round.plan = std::move(plan);
  if (round.plan.source == nullptr) round.plan.source = round.plan.data;
  round.chunks = ChunksOf(round.plan, schedule_->block_count, kWholeRound);
  round.slot_bytes = SlotBytesOf(round.chunks);
  const size_t needed_bytes = static_cast<size_t>(schedule_->slot_count) * round.slot_bytes;
  if (!Reserve(needed_bytes, &round.scratch, &round.scratch_bytes)) lacking_bytes_ = needed_bytes;
}

void Runner::Restart(int64_t chunk_count) {
  progress_.Restart(chunk_count);
  folds_.Restart(chunk_count);
  for (PeerQueue& queue : queues_) {
    queue.cursor.Restart(chunk_count);
    queue.moved_bytes = 0;
  }
}

Status Runner::Advance(bool* moved) {
  if (lacking_bytes_ > 0) {
    return Internal("no memory: " + std::to_string(lacking_bytes_) + " bytes for received partials");
  }
  FRD_RETURN_IF_ERROR(Transfer(true, moved));
  FRD_RETURN_IF_ERROR(Transfer(false, moved));
  FoldReady(moved);
  return Status::Ok();
}

Status Runner::Transfer(bool sends, bool* moved) {
  for (PeerQueue& queue : queues_) {
    if (queue.sends == sends) FRD_RETURN_IF_ERROR(TransferQueue(&queue, moved));
  }
  return Status::Ok();
}

Status Runner::TransferQueue(PeerQueue* queue, bool* moved) {
  for (; IsReady(queue->cursor); Finish(&queue->cursor), queue->moved_bytes = 0, *moved = true) {
    const Step& step = schedule_->steps[queue->cursor.step()];
    Memory memory = MemoryOf(queue->cursor.chunk(), step);
    if (step.kind == StepKind::kRecvScratch) memory.data = SlotMemory(queue->cursor.chunk(), step.slot);
    if (memory.size_bytes == 0) continue;
    const size_t before = queue->moved_bytes, left_bytes = memory.size_bytes - before;
    Link* const link = links_[queue->peer];
    size_t moved_bytes = 0;
    FRD_RETURN_IF_ERROR(queue->sends
                            ? link->TrySend(ReadFrom(memory, queue->cursor.step()) + before, left_bytes, &moved_bytes)
                            : link->TryRecv(memory.data + before, left_bytes, &moved_bytes));
    queue->moved_bytes += moved_bytes;
    *moved |= moved_bytes > 0;
    if (moved_bytes < left_bytes) break;  // a second try would find the link still full or empty
  }
  return Status::Ok();
}

void Runner::FoldReady(bool* moved) {
  for (; IsReady(folds_); Finish(&folds_), *moved = true) Fold(folds_.chunk(), folds_.step());
}

void Runner::Fold(int64_t chunk, int index) {
  FRD_FAILPOINT("run.fold");
  const Step& step = schedule_->steps[index];
  const RunPlan& plan = PlanOf(chunk);
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

bool Runner::WaitsToSend(int participant) const { return Waits(participant, true); }
bool Runner::WaitsToRecv(int participant) const { return Waits(participant, false); }

bool Runner::Waits(int participant, bool sends) const {
  return std::any_of(queues_.begin(), queues_.end(), [&](const PeerQueue& queue) {
    return queue.peer == participant && queue.sends == sends && IsReady(queue.cursor);
  });
}

void Runner::Finish(StepCursor* cursor) {
  progress_.Complete(cursor->chunk(), cursor->step());
  cursor->Next();
}

Runner::Memory Runner::MemoryOf(int64_t chunk, const Step& step) const {
  const Round* const round = RoundOf(chunk);
  const RunPlan& plan = PlanOf(chunk);
  if (round != nullptr && round->chunks.chunk_count() == 0) return {};
  const Range bytes = round ? round->chunks.Bytes(0, step.block) : chunks_.Bytes(chunk, step.block);
  const auto size_bytes = static_cast<size_t>(bytes.size());
  if (plan.blocks.empty()) {
    return {static_cast<const char*>(plan.source) + bytes.begin, static_cast<char*>(plan.data) + bytes.begin,
            size_bytes};
  }
  const BlockMemory& memory = plan.blocks[static_cast<size_t>(step.block)];
  return {memory.source ? static_cast<const char*>(memory.source) + bytes.begin : zeros_,
          memory.data ? static_cast<char*>(memory.data) + bytes.begin : nowhere_, size_bytes};
}

char* Runner::SlotMemory(int64_t chunk, int slot) const {
  if (const Round* const round = RoundOf(chunk)) {
    return round->scratch.get() + static_cast<size_t>(slot) * round->slot_bytes;
  }
  const int64_t copy = chunk % Progress::kSlotDepth;
  return scratch_.get() + static_cast<size_t>(copy * schedule_->slot_count + slot) * slot_bytes_;
}

// True when the schedule reads a null source or writes null data.
bool Runner::TouchesNull() const {
  if (plan_.blocks.empty()) return false;
  for (size_t i = 0; i < schedule_->steps.size(); ++i) {
    const Step& step = schedule_->steps[i];
    const BlockMemory& block = plan_.blocks[static_cast<size_t>(step.block)];
    if (block.size_bytes == 0) continue;
    const bool writes = step.kind == StepKind::kRecvData || step.kind == StepKind::kFold;
    const bool reads = (step.kind == StepKind::kSend || step.kind == StepKind::kFold) && reads_source_[i];
    if ((writes && block.data == nullptr) || (reads && block.source == nullptr)) return true;
  }
  return false;
}

void Runner::ReserveScratch() {
  slot_bytes_ = SlotBytesOf(chunks_);
  const size_t copies = std::min<int64_t>(chunks_.chunk_count(), Progress::kSlotDepth);
  const size_t partial_bytes = copies * static_cast<size_t>(schedule_->slot_count) * slot_bytes_;
  const bool null_blocks = TouchesNull();
  const size_t needed_bytes = partial_bytes + (null_blocks ? 2 * slot_bytes_ : 0);
  const bool reserved = Reserve(needed_bytes, &scratch_, &scratch_bytes_);
  lacking_bytes_ = reserved ? 0 : needed_bytes;
  if (!reserved || !null_blocks) return;
  zeros_ = scratch_.get() + partial_bytes;
  nowhere_ = zeros_ + slot_bytes_;
  std::memset(zeros_, 0, slot_bytes_);
}

bool Runner::Reserve(size_t size_bytes, ScratchMemory* memory, size_t* reserved_bytes) {
  if (size_bytes <= *reserved_bytes) return true;
  memory->reset();
  *reserved_bytes = 0;
  memory->reset(static_cast<char*>(::operator new(size_bytes, std::align_val_t{kSlotAlignment}, std::nothrow)));
  if (*memory == nullptr) return false;
  *reserved_bytes = size_bytes;
  return true;
}

void Runner::FreeScratch::operator()(char* memory) const {
  ::operator delete(memory, std::align_val_t{kSlotAlignment});
}

}  // namespace farandole
