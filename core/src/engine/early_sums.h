// The sums between nodes that have begun at submission (early_sum.h): begins those that are submitted, moves their
// messages, and says which are done.
//
//   Submit -> Operations::early -> EarlySum::Begin -> exchange -> done
//
// Ranks that do not lead their node in an operation use only its buffer slots. A message that is here before this rank
// has arrived stays in the transport (transport.h).
//
// Only the holder of the ProgressLock calls.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "engine/operations.h"
#include "execution/device_copies.h"
#include "execution/early_sum.h"
#include "transport/transport.h"
#include "world/world.h"

namespace farandole {

class EarlySums final : private MessageSink {
 public:
  explicit EarlySums(Operations* operations);

  struct PeerEvent {
    enum Kind {
      kGoodbye,  // the rank leaves; everything that it has sent is here
      kClosed,   // the connection has ended, and an operation waits for it
      kBroken,   // `status`: the epoch cannot go on
    };
    int rank = 0;
    Kind kind = kGoodbye;
    Status status{};
  };
  // One pass: begins submitted operations, moves messages of both lanes, reduces. Appends operations that are complete.
  // Returns whether it moved something.
  bool Advance(std::vector<HostCopies::Completed>* done, std::vector<PeerEvent>* events);

  // Another runner has polled the transport, and may have taken completions of these sums.
  void Wake() { is_woken_ = true; }

  // The operation will not be completed here; its memory is not touched any more.
  void Cancel(Ticket ticket);
  // No rank begins another use of the id with this serial number.
  void Evict(uint32_t serial) { transport().DropEarly(serial); }
  void Forget(int set);  // a removed one, in which nothing is under way
  // True when the operation can still be completed, although these ranks arrive at nothing any more.
  bool MayComplete(const Operation& operation, const std::vector<int>& left) const;
  // The epoch is over. REQUIRES: every operation that has begun is cancelled.
  void Drop();
  bool idle() const { return running_.empty(); }
  int count() const { return static_cast<int>(running_.size()); }
  // True when no operation here needs the poller.
  bool asks() const { return !running_.empty() && transport().polls_sockets(); }
  // The ranks of other nodes for whose data the operation waits, as far as this rank can name them.
  std::vector<int> MissingRanks(Ticket ticket) const;

  // Tells the other ranks that this rank, or a member of its node, leaves in good order and begins nothing more.
  // REQUIRES: nothing of it is under way.
  void SendGoodbyes(int left);

 private:
  using Sums = std::vector<std::unique_ptr<EarlySum>>;

  bool BeginSubmitted();
  void Begin(OperationPtr operation);
  std::unique_ptr<EarlySum> TakeIdle(const ProcessSetPtr& set);
  bool PollSlots();
  void StartExchange(EarlySum* sum);
  void AdvanceAll(std::vector<HostCopies::Completed>* done);
  void MakeIdle(Sums::iterator sum);  // one of running_
  const EarlySum* Find(Ticket ticket) const;
  bool MayHaveSent(const EarlySum& sum, int left) const;
  void ReportClosed();
  Transport& transport() const { return *world_->transport; }
  // `from` begins nothing more for operations of `left`.
  bool HasGoodbye(int from, int left) const {
    return !transport().CanSendEarly(from) || goodbyes_.count({from, left}) > 0;
  }

  // MessageSink
  Status OnArrival(int peer, const MessageTag& tag, bool* wanted) override;
  void OnGoodbye(int peer, int left) override;
  void OnMismatch(int peer, const Mismatch& mismatch) override;
  void OnEnd(int peer, const Status& status) override;

  World* const world_;
  Operations* const operations_;
  std::vector<OperationPtr> submitted_;  // empty between passes; kept for its memory
  Sums running_;
  std::map<int, Sums> idle_;  // by process set
  bool is_woken_ = false;
  std::set<int> reported_closed_;
  std::vector<PeerEvent> events_;                   // of this pass
  std::set<std::pair<int, int>> goodbyes_;          // from, left
  std::vector<Transport::Completion> completions_;  // empty between passes; kept for its memory
};

}  // namespace farandole
