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

bool IsReduction(const Step& step) { return step.kind == StepKind::kReduce; }
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

std::vector<BlockMemory> CutBlocks(const void* source, void* data, int64_t element_count, size_t element_bytes,
                                   int block_count) {
  std::vector<BlockMemory> blocks;
  for (int block = 0; block < block_count; ++block) {
    const Range elements = BlockRange(element_count, element_bytes, block, block_count);
    const size_t at = static_cast<size_t>(elements.begin) * element_bytes;
    blocks.push_back({static_cast<const char*>(source) + at, static_cast<char*>(data) + at,
                      static_cast<size_t>(elements.size()) * element_bytes});
  }
  return blocks;
}

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

void Runner::Start(RunPlan plan, const MessageTag& tag) {
  tag_ = tag;
  in_rounds_ = false;
  rounds_.resize(1);
  supplied_ = Prepare(&rounds_[0], std::move(plan));
  Restart(supplied_);
}

void Runner::StartRounds(int64_t rounds, int64_t max_at_once, const MessageTag& tag) {
  tag_ = tag;
  in_rounds_ = true;
  rounds_.resize(ToIndex(max_at_once));
  supplied_ = 0;
  Restart(rounds);
}

void Runner::Supply(RunPlan plan) {
  plan.window_bytes = kWholeRound;
  Prepare(&rounds_[ToIndex(supplied_) % rounds_.size()], std::move(plan));
  ++supplied_;
}

// Returns the number of chunks.
int64_t Runner::Prepare(Round* round, RunPlan plan) {
  size_t longest_bytes = 0;
  for (const BlockMemory& block : plan.blocks) longest_bytes = std::max(longest_bytes, block.size_bytes);
  if (plan.window_bytes == 0)
    plan.window_bytes = EvenWindowBytes(longest_bytes, DefaultWindowBytes(schedule_->block_count));
  const size_t chunks = (longest_bytes + plan.window_bytes - 1) / plan.window_bytes;
  const size_t block_bytes = std::min(longest_bytes, plan.window_bytes);
  round->slot_bytes = (block_bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  const size_t copies = std::min<size_t>(chunks, Progress::kSlotDepth);
  const size_t partial_bytes = copies * ToIndex(schedule_->slot_count) * round->slot_bytes;
  const bool null_blocks = TouchesNull(plan);
  const size_t needed_bytes = partial_bytes + (null_blocks ? 2 * round->slot_bytes : 0);
  round->slots = reinterpret_cast<char*>(round->scratch.Get(needed_bytes));
  if (needed_bytes > 0 && round->slots == nullptr)
    failed_ = Internal("no memory: ", needed_bytes, " bytes for received partials");
  round->plan = std::move(plan);
  if (!failed_.ok() || !null_blocks) return static_cast<int64_t>(chunks);
  round->zeros = round->slots + partial_bytes;
  round->discarded = round->zeros + round->slot_bytes;
  std::memset(round->zeros, 0, round->slot_bytes);
  return static_cast<int64_t>(chunks);
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

Status Runner::Post(bool* moved) {
  for (PeerQueue& queue : queues_) {
    const int rank = ranks_[ToIndex(queue.peer)];
    const auto context = reinterpret_cast<uint64_t>(&queue);
    for (; failed_.ok() && IsReady(queue.next); queue.next.Next(), ++queue.posted) {
      const Step& step = schedule_->steps[ToIndex(queue.next.step())];
      const BlockMemory memory = MemoryOf(queue.next.chunk(), step);
      if (memory.size_bytes == 0) continue;
      if (queue.sends) {
        const void* const from = ReadFrom(memory, queue.next.step());
        transport_->PostSend(rank, tag_, queue.part++, from, memory.size_bytes, context);
      } else {
        const bool to_slot = step.kind == StepKind::kRecvScratch;
        void* const to = to_slot ? SlotMemory(queue.next.chunk(), step.slot) : memory.data;
        transport_->PostReceive(rank, tag_, queue.part++, to, memory.size_bytes, context);
      }
    }
    *moved |= FinishEmpty(&queue);
  }
  return failed_;
}

// The runner of a post that failed says so in its next Post.
bool Runner::PollAll(Transport* transport, std::vector<Transport::Completion>* completions) {
  completions->clear();
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
  for (; IsReady(reductions_); Finish(&reductions_), *moved = true) {
    FRD_FAILPOINT("run.reduce");
    const int64_t chunk = reductions_.chunk();
    const Step& step = schedule_->steps[ToIndex(reductions_.step())];
    const RunPlan& plan = RoundOf(chunk).plan;
    const BlockMemory block = MemoryOf(chunk, step);
    const size_t count = step.operands.size(), element_count = block.size_bytes / SizeOf(plan.dtype);
    const Scale scale = step.scale ? plan.scale : Scale{};
    if (block.size_bytes == 0) continue;
    const bool by_pairs = IsHalf(plan.dtype) && count > 2;
    const void* own = ReadFrom(block, reductions_.step());
    if (by_pairs && own != block.data) {  // reducing by pairs overwrites operands, and must not overwrite the source
      std::memcpy(block.data, own, block.size_bytes);
      own = block.data;
    }
    operands_.clear();
    for (int operand : step.operands) operands_.push_back(operand == kOwnData ? own : SlotMemory(chunk, operand));
    if (by_pairs) {
      ReduceRounded(plan.dtype, plan.reduce, operands_.data(), count, element_count, scale, block.data);
    } else if (count > 1 || !scale.IsIdentity() || own != block.data) {
      Reduce(plan.dtype, plan.reduce, operands_.data(), count, element_count, scale, block.data);
    }
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
  const BlockMemory& block = round.plan.blocks[ToIndex(step.block)];
  const size_t offset = in_rounds_ ? 0 : ToIndex(chunk) * round.plan.window_bytes;
  if (offset >= block.size_bytes) return {};
  return {block.source ? static_cast<const char*>(block.source) + offset : round.zeros,
          block.data ? static_cast<char*>(block.data) + offset : round.discarded,
          std::min(block.size_bytes - offset, round.plan.window_bytes)};
}

char* Runner::SlotMemory(int64_t chunk, int slot) const {
  const Round& round = RoundOf(chunk);
  const int64_t copy = in_rounds_ ? 0 : chunk % Progress::kSlotDepth;
  return round.slots + ToIndex(copy * schedule_->slot_count + slot) * round.slot_bytes;
}

// True when the schedule reads a null source or writes null data.
bool Runner::TouchesNull(const RunPlan& plan) const {
  for (size_t i = 0; i < schedule_->steps.size() && !plan.blocks.empty(); ++i) {
    const Step& step = schedule_->steps[i];
    const BlockMemory& block = plan.blocks[ToIndex(step.block)];
    if (block.size_bytes == 0) continue;
    const bool reads = (Sends(step) || IsReduction(step)) && reads_source_[i];
    if ((Writes(step) && block.data == nullptr) || (reads && block.source == nullptr)) return true;
  }
  return false;
}

}  // namespace farandole
