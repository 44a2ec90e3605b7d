// The failure monitor finds why an epoch ends, and because of which rank.
//
//   signs (control plane, eager streams, back ends) --> Liveness --> Judge: an EpochEnd, if a rank is to blame
//   an EpochEnd that this rank finds                --> TellGroup: the abort word, which all members read: Told
//   one of which another rank may say otherwise     --> Hold, TakeOverdue: the other's counts, if it comes in time
//   the first EpochEnd                              --> Break: Operations::broken, with which later calls are refused
//
// ProgressLoop owns the monitor and calls it with the ProgressLock. Nothing here ends an operation or sends a message:
// ProgressLoop acts on what is returned.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "engine/eager.h"
#include "engine/operations.h"
#include "world/liveness.h"
#include "world/world.h"

namespace farandole {

// A reason that ends the epoch for all ranks.
struct EpochEnd {
  Status status;
  int culprit = -1;         // the rank because of which; -1: none is to blame
  bool is_guessed = false;  // the culprit may live, and blame this rank
};

// This rank cannot go on.
EpochEnd EndBecauseOf(const World& world, const Status& status);

class FailureMonitor {
 public:
  // For another rank's word about an end that this one has found, too.
  static constexpr std::chrono::milliseconds kWordPatience{500};

  FailureMonitor(World* world, Operations* operations) : world_(world), operations_(operations) {}

  // Signs, in the order in which this rank sees them; see Liveness for what each weighs.
  void OnProcessEnded(int rank) { liveness_.OnProcessEnded(rank); }
  void OnControlClosed(int rank) { liveness_.OnControlClosed(rank, Now()); }
  void OnPutsClosed(int rank) { liveness_.OnConnectionClosed(rank, Now()); }
  void OnFarewell(int rank) { liveness_.OnFarewell(rank); }
  // The rank has left in good order. Returns the reason for which operations fail that still wait for it.
  EpochEnd OnLeft(int rank);
  // A back end cannot go on. True when ended connections explain it, or soon will: then Judge names the rank.
  bool SuspectBrokenLinks();

  bool suspects_somebody() const { return liveness_.suspects_somebody(); }
  // REQUIRES: the log is read as far as it can be, since a rank may have said there that it leaves.
  std::optional<EpochEnd> Judge(TimePoint now);
  // Somebody has left so long ago that what still waits for the negotiation waits in vain.
  bool WaitingIsVain(TimePoint now) const { return liveness_.WaitingIsVain(now); }

  // Tells the group. False when a reason stands there already: the first one counts.
  bool TellGroup(const EpochEnd& failure);
  bool is_told() const { return world_->group->abort_word().set(); }
  EpochEnd Told() const;  // REQUIRES: is_told()

  // A connection between two ranks that live ends for both, and each would blame the other. Rank 0 hears both and says
  // which of them it is for all. It needs no other's word, and is to blame itself where it cannot be asked.
  bool IsForRankZeroToSay(const EpochEnd& failure) const {
    return failure.is_guessed && world_->rank != kCoordinatorRank && failure.culprit != kCoordinatorRank;
  }
  // Another rank has been asked, or is writing the abort word: this end waits. The first that waits counts, but a guess
  // gives way to one that is sure.
  void Hold(const EpochEnd& failure, TimePoint now);
  // An end that is sure waits: no work goes on meanwhile.
  bool holds_sure_end() const { return held_ && !held_->is_guessed; }
  // The end that has waited in vain, once.
  std::optional<EpochEnd> TakeOverdue(TimePoint now);

  // From here on nothing can be submitted. The first reason counts.
  void Break(const EpochEnd& failure);
  // Takes the operations that wait for other ranks, not those whose tasks are under way. Where `spared` is given, its
  // operations stay that can still be complete although ranks have left.
  std::vector<OperationPtr> TakeWaiting(const Eager* spared);
  // An operation of this rank fails because of a rank that is lost; see Engine::LostRank.
  void NoteMissedLost();

  // Sentences that need the names of ranks.
  EpochEnd OfShutdown(int pending) const;  // with so many operations in flight
  Status FailureOf(const Operation& operation, const Status& reason) const;

 private:
  std::vector<int> Left() const;

  World* const world_;
  Operations* const operations_;
  Liveness liveness_;
  std::optional<EpochEnd> held_;
  TimePoint held_until_{};
};

}  // namespace farandole
