// Collectives among ranks that are all apart: over links, straight from and to the tensors where these are one piece of
// memory; otherwise (fused tensors, ranks without memory) in a room of our own.
//
// The driver alone uses it.
#pragma once

#include <cstddef>
#include <memory>

#include "backends/backend.h"
#include "backends/cross.h"

namespace farandole {

// Memory that is kept from one operation to the next.
class Room {
 public:
  // Null when there is no memory. What was in it is lost.
  std::byte* Get(size_t size_bytes);
  // Large rooms are given back.
  void Release();

 private:
  std::unique_ptr<std::byte[]> memory_;
  size_t size_bytes_ = 0;
};

class ApartOperation {
 public:
  // REQUIRES: every group of the set is one rank, there are two or more; all outlive this.
  ApartOperation(const Work* work, CrossExchange* cross, Room* room)
      : work_(work), cross_(cross), room_(room), me_(static_cast<size_t>(work->set->position)) {}

  // Hands the work to the exchange.
  Status Start();
  // The exchange is done.
  void Finish();

 private:
  Status StartAllreduce();
  Status StartBroadcast();
  Status StartAllgather();
  Status StartReducescatter();
  bool ScalesFirst() const;
  // From here on the source is in `place`, and nothing is left to scale.
  void ScaleInto(std::byte* place, size_t size_bytes, const std::byte** source, Scale* scale) const;
  // The output where it is one piece of memory, else a room.
  Status FindPlace(size_t size_bytes);

  const Work* work_;
  CrossExchange* cross_;
  Room* room_;
  size_t me_;
  std::byte* place_ = nullptr;  // where the result of an allreduce or broadcast comes into being
};

}  // namespace farandole
