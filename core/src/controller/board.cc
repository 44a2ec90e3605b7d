#include "controller/board.h"

#include "common/failpoint.h"

namespace farandole {
namespace {

constexpr uint64_t kRetiredFlag = 1ull << 63;
constexpr size_t kRingEntries = 4 * kMaxIds;
constexpr size_t kPage = 4096;

constexpr size_t Pages(size_t size_bytes) { return (size_bytes + kPage - 1) / kPage * kPage; }

// Ring words carry the low half of (position + 1), so that a word of the last round, or a zero, is never taken for a
// fresh one.
uint64_t Tagged(uint64_t position, uint32_t payload) { return (position + 1) << 32 | payload; }
bool IsFresh(uint64_t word, uint64_t position) { return word >> 32 == ((position + 1) & 0xffffffffu); }

uint32_t Pack(const LogEntry& entry) {
  return static_cast<uint32_t>(entry.kind) << 28 | static_cast<uint32_t>(entry.id) << 8 | entry.uses;
}
LogEntry Unpack(uint32_t payload) {
  return {static_cast<LogKind>(payload >> 28), static_cast<int>(payload >> 8 & 0xfffff), static_cast<uint8_t>(payload)};
}

}  // namespace

struct alignas(64) Board::Cell {
  std::atomic<uint64_t> count;  // arrivals; the top bit says retired
  std::atomic<uint32_t> done_with;
};

struct Board::Ring {
  alignas(128) std::atomic<uint64_t> tail;
  alignas(128) std::atomic<uint64_t> words[kRingEntries];
};

size_t Board::BytesFor(int member_count) {
  return Pages(sizeof(Cell) * kMaxIds) + Pages(sizeof(uint32_t) * kMaxIds) * static_cast<size_t>(member_count) +
         3 * Pages(sizeof(Ring)) + kSpanBytes;
}

Board::Board(std::byte* memory, int member, int member_count) : member_(member), member_count_(member_count) {
  const auto take = [&memory](size_t size_bytes) {
    std::byte* const part = memory;
    memory += Pages(size_bytes);
    return part;
  };
  cells_ = reinterpret_cast<Cell*>(take(sizeof(Cell) * kMaxIds));
  arrivals_ = reinterpret_cast<std::atomic<uint32_t>*>(
      take(Pages(sizeof(uint32_t) * kMaxIds) * static_cast<size_t>(member_count)));
  log_ = reinterpret_cast<Ring*>(take(sizeof(Ring)));
  seals_ = reinterpret_cast<Ring*>(take(sizeof(Ring)));
  completed_ = reinterpret_cast<Ring*>(take(sizeof(Ring)));
  spans_ = take(kSpanBytes);
}

Board::Arrival Board::Arrive(int id, uint64_t use) {
  FRD_FAILPOINT("board.arrive");
  arrivals_[static_cast<size_t>(member_) * kMaxIds + static_cast<size_t>(id)].store(static_cast<uint32_t>(use + 1),
                                                                                    std::memory_order_relaxed);
  const uint64_t before = cells_[id].count.fetch_add(1);
  if ((before & kRetiredFlag) != 0) return {true, false};
  return {false, (before + 1) % static_cast<uint64_t>(member_count_) == 0};
}

uint64_t Board::Retire(int id) {
  const uint64_t before = cells_[id].count.fetch_or(kRetiredFlag) & ~kRetiredFlag;
  return before / static_cast<uint64_t>(member_count_);
}

bool Board::DoneWith(int id) { return cells_[id].done_with.fetch_add(1) + 1 == static_cast<uint32_t>(member_count_); }

bool Board::AllDoneWith(int id) const { return cells_[id].done_with.load() == static_cast<uint32_t>(member_count_); }

void Board::Reset(int id) {
  for (int m = 0; m < member_count_; ++m) {
    arrivals_[static_cast<size_t>(m) * kMaxIds + static_cast<size_t>(id)].store(0, std::memory_order_relaxed);
  }
  cells_[id].done_with.store(0);
  cells_[id].count.store(0);
}

bool Board::HasArrived(int member, int id, uint64_t use) const {
  const auto& arrivals = arrivals_[static_cast<size_t>(member) * kMaxIds + static_cast<size_t>(id)];
  return static_cast<int32_t>(arrivals.load(std::memory_order_relaxed) - static_cast<uint32_t>(use)) > 0;
}

void Board::Append(const LogEntry& entry) {
  const uint64_t position = log_->tail.fetch_add(1);
  log_->words[position % kRingEntries].store(Tagged(position, Pack(entry)), std::memory_order_release);
}

std::optional<LogEntry> Board::Read(uint64_t position) const {
  const uint64_t word = log_->words[position % kRingEntries].load(std::memory_order_acquire);
  if (!IsFresh(word, position)) return std::nullopt;
  return Unpack(static_cast<uint32_t>(word));
}

uint64_t Board::log_end() const { return log_->tail.load(std::memory_order_acquire); }

uint64_t Board::SealOrRead(uint64_t batch, uint64_t proposed_end) {
  std::atomic<uint64_t>& seal = seals_->words[batch % kRingEntries];
  uint64_t word = seal.load(std::memory_order_acquire);
  if (!IsFresh(word, batch)) {
    const uint64_t wanted = Tagged(batch, static_cast<uint32_t>(proposed_end));
    if (seal.compare_exchange_strong(word, wanted)) word = wanted;
  }
  // Only the low half travels; the end lies within a ring's length of the position that the reader knows.
  return proposed_end + static_cast<uint64_t>(static_cast<int64_t>(
                            static_cast<int32_t>(static_cast<uint32_t>(word) - static_cast<uint32_t>(proposed_end))));
}

std::optional<uint64_t> Board::ReadSeal(uint64_t batch) const {
  const uint64_t word = seals_->words[batch % kRingEntries].load(std::memory_order_acquire);
  if (!IsFresh(word, batch)) return std::nullopt;
  const uint64_t end = log_end();
  return end - static_cast<uint32_t>(static_cast<uint32_t>(end) - static_cast<uint32_t>(word));
}

void Board::PushCompleted(int id) {
  const uint64_t position = completed_->tail.fetch_add(1);
  completed_->words[position % kRingEntries].store(Tagged(position, static_cast<uint32_t>(id)),
                                                   std::memory_order_release);
}

std::optional<int> Board::ReadCompleted(uint64_t position) const {
  const uint64_t word = completed_->words[position % kRingEntries].load(std::memory_order_acquire);
  if (!IsFresh(word, position)) return std::nullopt;
  return static_cast<int>(static_cast<uint32_t>(word));
}

}  // namespace farandole
