#include "algorithms/pairwise.h"

#include "algorithms/everybody.h"

namespace farandole {

Schedule PairwiseAlltoall(int participants, int me) {
  Schedule schedule;
  schedule.block_count = 2 * participants;
  for (int d = 1; d < participants; ++d) {
    const int to = Ahead(me, d, participants), from = Behind(me, d, participants);
    schedule.Send(0, to, to, {});
    schedule.RecvData(0, participants + from, from, {});
  }
  return schedule;
}

Schedule PairwiseReduceScatter(int participants, int me) {
  Schedule schedule;
  schedule.block_count = participants;
  std::vector<int> received;
  for (int d = 1; d < participants; ++d) {
    const int to = Ahead(me, d, participants), from = Behind(me, d, participants);
    schedule.Send(0, to, to, {});
    received.push_back(schedule.RecvScratch(0, me, from, SlotOf(from, me), {}));
  }
  schedule.Fold(0, me, InOrder(participants, me), true, received);
  return schedule;
}

}  // namespace farandole
