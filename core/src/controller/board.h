// The arrival board of one group: where its members count themselves in, and the log that tells all of them what
// comes next.
//
// It lies in memory that is handed in (a segment, or the heap in simulations) and holds no pointers. All operations are
// single atomic steps, so any thread of any member may use it at any time; a member that dies leaves it readable.
//
//   joined    [ how many members have joined ]
//   heads     [ member 0 | member 1 | ... ]    one line each: how far the member has read the log
//   cells     [ id 0 | id 1 | ... ]            one line each: how often members have arrived, with the retired flag
//   arrivals  [ member ][ id ]                 what each member said when it last came
//   log       [ e e e e ... ]                  ring of entries in total order, tagged by round
//   seals     [ s s s ... ] x 2                where batches end: of sets inside this group, of sets across groups
//   completed [ e e ... ]                      several groups only: what the leader still has to tell the coordinator
//   spans     [ bytes ]                        per-id memory from the coordinator: small data, extents
//
// Why nothing here overflows. Log: TryAppend looks at the slowest reader first; reading needs no user code, only the
// engine's thread. Seals: there is an entry of the log for every batch. Completed: an id is there once, until the
// coordinator has answered.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "controller/signature.h"

namespace farandole {

inline constexpr int kMaxIds = 4096;
inline constexpr size_t kSpanBytes = 256u << 20;  // address space; pages cost memory when first touched

enum class LogKind : uint8_t {
  kReady = 1,    // all ranks of the set have arrived: run it in a batch
  kRetired = 2,  // the id means nothing from here on
  kLeft = 3,     // a rank has left the job
  kJoinEnd = 4,  // all ranks had joined; they go on together
};

struct LogEntry {
  LogKind kind = LogKind::kReady;
  int id = 0;        // kLeft: the rank
  uint8_t uses = 0;  // kRetired: how many uses were completed, modulo 256
  int set = 0;
};

// Batches of sets inside the group are sealed by their first reader, those of sets across groups by the leader.
enum class SealKind { kInside = 0, kAcross = 1 };

class Board {
 public:
  static size_t BytesFor(int member_count);
  static constexpr uint64_t kLogEntries = 4 * kMaxIds;
  // The memory is zero when the first member sees it. log_entries: so many that some member has not read make the log
  // full, the same for all members. REQUIRES: aligned to a page; log_entries <= kLogEntries.
  Board(std::byte* memory, int member, int member_count, uint64_t log_entries = kLogEntries);

  int member() const { return member_; }
  int member_count() const { return member_count_; }

  // -- cells. `sharers` is how many members of this group are in the id's set.
  struct Arrival {
    bool retired = false;  // not counted: describe instead
    bool last = false;     // this one completed the use
  };
  // `sequence` is what this member says of it, for the others to read; not 0.
  Arrival Arrive(int id, uint64_t sequence, int sharers);
  // As if nobody had come to the use that has just been completed. REQUIRES: only its last arriver says so.
  void TakeBack(int id, int sharers);
  // Closes the id: whoever arrives from now on is told. Returns how many uses were completed.
  uint64_t Retire(int id, int sharers);
  bool IsRetired(int id) const;
  // This member will not touch the id again. True for the last member.
  bool DoneWith(int id, int sharers);
  bool AllDoneWith(int id, int sharers) const;
  void Reset(int id);                           // REQUIRES: AllDoneWith, and the id is not yet given out again
  uint64_t LatestOf(int member, int id) const;  // what it said last; 0: it never came

  // -- log
  // False when the slowest reader is a whole ring behind; try again.
  bool TryAppend(const LogEntry& entry);
  std::optional<LogEntry> Read(uint64_t position) const;
  uint64_t log_end() const;
  void PublishHead(uint64_t position);  // this member has read everything before it
  // Where batch b ends, as agreed by all readers: the first to ask decides that it is `proposed_end`.
  uint64_t SealOrRead(SealKind kind, uint64_t batch, uint64_t proposed_end);
  std::optional<uint64_t> ReadSeal(SealKind kind, uint64_t batch) const;

  // -- to the leader
  void PushCompleted(int id);
  std::optional<int> ReadCompleted(uint64_t position) const;

  // -- joined members, who have to be woken by every arrival
  void ChangeJoined(int by);
  bool AnyJoined() const;

  std::byte* span(size_t offset) const { return spans_ + offset; }

 private:
  struct Cell;
  struct Line;
  struct Ring;
  uint64_t SlowestHead() const;

  int member_;
  int member_count_;
  uint64_t log_entries_;
  Line* joined_;
  Line* heads_;
  Cell* cells_;
  std::atomic<uint64_t>* arrivals_;
  Ring* log_;
  Ring* seals_;  // one per SealKind
  Ring* completed_;
  std::byte* spans_;
  std::atomic<uint64_t> known_head_{0};  // of the slowest reader, when last looked
};

}  // namespace farandole
