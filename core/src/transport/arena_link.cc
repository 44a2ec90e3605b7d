#include "transport/arena_link.h"

#include <utility>

namespace farandole {
namespace {

constexpr size_t kAlignment = 128;

size_t RoundDown(size_t bytes) { return bytes / kAlignment * kAlignment; }
size_t RoundUp(size_t bytes) { return RoundDown(bytes + kAlignment - 1); }

size_t RingBytes(size_t memory_bytes) { return RoundDown(memory_bytes / 2); }

ByteRing RingAt(void* memory, size_t memory_bytes, int index) {
  const size_t ring_bytes = RingBytes(memory_bytes);
  return ByteRing(static_cast<char*>(memory) + index * ring_bytes, ring_bytes);
}

}  // namespace

size_t ArenaLink::RequiredBytes(size_t capacity_bytes) { return 2 * RoundUp(ByteRing::RequiredBytes(capacity_bytes)); }

ArenaLink::ArenaLink(std::shared_ptr<void> memory, size_t memory_bytes, LinkSide side, std::string peer)
    : memory_(std::move(memory)),
      peer_(std::move(peer)),
      outgoing_(RingAt(memory_.get(), memory_bytes, side == LinkSide::kFirst ? 0 : 1)),
      incoming_(RingAt(memory_.get(), memory_bytes, side == LinkSide::kFirst ? 1 : 0)) {}

ArenaLink::~ArenaLink() {
  outgoing_.CloseAsWriter();
  incoming_.CloseAsReader();
}

Status ArenaLink::TrySend(const void* data, size_t size_bytes, size_t* moved_bytes) {
  *moved_bytes = outgoing_.Write(data, size_bytes);
  return *moved_bytes == 0 && outgoing_.reader_closed() ? PeerClosed() : Status::Ok();
}

Status ArenaLink::TryRecv(void* data, size_t size_bytes, size_t* moved_bytes) {
  *moved_bytes = incoming_.Read(data, size_bytes);
  if (*moved_bytes > 0 || !incoming_.writer_closed()) return Status::Ok();
  // The last bytes may have come between the empty read and the look at the flag; after the flag nothing comes.
  *moved_bytes = incoming_.Read(data, size_bytes);
  return *moved_bytes == 0 ? PeerClosed() : Status::Ok();
}

Status ArenaLink::PeerClosed() const {
  return {Code::kPeerLost, peer_ + " left: it closed the shared-memory link to this rank"};
}

}  // namespace farandole
