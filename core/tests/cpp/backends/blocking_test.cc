// Back ends that block, over a library of collectives made here: its ranks are threads that meet at a barrier and read
// each other's memory. It knows one contiguous input and output only, and no scale, like the libraries in the world.
#include "backends/blocking.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <future>
#include <map>
#include <mutex>

#include "backends/packing.h"
#include "backends/rig.h"

namespace farandole::tests {
namespace {

// Where the members of one set meet.
class Room {
 public:
  struct Place {
    const std::byte* input = nullptr;
    std::vector<size_t> send_bytes;
  };

  explicit Room(int members) : members_(members), places_(static_cast<size_t>(members)) {}

  Place& place(int position) { return places_[static_cast<size_t>(position)]; }
  // False when somebody has broken the room before all had come.
  bool Await() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int round = round_;
    if (++waiting_ == members_) {
      waiting_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round != round_ || broken_; });
    return round != round_;
  }
  void Break() {
    std::lock_guard<std::mutex> lock(mutex_);
    broken_ = true;
    changed_.notify_all();
  }

 private:
  const int members_;
  std::vector<Place> places_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0, round_ = 0;
  bool broken_ = false;
};

class House {
 public:
  std::shared_ptr<Room> At(const ProcessSet& set) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& room = rooms_[set.ranks];
    if (!room) room = std::make_shared<Room>(set.size());
    return room;
  }

 private:
  std::mutex mutex_;
  std::map<std::vector<int>, std::shared_ptr<Room>> rooms_;
};

std::string GreetingOf(int rank) { return "I am number " + std::to_string(rank); }

class Threads final : public BlockingLibrary {
 public:
  Threads(House* house, int rank) : house_(house), rank_(rank) {}

  Status Greet(const ProcessSet&, std::string* address) override {
    *address = GreetingOf(rank_);
    return Status::Ok();
  }
  Status Meet(const ProcessSet& set, const std::vector<std::string>& addresses) override {
    for (size_t p = 0; p < set.ranks.size(); ++p) {
      if (addresses.at(p) != GreetingOf(set.ranks[p])) return Internal("greeted by '" + addresses[p] + "'");
    }
    rooms_[set.id] = house_->At(set);
    return Status::Ok();
  }
  Status Perform(const Task& task) override {
    FRD_RETURN_IF_ERROR(packing_.Pack(task));
    const std::shared_ptr<Room> room = rooms_.at(task.set->id);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      busy_ = room;
    }
    Room::Place& mine = room->place(task.set->position);
    mine.input = static_cast<const std::byte*>(packing_.input());
    mine.send_bytes = task.send_bytes;
    if (!room->Await()) return Internal("interrupted");
    std::string result(packing_.output_bytes(), '\0');
    Compute(task, *room, result.data());
    if (!room->Await()) return Internal("interrupted");
    if (!result.empty()) std::memcpy(packing_.output(), result.data(), result.size());
    packing_.Unpack();
    return Status::Ok();
  }
  void Interrupt() override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (busy_) busy_->Break();
  }
  void Forget(int set_id) override { rooms_.erase(set_id); }

 private:
  static void Compute(const Task& task, Room& room, char* to) {
    const int positions = task.set->size(), me = task.set->position;
    if (task.kind == OpKind::kAllreduce || task.kind == OpKind::kReducescatter) return Reduce(task, room, to);
    for (int p = 0; p < positions; ++p) {
      const auto at = static_cast<size_t>(p);
      const std::byte* from = room.place(p).input;
      size_t size_bytes = 0;
      if (task.kind == OpKind::kBroadcast) size_bytes = p == task.root ? task.TotalBytes() : 0;
      if (task.kind == OpKind::kAllgather) size_bytes = task.rank_bytes[at];
      if (task.kind == OpKind::kAlltoall) {
        size_bytes = task.recv_bytes[at];
        for (int q = 0; q < me; ++q) from += room.place(p).send_bytes[static_cast<size_t>(q)];
      }
      if (size_bytes > 0) std::memcpy(to, from, size_bytes);
      to += size_bytes;
    }
  }
  // In the order of the rule, so that the expectations hold to the bit for a set in one group.
  static void Reduce(const Task& task, Room& room, char* to) {
    const auto me = static_cast<size_t>(task.set->position);
    const bool scatters = task.kind == OpKind::kReducescatter;
    const size_t skipped =
        scatters ? std::accumulate(task.rank_bytes.begin(), task.rank_bytes.begin() + me, size_t{0}) : 0;
    const size_t size_bytes = scatters ? task.rank_bytes[me] : task.TotalBytes();
    std::vector<const void*> inputs;
    for (int p = 0; p < task.set->size(); ++p) inputs.push_back(room.place(p).input + skipped);
    if (size_bytes > 0)
      Fold(task.dtype, task.reduce, inputs.data(), inputs.size(), size_bytes / SizeOf(task.dtype), Scale(), to);
  }

  House* const house_;
  const int rank_;
  Packing packing_;
  std::map<int, std::shared_ptr<Room>> rooms_;
  std::mutex mutex_;
  std::shared_ptr<Room> busy_;
};

const BackendKind kThreads{"threads", nullptr, false, false, nullptr, nullptr};

// One rank's back end over the house.
struct HouseRig : Rig {
  HouseRig(House* house, const Rank& rank)
      : Rig(rank, [&](World* world, Backend* host_backend) {
          return MakeBlocking(kThreads, world, host_backend, std::make_shared<Threads>(house, rank.rank()),
                              std::chrono::seconds(5));
        }) {}
};

TEST(Blocking, AnySequenceOfCollectivesGivesWhatTheDefinitionsSay) {
  House house;
  EXPECT_EQ(RunBackends({3}, [&](Rank& rank) { return HouseRig(&house, rank).PerformSequence(7, 300, false); }), "");
}

TEST(Blocking, AnAverageOfHalvesThatWouldOverflowDoesNot) {
  House house;
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const HouseRig rig(&house, rank);
                          const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
                          const std::vector<uint16_t> large(5, FloatToFloat16(60000.0f));
                          std::vector<uint16_t> output(5);
                          Task task;
                          task.set = &set;
                          task.dtype = DType::kFloat16;
                          task.scale.divisor = 2;
                          task.buffers = {{large.data(), output.data(), large.size() * 2}};
                          const std::string error = rig.Perform(task);
                          return error.empty() && output != large ? "overflow" : error;
                        }),
            "");
}

TEST(Blocking, WorkThatIsAbortedEndsAndTheMemoryIsLeftAlone) {
  House house;
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
                          const HouseRig rig(&house, rank);
                          std::vector<float> data(100, 2.0f), result(100, 5.0f);
                          Task task;
                          task.set = &set;
                          task.buffers = {{data.data(), result.data(), data.size() * sizeof(float)}};
                          if (const std::string error = rig.Perform(task); !error.empty()) return error;
                          if (rank.rank() != 0) return "";  // does not come a second time
                          result.assign(100, 5.0f);
                          bool moved = false, done = false;
                          Status status = rig.backend->Start(&task);
                          for (int i = 0; i < 100 && status.ok(); ++i) status = rig.backend->Poll(&moved, &done);
                          if (!status.ok() || done) return "done without the other: " + status.message();
                          rig.backend->Abort();
                          return result == std::vector<float>(100, 5.0f) ? "" : "the result was written";
                        }),
            "");
}

// Performs when it is released, and not before: no interruption helps.
class Deaf final : public BlockingLibrary {
 public:
  explicit Deaf(std::shared_future<void> released) : released_(std::move(released)) {}
  ~Deaf() override { ended_.set_value(); }
  Status Meet(const ProcessSet&, const std::vector<std::string>&) override { return Status::Ok(); }
  Status Perform(const Task&) override {
    released_.wait();
    return Status::Ok();
  }
  std::future<void> ended() { return ended_.get_future(); }

 private:
  const std::shared_future<void> released_;
  std::promise<void> ended_;
};

TEST(Blocking, ALibraryThatDoesNotComeBackIsLeftAloneWithWhatItUses) {
  std::promise<void> release;
  std::future<void> ended;
  EXPECT_EQ(RunBackends({1},
                        [&](Rank& rank) -> std::string {
                          auto library = std::make_shared<Deaf>(release.get_future().share());
                          ended = library->ended();
                          const Rig rig(rank, [&](World* world, Backend* host_backend) {
                            return MakeBlocking(kThreads, world, host_backend, std::move(library),
                                                std::chrono::milliseconds(20));
                          });
                          const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
                          float value = 1;
                          Task task;
                          task.set = &set;
                          task.buffers = {{&value, &value, sizeof(value)}};
                          if (!rig.backend->Start(&task).ok()) return "it does not start";
                          rig.backend->Abort();
                          const std::string again = rig.backend->Start(&task).message();
                          return again.find("has not come back") != std::string::npos ? "" : "again: " + again;
                        }),
            "");
  EXPECT_NE(ended.wait_for(std::chrono::seconds(0)), std::future_status::ready) << "its thread may still use it";
  release.set_value();
  ended.wait();
}

TEST(Blocking, AnAbortedIntroductionEnds) {
  House house;
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          if (rank.rank() != 0) return "";
                          const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
                          const HouseRig rig(&house, rank);
                          float value = 1;
                          Task task;
                          task.set = &set;
                          task.buffers = {{&value, &value, sizeof(value)}};
                          bool moved = false, done = false;
                          Status status = rig.backend->Start(&task);
                          for (int i = 0; i < 100 && status.ok(); ++i) status = rig.backend->Poll(&moved, &done);
                          if (rig.backend->WaitingOn() != std::vector<int>{1}) return "does not say for whom it waits";
                          rig.backend->Abort();
                          return done ? "done without the other" : "";
                        }),
            "");
}

}  // namespace
}  // namespace farandole::tests
