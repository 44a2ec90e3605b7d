// Exchanges between groups: for each lane that this member carries, a schedule over the links to the lane's carriers in
// the other groups. Resumable; the driver alone uses it.
//
// Lanes are taken one after the other, lowest first, on every rank: where groups differ in size two lanes may share a
// link.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "algorithms/choose.h"
#include "algorithms/run.h"
#include "backends/backend.h"
#include "backends/native/topology.h"
#include "common/config.h"
#include "world/world.h"

namespace farandole {

class CrossExchange {
 public:
  CrossExchange(World* world, const Settings& settings);

  // Not copied: runners point at schedules kept here.
  CrossExchange(const CrossExchange&) = delete;
  CrossExchange& operator=(const CrossExchange&) = delete;

  const Topology& topology() const { return topology_; }

  // Reduces element_count elements, of which this member holds and gets its lanes at data + lane begin.
  void Allreduce(const Work& work, Scale scale, std::byte* data, int64_t element_count, int lane_count);
  // Spreads size_bytes from the group root_group; data as above, in bytes.
  void Broadcast(std::byte* data, int64_t size_bytes, int lane_count, int root_group);
  // Every participant is a group of one: its part lies in place, part g at offsets[g] of data.
  void Allgather(std::byte* data, const std::vector<Range>& parts);

  Status Advance(bool* moved);
  bool done() const { return jobs_.empty(); }
  std::vector<int> Laggards() const;  // ranks whose data the running exchange waits for
  void Abort() { jobs_.clear(); }

 private:
  enum class Kind { kAllreduce, kBroadcast, kAllgather };
  // What a runner is made for: kind, algorithm or root group, lane, lane count.
  using RunnerKey = std::tuple<Kind, int, int, int>;
  struct Prepared {
    Schedule schedule;
    std::unique_ptr<Runner> runner;
  };
  struct Job {
    Runner* runner;
    int lane;
    int lane_count;
    RunPlan plan;
  };

  void Add(Kind kind, int detail, int lane, int lane_count, RunPlan plan);
  Schedule MakeSchedule(Kind kind, int detail) const;
  int CarrierRank(int group, int lane, int lane_count) const;
  std::vector<Link*> LinksOf(int lane, int lane_count) const;
  LaneRange Lanes(int lane_count) const { return LanesOf(topology_.member, topology_.member_count(), lane_count); }

  World* world_;
  Topology topology_;
  Algorithm forced_;
  bool any_order_;
  std::map<RunnerKey, Prepared> prepared_;
  std::deque<Job> jobs_;  // the first is running
};

}  // namespace farandole
