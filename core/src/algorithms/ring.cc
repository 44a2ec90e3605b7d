#include "algorithms/ring.h"

#include <algorithm>

namespace farandole {
namespace {

struct Ring {
  int participants;
  int me;
  int next() const { return (me + 1) % participants; }
  int previous() const { return (me + participants - 1) % participants; }
  int Block(int index) const { return ((index % participants) + participants) % participants; }
};

}  // namespace

Schedule RingAllreduce(int participants, int me) {
  const Ring ring{participants, me};
  const int hops = participants - 1;
  Schedule schedule;
  schedule.block_count = participants;
  schedule.phase_count = std::max(1, 2 * hops);
  if (hops == 0) schedule.Fold(0, 0, {kOwnData}, true, {});
  std::vector<int> sent(participants);
  std::vector<int> ready;  // the step that made the block which is sent next
  for (int t = 0; t < hops; ++t) {
    const int out = ring.Block(me - t), in = ring.Block(me - t - 1);
    sent[out] = schedule.Send(t, out, ring.next(), ready);
    const int received = schedule.RecvScratch(t, in, ring.previous(), t, {});
    ready = {schedule.Fold(t, in, {t, kOwnData}, t == hops - 1, {received})};
  }
  for (int t = 0; t < hops; ++t) {
    const int out = ring.Block(me + 1 - t), in = ring.Block(me - t);
    schedule.Send(hops + t, out, ring.next(), ready);
    // Overwrites a partial sum that was passed on.
    ready = {schedule.RecvData(hops + t, in, ring.previous(), {sent[in]})};
  }
  return schedule;
}

Schedule RingAllgather(int participants, int me) {
  const Ring ring{participants, me};
  Schedule schedule;
  schedule.block_count = participants;
  schedule.phase_count = std::max(1, participants - 1);
  std::vector<int> ready;
  for (int t = 0; t < participants - 1; ++t) {
    schedule.Send(t, ring.Block(me - t), ring.next(), ready);
    ready = {schedule.RecvData(t, ring.Block(me - t - 1), ring.previous(), {})};
  }
  return schedule;
}

}  // namespace farandole
