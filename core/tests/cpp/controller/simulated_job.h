// A whole job in one thread: negotiations, their nodes' memory, the coordinator and the messages between them, which
// make one step at a time in an order drawn from a seed. The job does by itself what the engine does with threads,
// queues and sockets, and relies only on what the controller's headers promise.
//
// The oracle. Every call has a tag that is equal on all ranks that mean the same. Data of small operations are the
// tags, one element for each position, so a result shows whose data, and of which use, went into it. Others are works:
// each rank performs its own one after the other, and each can only be performed when all ranks of its set have it in
// front. A call fails exactly when the ranks' descriptions of it differ, when a rank refuses it, or when the root of a
// broadcast has joined. A
// rank without which a call of another ended had joined before that one.
//
// The job's error is the first that it finds; a standstill is one, too.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "controller/coordinator.h"
#include "controller/negotiation.h"
#include "controller/scripts.h"
#include "support/pages.h"

namespace farandole {

Layout MakeNodes(const std::vector<int>& sizes);

// Bugs that a test can plant in a job, to see that the simulation finds them.
enum class Planted {
  kNone,
  kEarlyReady,    // a small operation is taken although one member has not written
  kSwappedOrder,  // the last rank reads batches backwards
  kNoValidation,  // the coordinator takes all descriptions for equal
  kHeadIsEnough,  // an early operation is reduced when all heads are here, without the data
};

// When operations have waited so long that ranks ask whether they are stuck.
enum class Time { kNever, kAtStandstill, kAnytime };

class SimulatedJob {
 public:
  SimulatedJob(const std::vector<int>& nodes, uint64_t seed, Planted planted = Planted::kNone,
               Negotiation::Limits limits = {});
  ~SimulatedJob();

  const Layout& layout() const { return layout_; }
  int size() const { return layout_.size(); }
  void set_time(Time time) { time_ = time; }
  // How many names the unnamed operations of one signature take in turn.
  void set_pool_size(int pool_size) { pool_size_ = pool_size; }

  // Every rank runs its script to the end, after the rest of the one before. Returns false when there is an error.
  bool Run(const Scripts& scripts);
  // The same, but only until nothing moves: scripts need not end.
  bool RunToStandstill(const Scripts& scripts);
  void Settle();  // runs until nothing moves
  const std::string& error() const { return error_; }

  void Kill(int rank, int after_steps);  // the rank takes no more steps
  void Pause(int rank, bool paused);     // the rank reads nothing while it is paused

  size_t messages() const { return messages_; }          // to the coordinator
  size_t descriptions() const { return descriptions_; }  // among them
  int failed(int rank) const;                            // calls of the last run
  int done(int rank) const;
  int lefts_seen(int rank) const;
  bool was_log_full() const { return was_log_full_; }

  // Null where the rank has no set of that id.
  ProcessSetPtr FindSet(int rank, int id) const;

  // For reports of those that wait: who is missing, according to the rank or to rank 0.
  std::set<int> MissingFor(int rank) const;
  std::set<int> MissingForCoordinator() const;
  bool Waits(int rank) const;                // in the negotiation or in a work
  bool HasToAppend(int rank) const;          // it came last to an operation, which is not in the log yet
  std::set<int> NotInFront(int rank) const;  // ranks that the rank's work waits for

 private:
  struct Operation;
  struct Work;
  struct Rank;
  struct EarlyMessage {
    MessageTag tag;
    std::vector<int64_t> data;  // empty: it is announced
  };
  using Events = std::vector<Negotiation::Event>;

  // simulated_job.cc: the steps
  void Begin(const Scripts& scripts);
  bool Loop();
  bool AllDone() const;
  bool Step(int r);
  bool Sweep();
  bool DeliverToRank(int r);
  bool DeliverToCoordinator(int r);
  void Distribute(std::vector<Outgoing> out);
  bool Collect(int r);
  bool Advance(int r);
  bool TakeSmall(int r);
  void WriteForOthers(Operation* operation);
  bool ReduceInTwoPhases(Rank* rank, Operation* operation);
  bool GoOn(Rank* rank, const std::shared_ptr<Operation>& operation);
  void HandleTake(Rank* rank, Ticket ticket);
  bool DeliverEarly(int r);
  bool DeliverEarlyFrom(int from, int to);
  bool TakeEarly(int r);
  bool RequestDoorbells(int r);
  bool Stick(int r);
  void Complain(const std::string& text);
  std::string Waiting() const;
  Bytes Described(const Bytes& message);

  // simulated_rank.cc: what a rank's engine does
  bool Submit(int r);
  bool SubmitAny(int r);
  bool SubmitAt(int r, size_t pick);
  static size_t FirstBefore(const Rank& rank, size_t pick);
  bool SubmitCall(Rank* rank, Call call);
  bool ReplaceLabels(Signature* signature) const;
  bool KnowsLabels(const Rank& rank, Signature* signature) const;
  static bool RefuseCall(Rank* rank, const Call& call);
  std::shared_ptr<Operation> NameIt(Rank* rank, Description* description);
  bool EnterHeld(Rank* rank);
  bool Enter(Rank* rank, const std::shared_ptr<Operation>& operation);
  bool EnterCall(Rank* rank, const std::shared_ptr<Operation>& operation);
  void Write(const Operation& operation);
  static void Fill(const Operation& operation, int64_t* elements, size_t count);
  void WriteIntoSlots(const Operation& operation, SlotBuffer slots, bool wants_doorbell);
  bool GoOnWithEarly(Rank* rank, const std::shared_ptr<Operation>& operation);
  void SendToOthers(int r, const Operation& operation);
  static std::vector<std::pair<size_t, size_t>> TensorsOf(const Operation& operation);
  std::vector<int64_t> PartialOf(const Operation& operation) const;
  std::vector<int64_t> SumOfAll(const Rank& rank, const Operation& operation) const;
  void EndEarly(Rank* rank, const std::shared_ptr<Operation>& operation, const std::vector<int64_t>& sums);
  bool HasAll(const Rank& rank, const Operation& operation) const;
  static MessageTag TagOf(const Admission& admission);
  bool IsHere(const Rank& rank, const Admission& admission, int leader) const;
  bool WillComplete(const Rank& rank, const Admission& admission, int left) const;
  bool AppendToLog(Rank* rank);
  bool JoinIfIdle(Rank* rank);
  bool LeaveIfIdle(Rank* rank);
  void HandleAll(Rank* rank, Events* events);
  void Handle(Rank* rank, const Negotiation::Event& event);
  void HandleBatch(Rank* rank, std::vector<Negotiation::Item> items);
  void HandleInvitation(Rank* rank, const Negotiation::Event& event);
  void HandleJoinEnd(Rank* rank, const Negotiation::Event& event);
  void HandleLeft(Rank* rank, int left);
  void HandleChangeOfSets(Rank* rank, const Operation& operation, int new_set);
  void LearnLabel(int label, int id);
  void Take(Rank* rank, Ticket ticket);
  void Reduce(Rank* rank, const Operation& operation);
  bool IsReady(const Rank& rank, const Operation& operation) const;
  std::shared_ptr<Operation> Remove(Rank* rank, Ticket ticket);
  void Finish(Rank* rank, const Operation& operation, const Status& status);

  // simulated_oracle.cc: what must be
  bool PerformWork(int r);
  void CheckWork(const ProcessSet& set);
  void CheckSmall(const Rank& rank, const Operation& operation, const std::vector<int64_t>& sums);
  void CheckCounts(const Rank& rank, const Operation& operation, const std::vector<int64_t>& counts);
  void CheckOutcome(const Rank& rank, const Operation& operation, const Status& status);
  void NoteWhoHadJoined(const Rank& rank, const Operation& operation);
  Ranks CallersOf(const Operation& operation) const;
  void CheckLast(const Rank& rank, int last);
  const Call* CallOf(uint64_t tag, int rank) const;

  Layout layout_;
  std::mt19937_64 random_;
  const Planted planted_;
  Coordinator coordinator_;
  std::vector<std::unique_ptr<Pages>> memories_;  // by node
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::deque<Bytes>> to_rank_, to_coordinator_;
  std::map<std::pair<int, int>, std::deque<EarlyMessage>> early_messages_;  // by sender and receiver
  std::map<std::pair<uint64_t, int>, Call> calls_;                          // by tag and rank, of all runs
  Time time_ = Time::kNever;
  int pool_size_ = 4;
  size_t messages_ = 0, descriptions_ = 0;
  bool was_log_full_ = false;
  std::string error_;
  std::vector<int> joins_;                                            // as they came to the coordinator
  std::set<std::pair<int, int>> had_joined_;                          // round and rank: before another did
  std::map<int, std::pair<Ranks, int>> sets_seen_;                    // id -> ranks, channel
  std::map<int, int> ids_;                                            // by label
  std::map<std::string, std::pair<Signature, int>> first_described_;  // for kNoValidation
};

// An operation of the simulation, with its call.
struct SimulatedJob::Operation {
  Call call;
  Admission admission;
  bool invited = false;
  std::vector<std::vector<int64_t>> inputs, sums;  // two phases: of each tensor
  bool begun = false;                              // early: it has written what it writes
  bool has_partial = false;                        // early: it has sent its node's partial to the others
  bool stuck_reported = false;
  std::vector<int64_t> counts;
  int set() const { return call.description.signature.set; }
  std::vector<SlotTensor> Tensors() {  // in two phases
    std::vector<SlotTensor> tensors;
    for (size_t i = 0; i < inputs.size(); ++i)
      tensors.push_back({inputs[i].data(), sums[i].data(), DType::kInt64, inputs[i].size()});
    return tensors;
  }
};

struct SimulatedJob::Work {
  ProcessSetPtr set;
  std::vector<std::shared_ptr<Operation>> operations;
};

struct SimulatedJob::Rank {
  Rank(const Layout& layout, int number, std::byte* memory, const Negotiation::Limits& limits)
      : number(number),
        node(layout.node_of[static_cast<size_t>(number)]),
        negotiation(layout, number, memory, limits) {}
  const int number;
  const int node;
  Negotiation negotiation;
  std::deque<Call> script;
  std::map<Ticket, std::shared_ptr<Operation>> in_flight;
  std::deque<Work> works;
  Events unhandled;                  // the driver handles them later
  std::vector<Admission> to_append;  // complete, but not in the log yet
  // What other ranks have sent early, by serial, generation and sender; empty: it is announced.
  std::map<std::tuple<uint32_t, uint64_t, int>, std::vector<int64_t>> early;
  SequenceNumbers sequence_numbers;
  std::map<std::string, std::weak_ptr<Operation>> slots;  // the operations that use the names of the pool
  struct Held {
    std::shared_ptr<Operation> operation;
    std::weak_ptr<Operation> before;  // has its name
  };
  std::deque<Held> held;
  bool idle() const { return in_flight.empty() && works.empty() && held.empty(); }
  bool has_joined = false;
  bool gone = false;  // dead, or it has left
  bool left = false;
  bool paused = false;
  int steps_to_live = -1;
  int failed = 0, done = 0, lefts_seen = 0, joins_seen = 0;
};

}  // namespace farandole
