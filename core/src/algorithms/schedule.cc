#include "algorithms/schedule.h"

#include <algorithm>
#include <utility>

namespace farandole {

int Schedule::Append(Step step) {
  slot_count = std::max(slot_count, step.slot + 1);
  steps.push_back(std::move(step));
  return static_cast<int>(steps.size()) - 1;
}

int Schedule::Send(int phase, int block, int peer, std::vector<int> after) {
  return Append({StepKind::kSend, phase, block, peer, kNone, false, {}, std::move(after)});
}

int Schedule::RecvData(int phase, int block, int peer, std::vector<int> after) {
  return Append({StepKind::kRecvData, phase, block, peer, kNone, false, {}, std::move(after)});
}

int Schedule::RecvScratch(int phase, int block, int peer, int slot, std::vector<int> after) {
  return Append({StepKind::kRecvScratch, phase, block, peer, slot, false, {}, std::move(after)});
}

int Schedule::Reduce(int phase, int block, std::vector<int> operands, bool scale, std::vector<int> after) {
  return Append({StepKind::kReduce, phase, block, kNone, kNone, scale, std::move(operands), std::move(after)});
}

// Blocks get whole granules of one cache line. The last granule may be shorter, where the elements end.
Range BlockRange(int64_t element_count, size_t element_bytes, int block, int block_count) {
  const int64_t granule = kBorderBytes / static_cast<int64_t>(element_bytes);
  const int64_t granules = (element_count + granule - 1) / granule;
  const auto border = [&](int64_t i) { return std::min(element_count, granules * i / block_count * granule); };
  return {border(block), border(block + 1)};
}

namespace {

// ---- schedules in which each participant sends to each other one

int Ahead(int me, int distance, int participants) { return (me + distance) % participants; }
int Behind(int me, int distance, int participants) { return (me + participants - distance) % participants; }

// The scratch slot for data of participant `from`. The other participants have slots in the order of their numbers.
int SlotOf(int from, int me) { return from < me ? from : from - 1; }

// All participants in the fixed tree order, as operands of a reduction at `me`.
std::vector<int> InOrder(int participants, int me) {
  std::vector<int> operands;
  for (int i = 0; i < participants; ++i) operands.push_back(i == me ? kOwnData : SlotOf(i, me));
  return operands;
}

// ---- ring

struct Ring {
  int participants;
  int me;
  int next() const { return (me + 1) % participants; }
  int previous() const { return (me + participants - 1) % participants; }
  int Block(int index) const { return ((index % participants) + participants) % participants; }
};

// ---- tree

// Number of levels of the tree: the least L with 2^L >= participants.
int LevelCount(int participants) {
  int levels = 0;
  while ((1 << levels) < participants) ++levels;
  return levels;
}

// The level at which `me` sends to its parent me - 2^level. Participant 0 has no parent; its level is the number of
// levels. The children of `me` are me + 2^j for j below that level, as far as they exist.
int OwnLevel(int me, int levels) {
  int level = 0;
  while (level < levels && (me >> level & 1) == 0) ++level;
  return level;
}

// The broadcast down the tree. Participant 0 of the tree is `root` in the schedule, and sends first in `first_phase`.
struct Descent {
  int participants;
  int root;
  int first_phase;

  // `me` is a number in the tree. `ready`: the steps that complete the block at the root. `sent`: the steps that must
  // be complete before a participant other than the root receives over its block.
  void AppendTo(Schedule* schedule, int me, std::vector<int> ready, std::vector<int> sent) const {
    const int levels = LevelCount(participants);
    const int own_level = OwnLevel(me, levels);
    if (me != 0) ready = {schedule->RecvData(PhaseOf(own_level), 0, Absolute(me - (1 << own_level)), std::move(sent))};
    for (int j = own_level - 1; j >= 0; --j) {
      const int child = me + (1 << j);
      if (child < participants) schedule->Send(PhaseOf(j), 0, Absolute(child), ready);
    }
  }
  int PhaseOf(int level) const { return first_phase + LevelCount(participants) - 1 - level; }
  int Absolute(int me) const { return (me + root) % participants; }
};

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
  const int reduced = schedule.Reduce(0, me, InOrder(participants, me), true, received);
  for (int d = 1; d < participants; ++d) {
    const int to = Ahead(me, d, participants), from = Behind(me, d, participants);
    schedule.Send(1, me, to, {reduced});
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
  schedule.Reduce(0, 0, InOrder(participants, me), true, all);  // overwrites what was sent
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
  schedule.Reduce(0, me, InOrder(participants, me), true, received);
  return schedule;
}

Schedule RingAllreduce(int participants, int me) {
  const Ring ring{participants, me};
  const int hops = participants - 1;
  Schedule schedule;
  schedule.block_count = participants;
  schedule.phase_count = std::max(1, 2 * hops);
  if (hops == 0) schedule.Reduce(0, 0, {kOwnData}, true, {});
  std::vector<int> sent(participants);
  std::vector<int> ready;  // the step that completes the block to be sent next
  for (int t = 0; t < hops; ++t) {
    const int out = ring.Block(me - t), in = ring.Block(me - t - 1);
    sent[out] = schedule.Send(t, out, ring.next(), ready);
    const int received = schedule.RecvScratch(t, in, ring.previous(), t, {});
    ready = {schedule.Reduce(t, in, {t, kOwnData}, t == hops - 1, {received})};
  }
  for (int t = 0; t < hops; ++t) {
    const int out = ring.Block(me + 1 - t), in = ring.Block(me - t);
    schedule.Send(hops + t, out, ring.next(), ready);
    // Overwrites a partial sum that was sent before.
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

Schedule TreeAllreduce(int participants, int me) {
  const int levels = LevelCount(participants);
  const int own_level = OwnLevel(me, levels);
  Schedule schedule;
  schedule.phase_count = std::max(1, 2 * levels);
  if (participants == 1) schedule.Reduce(0, 0, {kOwnData}, true, {});
  std::vector<int> ready, sent;
  for (int j = 0; j < own_level; ++j) {
    const int child = me + (1 << j);
    if (child >= participants) break;
    std::vector<int> after = ready;
    after.push_back(schedule.RecvScratch(j, 0, child, j, {}));
    ready = {schedule.Reduce(j, 0, {kOwnData, j}, me == 0 && j == levels - 1, after)};
  }
  if (me != 0) sent = {schedule.Send(own_level, 0, me - (1 << own_level), ready)};
  Descent{participants, 0, levels}.AppendTo(&schedule, me, ready, sent);
  return schedule;
}

Schedule TreeBroadcast(int participants, int me, int root) {
  Schedule schedule;
  schedule.phase_count = std::max(1, LevelCount(participants));
  Descent{participants, root, 0}.AppendTo(&schedule, (me - root + participants) % participants, {}, {});
  return schedule;
}

}  // namespace farandole
