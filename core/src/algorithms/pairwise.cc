#include "algorithms/pairwise.h"

namespace farandole {

Schedule PairwiseAlltoall(int participants, int me) {
  Schedule schedule;
  schedule.block_count = 2 * participants;
  for (int d = 1; d < participants; ++d) {
    const int to = (me + d) % participants, from = (me + participants - d) % participants;
    schedule.Send(0, to, to, {});
    schedule.RecvData(0, participants + from, from, {});
  }
  return schedule;
}

Schedule PairwiseReduceScatter(int participants, int me) {
  Schedule schedule;
  schedule.block_count = participants;
  std::vector<int> received, operands;
  for (int d = 1; d < participants; ++d) {
    const int to = (me + d) % participants, from = (me + participants - d) % participants;
    schedule.Send(0, to, to, {});
    received.push_back(schedule.RecvScratch(0, me, from, from < me ? from : from - 1, {}));
  }
  for (int i = 0; i < participants; ++i) operands.push_back(i == me ? kOwnData : i < me ? i : i - 1);
  schedule.Fold(0, me, operands, true, received);
  return schedule;
}

}  // namespace farandole
