#include "controller/board.h"

#include <algorithm>

#include "common/failpoint.h"

namespace farandole {
namespace {

constexpr uint64_t kRetiredFlag = 1ull << 63;
constexpr size_t kRingEntries = Board::kLogEntries;
constexpr size_t kPage = 4096;
constexpr int kSealKinds = 2;

constexpr size_t Pages(size_t size_bytes) { return (size_bytes + kPage - 1) / kPage * kPage; }

// Ring words carry the number of the ring's lap from 1 on, so that a word of the last lap, or a zero, is never taken
// for a fresh one.
constexpr int kPayloadBits = 44;
constexpr uint64_t kPayloadMask = (1ull << kPayloadBits) - 1;

uint64_t LapOf(uint64_t position) { return (position / kRingEntries + 1) & ((1ull << (64 - kPayloadBits)) - 1); }
uint64_t Tagged(uint64_t position, uint64_t payload) {
  return LapOf(position) << kPayloadBits | (payload & kPayloadMask);
}
bool IsFresh(uint64_t word, uint64_t position) { return word >> kPayloadBits == LapOf(position); }

// set (20 bits) | id (12) | uses (8) | kind (4)
uint64_t Pack(const LogEntry& entry) {
  return static_cast<uint64_t>(entry.set) << 24 | static_cast<uint64_t>(entry.id) << 12 |
         static_cast<uint64_t>(entry.uses) << 4 | static_cast<uint64_t>(entry.kind);
}
LogEntry Unpack(uint64_t payload) {
  return {static_cast<LogKind>(payload & 0xf), static_cast<int>(payload >> 12 & 0xfff),
          static_cast<uint8_t>(payload >> 4), static_cast<int>(payload >> 24 & kMaxSetId)};
}

}  // namespace

struct alignas(64) Board::Cell {
  std::atomic<uint64_t> count;  // arrivals; the top bit says retired
  std::atomic<uint32_t> done_with;
};

struct alignas(64) Board::Line {
  std::atomic<uint64_t> value;
};

struct Board::Ring {
  alignas(128) std::atomic<uint64_t> tail;
  alignas(128) std::atomic<uint64_t> words[kRingEntries];
};

size_t Board::BytesFor(int member_count) {
  const auto members = static_cast<size_t>(member_count);
  return Pages(sizeof(Line)) + Pages(sizeof(Line) * members) + Pages(sizeof(Cell) * kMaxIds) +
         Pages(sizeof(uint64_t) * kMaxIds) * members + Pages(sizeof(Ring)) * (2 + kSealKinds) + kSpanBytes;
}

Board::Board(std::byte* memory, int member, int member_count, uint64_t log_entries)
    : member_(member), member_count_(member_count), log_entries_(log_entries) {
  const auto take = [&memory](size_t size_bytes) {
    std::byte* const part = memory;
    memory += Pages(size_bytes);
    return part;
  };
  joined_ = reinterpret_cast<Line*>(take(sizeof(Line)));
  heads_ = reinterpret_cast<Line*>(take(sizeof(Line) * static_cast<size_t>(member_count)));
  cells_ = reinterpret_cast<Cell*>(take(sizeof(Cell) * kMaxIds));
  arrivals_ = reinterpret_cast<std::atomic<uint64_t>*>(
      take(Pages(sizeof(uint64_t) * kMaxIds) * static_cast<size_t>(member_count)));
  log_ = reinterpret_cast<Ring*>(take(sizeof(Ring)));
  static_assert(sizeof(Ring) % 128 == 0);
  seals_ = reinterpret_cast<Ring*>(take(sizeof(Ring) * kSealKinds));
  completed_ = reinterpret_cast<Ring*>(take(sizeof(Ring)));
  spans_ = take(kSpanBytes);
}

Board::Arrival Board::Arrive(int id, uint64_t sequence, int sharers) {
  FRD_FAILPOINT("board.arrive");
  arrivals_[static_cast<size_t>(member_) * kMaxIds + static_cast<size_t>(id)].store(sequence,
                                                                                    std::memory_order_relaxed);
  const uint64_t before = cells_[id].count.fetch_add(1);
  if ((before & kRetiredFlag) != 0) return {true, false};
  return {false, (before + 1) % static_cast<uint64_t>(sharers) == 0};
}

void Board::TakeBack(int id, int sharers) { cells_[id].count.fetch_sub(static_cast<uint64_t>(sharers)); }

uint64_t Board::Retire(int id, int sharers) {
  const uint64_t before = cells_[id].count.fetch_or(kRetiredFlag) & ~kRetiredFlag;
  return before / static_cast<uint64_t>(sharers);
}

bool Board::IsRetired(int id) const { return (cells_[id].count.load(std::memory_order_acquire) & kRetiredFlag) != 0; }

bool Board::DoneWith(int id, int sharers) {
  return cells_[id].done_with.fetch_add(1) + 1 == static_cast<uint32_t>(sharers);
}

bool Board::AllDoneWith(int id, int sharers) const {
  return cells_[id].done_with.load() == static_cast<uint32_t>(sharers);
}

void Board::Reset(int id) {
  for (int m = 0; m < member_count_; ++m) {
    arrivals_[static_cast<size_t>(m) * kMaxIds + static_cast<size_t>(id)].store(0, std::memory_order_relaxed);
  }
  cells_[id].done_with.store(0);
  cells_[id].count.store(0);
}

uint64_t Board::LatestOf(int member, int id) const {
  return arrivals_[static_cast<size_t>(member) * kMaxIds + static_cast<size_t>(id)].load(std::memory_order_relaxed);
}

bool Board::TryAppend(const LogEntry& entry) {
  uint64_t position = log_->tail.load(std::memory_order_relaxed);
  do {
    if (position - known_head_.load(std::memory_order_relaxed) < log_entries_) continue;
    const uint64_t slowest = SlowestHead();
    known_head_.store(slowest, std::memory_order_relaxed);
    if (position - slowest >= log_entries_) return false;
  } while (!log_->tail.compare_exchange_weak(position, position + 1));
  log_->words[position % kRingEntries].store(Tagged(position, Pack(entry)), std::memory_order_release);
  return true;
}

uint64_t Board::SlowestHead() const {
  uint64_t slowest = ~uint64_t{0};
  for (int m = 0; m < member_count_; ++m) slowest = std::min(slowest, heads_[m].value.load(std::memory_order_acquire));
  return slowest;
}

void Board::PublishHead(uint64_t position) { heads_[member_].value.store(position, std::memory_order_release); }

std::optional<LogEntry> Board::Read(uint64_t position) const {
  const uint64_t word = log_->words[position % kRingEntries].load(std::memory_order_acquire);
  if (!IsFresh(word, position)) return std::nullopt;
  return Unpack(word & kPayloadMask);
}

uint64_t Board::log_end() const { return log_->tail.load(std::memory_order_acquire); }

uint64_t Board::SealOrRead(SealKind kind, uint64_t batch, uint64_t proposed_end) {
  std::atomic<uint64_t>& seal = seals_[static_cast<int>(kind)].words[batch % kRingEntries];
  uint64_t word = seal.load(std::memory_order_acquire);
  if (!IsFresh(word, batch)) {
    const uint64_t wanted = Tagged(batch, proposed_end);
    if (seal.compare_exchange_strong(word, wanted)) word = wanted;
  }
  return word & kPayloadMask;
}

std::optional<uint64_t> Board::ReadSeal(SealKind kind, uint64_t batch) const {
  const auto& seal = seals_[static_cast<int>(kind)].words[batch % kRingEntries];
  const uint64_t word = seal.load(std::memory_order_acquire);
  if (!IsFresh(word, batch)) return std::nullopt;
  return word & kPayloadMask;
}

void Board::PushCompleted(int id) {
  const uint64_t position = completed_->tail.fetch_add(1);
  completed_->words[position % kRingEntries].store(Tagged(position, static_cast<uint64_t>(id)),
                                                   std::memory_order_release);
}

std::optional<int> Board::ReadCompleted(uint64_t position) const {
  const uint64_t word = completed_->words[position % kRingEntries].load(std::memory_order_acquire);
  if (!IsFresh(word, position)) return std::nullopt;
  return static_cast<int>(word & kPayloadMask);
}

void Board::ChangeJoined(int by) { joined_->value.fetch_add(static_cast<uint64_t>(static_cast<int64_t>(by))); }
bool Board::AnyJoined() const { return joined_->value.load() != 0; }

}  // namespace farandole
