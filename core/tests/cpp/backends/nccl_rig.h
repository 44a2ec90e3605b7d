// The NCCL backend alone on one rank, ranks as threads, over a fake NCCL and a fake CUDA driver (support/fake_nccl.h).
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "backends/on_device.h"
#include "backends/performed.h"
#include "backends/table.h"
#include "support/fake_gpus.h"

namespace farandole::tests {

inline Settings FakeSettings() {
  Settings settings;
  settings.cuda_driver = FakeCudaPath();
  settings.libraries["nccl"] = FakeNcclPath();
  return settings;
}

using Condition = std::function<bool()>;
inline bool Never() { return false; }
inline constexpr const char* kGivenUp = "given up";

// One rank's backend; native is the host backend.
struct NcclRig {
  explicit NcclRig(const Rank& rank, const Settings& settings = FakeSettings())
      : world(const_cast<World*>(&rank.world())),
        backends(world, settings, BackendList()),
        backend(kNccl.make(world, settings, backends.At(0))) {
    EXPECT_EQ(backend->Open().message(), "");
  }
  std::string Perform(const Task& task, const Condition& gives_up = Never) const {
    const TimePoint end = Now() + std::chrono::seconds(30);
    Status status = backend->Start(&task);
    for (bool done = false; status.ok() && !done; std::this_thread::yield()) {
      bool moved = false;
      status = backend->Poll(&moved, &done);
      if (gives_up()) return kGivenUp;
      if (Now() > end) return "not done in time";
    }
    return status.message();
  }
  // Performs a task that the device does not finish, until this device and every other rank's are working on it.
  std::string PerformUntilAllHang(const Task& task, std::atomic<int>* ranks_at_it) const {
    const auto hangs = [this] { return backend->StallReason().find("does not come to an end") != std::string::npos; };
    std::string error = Perform(task, hangs);
    ++*ranks_at_it;
    while (*ranks_at_it < world->size) std::this_thread::yield();
    return error;
  }
  World* const world;
  BackendTable backends;
  std::unique_ptr<Backend> backend;
};

// An allreduce of `values` in place.
inline Task WorkOn(const ProcessSet& set, std::vector<float>* values) {
  Task task;
  task.set = &set;
  task.buffers = {{values->data(), values->data(), values->size() * sizeof(float)}};
  return task;
}

// An allreduce of five ones on a device.
struct Ones {
  Ones(Memories& memories, const Rank& rank, int ordinal)
      : Ones(memories, ordinal, WholeWorld(rank.world().layout, rank.rank())) {}
  Ones(Memories& memories, int ordinal, ProcessSet of)
      : set(std::move(of)), task(WorkOn(set, &values)), device(memories, ordinal, task) {}
  const ProcessSet set;
  std::vector<float> values = std::vector<float>(5, 1.0f);
  const Task task;
  const OnDevice device;
};

class NcclTest : public OnFakeGpus<::testing::Test> {
 protected:
  // Performs an allreduce of `values` on device rank % 2. Returns the outcome.
  std::string Reduce(const NcclRig& rig, std::vector<float>* values, const Scale& scale = Scale(),
                     const Condition& gives_up = Never) {
    const ProcessSet set = WholeWorld(rig.world->layout, rig.world->rank);
    Task task = WorkOn(set, values);
    task.scale = scale;
    const OnDevice device(memories_, rig.world->rank % 2, task);
    const std::string error = rig.Perform(device.task(), gives_up);
    if (error.empty()) device.CopyBack();  // else the device may still use it
    return error;
  }

  // Waits until both ranks have called NCCL, which does not launch anything; then returns kGivenUp.
  std::string PerformUntilBothLaunch(const NcclRig& rig, const Ones& ones) {
    return rig.Perform(ones.device.task(), [this] { return nccl_.calls("ncclGroupEnd") == 2; });
  }

  // Performs a random operation on device rank % 2. Returns what is wrong with the result.
  std::string Check(const NcclRig& rig, const Case& c, const ProcessSet& set) {
    const Performed performed(c, set);
    const OnDevice device(memories_, rig.world->rank % 2, performed.task());
    std::string wrong = rig.Perform(device.task());
    if (wrong.empty()) {
      device.CopyBack();
      wrong = performed.Check();
    }
    return wrong.empty() ? "" : performed.Description() + ": " + wrong;
  }

  Memories memories_{cuda_};
};

inline OperationFacts DemandOf(const Case& c, int size) {
  return {c.kind, c.dtype, c.reduce, size, true, c.scale, true};
}

// NCCL scales before it sums, and other factors than powers of two are rounded then.
inline bool IsRoundedOtherwise(const Case& c) {
  const bool reduces = c.kind == OpKind::kAllreduce || c.kind == OpKind::kReducescatter;
  return reduces && IsFloating(c.dtype) && !c.scale.IsIdentity() && c.scale.divisor != 1;
}

}  // namespace farandole::tests
