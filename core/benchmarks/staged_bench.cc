// Allreduce between ranks that share memory, through the native backend alone, beside what the machine allows.
//
//   staged_bench [ranks = 2] [seconds per size = 1] [bytes = all sizes]
//
// Ranks are threads, each on its own core as long as there are enough. float32 sum in place, microseconds, minimum over
// short interleaved runs from the first rank's start to the last one's end. The limit is
// - below 16 MB the time to read the bytes that the next rank has just written, on all ranks at once;
// - from 16 MB the time to read and write the vector in place, on all ranks at once, which is what memory allows.
// On a machine that does other things, too, compare the columns of one run only.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "backends/table.h"
#include "common/clock.h"
#include "transport/shm/segment.h"

using namespace farandole;

namespace {

constexpr int kMaxRanks = 16;
constexpr size_t kDramBytes = 16 << 20;
const int kCores = static_cast<int>(std::thread::hardware_concurrency());  // asked once: it reads files

struct alignas(128) Line {
  std::atomic<uint64_t> value;
};
Line meetings[kMaxRanks];
TimePoint start_of[kMaxRanks], end_of[kMaxRanks];
bool time_is_up;

void Require(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::_Exit(1);
}

void PinTo(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

// Ranks as threads that share one segment.
std::vector<std::unique_ptr<World>> MakeWorlds(int size) {
  const SegmentPlan plan{0, NativeStagingBytesPerMember(), 1};
  const size_t bytes = ShmNode::SegmentBytes(plan, static_cast<size_t>(size));
  const std::vector<PeerInfo> peers(static_cast<size_t>(size), PeerInfo{"host", "machine", 1, true, ""});
  SharedSegment first;
  Require(SharedSegment::Create(bytes, &first));
  const int memory = dup(first.descriptor());
  std::vector<std::unique_ptr<World>> worlds;
  for (int r = 0; r < size; ++r) {
    auto world = std::make_unique<World>();
    world->rank = r;
    world->size = size;
    world->peers = peers;
    world->layout = MakeLayout(peers);
    world->transport = MakeTransport({});
    std::vector<Descriptor> events(peers.size());
    for (Descriptor& event : events) Require(MakeEvent(&event));
    SharedSegment segment;
    Require(SharedSegment::Attach(Descriptor(dup(memory)), bytes, &segment));
    world->node.emplace(std::move(segment), std::move(events), plan, r);
    worlds.push_back(std::move(world));
  }
  return worlds;
}

// As frameworks align tensors.
struct Aligned {
  explicit Aligned(size_t size_bytes)
      : data(static_cast<float*>(std::aligned_alloc(64, (size_bytes + 63) / 64 * 64))), count(size_bytes / 4) {
    Fill(0.0f);
  }
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  void Fill(float value) { std::fill(data, data + count, value); }
  float* const data;
  const size_t count;
};

class Rank {
 public:
  Rank(World* world, size_t size_bytes) : world_(world), me_(world->rank), size_(world->size), values_(size_bytes) {
    backend_ = kNative.make(world, Settings{}, nullptr);
    set_ = WholeWorld(world->layout, me_);
    task_.set = &set_;
    task_.buffers = {{values_.data, values_.data, size_bytes}};
  }

  void Allreduce() {
    Require(backend_->Start(&task_));
    bool done = false;
    for (int pauses = 0; !done; ++pauses) {
      bool moved = false;
      Require(backend_->Poll(&moved, &done));
      if (moved) pauses = 0;
      Wait(pauses);
    }
  }

  // Writes a vector of its own, then reads that of the next rank.
  double ReadPeer(Aligned* mine, const Aligned* theirs) {
    mine->Fill(1.0f);
    Meet();
    const TimePoint start = Now();
    const void* const inputs[] = {values_.data, theirs->data};
    Reduce(DType::kFloat32, ReduceOp::kSum, inputs, 2, values_.count, Scale{}, values_.data);
    return Together(start);
  }

  double UpdateInPlace() {
    Meet();
    const TimePoint start = Now();
    const void* const input = values_.data;
    Reduce(DType::kFloat32, ReduceOp::kSum, &input, 1, values_.count, Scale{0.5, 1.0}, values_.data);
    return Together(start);
  }

  void Run(double seconds, const std::vector<std::unique_ptr<Aligned>>& written, double* limit, double* best) {
    PinTo(me_ % kCores);
    const size_t bytes = values_.count * sizeof(float);
    const int repeats = static_cast<int>(std::max<size_t>(1, std::min<size_t>(500, (2 << 20) / bytes)));
    const TimePoint begin = Now();
    do {
      for (int i = 0; i < std::min(repeats, 10); ++i) {
        const size_t next = static_cast<size_t>((me_ + 1) % size_);
        *limit =
            std::min(*limit, bytes < kDramBytes ? ReadPeer(written[static_cast<size_t>(me_)].get(), written[next].get())
                                                : UpdateInPlace());
      }
      Allreduce();
      Meet();
      const TimePoint start = Now();
      for (int i = 0; i < repeats; ++i) Allreduce();
      *best = std::min(*best, Together(start) / repeats);
      values_.Fill(0.0f);
      if (me_ == 0) time_is_up = MillisecondsBetween(begin, Now()) > seconds * 1e3;
      Meet();
    } while (!time_is_up);
  }

 private:
  void Wait(int pauses) const {
    CpuPause();
    // One that has a core to itself waits for one that has lost its core; the others give way at once.
    if (pauses > (size_ <= kCores ? 1000 : 20)) sched_yield();
  }

  void Meet() {
    meetings[me_].value.store(++met_, std::memory_order_release);
    for (int r = 0; r < size_; ++r) {
      for (int pauses = 0; meetings[r].value.load(std::memory_order_acquire) < met_; ++pauses) Wait(pauses);
    }
  }

  // Microseconds from when the first rank began until the last was done.
  double Together(TimePoint start) {
    start_of[me_] = start;
    end_of[me_] = Now();
    Meet();
    const TimePoint begin = *std::min_element(start_of, start_of + size_);
    const TimePoint end = *std::max_element(end_of, end_of + size_);
    Meet();
    return std::chrono::duration<double, std::micro>(end - begin).count();
  }

  World* world_;
  int me_;
  int size_;
  Aligned values_;
  std::unique_ptr<Backend> backend_;
  ProcessSet set_;
  Task task_;
  uint64_t met_ = 0;
};

void Measure(int size, size_t bytes, double seconds) {
  const std::vector<std::unique_ptr<World>> worlds = MakeWorlds(size);
  for (Line& line : meetings) line.value = 0;
  std::vector<std::unique_ptr<Aligned>> written;
  for (int r = 0; r < size; ++r) written.push_back(std::make_unique<Aligned>(bytes < kDramBytes ? bytes : 0));
  std::vector<double> limits(written.size(), 1e18), bests(written.size(), 1e18);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < worlds.size(); ++r) {
    threads.emplace_back([&, r] { Rank(worlds[r].get(), bytes).Run(seconds, written, &limits[r], &bests[r]); });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("%10zu %12.2f %12.2f %8.2f\n", bytes, limits[0], bests[0], bests[0] / limits[0]);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int size = argc > 1 ? std::atoi(argv[1]) : 2;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1.0;
  std::printf("%10s %12s %12s %8s\n", "bytes", "limit us", "allreduce us", "ratio");
  if (argc > 3) return Measure(size, std::strtoul(argv[3], nullptr, 10), seconds), 0;
  for (size_t bytes = 4096; bytes <= 256 << 20; bytes *= 2) Measure(size, bytes, seconds);
  return 0;
}
