// How a vector is spread over members and groups, as one member sees it. Pure.
//
//   chunk    [ lane 0 | lane 1 | lane 2 ]       K lanes, cut by BlockRange
//   group 0    m0       m1       m2             every lane is combined in each group by its carrier, and exchanged
//   group 1    m0       m0       m1             between the carriers of the groups
#pragma once

#include "algorithms/schedule.h"
#include "world/layout.h"

namespace farandole {

struct Topology {
  const Layout* layout = nullptr;
  int group = 0;
  int member = 0;

  int group_count() const { return layout->group_count(); }
  const std::vector<int>& ranks() const { return layout->groups[static_cast<size_t>(group)]; }
  int member_count() const { return static_cast<int>(ranks().size()); }

  // Below some size the lanes of several groups are too thin to be worth their messages: one lane, carried by the
  // leaders.
  int LaneCount(size_t total_bytes) const {
    constexpr size_t kOneLaneBytes = 32 << 10;
    return group_count() > 1 && total_bytes <= kOneLaneBytes ? 1 : layout->lane_count();
  }

  // Elements that `of_member` of this group carries when element_count elements are cut into lane_count lanes.
  Range Carries(int of_member, int lane_count, int64_t element_count, size_t element_bytes) const {
    const LaneRange lanes = LanesOf(of_member, member_count(), lane_count);
    if (lanes.begin == lanes.end) return {};
    return {BlockRange(element_count, element_bytes, lanes.begin, lane_count).begin,
            BlockRange(element_count, element_bytes, lanes.end - 1, lane_count).end};
  }
};

}  // namespace farandole
