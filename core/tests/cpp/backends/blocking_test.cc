// Backends that block, over a library of collectives made here: its ranks are threads that meet at a barrier and read
// each other's memory. It knows one contiguous input and output only, and no scale, like the libraries in the world.
#include "backends/blocking.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <future>
#include <map>
#include <mutex>

#include "backends/rig.h"

namespace farandole::tests {
namespace {

// The members of one set wait for each other here and read each other's inputs.
class MemberExchange {
 public:
  struct Place {
    const std::byte* input = nullptr;
    std::vector<size_t> send_bytes;
  };

  explicit MemberExchange(int members) : members_(members), places_(static_cast<size_t>(members)) {}

  Place& place(int position) { return places_[static_cast<size_t>(position)]; }
  // Returns false when the exchange was interrupted before all had arrived.
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

class MemberExchanges {
 public:
  std::shared_ptr<MemberExchange> At(const ProcessSet& set) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& exchange = exchanges_[set.ranks];
    if (!exchange) exchange = std::make_shared<MemberExchange>(set.size());
    return exchange;
  }

 private:
  std::mutex mutex_;
  std::map<std::vector<int>, std::shared_ptr<MemberExchange>> exchanges_;
};

std::string GreetingOf(int rank) { return "I am number " + std::to_string(rank); }

class Threads final : public BlockingLibrary {
 public:
  Threads(MemberExchanges* exchanges, int rank) : all_(exchanges), rank_(rank) {}

  Status GetAddress(const ProcessSet&, std::string* address) override {
    *address = GreetingOf(rank_);
    return Status::Ok();
  }
  Status Connect(const ProcessSet& set, const std::vector<std::string>& addresses) override {
    for (size_t p = 0; p < set.ranks.size(); ++p) {
      if (addresses.at(p) != GreetingOf(set.ranks[p])) return Internal("greeted by '" + addresses[p] + "'");
    }
    exchanges_[set.id] = all_->At(set);
    return Status::Ok();
  }
  Status Perform(const PackedTask& packed) override {
    const Task& task = *packed.task;
    const std::shared_ptr<MemberExchange> exchange = exchanges_.at(task.set->id);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      busy_ = exchange;
    }
    MemberExchange::Place& mine = exchange->place(task.set->position);
    mine.input = static_cast<const std::byte*>(packed.input);
    mine.send_bytes = task.send_bytes;
    if (!exchange->Await()) return Internal("interrupted");
    std::string result(packed.output_bytes, '\0');
    Compute(task, *exchange, result.data());
    if (!exchange->Await()) return Internal("interrupted");
    if (!result.empty()) std::memcpy(packed.output, result.data(), result.size());
    return Status::Ok();
  }
  void Interrupt() override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (busy_) busy_->Break();
  }
  void Forget(int set_id) override { exchanges_.erase(set_id); }

 private:
  static void Compute(const Task& task, MemberExchange& exchange, char* to) {
    const int positions = task.set->size(), me = task.set->position;
    if (task.kind == OpKind::kAllreduce || task.kind == OpKind::kReducescatter) return ReduceTask(task, exchange, to);
    for (int p = 0; p < positions; ++p) {
      const auto at = static_cast<size_t>(p);
      const std::byte* from = exchange.place(p).input;
      size_t size_bytes = 0;
      if (task.kind == OpKind::kBroadcast) size_bytes = p == task.root ? task.TotalBytes() : 0;
      if (task.kind == OpKind::kAllgather) size_bytes = task.rank_bytes[at];
      if (task.kind == OpKind::kAlltoall) {
        size_bytes = task.recv_bytes[at];
        for (int q = 0; q < me; ++q) from += exchange.place(p).send_bytes[static_cast<size_t>(q)];
      }
      if (size_bytes > 0) std::memcpy(to, from, size_bytes);
      to += size_bytes;
    }
  }
  // In the order of the rule, so that the expectations hold to the bit for a set in one node.
  static void ReduceTask(const Task& task, MemberExchange& exchange, char* to) {
    const auto me = static_cast<size_t>(task.set->position);
    const bool scatters = task.kind == OpKind::kReducescatter;
    const size_t skipped =
        scatters ? std::accumulate(task.rank_bytes.begin(), task.rank_bytes.begin() + me, size_t{0}) : 0;
    const size_t size_bytes = scatters ? task.rank_bytes[me] : task.TotalBytes();
    std::vector<const void*> inputs;
    for (int p = 0; p < task.set->size(); ++p) inputs.push_back(exchange.place(p).input + skipped);
    if (size_bytes > 0)
      Reduce(task.dtype, task.reduce, inputs.data(), inputs.size(), size_bytes / SizeOf(task.dtype), Scale(), to);
  }

  MemberExchanges* const all_;
  const int rank_;
  std::map<int, std::shared_ptr<MemberExchange>> exchanges_;
  std::mutex mutex_;
  std::shared_ptr<MemberExchange> busy_;
};

const BackendKind kThreads{"threads", nullptr, false, nullptr, nullptr};

// One rank's backend over the exchanges.
struct ThreadsRig : Rig {
  ThreadsRig(MemberExchanges* exchanges, const Rank& rank)
      : Rig(rank, [&](World* world, Backend* host_backend) {
          return MakeBlocking(kThreads, world, host_backend, std::make_shared<Threads>(exchanges, rank.rank()),
                              std::chrono::seconds(5));
        }) {}
};

TEST(Blocking, AnySequenceOfCollectivesGivesWhatTheDefinitionsSay) {
  MemberExchanges exchanges;
  EXPECT_EQ(RunBackends({3}, [&](Rank& rank) { return ThreadsRig(&exchanges, rank).PerformSequence(7, 300, false); }),
            "");
}

TEST(Blocking, AnAverageOfHalvesThatWouldOverflowDoesNot) {
  MemberExchanges exchanges;
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const ThreadsRig rig(&exchanges, rank);
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
  MemberExchanges exchanges;
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
                          const ThreadsRig rig(&exchanges, rank);
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

// Performs only when it is released: an interruption has no effect.
class UninterruptibleLibrary final : public BlockingLibrary {
 public:
  explicit UninterruptibleLibrary(std::shared_future<void> released) : released_(std::move(released)) {}
  ~UninterruptibleLibrary() override { ended_.set_value(); }
  Status Connect(const ProcessSet&, const std::vector<std::string>&) override { return Status::Ok(); }
  Status Perform(const PackedTask&) override {
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
                          auto library = std::make_shared<UninterruptibleLibrary>(release.get_future().share());
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
  MemberExchanges exchanges;
  EXPECT_EQ(RunBackends({2},
                        [&](Rank& rank) -> std::string {
                          if (rank.rank() != 0) return "";
                          const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
                          const ThreadsRig rig(&exchanges, rank);
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
