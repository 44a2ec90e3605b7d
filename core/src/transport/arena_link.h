// A Link over two byte rings in memory that is handed in: an arena shared by two processes, or heap shared by two
// threads.
//
//   memory   [ ring: first -> second ][ ring: second -> first ]      zero-filled = two empty rings
//
// The peer cannot see that we sleep: whoever moved bytes rings the peer's doorbell (the engine does).
// Thread rule: that of Link.
#pragma once

#include <memory>
#include <string>

#include "transport/byte_ring.h"
#include "transport/link.h"

namespace farandole {

enum class LinkSide { kFirst, kSecond };

class ArenaLink final : public Link {
 public:
  // `memory` is kept alive as long as the link. `peer` names the other end in errors ("rank 3 on node-b"). REQUIRES:
  // memory 64-byte aligned and zero-filled before the first use by either side; memory_bytes the same number on both
  // sides and at least RequiredBytes(1); the two ends take different sides.
  ArenaLink(std::shared_ptr<void> memory, size_t memory_bytes, LinkSide side, std::string peer);
  ~ArenaLink() override;  // the peer still receives what was sent, then kPeerLost
  ArenaLink(const ArenaLink&) = delete;
  ArenaLink& operator=(const ArenaLink&) = delete;

  // Memory for rings of capacity_bytes each way.
  static size_t RequiredBytes(size_t capacity_bytes);

  // A closed peer is noticed when the ring is full, as on a socket.
  Status TrySend(const void* data, size_t size_bytes, size_t* moved_bytes) override;
  Status TryRecv(void* data, size_t size_bytes, size_t* moved_bytes) override;
  int descriptor() const override { return -1; }

 private:
  Status PeerClosed() const;

  const std::shared_ptr<void> memory_;
  const std::string peer_;
  ByteRing outgoing_;
  ByteRing incoming_;
};

}  // namespace farandole
