#include "controller/node_memory.h"

#include <algorithm>
#include <cstring>

#include "common/failpoint.h"

namespace farandole {
namespace {

constexpr uint64_t kEvictedFlag = 1ull << 63;
constexpr size_t kRingEntries = NodeLog::kEntries;
constexpr size_t kPage = 4096;
constexpr int kRings = 3;

constexpr size_t Pages(size_t size_bytes) { return (size_bytes + kPage - 1) / kPage * kPage; }

// Ring words carry the number of the ring's lap, counted from 1, so that a zero or a word of the last lap is never
// taken for a fresh one.
constexpr int kPayloadBits = 44;
constexpr uint64_t kPayloadMask = (1ull << kPayloadBits) - 1;

uint64_t LapOf(uint64_t position) { return (position / kRingEntries + 1) & ((1ull << (64 - kPayloadBits)) - 1); }
uint64_t Tagged(uint64_t position, uint64_t payload) {
  return LapOf(position) << kPayloadBits | (payload & kPayloadMask);
}
// Returns what was written at the position, unless that is still to come.
std::optional<uint64_t> PayloadAt(uint64_t position, uint64_t word) {
  if (word >> kPayloadBits != LapOf(position)) return std::nullopt;
  return word & kPayloadMask;
}

// set, or rank (20 bits) | id (12) | uses (8) | kind (4)
static_assert(kMaxWorldSize - 1 <= kMaxSetId);
uint64_t Pack(const LogEntry& entry) {
  return static_cast<uint64_t>(entry.set) << 24 | static_cast<uint64_t>(entry.id) << 12 |
         static_cast<uint64_t>(entry.uses) << 4 | static_cast<uint64_t>(entry.kind);
}
LogEntry Unpack(uint64_t payload) {
  return {static_cast<LogKind>(payload & 0xf), static_cast<int>(payload >> 12 & 0xfff),
          static_cast<uint8_t>(payload >> 4), static_cast<int>(payload >> 24 & kMaxSetId)};
}

}  // namespace

std::vector<int> NodeMembers::MembersIn(const ProcessSet& set) const {
  std::vector<int> members;
  for (int m = 0; m < size(); ++m) {
    if (set.PositionOf(RankOf(m)) >= 0) members.push_back(m);
  }
  return members;
}

// ---- counters

struct alignas(64) MemoryLine {
  std::atomic<uint64_t> value;
};

struct alignas(64) ArrivalCounters::Counter {
  std::atomic<uint64_t> count;  // arrivals; the top bit says evicted
  std::atomic<uint32_t> done_with;
};

size_t ArrivalCounters::BytesFor(int member_count) {
  return Pages(sizeof(Counter) * kMaxIds) + Pages(sizeof(uint64_t) * kMaxIds) * static_cast<size_t>(member_count);
}

ArrivalCounters::ArrivalCounters(std::byte* memory, int member, int member_count)
    : member_(member), member_count_(member_count) {
  counters_ = reinterpret_cast<Counter*>(memory);
  arrivals_ = reinterpret_cast<std::atomic<uint64_t>*>(memory + Pages(sizeof(Counter) * kMaxIds));
}

// Invariants 1 and 2 of ArrivalCounters.
ArrivalCounters::Arrival ArrivalCounters::Arrive(int id, uint64_t generation, int local_members) {
  FRD_FAILPOINT("counters.arrive");
  GenerationAt(member_, id).store(generation, std::memory_order_relaxed);
  const uint64_t before = counters_[id].count.fetch_add(1);
  if ((before & kEvictedFlag) != 0) return {true, false};
  return {false, (before + 1) % static_cast<uint64_t>(local_members) == 0};
}

void ArrivalCounters::TakeBack(int id, int local_members) {
  counters_[id].count.fetch_sub(static_cast<uint64_t>(local_members));
}

// Invariant 1: no arrival falls between the flag and the count that is returned.
uint64_t ArrivalCounters::Evict(int id, int local_members) {
  const uint64_t before = counters_[id].count.fetch_or(kEvictedFlag) & ~kEvictedFlag;
  return before / static_cast<uint64_t>(local_members);
}

bool ArrivalCounters::IsEvicted(int id) const {
  return (counters_[id].count.load(std::memory_order_acquire) & kEvictedFlag) != 0;
}

bool ArrivalCounters::DoneWith(int id, int local_members) {
  return counters_[id].done_with.fetch_add(1) + 1 == static_cast<uint32_t>(local_members);
}

bool ArrivalCounters::AllDoneWith(int id, int local_members) const {
  return counters_[id].done_with.load() == static_cast<uint32_t>(local_members);
}

// Clears the counter last: until then it says that the id is evicted.
void ArrivalCounters::Reset(int id) {
  for (int m = 0; m < member_count_; ++m) GenerationAt(m, id).store(0, std::memory_order_relaxed);
  counters_[id].done_with.store(0);
  counters_[id].count.store(0);
}

uint64_t ArrivalCounters::LatestOf(int member, int id) const {
  return GenerationAt(member, id).load(std::memory_order_relaxed);
}

// ---- log

struct NodeLog::Ring {
  alignas(128) std::atomic<uint64_t> tail;
  alignas(128) std::atomic<uint64_t> words[kRingEntries];

  std::atomic<uint64_t>& At(uint64_t position) { return words[position % kRingEntries]; }
  std::optional<uint64_t> Read(uint64_t position) {
    return PayloadAt(position, At(position).load(std::memory_order_acquire));
  }
  void Write(uint64_t position, uint64_t payload) {
    At(position).store(Tagged(position, payload), std::memory_order_release);
  }
};

size_t NodeLog::BytesFor(int member_count) {
  return Pages(sizeof(MemoryLine) * static_cast<size_t>(member_count)) + Pages(sizeof(Ring)) * kRings;
}

NodeLog::NodeLog(std::byte* memory, int member, int member_count, uint64_t entries)
    : member_(member), member_count_(member_count), entries_(entries) {
  heads_ = reinterpret_cast<MemoryLine*>(memory);
  log_ = reinterpret_cast<Ring*>(memory += Pages(sizeof(MemoryLine) * static_cast<size_t>(member_count)));
  batch_ends_ = reinterpret_cast<Ring*>(memory += Pages(sizeof(Ring)));
  completed_ = reinterpret_cast<Ring*>(memory + Pages(sizeof(Ring)));
}

// Invariant 2 of NodeLog.
bool NodeLog::TryAppend(const LogEntry& entry) {
  uint64_t position = log_->tail.load(std::memory_order_relaxed);
  do {
    if (position - known_head_ < entries_) continue;
    known_head_ = SlowestHead();
    if (position - known_head_ >= entries_) return false;
  } while (!log_->tail.compare_exchange_weak(position, position + 1));
  log_->Write(position, Pack(entry));
  return true;
}

uint64_t NodeLog::SlowestHead() const {
  uint64_t slowest = ~uint64_t{0};
  for (int m = 0; m < member_count_; ++m) slowest = std::min(slowest, heads_[m].value.load(std::memory_order_acquire));
  return slowest;
}

void NodeLog::PublishHead(uint64_t position) { heads_[member_].value.store(position, std::memory_order_release); }

std::optional<LogEntry> NodeLog::Read(uint64_t position) const {
  const std::optional<uint64_t> payload = log_->Read(position);
  return payload ? std::optional(Unpack(*payload)) : std::nullopt;
}

uint64_t NodeLog::end() const { return log_->tail.load(std::memory_order_acquire); }

// Invariant 3: the slot of the batch's lap before was read by all, since a member that still reads that batch has not
// read its entries.
uint64_t NodeLog::DecideBatchEnd(uint64_t batch, uint64_t proposed_end) {
  std::atomic<uint64_t>& batch_end = batch_ends_->At(batch);
  uint64_t word = batch_end.load(std::memory_order_acquire);
  if (const std::optional<uint64_t> decided = PayloadAt(batch, word)) return *decided;
  return batch_end.compare_exchange_strong(word, Tagged(batch, proposed_end)) ? proposed_end : word & kPayloadMask;
}

void NodeLog::PushCompleted(int id) { completed_->Write(completed_->tail.fetch_add(1), static_cast<uint64_t>(id)); }

std::optional<int> NodeLog::ReadCompleted(uint64_t position) const { return completed_->Read(position); }

// ---- entries that wait

bool LogQueue::Append(const LogEntry& entry) {
  if (TryAppend(entry)) return true;
  waiting_.push_back(entry);
  empty_ = false;
  return false;
}

bool LogQueue::AppendWaiting() {
  const size_t before = waiting_.size();
  while (!waiting_.empty() && log_.TryAppend(waiting_.front())) waiting_.pop_front();
  empty_ = waiting_.empty();
  return waiting_.size() != before;
}

void LogQueue::AddLeaving(std::set<int>* leaving) const {
  for (const LogEntry& entry : waiting_) {
    if (entry.kind == LogKind::kLeft) leaving->insert(entry.rank());
  }
}

// ---- buffers

void BufferPool::WriteCounts(const BufferRange& range, uint64_t use, size_t first,
                             const std::vector<int64_t>& counts) const {
  if (counts.empty()) return;
  std::memcpy(BufferOf(range, use) + first * sizeof(int64_t), counts.data(), counts.size() * sizeof(int64_t));
}

std::vector<int64_t> BufferPool::ReadCounts(const BufferRange& range, uint64_t use, size_t first, size_t count) const {
  std::vector<int64_t> counts(count);
  if (count > 0) std::memcpy(counts.data(), BufferOf(range, use) + first * sizeof(int64_t), count * sizeof(int64_t));
  return counts;
}

// ---- all of it

size_t NodeMemory::BytesFor(int member_count) {
  return ArrivalCounters::BytesFor(member_count) + NodeLog::BytesFor(member_count) + kBufferPoolBytes;
}

NodeMemory::NodeMemory(std::byte* memory, int member, int member_count, uint64_t log_entries)
    : counters(memory, member, member_count),
      log(memory + ArrivalCounters::BytesFor(member_count), member, member_count, log_entries),
      buffers(memory + ArrivalCounters::BytesFor(member_count) + NodeLog::BytesFor(member_count)) {}

}  // namespace farandole
