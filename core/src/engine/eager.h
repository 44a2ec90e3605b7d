// Eager operations on this rank (controller/inbox.h): collects the data of its group, sends the group's partial to the
// leaders of the others, receives theirs, folds partials as soon as they are there from all, and says which operations
// are done.
//
//   Submit -> Operations::eager -> cells -> put streams          put streams -> inboxes -> fold -> cells -> EndEager
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
#include "transport/poll.h"
#include "transport/tcp/put_stream.h"
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

// The put streams of this rank: which are watched, which bring data, and which ranks have said that they put no more.
// The driver alone uses it.
class PutStreams {
 public:
  PutStreams(World* world, Poller* poller);
  Status Open();  // the poller watches the streams

  const std::vector<int>& ranks() const { return ranks_; }  // with a stream
  PutStream& at(int rank) { return world_->puts[static_cast<size_t>(rank)]; }
  const PutStream& at(int rank) const { return world_->puts[static_cast<size_t>(rank)]; }
  // Sends what is queued. Sets *moved if bytes were sent. After an error the stream drops what it has.
  Status Flush(int rank, bool* moved);
  void Close(int rank);

  // One more, or one less, operation expects data from the rank.
  void Await(int rank) { awaiting_ += awaited_[static_cast<size_t>(rank)]++ == 0 ? 1 : 0; }
  void EndAwait(int rank) { awaiting_ -= --awaited_[static_cast<size_t>(rank)] == 0 ? 1 : 0; }
  bool IsAwaited(int rank) const { return awaited_[static_cast<size_t>(rank)] > 0; }
  // True when each pass reads the streams that bring data, if any do, without asking the poller.
  bool AreRead() const;
  void OnReadable(int rank) { readable_[static_cast<size_t>(rank)] = true; }
  bool IsDue(int rank);  // true when this pass reads it

  // `from` has said that it puts nothing more for operations of `left`.
  void OnFarewell(int from, int left) { farewells_.emplace(from, left); }
  bool HasSaidAll(int from, int left) const { return !at(from).open() || farewells_.count({from, left}) > 0; }
  // Notes that a member of this group has left, and passes it on behind everything that this rank has put.
  void OnLeft(int rank);
  // Tells all that this rank leaves in good order. REQUIRES: nothing is under way.
  void SayFarewell();
  void EndSending();
  void Drop();  // everything that is queued

 private:
  World* const world_;
  Poller* const poller_;
  std::vector<int> ranks_;
  std::vector<int> awaited_;  // by rank: operations
  int awaiting_ = 0;          // ranks
  std::vector<bool> watched_for_writing_, readable_;
  std::set<std::pair<int, int>> farewells_;  // from, left
};

class Eager final : private PutStream::Receiver {
 public:
  // How many bytes a rank may be sent for operations at which it has not arrived. It keeps them until it arrives.
  static constexpr size_t kCreditBytes = 4 << 20;

  Eager(World* world, Operations* operations, Poller* poller);
  PutStreams& streams() { return streams_; }

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
  bool asks() const { return !running_.empty() && streams_.AreRead(); }
  void Close();

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
  void SendHead(const EagerSum& sum, int rank, size_t payload_bytes);
  void SendData(EagerSum* sum, EagerSum::Peer* peer);
  bool MoveBytes(std::vector<Sign>* signs);
  void Receive(int rank, bool* moved, std::vector<Sign>* signs);
  bool Progress(EagerSum* sum);  // true when it is done
  size_t Advanced(EagerSum* sum);
  OperationPtr End(EagerSum* sum);
  void Forget(const EagerSum& sum);
  bool MayHavePut(const EagerSum& sum, int left) const;
  void ReportClosed(std::vector<Sign>* signs);

  // PutStream::Receiver
  PutStream::Slice Expected() override;
  Status OnHead(const PutHead& head, std::byte** to, size_t* size_bytes) override;
  void OnData(size_t size_bytes) override;

  std::unique_ptr<std::byte[]> TakeMemoryFor(int rank, size_t size_bytes);

  World* const world_;
  Operations* const operations_;
  PutStreams streams_;
  std::vector<OperationPtr> submitted_;  // empty between passes; kept for its memory
  std::vector<std::unique_ptr<EagerSum>> running_;
  std::vector<size_t> credit_used_;  // by rank
  std::vector<Landing> landings_;    // by rank
  std::vector<Spare> spares_;        // by rank
  std::vector<bool> reported_closed_;
  int receiving_from_ = 0;
  bool is_farewell_ = false;  // the head just received was the sender's farewell
  Status refused_;
  KeptMemory memory_;
};

}  // namespace farandole
