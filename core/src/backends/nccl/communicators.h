// The communicators of the process sets: who is in one, how its ranks meet, and its end.
//
//   Introduce -> Poll: introduction (NCCL's id, the device), carried by ours -> a communicator that opens
//
// Made in the order of the log. One has all ranks of a set, or, where NCCL has no network between hosts, those of this
// host. The driver alone calls.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/blocking.h"
#include "backends/nccl/communicator.h"
#include "world/world.h"

namespace farandole {

class Communicators {
 public:
  Communicators(const World* world, const NcclLibrary& nccl, Backend* host_backend, bool has_network)
      : world_(world), nccl_(nccl), has_network_(has_network), allgather_(host_backend) {}

  Communicator* Find(int set_id) const;  // null where there is none yet
  // Whether the set has one for each host.
  bool AreOfHosts(const ProcessSet& set) const { return !has_network_ && set.layout.group_count() > 1; }

  // `set` stays valid until the communicator is there or Abort.
  Status Introduce(const ProcessSet& set, Device* device);
  // *made becomes the communicator once its ranks have been introduced; it is not ready yet.
  Status Poll(bool* moved, Communicator** made);
  std::vector<int> WaitingOn() const { return allgather_.WaitingOn(); }

  // What to look at when the ranks of this set's communicator are not connected.
  std::string Advice(const ProcessSet& set) const;
  // An error of connecting the ranks of this set's communicator, with what may be behind it.
  Status Explained(const Status& status, const ProcessSet& set) const;

  void Forget(int set_id);
  // Of those that end in order: whether one has.
  bool PollLeaving();
  // All end, in order where the others go on, for which this waits a while. What it gives is as of Abort.
  bool Close(bool in_order);
  // All end at once; first `working`, null for none, whose calls are on the device: what the end of another frees waits
  // for them, and they wait for other ranks. False where a call of NCCL has not come back within 5 s: it is left alone,
  // after a warning, and may still use what it was given.
  bool Abort(Communicator* working);

 private:
  // What the members of a set tell each other first. The id is for a communicator of which this rank is the first.
  struct Introduction {
    NcclUniqueId id;
    DeviceIdentity device{};
  };

  // The positions of those who are in a communicator with this rank.
  std::vector<int> PositionsOf(const ProcessSet& set) const;
  Status Meet();
  void Finish(std::shared_ptr<Communicator> communicator);
  void AbortThose(std::vector<std::shared_ptr<Communicator>> those);
  bool AbortAll(Communicator* working);

  const World* const world_;
  const NcclLibrary& nccl_;
  const bool has_network_;
  OutOfBandAllgather allgather_;
  bool is_introducing_ = false;
  std::map<int, std::shared_ptr<Communicator>> communicators_;  // by set
  std::vector<std::shared_ptr<Communicator>> leaving_;
  bool has_left_some_alone_ = false;

  // Of the communicator that is made now.
  const ProcessSet* set_ = nullptr;
  Device* device_ = nullptr;
  // Of the one made last.
  int made_for_ = -1;                    // the set
  std::vector<int> ranks_;               // of the world
  std::vector<DeviceIdentity> devices_;  // theirs
};

}  // namespace farandole
