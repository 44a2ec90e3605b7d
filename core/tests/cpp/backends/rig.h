// A backend alone on one rank, ranks as threads, with native as host backend where ranks connect first.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "backends/performed.h"

namespace farandole::tests {

struct Rig {
  using Maker = std::function<std::unique_ptr<Backend>(World* world, Backend* host_backend)>;

  Rig(const Rank& rank, const Maker& make)
      : world(const_cast<World*>(&rank.world())),
        ours(world, Settings(), BackendList()),
        backend(make(world, ours.At(0))) {
    EXPECT_EQ(backend->Open().message(), "");
  }

  // Returns "" or the error.
  std::string Perform(const Task& task) const {
    Status status = backend->Start(&task);
    for (bool done = false; status.ok() && !done; std::this_thread::yield()) {
      bool moved = false;
      status = backend->Poll(&moved, &done);
    }
    return status.message();
  }

  // Random tasks of the world and of a set without rank 0. any_order: leaves out sums and products of floats, as the
  // library reduces in an order of its own. Goes on after wrong values, so that the other ranks do not wait for ever.
  std::string PerformSequence(uint32_t seed, int length, bool any_order) const {
    const ProcessSet everybody = WholeWorld(world->layout, world->rank);
    std::vector<int> others(everybody.ranks.begin() + 1, everybody.ranks.end());
    const ProcessSet tail = MakeProcessSet(world->layout, world->rank, 1, std::move(others), 1);
    CaseMaker maker(seed, 3000);
    std::string error;
    for (int i = 0; i < length; ++i) {
      const ProcessSet& set = maker.Below(3) == 0 ? tail : everybody;
      const Case c = maker.Make(set.size());
      if (!set.contains_me() || IsRoundedOtherwise(c) || (any_order && OrderMatters(c))) continue;
      const Performed performed(c, set);
      std::string wrong = Perform(performed.task());
      if (wrong.empty()) wrong = performed.Check();
      if (!wrong.empty() && error.empty()) error = performed.Description() + ": " + wrong;
    }
    return error;
  }

  World* const world;
  BackendTable ours;
  const std::unique_ptr<Backend> backend;

 private:
  // Sums of 16-bit floats are scaled before they are sent, and products after; in one node the native backend rounds
  // both once less.
  static bool IsRoundedOtherwise(const Case& c) {
    const bool rounds = c.reduce == ReduceOp::kSum || c.reduce == ReduceOp::kProduct;
    return IsHalf(c.dtype) && rounds && !c.scale.IsIdentity();
  }
};

}  // namespace farandole::tests
