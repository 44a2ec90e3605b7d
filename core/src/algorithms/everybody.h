// What schedules have in common in which everybody talks to everybody. Pure functions; any thread.
#pragma once

#include <vector>

#include "algorithms/schedule.h"

namespace farandole {

// At distance d everybody sends to me + d and receives from me - d, so that all send to different receivers.
inline int Ahead(int me, int distance, int participants) { return (me + distance) % participants; }
inline int Behind(int me, int distance, int participants) { return (me + participants - distance) % participants; }

// The scratch slot of what comes from a participant: the others in order.
inline int SlotOf(int from, int me) { return from < me ? from : from - 1; }

// R over all participants, as operands of a fold at `me`.
inline std::vector<int> InOrder(int participants, int me) {
  std::vector<int> operands;
  for (int i = 0; i < participants; ++i) operands.push_back(i == me ? kOwnData : SlotOf(i, me));
  return operands;
}

}  // namespace farandole
