#include "algorithms/dissemination.h"

#include <algorithm>

namespace farandole {

Schedule DisseminationAllgather(int participants, int me) {
  Schedule schedule;
  schedule.block_count = participants;
  schedule.phase_count = 0;
  std::vector<std::vector<int>> received(static_cast<size_t>(participants));  // by block: the step that brought it
  for (int distance = 1; distance < participants; distance *= 2) {
    const int phase = schedule.phase_count++;
    const int to = (me + participants - distance) % participants, from = (me + distance) % participants;
    const int count = std::min(distance, participants - distance);
    for (int i = 0; i < count; ++i) {
      const int block = (me + i) % participants;
      schedule.Send(phase, block, to, received[static_cast<size_t>(block)]);
    }
    for (int i = 0; i < count; ++i) {
      const int block = (from + i) % participants;
      received[static_cast<size_t>(block)] = {schedule.RecvData(phase, block, from, {})};
    }
  }
  schedule.phase_count = std::max(1, schedule.phase_count);
  return schedule;
}

}  // namespace farandole
