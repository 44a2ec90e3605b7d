// Relay performs an allreduce or a broadcast among hosts between which NCCL has no network: NCCL inside each host,
// links between them (shard_exchange.h). A host is a group of ranks that share memory.
//
//             allreduce                                           broadcast
//   out       ncclReduce to every member of what it owns          ncclBroadcast in the root's host
//             what it owns -> pinned host memory                  the same there
//   across    exchange with its owners in the other hosts
//   back      pinned host memory -> device                        the same in the other hosts
//             ncclBroadcast from every member of what it owns
//
// A member owns (partition.h) a range of the vector of all tensors. Where one tensor is cut evenly, the calls
// inside the host are one ncclReduceScatter and one ncclAllGather.
//
// The NCCL backend owns one Relay, which owns an exchange for each process set. Only the holder of the ProgressLock
// calls. The backend waits for the communicator and the device between the steps.
#pragma once

#include <map>
#include <vector>

#include "backends/nccl/calls.h"
#include "collectives/shard_exchange.h"

namespace farandole {

class Relay {
 public:
  Relay(World* world, const Settings& settings, const NcclLibrary& nccl)
      : world_(world), settings_(settings), nccl_(nccl), calls_(nccl) {}

  // Begins the calls of the way out, after every tensor's ready event. REQUIRES: the communicator of the task's ranks
  // on this host is ready; what was launched before has ended; NcclRelays the operation.
  Status Begin(const Task& task, Communicator* communicator, DeviceStream* stream);
  // Adds the copy to the host after the calls of the way out, and does nothing on the way back. REQUIRES: the
  // communicator is ready.
  Status Follow();
  // Begins the exchange. REQUIRES: the device has performed the way out, and the communicator is ready.
  void Cross();
  // REQUIRES: the communicator is ready.
  Status PollCross(bool* moved, bool* done);
  // Returns the ranks of other hosts for which the exchange waits.
  std::vector<int> WaitingOn() const { return exchange_ != nullptr ? exchange_->WaitingOn() : std::vector<int>(); }
  // Return begins the calls of the way back, where goes_back() says that there is one. REQUIRES: the exchange is done,
  // and the communicator is ready.
  bool goes_back() const { return Reduces() || !IsInRootsHost(); }
  Status Return();
  bool is_back() const { return is_back_; }

  void Abort();
  void Forget(int set_id);

 private:
  // An exchange with its own copy of the set: the exchange lives longer than a task's set.
  struct Hosts {
    Hosts(World* world, const ProcessSet& of) : set(of), exchange(world, &set) {}
    const ProcessSet set;
    ShardExchange exchange;
  };

  bool Reduces() const { return farandole::Reduces(task_->kind); }
  const Partition& partition() const { return exchange_->partition(); }
  int RootsHost() const { return partition().layout->group_of[static_cast<size_t>(task_->root)]; }
  bool IsInRootsHost() const { return partition().group == RootsHost(); }
  bool IsMine(int member) const { return member == partition().member; }
  Range OwnedBy(int member) const;
  size_t carried_bytes() const { return static_cast<size_t>(owned_.size()); }
  bool IsEven() const;
  bool IsAlone() const { return partition().member_count() == 1; }  // in its host
  Status FindPlaces();
  void ListReduce(const NcclReduction& reduction, CallList* calls) const;
  void ListBroadcast(CallList* calls) const;
  void ListReturn(CallList* calls) const;

  World* const world_;
  const Settings settings_;
  const NcclLibrary& nccl_;
  Calls calls_;
  std::map<int, Hosts> hosts_;  // by set

  // The current task.
  const Task* task_ = nullptr;
  ShardExchange* exchange_ = nullptr;
  Communicator* communicator_ = nullptr;
  DeviceStream* stream_ = nullptr;
  std::vector<IoBuffer> tensors_;
  size_t element_bytes_ = 1;
  size_t total_bytes_ = 0;
  int shard_count_ = 1;
  Range owned_;                 // by this member, in bytes of the vector
  std::byte* place_ = nullptr;  // where that is on the device: in the output where it is one piece there, else scratch
  std::byte* on_host_ = nullptr;  // where that is in pinned host memory
  bool is_back_ = false;
};

}  // namespace farandole
