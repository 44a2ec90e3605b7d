// The failure monitor finds why an epoch ends, and because of which rank.
//
//   evidence (control plane, early messages, backends) --> Liveness --> FindFailure: an EpochEnd, if a rank is to blame
//   an EpochEnd that this rank finds                   --> WriteAbortWord; all members read it (ReadAbortWord)
//   one that another rank may contradict               --> Hold, TakeUnconfirmed: the other's counts if it comes soon
//   the first EpochEnd                                 --> MarkBroken: later calls are refused
//
// ProgressLoop owns the monitor and calls it with the ProgressLock. Nothing here ends an operation or sends a message:
// ProgressLoop acts on what is returned.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "engine/early_sums.h"
#include "engine/operations.h"
#include "world/liveness.h"
#include "world/world.h"

namespace farandole {

// A reason that ends the epoch for all ranks.
struct EpochEnd {
  Status status;
  int culprit = -1;         // the rank to blame; -1: none is
  bool is_guessed = false;  // the culprit may be alive, and blame this rank
};

// An end because this rank cannot go on.
EpochEnd EndBecauseOf(const World& world, const Status& status);

class FailureMonitor {
 public:
  // How long this rank waits for another's word about an end that it has found itself.
  static constexpr std::chrono::milliseconds kConfirmationTimeout{500};

  explicit FailureMonitor(Operations* operations) : world_(operations->world), operations_(operations) {}

  // Takes the evidence of connections and processes, in the order in which this rank sees them.
  Liveness& liveness() { return liveness_; }
  // Notes that the rank has left in good order. Returns the reason with which operations fail that still wait for it.
  EpochEnd OnLeft(int rank);
  // Call it when a backend has failed. Returns true when ended connections explain it, or soon will; then FindFailure
  // names the rank.
  bool FindBrokenPeers();

  // REQUIRES: the log is read as far as it can be, since a rank may have said there that it leaves.
  std::optional<EpochEnd> FindFailure(TimePoint now);

  // Writes the reason for the node. Returns false when there is a reason already, since the first one counts.
  bool WriteAbortWord(const EpochEnd& failure);
  bool is_aborted() const { return world_->node->abort_word().set(); }
  EpochEnd ReadAbortWord() const;  // REQUIRES: is_aborted()

  // A broken connection between two live ranks ends for both, and each would blame the other. Rank 0 hears both and
  // decides for all. Rank 0 itself needs no other's word, and is to blame where it cannot be asked.
  bool NeedsRankZero(const EpochEnd& failure) const {
    return failure.is_guessed && world_->rank != kCoordinatorRank && failure.culprit != kCoordinatorRank;
  }
  // Holds an end while another rank is asked, or writes the abort word. The first end held counts, but a sure one
  // replaces a guess.
  void Hold(const EpochEnd& failure, TimePoint now);
  // True when a sure end is held: no work goes on meanwhile.
  bool holds_sure_end() const { return held_ && !held_->is_guessed; }
  // Returns the end that was held for too long, once.
  std::optional<EpochEnd> TakeUnconfirmed(TimePoint now);

  // Makes later submissions fail. The first reason counts.
  void MarkBroken(const EpochEnd& failure);
  // Likewise, unless operations are in flight. Returns how many are.
  int MarkBrokenIfIdle(const EpochEnd& failure);
  // Once ranks have left: true if something waits here that others may still begin. They would wait for this rank.
  bool OthersMayBegin() const;
  // Appends to `waiting` the operations that wait for other ranks, not those whose tasks are under way. Leaves those
  // that `spared` can still complete although ranks have left, if it is given.
  void TakeWaiting(const EarlySums* spared, std::vector<OperationPtr>* waiting);

  // A connection or rank that is lost once the epoch is broken is a consequence: returns the reason that came first.
  EpochEnd FirstCauseOf(EpochEnd end) const;

  // Sentences that need the names of ranks.
  EpochEnd ShutdownEnd(int pending) const;  // with so many operations in flight
  Status FailureOf(const Operation& operation, const Status& reason) const;

 private:
  std::vector<int> Left() const;
  void MarkLocked(const EpochEnd& failure);

  World* const world_;
  Operations* const operations_;
  Liveness liveness_;
  std::optional<EpochEnd> held_;
  TimePoint held_until_{};
};

}  // namespace farandole
