#include "algorithms/tree.h"

#include <algorithm>
#include <utility>

namespace farandole {
namespace {

// Number of levels of the tree: the least L with 2^L >= participants.
int LevelCount(int participants) {
  int levels = 0;
  while ((1 << levels) < participants) ++levels;
  return levels;
}

// The level at which `me` sends to its parent me - 2^level; for participant 0, which has none, the number of levels.
// The children of `me` are me + 2^j for j below that level, as far as they exist.
int OwnLevel(int me, int levels) {
  int level = 0;
  while (level < levels && (me >> level & 1) == 0) ++level;
  return level;
}

// The way down the tree: participant 0 of the tree is `root` in the schedule, and its first message goes in
// `first_phase`.
struct Descent {
  int participants;
  int root;
  int first_phase;

  // `me` counts in the tree. `ready` are the steps that complete the block at the root; `sent` are those that must be
  // through before the block is overwritten elsewhere.
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

Schedule TreeAllreduce(int participants, int me) {
  const int levels = LevelCount(participants);
  const int own_level = OwnLevel(me, levels);
  Schedule schedule;
  schedule.phase_count = std::max(1, 2 * levels);
  if (participants == 1) schedule.Fold(0, 0, {kOwnData}, true, {});
  std::vector<int> ready, sent;
  for (int j = 0; j < own_level; ++j) {
    const int child = me + (1 << j);
    if (child >= participants) break;
    std::vector<int> after = ready;
    after.push_back(schedule.RecvScratch(j, 0, child, j, {}));
    ready = {schedule.Fold(j, 0, {kOwnData, j}, me == 0 && j == levels - 1, after)};
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
