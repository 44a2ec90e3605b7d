// A node's log is full because some rank does not read it: Submit does not wait for that.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole::tests {
namespace {

constexpr size_t kOperations = 100;
constexpr size_t kLogEntries = 16;
constexpr size_t kElements = 20'000;  // too many for a small operation

Settings WithShortLog() {
  Settings settings;
  settings.log_entries = kLogEntries;
  return settings;
}

// Operations with names of their own, of one process set.
class Sums {
 public:
  Sums(Engine& engine, int set, int size, size_t count = kOperations)
      : engine_(engine), set_(set), size_(size), values_(count, std::vector<float>(kElements)) {}

  void Submit() {
    operations_.assign(values_.size(), nullptr);
    for (size_t i = 0; i < values_.size(); ++i) {
      values_[i] = Values<float>(engine_.rank(), kElements, static_cast<int>(i));
      Request request = Make(OpKind::kAllreduce, {TensorOf(values_[i], &values_[i])}, "sum" + std::to_string(i));
      request.process_set = set_;
      ASSERT_TRUE(SubmitTo(engine_, request, &operations_[i]).ok());
    }
  }

  void Wait() {
    for (size_t i = 0; i < values_.size(); ++i) {
      ASSERT_TRUE(engine_.Wait(operations_[i], kWaitMs));
      ASSERT_TRUE(operations_[i]->status().ok()) << operations_[i]->status().message();
      ExpectSum(values_[i], size_, static_cast<int>(i));
    }
  }

 private:
  Engine& engine_;
  int set_, size_;
  std::vector<std::vector<float>> values_;
  std::vector<OperationPtr> operations_;
};

int AddSet(Engine& engine, std::vector<int64_t> ranks) {
  Request add = Make(OpKind::kAddProcessSet, {});
  add.ranks = std::move(ranks);
  OperationPtr added;
  EXPECT_TRUE(SubmitAndWait(engine, std::move(add), &added).ok());
  return static_cast<int>(*reinterpret_cast<const int64_t*>(added->outputs[0].memory.get()));
}

// An action at the end of a sum, in the thread that drives.
struct Callback {
  std::function<void()> action;
  std::atomic<bool> called{false};

  static void Call(void* argument, const Status& status, Event) {
    EXPECT_TRUE(status.ok()) << status.message();
    auto* const self = static_cast<Callback*>(argument);
    self->action();
    self->called = true;
  }
};

void SumThen(Engine& engine, Callback* callback, std::vector<float>* values, OperationPtr* operation) {
  *values = Values<float>(engine.rank(), kElements);
  Request request = Make(OpKind::kAllreduce, {TensorOf(*values, values)}, "before");
  request.done = &Callback::Call;
  request.done_argument = callback;
  ASSERT_TRUE(SubmitTo(engine, request, operation).ok());
}

TEST(FullLog, RanksGoOnSubmittingWhileAnotherOneIsStuck) {
  std::atomic<int> submitted{0};
  RunRanks(
      {3},
      [&](Engine& engine) {
        const int pair = AddSet(engine, {0, 1});
        const bool inside = engine.rank() < 2;
        Sums sums(engine, pair, 2);
        if (inside) sums.Submit(), sums.Wait();  // from here on the names are known
        Callback callback;
        callback.action = [&] {
          if (!inside) AwaitThat([&] { return submitted == 2; });
        };
        std::vector<float> values;
        OperationPtr before;
        SumThen(engine, &callback, &values, &before);
        if (inside) {
          ASSERT_TRUE(engine.Wait(before, kWaitMs));
          sums.Submit();
          ++submitted;
          sums.Wait();
        }
        ASSERT_TRUE(engine.Wait(before, kWaitMs));
        AwaitThat([&] { return callback.called.load(); });
        ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kBarrier, {})).ok());
      },
      WithShortLog());
}

// Rank 1 leaves while rank 2 has still to read a whole log. So nobody takes it for dead.
TEST(FullLog, WhoLeavesIsHeardOnceTheLogHasRoom) {
  std::atomic<int> summed{0};
  std::atomic<bool> leaves{false};
  RunRanks(
      {3},
      [&](Engine& engine) {
        const int pair = AddSet(engine, {0, 1});
        const bool inside = engine.rank() < 2;
        Sums sums(engine, pair, 2, kLogEntries);
        if (inside) sums.Submit(), sums.Wait();
        Callback callback;
        callback.action = [&] {
          if (inside) return;
          AwaitThat([&] { return leaves.load(); });
          std::this_thread::sleep_for(std::chrono::milliseconds(100));  // as a thread that is descheduled
        };
        std::vector<float> values;
        OperationPtr before;
        SumThen(engine, &callback, &values, &before);
        if (inside) {
          ASSERT_TRUE(engine.Wait(before, kWaitMs));
          sums.Submit();
          sums.Wait();
          ++summed;
        }
        if (engine.rank() == 1) {
          AwaitThat([&] { return summed == 2; });
          leaves = true;
          return engine.Shutdown();
        }
        ASSERT_TRUE(engine.Wait(before, kWaitMs));
        const Status status = SubmitAndWait(engine, Make(OpKind::kBarrier, {}));
        EXPECT_EQ(status.code(), Code::kPeerLost);
        EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
        EXPECT_NE(status.message().find("has left the job"), std::string::npos) << status.message();
      },
      WithShortLog());
}

// The log is full of entries that rank 0 itself has not read, and rank 0's driver submits.
TEST(FullLog, TheDriverMaySubmitMoreThanTheLogHolds) {
  std::atomic<bool> begun{false};
  RunRanks(
      {2},
      [&](Engine& engine) {
        Sums sums(engine, 0, 2);
        sums.Submit();
        sums.Wait();
        Callback callback;
        callback.action = [&] {
          if (engine.rank() != 0) return;
          AwaitThat([&] { return begun.load(); });
          sums.Submit();
        };
        std::vector<float> values;
        OperationPtr before;
        SumThen(engine, &callback, &values, &before);
        ASSERT_TRUE(engine.Wait(before, kWaitMs));
        AwaitThat([&] { return callback.called.load(); });
        if (engine.rank() != 0) {
          sums.Submit();
          begun = true;
        }
        sums.Wait();
      },
      WithShortLog());
}

}  // namespace
}  // namespace farandole::tests
