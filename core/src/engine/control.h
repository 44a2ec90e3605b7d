// The control plane carries messages between this rank and the coordinator, and reads all other descriptors.
//
//   rank r   negotiation --ToCoordinator--> connection to rank 0      connection to rank 0 --> Events::messages
//   rank 0   the messages of all ranks --> Coordinator --> connections to the others; what is for rank 0 itself:
//            Events::messages
//
// ProgressLoop owns the ControlPlane and calls it with the ProgressLock; any thread may call Sleep. Nothing here calls
// back: ProgressLoop takes the Events, and its actions may lead to new ones.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "controller/coordinator.h"
#include "engine/failures.h"
#include "transport/poll.h"
#include "world/world.h"

namespace farandole {

// The purpose of a descriptor in the poller.
enum class TagKind : uint32_t {
  kDoorbell = 0,  // a member of the node rang
  kControl = 1,   // a message of `rank`
  kDeath = 2,     // the process of `rank` has ended
  kData = 3,      // the transport has something to do; its own number instead of a rank
};

inline uint64_t MakeTag(TagKind kind, int rank) {
  return static_cast<uint64_t>(kind) << 32 | static_cast<uint32_t>(rank);
}
inline TagKind KindOf(uint64_t tag) { return static_cast<TagKind>(tag >> 32); }
inline int RankOf(uint64_t tag) { return static_cast<int>(static_cast<uint32_t>(tag)); }

class ControlPlane {
 public:
  explicit ControlPlane(World* world);
  Status Open();  // watches the doorbell, the connections and the processes of this machine

  // Sleeps until a descriptor is ready or the time is up.
  void Sleep(int timeout_ms) const;
  // Looks at the descriptors once, after a sleep until one is ready or the time is up. Returns whether there is
  // something to do.
  bool Look(int timeout_ms = 0);

  struct Events {
    std::vector<Bytes> messages;  // of the coordinator to this rank's negotiation, in order
    std::vector<EpochEnd> ends;   // the epoch cannot go on
    std::vector<int> closed;      // ranks whose control connections have ended; their last messages are in `messages`
    std::vector<int> gone;        // ranks whose processes have ended

    bool any() const { return !messages.empty() || !ends.empty() || !closed.empty() || !gone.empty(); }
  };
  bool has_events() const { return events_.any(); }
  Events TakeEvents() { return std::exchange(events_, {}); }

  // Sends messages of this rank's negotiation. The connection takes what it can; the rest follows in later looks.
  void ToCoordinator(const std::vector<Bytes>& messages);

  // Ends all control connections, each after what is queued for it, and waits a little for the other ends.
  void Close();

  const Coordinator* coordinator() const { return coordinator_ ? &*coordinator_ : nullptr; }  // rank 0's

 private:
  bool Receive(int rank);
  void Coordinate(int from, const std::vector<Bytes>& messages);
  void Send(int rank, const Bytes& message);
  void Flush(int rank);
  MessageStream& stream(int rank) { return world_->control[static_cast<size_t>(rank)]; }

  World* const world_;
  std::optional<Coordinator> coordinator_;  // on rank 0
  Poller poller_;
  std::vector<uint64_t> tags_;  // of one look; a member, so that it keeps its memory
  Events events_;
};

}  // namespace farandole
