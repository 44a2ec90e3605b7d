// The allreduce of slots beside what it cannot beat: two cores that pass one cache line each to the other.
//
//   slots_bench [seconds per size = 0.5]
//
// Two threads, each on its own core, float32 sum in place. "line" is the bare exchange: store into my line, wait until
// the other's has come. Nanoseconds per operation, minimum over short interleaved runs, of the slower thread.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "collectives/slot_reduction.h"
#include "common/clock.h"
#include "engine/driver.h"

using namespace farandole;

namespace {

struct alignas(128) Line {
  std::atomic<uint64_t> value;
};
Line lines[2][2];  // [slots][member]
Line meeting[2];
double nanoseconds_of[2];
bool time_is_up;

void WaitFor(const std::atomic<uint64_t>& value, uint64_t wanted) {
  for (int pauses = 0; value.load(std::memory_order_acquire) < wanted; ++pauses) {
    CpuPause();
    if (pauses > 5000) sched_yield();  // the other one has lost its core
  }
}

void PinTo(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

// Measures one of the two threads.
class Member {
 public:
  Member(int member, std::byte* memory, size_t payload_bytes)
      : me_(member), values_(payload_bytes / sizeof(float), 0.0f) {
    const size_t half_bytes = SlotBuffer::BytesFor(2, payload_bytes);
    buffers_ = {SlotBuffer(memory, 2, payload_bytes, member),
                SlotBuffer(memory + half_bytes, 2, payload_bytes, member)};
    segment_ = {values_.data(), values_.data(), DType::kFloat32, values_.size()};
  }

  void Exchange() {
    ++exchanges_;
    Line* const slots = lines[exchanges_ & 1];
    slots[me_].value.store(exchanges_, std::memory_order_release);
    WaitFor(slots[1 - me_].value, exchanges_);
  }

  void Allreduce() {
    ++uses_;
    SlotBuffer& slots = buffers_[uses_ & 1];
    slots.Write(&segment_, 1, uses_);
    for (int pauses = 0; !slots.AllHaveWritten(uses_); ++pauses) {
      CpuPause();
      if (pauses > 5000) sched_yield();
    }
    ReduceSlots(slots, ReduceOp::kSum, Scale{}, &segment_, 1, me_);
  }

  void Meet() {
    ++meetings_;
    meeting[me_].value.store(meetings_, std::memory_order_release);
    WaitFor(meeting[1 - me_].value, meetings_);
  }

  // Nanoseconds per call of the slower of both.
  double Time(const std::function<void(int)>& repeat, int repeats) {
    Meet();
    const auto start = std::chrono::steady_clock::now();
    repeat(repeats);
    nanoseconds_of[me_] = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
    Meet();
    const double slower = std::max(nanoseconds_of[0], nanoseconds_of[1]) / repeats;
    Meet();
    return slower;
  }

  void Run(double seconds, int repeats, double* line, double* slots) {
    PinTo(me_);
    const auto start = std::chrono::steady_clock::now();
    while (true) {
      *line = std::min(*line, Time(
                                  [&](int count) {
                                    while (count-- > 0) Exchange();
                                  },
                                  repeats));
      *slots = std::min(*slots, Time(
                                    [&](int count) {
                                      while (count-- > 0) Allreduce();
                                    },
                                    repeats));
      if (me_ == 0) time_is_up = std::chrono::steady_clock::now() - start > std::chrono::duration<double>(seconds);
      Meet();
      if (time_is_up) return;
      Meet();
    }
  }

 private:
  int me_;
  std::vector<float> values_;
  std::vector<SlotBuffer> buffers_;
  SlotTensor segment_;
  uint64_t exchanges_ = 0, uses_ = 0, meetings_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.5;
  const FloatingPointScope ieee;
  std::printf("%9s %10s %10s %8s\n", "bytes", "line ns", "slots ns", "ratio");
  for (const size_t bytes : {4, 56, 64, 256, 1024, 4096, 16384, 65536, 131072, 262144}) {
    for (auto& slots : lines) slots[0].value = slots[1].value = 0;
    meeting[0].value = meeting[1].value = 0;
    constexpr size_t kMemoryBytes = 4 << 20;
    auto* const memory = static_cast<std::byte*>(std::aligned_alloc(4096, kMemoryBytes));
    std::fill(memory, memory + kMemoryBytes, std::byte{0});
    const int repeats = static_cast<int>(std::max<size_t>(20, 1000 - std::min<size_t>(1000, bytes / 16)));
    double line[2] = {1e18, 1e18}, slots[2] = {1e18, 1e18};
    Member zero(0, memory, bytes), one(1, memory, bytes);
    std::thread other([&] { one.Run(seconds, repeats, &line[1], &slots[1]); });
    std::thread self([&] { zero.Run(seconds, repeats, &line[0], &slots[0]); });
    other.join();
    self.join();
    std::printf("%9zu %10.1f %10.1f %8.2f\n", bytes, line[0], slots[0], slots[0] / line[0]);
    std::fflush(stdout);
    std::free(memory);
  }
  return 0;
}
