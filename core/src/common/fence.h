// A fence that the memory model asks for and x86 does not.
#pragma once

#include <atomic>

namespace farandole {

// Between two loads, against a thread that stores, fences (sequentially consistent) and loads: if our second load does
// not see its store, its load sees what our first load saw. x86 never reorders loads, so that only the compiler has to
// be held back there; a full fence would cost as much as the exchange it guards.
inline void LoadLoadFence() {
#if defined(__x86_64__)
  std::atomic_signal_fence(std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace farandole
