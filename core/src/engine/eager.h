// Eager operations on this rank (controller/inbox.h): sends this rank's data to the others, receives theirs, folds data
// as soon as they are there from all, and says which operations are done.
//
//   Submit -> Operations::eager -> put streams          put streams -> inboxes -> fold -> EndEager
//
// Data are sent at once while the receiver has credit. Beyond that the head is sent alone, and the data follow when the
// receiver has arrived, since they then fill memory for its own operation. Results may be written over inputs, so no
// byte is folded before it is sent.
//
// The driver alone calls.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/operations.h"
#include "engine/small.h"
#include "transport/poll.h"
#include "transport/shm/cells.h"
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

class Eager final : private PutStream::Receiver {
 public:
  // How many bytes a rank may be sent for operations at which it has not arrived. It keeps them until it arrives.
  static constexpr size_t kCreditBytes = 4 << 20;

  Eager(World* world, Operations* operations, Poller* poller);
  Status Open();  // the poller watches the streams

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
  // Notes that the rank's stream can be read.
  void OnReadable(int rank) { readable_[static_cast<size_t>(rank)] = true; }

  // The operation will not be completed here; its memory is not touched any more.
  void Recall(Ticket ticket);
  // True when the operation can still be completed, although these ranks arrive at nothing any more.
  bool MayComplete(const Operation& operation, const std::vector<int>& left) const;
  void Drop();  // everything: the epoch is over
  bool idle() const { return running_.empty(); }
  int count() const { return static_cast<int>(running_.size()); }
  // True when each pass reads the streams without asking the poller.
  bool asks() const;

  // Tells all that this rank leaves in good order. REQUIRES: nothing is under way.
  void SayFarewell();
  void EndSending();
  void Close();

 private:
  // Another rank of the set, or this one.
  struct Peer {
    static constexpr uint64_t kNotQueued = ~uint64_t{0};
    int rank = 0;
    uint64_t sent_at = kNotQueued;  // where this rank's data for it end in the stream
    bool on_credit = false;
  };
  // One operation under way, and how far it is folded.
  struct Running {
    OperationPtr operation;
    int rank = 0;  // this one
    std::vector<CellTensor> tensors;
    Reduction reduction;
    std::vector<std::byte> own;  // this rank's data, where they cannot be sent and folded from the tensors
    std::vector<Peer> peers;     // by position
    size_t folded_tensors = 0, offset_bytes = 0, element = 0;  // folded up to here
    std::vector<const void*> inputs;                           // of one fold

    const Admission& admission() const { return operation->admission; }
    uint64_t use() const { return UsesIn(admission().stamp()); }
    size_t payload_bytes() const { return admission().inbox->payload_bytes(); }
    bool folded() const { return folded_tensors == tensors.size(); }
    void MakeOwn();
    void FoldUpTo(size_t available_bytes);
    void FoldElements(size_t count);
  };
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
  void PutTo(Running* running, int position);
  void SendHead(const Running& running, int rank, size_t payload_bytes);
  void SendData(Running* running, Peer* peer);
  bool MoveBytes(std::vector<Sign>* signs);
  void Flush(int rank, bool* moved, std::vector<Sign>* signs);
  void Receive(int rank, bool* moved, std::vector<Sign>* signs);
  bool Progress(Running* running);  // true when it is done
  size_t Advanced(Running* running);
  OperationPtr End(Running* running);
  void ReportClosed(std::vector<Sign>* signs);
  PutStream& stream(int rank) { return world_->puts[static_cast<size_t>(rank)]; }

  // PutStream::Receiver
  PutStream::Slice Expected() override;
  Status OnHead(const PutHead& head, std::byte** to, size_t* size_bytes) override;
  void OnData(size_t size_bytes) override;

  std::unique_ptr<std::byte[]> TakeMemoryFor(int rank, size_t size_bytes);

  World* const world_;
  Operations* const operations_;
  Poller* const poller_;
  std::vector<int> others_;              // with a stream
  std::vector<OperationPtr> submitted_;  // empty between passes; kept for its memory
  std::vector<std::unique_ptr<Running>> running_;
  std::vector<size_t> credit_used_;  // by rank
  std::vector<Landing> landings_;    // by rank
  std::vector<Spare> spares_;        // by rank
  std::vector<bool> watched_for_writing_, reported_closed_, readable_;
  int receiving_from_ = 0;
  bool is_farewell_ = false;  // the head just received was a farewell
  Status refused_;
  KeptMemory memory_;
};

}  // namespace farandole
