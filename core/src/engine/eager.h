// Eager operations on this rank (controller/inbox.h): collects the data of its group, sends the group's partial to the
// leaders of the others, receives theirs, folds partials as soon as they are there from all, and says which operations
// are done.
//
//   Submit -> Operations::eager -> cells -> puts          puts -> inboxes -> fold -> cells -> EndEager
//
// Ranks that do not lead their group in an operation use only its cells. eager_sum.h draws one operation.
//
// Data are sent at once while the receiver has credit. Beyond that the head is sent alone, and the data follow when the
// receiver has arrived, since they then fill memory for its own operation. Results may be written over inputs, so no
// byte is folded before it is sent.
//
// The driver alone calls.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "engine/eager_sum.h"
#include "engine/operations.h"
#include "transport/transport.h"
#include "world/world.h"

namespace farandole {

// Keeps memory for received data to use it again: powers of two, by exponent. The driver alone uses it.
class KeptMemory {
 public:
  std::unique_ptr<std::byte[]> Take(size_t size_bytes);  // null when there is none
  void GiveBack(std::unique_ptr<std::byte[]> memory, size_t size_bytes);

 private:
  std::vector<std::unique_ptr<std::byte[]>> kept_[21];
  size_t kept_bytes_ = 0;
};

class Eager final : private PutSink {
 public:
  // How many bytes a rank may be sent for operations at which it has not arrived. It keeps them until it arrives.
  static constexpr size_t kCreditBytes = 4 << 20;

  Eager(World* world, Operations* operations);

  struct Sign {
    enum Kind {
      kFarewell,  // the rank leaves; everything that it has put is here
      kClosed,    // the connection has ended, and an operation waits for it
      kBroken,    // `status`: the epoch cannot go on
    };
    int rank = 0;
    Kind kind = kFarewell;
    Status status{};
  };
  // One pass: begins submitted operations, moves bytes, folds. Appends operations that are complete. Returns whether it
  // moved something.
  bool Advance(std::vector<OperationPtr>* done, std::vector<Sign>* signs);

  // The operation will not be completed here; its memory is not touched any more.
  void Recall(Ticket ticket);
  // True when the operation can still be completed, although these ranks arrive at nothing any more.
  bool MayComplete(const Operation& operation, const std::vector<int>& left) const;
  void Drop();  // everything: the epoch is over
  bool idle() const { return running_.empty(); }
  int count() const { return static_cast<int>(running_.size()); }
  // True when no operation here needs the poller.
  bool asks() const { return !running_.empty() && transport().finds_puts(); }

  // Tells the other ranks that this rank, or a member of its group, leaves in good order and puts nothing more.
  // REQUIRES: nothing of it is under way.
  void SayFarewell(int left);

 private:
  struct Landing {  // where the data that a stream receives go
    std::shared_ptr<Inbox> inbox;
    Inbox::Slot* slot = nullptr;
  };

  struct Spare {  // memory for the data that a stream is expected to bring
    std::unique_ptr<std::byte[]> data;
    size_t size_bytes = 0;
  };

  bool BeginSubmitted();
  void Begin(OperationPtr operation);
  void ForgetSubmitted(Ticket ticket);
  bool LookAtCells();
  void PutToOthers(EagerSum* sum);
  void PutTo(EagerSum* sum, EagerSum::Peer* peer);
  uint64_t Put(const EagerSum& sum, int rank, size_t payload_bytes);
  void PutData(EagerSum* sum, EagerSum::Peer* peer);
  bool Progress(EagerSum* sum);  // true when it is done
  size_t Advanced(EagerSum* sum);
  OperationPtr End(EagerSum* sum);
  void Forget(const EagerSum& sum);
  bool MayHavePut(const EagerSum& sum, int left) const;
  void ReportClosed();
  Transport& transport() const { return *world_->transport; }
  // `from` has said that it puts nothing more for operations of `left`.
  bool HasSaidAll(int from, int left) const { return !transport().CanPut(from) || farewells_.count({from, left}) > 0; }

  // PutSink
  Slice Expected(int peer) override;
  Status OnHead(int peer, const PutHead& head, std::byte** to, size_t* size_bytes) override;
  void OnData(int peer, size_t size_bytes) override;
  void OnEnd(int peer, const Status& status) override;
  Status FindPlace(int peer, const PutHead& head, std::byte** to, size_t* size_bytes);

  std::unique_ptr<std::byte[]> TakeMemoryFor(int rank, size_t size_bytes);

  World* const world_;
  Operations* const operations_;
  std::vector<OperationPtr> submitted_;  // empty between passes; kept for its memory
  std::vector<std::unique_ptr<EagerSum>> running_;
  std::vector<size_t> credit_used_;  // by rank
  std::vector<Landing> landings_;    // by rank
  std::vector<Spare> spares_;        // by rank
  std::vector<bool> reported_closed_;
  std::vector<Slice> pieces_;                // of one put; empty otherwise, kept for its memory
  std::vector<Sign> signs_;                  // of this pass
  std::set<std::pair<int, int>> farewells_;  // from, left
  KeptMemory memory_;
};

}  // namespace farandole
