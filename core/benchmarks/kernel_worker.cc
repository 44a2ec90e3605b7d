// A rank of the allreduce of slots in the benchmark, bare: no names, no agreement, no engine around it. Called as
// the engine calls it, except that it always waits by spinning; so it is measured with no more ranks than cores.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>

#include <memory>

#include "collectives/slot_reduction.h"
#include "common/clock.h"
#include "worker.h"

namespace {

constexpr size_t kMemoryBytes = 256u << 20;
constexpr int kPauses = 5000;  // then the other one has lost its core

// All ranks see the same sizes in the same order, so that each finds its memory, still zero, behind the last one's.
class Kernel {
 public:
  Kernel(int rank, int ranks, std::byte* memory) : me_(rank), ranks_(ranks), memory_(memory) {}

  void Sum(float* data, size_t count) {
    if (count != count_) Begin(count);
    const farandole::SlotTensor tensor{data, data, farandole::DType::kFloat32, count};
    ++uses_;
    farandole::SlotBuffer& slots = *buffers_[uses_ % 2];
    if (tensor.size_bytes() <= farandole::kMaxOnePhaseBytes) {
      slots.Write(&tensor, 1, uses_);
      Await([&] { return slots.AllHaveWritten(uses_); });
      buffers_[(uses_ + 1) % 2]->PrefetchSlot(me_);
      return farandole::ReduceSlots(slots, farandole::ReduceOp::kSum, farandole::Scale{}, &tensor, 1, me_);
    }
    slots.WriteForOthers(&tensor, 1, uses_, /*wants_doorbell=*/false);
    Await([&] { return slots.AllHaveWritten(uses_); });
    farandole::ReduceShare(slots, farandole::ReduceOp::kSum, farandole::Scale{}, &tensor, 1, uses_);
    Await([&] { return slots.AllHaveReduced(uses_); });
    farandole::CopyShares(slots, &tensor, 1);
  }

 private:
  template <typename Ready>
  static void Await(Ready ready) {
    for (int pauses = 0; !ready(); ++pauses) {
      farandole::CpuPause();
      if (pauses > kPauses) sched_yield();
    }
  }

  void Begin(size_t count) {
    const size_t half_bytes = (farandole::SlotBuffer::BytesFor(ranks_, count * sizeof(float)) + 4095) / 4096 * 4096;
    bench::Require(used_bytes_ + 2 * half_bytes <= kMemoryBytes, "no memory for another size of the kernel");
    for (auto& slots : buffers_) {
      slots = std::make_unique<farandole::SlotBuffer>(memory_ + used_bytes_, ranks_, count * sizeof(float), me_);
      used_bytes_ += half_bytes;
    }
    count_ = count;
    uses_ = 0;
  }

  const int me_;
  const int ranks_;
  std::byte* const memory_;
  size_t used_bytes_ = 0;
  size_t count_ = 0;
  uint64_t uses_ = 0;
  std::unique_ptr<farandole::SlotBuffer> buffers_[2];
};

}  // namespace

int main() {
  const int rank = std::stoi(bench::Variable("BENCH_RANK"));
  const int ranks = std::stoi(bench::Variable("BENCH_RANKS"));
  bench::PinToCore(rank);
  const int file = open(bench::Variable("BENCH_SHARED").c_str(), O_RDWR | O_CLOEXEC);
  bench::Require(file >= 0 && ftruncate(file, kMemoryBytes) == 0, "no shared memory");
  void* const memory = mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  bench::Require(memory != MAP_FAILED, "no shared memory");
  const farandole::FloatingPointScope ieee;
  Kernel kernel(rank, ranks, static_cast<std::byte*>(memory));
  bench::ServeSums(rank, ranks, [&](float* data, size_t count) { kernel.Sum(data, count); });
  return 0;
}
