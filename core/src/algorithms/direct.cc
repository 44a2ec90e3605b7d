#include "algorithms/direct.h"

namespace farandole {
namespace {

// Slot of participant `from` at participant `me`: the others in order.
int SlotOf(int from, int me) { return from < me ? from : from - 1; }

// R over all participants, as operands of a fold at `me`.
std::vector<int> InOrder(int participants, int me) {
  std::vector<int> operands;
  for (int i = 0; i < participants; ++i) operands.push_back(i == me ? kOwnData : SlotOf(i, me));
  return operands;
}

// At distance d everybody sends to me+d and receives from me-d.
int Ahead(int me, int distance, int participants) { return (me + distance) % participants; }
int Behind(int me, int distance, int participants) { return (me + participants - distance) % participants; }

}  // namespace

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

Schedule DirectBroadcast(int participants, int me, int root) {
  Schedule schedule;
  if (me != root) {
    schedule.RecvData(0, 0, root, {});
    return schedule;
  }
  for (int d = 1; d < participants; ++d) schedule.Send(0, 0, Ahead(me, d, participants), {});
  return schedule;
}

}  // namespace farandole
