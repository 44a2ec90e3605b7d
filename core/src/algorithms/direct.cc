#include "algorithms/direct.h"

#include "algorithms/everybody.h"

namespace farandole {
Schedule DirectAllreduce(int participants, int me) {
  Schedule schedule;
  schedule.block_count = participants;
  schedule.phase_count = 2;
  std::vector<int> sent(participants), received;
  for (int d = 1; d < participants; ++d) {
    const int to = Ahead(me, d, participants), from = Behind(me, d, participants);
    sent[to] = schedule.Send(0, to, to, {});
    received.push_back(schedule.RecvScratch(0, me, from, SlotOf(from, me), {}));
  }
  const int fold = schedule.Fold(0, me, InOrder(participants, me), true, received);
  for (int d = 1; d < participants; ++d) {
    const int to = Ahead(me, d, participants), from = Behind(me, d, participants);
    schedule.Send(1, me, to, {fold});
    schedule.RecvData(1, from, from, {sent[from]});  // overwrites my contribution
  }
  return schedule;
}

Schedule ExchangeAll(int participants, int me) {
  Schedule schedule;
  std::vector<int> all;
  for (int d = 1; d < participants; ++d) {
    const int to = Ahead(me, d, participants), from = Behind(me, d, participants);
    all.push_back(schedule.Send(0, 0, to, {}));
    all.push_back(schedule.RecvScratch(0, 0, from, SlotOf(from, me), {}));
  }
  schedule.Fold(0, 0, InOrder(participants, me), true, all);  // overwrites what was sent
  return schedule;
}

Schedule DirectAllgather(int participants, int me) {
  Schedule schedule;
  schedule.block_count = participants;
  for (int d = 1; d < participants; ++d) {
    const int to = Ahead(me, d, participants), from = Behind(me, d, participants);
    schedule.Send(0, me, to, {});
    schedule.RecvData(0, from, from, {});
  }
  return schedule;
}

}  // namespace farandole
