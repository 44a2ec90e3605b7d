// How deep the calls of a sum are: docs/design/engine.md walks through both. A sample of the stack is taken every 50 us
// in the thread that asks for the sum and drives it. Frames that the compiler inlines do not exist, so the limits hold
// for the optimised build, of which the tests' core is made.
#include <gtest/gtest.h>

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "support/requests.h"
#include "support/thread_worlds.h"

extern "C" char __executable_start, etext;  // by the linker

namespace farandole {
namespace {

constexpr int kMaxFrames = 64;

// Of the thread whose stack is sampled. The handler runs in that thread.
struct Samples {
  int frames_below = 0;  // of the test, down to where the thread began
  int taken = 0;
  std::array<int, kMaxFrames + 1> with_frames{};  // by how many of our frames, those of system libraries left out

  // The depth that at most one sample in a thousand exceeds: periodic checks may go deeper.
  int deepest() const {
    size_t depth = kMaxFrames;
    int deeper = 0;
    while (depth > 0 && deeper + with_frames[depth] <= taken / 1000) deeper += with_frames[depth--];
    return static_cast<int>(depth);
  }
};
thread_local Samples* t_samples = nullptr;

bool IsOurs(const void* address) { return address >= &__executable_start && address < &etext; }

void TakeSample(int) {
  constexpr int kOfTheSignal = 2;  // this function and the kernel's frame
  if (t_samples == nullptr) return;
  std::array<void*, kMaxFrames> addresses;
  const int count = backtrace(addresses.data(), kMaxFrames);
  const auto* const begin = addresses.data() + kOfTheSignal;
  const auto* const end = addresses.data() + std::max(count - t_samples->frames_below, kOfTheSignal);
  ++t_samples->with_frames[static_cast<size_t>(std::count_if(begin, end, &IsOurs))];
  ++t_samples->taken;
}

// Samples this thread while it lives.
class Sampler {
 public:
  explicit Sampler(Samples* samples) {
    struct sigaction action = {};
    action.sa_handler = &TakeSample;
    action.sa_flags = SA_RESTART;
    sigaction(SIGPROF, &action, nullptr);
    t_samples = samples;
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGPROF;
    event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
    EXPECT_EQ(timer_create(CLOCK_MONOTONIC, &event, &timer_), 0);
    const timespec interval = {0, 50'000};
    const itimerspec times = {interval, interval};
    EXPECT_EQ(timer_settime(timer_, 0, &times, nullptr), 0);
  }
  ~Sampler() {
    timer_delete(timer_);
    t_samples = nullptr;
  }

 private:
  timer_t timer_{};
};

// Rank 0 asks for sums until it has enough samples; the others hear by the result that it wants one more.
template <typename Sum>
void SumUntilSampled(int rank, int wanted, Samples* samples, std::vector<float>* values, Sum sum) {
  std::array<void*, kMaxFrames> addresses;
  samples->frames_below = backtrace(addresses.data(), kMaxFrames);  // it also loads what backtrace needs
  const std::unique_ptr<Sampler> sampler = rank == 0 ? std::make_unique<Sampler>(samples) : nullptr;
  do {
    (*values)[0] = rank == 0 && samples->taken < wanted ? 1 : 0;
    sum();
  } while ((*values)[0] > 0);
}

// The function of a test that asks for a sum is one frame, as that of the C interface is (ApiRun, ApiWait), of which an
// optimised build inlines the helpers.
#define ONE_FRAME __attribute__((noinline))

TEST(FramesTest, ASumOfFourBytesPassesFourteen) {
  Samples samples;
  RunRanks({2}, [&samples](Engine& engine) {
    std::vector<float> value(1);
    const auto count = int64_t{1};
    TensorView tensor;
    tensor.input = tensor.output = value.data();
    tensor.shape = {&count, 1};
    RequestView request;
    request.tensors = {&tensor, 1};
    request.name = "x";
    OperationPtr introduced;
    ASSERT_TRUE(SubmitAndWait(engine, Request(request), &introduced).ok());
    SumUntilSampled(engine.rank(), 4000, &samples, &value, [&engine, &request]() ONE_FRAME {
      Status status;
      EXPECT_TRUE(RunBorrowed(engine, request, &status) && status.ok());
    });
  });
  EXPECT_LE(samples.deepest(), 14);
  EXPECT_GE(samples.deepest(), 4) << "a reduction is deeper than that: samples miss it";
}

TEST(FramesTest, ASumOf64MegabytesBetweenTwoNodesPassesTwentyFive) {
  Samples samples;
  RunRanks({2, 2}, [&samples](Engine& engine) {
    std::vector<float> values(size_t{16} << 20);
    SumUntilSampled(engine.rank(), 4000, &samples, &values, [&engine, &values]() ONE_FRAME {
      OperationPtr operation;
      ASSERT_TRUE(SubmitTo(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "x"), &operation, true).ok());
      while (!engine.Wait(operation, 1000)) {
      }
      EXPECT_TRUE(operation->status().ok());
    });
  });
  EXPECT_LE(samples.deepest(), 25);
  EXPECT_GE(samples.deepest(), 8) << "a send is deeper than that: samples miss it";
}

}  // namespace
}  // namespace farandole

#endif
