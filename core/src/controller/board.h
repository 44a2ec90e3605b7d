// The arrival board of one arena group: where its members count themselves in, and the log that tells all of them what
// comes next.
//
// It lies in memory that is handed in (an arena, or the heap in simulations) and holds no pointers. All operations are
// single atomic steps, so any thread of any member may use it at any time; a member that dies leaves it readable.
//
//   cells     [ id 0 | id 1 | ... ]            one line each: how often members have arrived, and the retired flag in the same word
//   arrivals  [ member ][ id ]                 how often each member has arrived: who is missing, for reports
//   log       [ e e e e ... ]                  ring of entries in total order; a tag tells a fresh entry from last round's
//   seals     [ s s s ... ]                    batch b consists of the READY entries before log position seal[b]
//   completed [ e e ... ]                      several groups only: what the leader still has to tell the coordinator
//   spans     [ bytes ]                        small per-id memory, handed out by the coordinator: data of small tensors, extents
//
// Why nothing here ever overflows: an id is in flight once per member, so for each id at most one READY and one RETIRED
// wait for the slowest reader, and the rings hold more than that for all ids together.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace farandole {

inline constexpr int kMaxIds = 4096;
inline constexpr size_t kSpanBytes = 64u << 20;  // address space; pages cost memory when first touched

enum class LogKind : uint8_t {
  kReady = 1,    // all ranks have arrived: run it in a batch
  kDone = 2,     // the last arriver has computed the result: take it, it is in no batch
  kRetired = 3,  // the id means nothing from here on
  kLeft = 4,     // a rank has left the job
};

struct LogEntry {
  LogKind kind = LogKind::kReady;
  int id = 0;        // kLeft: the rank
  uint8_t uses = 0;  // kRetired: how many uses were completed, modulo 256
};

class Board {
 public:
  static size_t BytesFor(int member_count);
  // The memory is zero when the first member sees it. REQUIRES: aligned to a page.
  Board(std::byte* memory, int member, int member_count);

  int member() const { return member_; }
  int member_count() const { return member_count_; }

  // -- cells
  struct Arrival {
    bool retired = false;  // not counted: describe instead
    bool last = false;     // this one completed the use
  };
  // `use` is for reports: how often this member has arrived at the id before.
  Arrival Arrive(int id, uint64_t use);
  // Closes the id: whoever arrives from now on is told. Returns how many uses were completed.
  uint64_t Retire(int id);
  // This member will not touch the id again. True for the last member.
  bool DoneWith(int id);
  bool AllDoneWith(int id) const;
  void Reset(int id);  // REQUIRES: AllDoneWith, and the id is not yet given out again
  bool HasArrived(int member, int id, uint64_t use) const;

  // -- log
  void Append(const LogEntry& entry);
  std::optional<LogEntry> Read(uint64_t position) const;
  uint64_t log_end() const;
  // The end of batch b as agreed by all readers: the first to ask decides that it is `proposed_end`.
  uint64_t SealOrRead(uint64_t batch, uint64_t proposed_end);
  std::optional<uint64_t> ReadSeal(uint64_t batch) const;

  // -- to the leader
  void PushCompleted(int id);
  std::optional<int> ReadCompleted(uint64_t position) const;

  std::byte* span(size_t offset) const { return spans_ + offset; }

 private:
  struct Cell;
  struct Ring;
  int member_;
  int member_count_;
  Cell* cells_;
  std::atomic<uint32_t>* arrivals_;
  Ring* log_;
  Ring* seals_;
  Ring* completed_;
  std::byte* spans_;
};

}  // namespace farandole
