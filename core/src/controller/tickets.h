// Numbers for operations in flight, and what each stands for: found, added and removed without searching.
//
// The low half of a ticket is a place in a table, the high half counts how often the place was used, so that an old
// ticket finds nothing. A value; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace farandole {

using Ticket = uint64_t;  // never 0

inline size_t PlaceOf(Ticket ticket) { return static_cast<uint32_t>(ticket); }

template <typename T>
class Tickets {
 public:
  Ticket Add(T* value) {
    if (free_.empty()) {
      free_.push_back(slots_.size());
      slots_.emplace_back();
    }
    const size_t place = free_.back();
    free_.pop_back();
    Slot& slot = slots_[place];
    slot.value = value;
    return static_cast<Ticket>(++slot.uses) << 32 | place;
  }
  // Null when there is no such ticket, or no longer.
  T* Find(Ticket ticket) const {
    const size_t place = PlaceOf(ticket);
    const bool known = place < slots_.size() && slots_[place].uses == static_cast<uint32_t>(ticket >> 32);
    return known ? slots_[place].value : nullptr;
  }
  void Remove(Ticket ticket) {
    if (Find(ticket) == nullptr) return;
    slots_[PlaceOf(ticket)].value = nullptr;
    free_.push_back(PlaceOf(ticket));
  }

 private:
  struct Slot {
    T* value = nullptr;
    uint32_t uses = 0;
  };
  std::vector<Slot> slots_;
  std::vector<size_t> free_;
};

}  // namespace farandole
