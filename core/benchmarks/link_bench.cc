// Allreduce over TCP on the loopback interface: one process per participant, every algorithm, 16 B .. 64 MB of float32.
//
//   link_bench [participants = 2] [chunk bytes = 0, the default] [bytes = all sizes]
//
// "links" is the same traffic of a direct exchange without chunks and folds: what the links alone allow. Times are
// microseconds of the slowest participant, minimum and median. On a busy machine compare minimums of one run, as
// ratios.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "algorithms/direct.h"
#include "algorithms/halving.h"
#include "algorithms/ring.h"
#include "algorithms/run.h"
#include "algorithms/tree.h"
#include "transport/tcp_link.h"

using namespace farandole;

namespace {

constexpr int kMostParticipants = 16;
constexpr int kBufferBytes = 4 << 20;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::_Exit(1);
}

// In memory that all processes share; zero-filled at the beginning.
struct Shared {
  std::atomic<int> arrived[kMostParticipants];
  double microseconds[kMostParticipants];
};

// Waits until everybody has called it as often as this process.
void Barrier(Shared* shared, int participants, int me) {
  const int round = shared->arrived[me].load() + 1;
  shared->arrived[me].store(round);
  for (int i = 0; i < participants; ++i) {
    while (shared->arrived[i].load() < round) sched_yield();
  }
}

Descriptor NewSocket() {
  Descriptor created(socket(AF_INET, SOCK_STREAM, 0));
  Require(created.valid(), "socket");
  setsockopt(created.get(), SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof kBufferBytes);
  setsockopt(created.get(), SOL_SOCKET, SO_RCVBUF, &kBufferBytes, sizeof kBufferBytes);
  return created;
}

struct SocketPair {
  Descriptor first, second;
};

SocketPair Connect() {
  const Descriptor listener = NewSocket();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  Require(bind(listener.get(), raw, size) == 0 && listen(listener.get(), 1) == 0, "listen");
  Require(getsockname(listener.get(), raw, &size) == 0, "getsockname");
  SocketPair pair{NewSocket(), {}};
  Require(connect(pair.first.get(), raw, size) == 0, "connect");
  pair.second = Descriptor(accept(listener.get(), nullptr, nullptr));
  Require(pair.second.valid(), "accept");
  return pair;
}

// A connected mesh made before the fork: sockets[i][j] is the end of i towards j.
std::vector<std::vector<Descriptor>> ConnectAll(int participants) {
  std::vector<std::vector<Descriptor>> sockets(participants);
  for (auto& row : sockets) row.resize(participants);
  for (int i = 0; i < participants; ++i) {
    for (int j = i + 1; j < participants; ++j) {
      SocketPair pair = Connect();
      sockets[i][j] = std::move(pair.first);
      sockets[j][i] = std::move(pair.second);
    }
  }
  return sockets;
}

// The transfers of a direct allreduce with nothing else: everybody sends its data to everybody in equal parts, twice.
Schedule TrafficOnly(int participants, int me) {
  Schedule schedule;
  schedule.block_count = 2 * participants;
  for (int d = 1; d < participants; ++d) {
    const int to = (me + d) % participants, from = (me + participants - d) % participants;
    for (int half : {0, participants}) schedule.Send(0, half + to, to, {});
    for (int half : {0, participants}) schedule.RecvData(0, half + me, from, {});
  }
  return schedule;
}

// Left alone, the scheduler may put two processes that answer each other on one core.
void PinToCore(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

class Bench {
 public:
  Bench(Shared* shared, int participants, int me, std::vector<Descriptor> sockets, size_t chunk_bytes)
      : shared_(shared), participants_(participants), me_(me), chunk_bytes_(chunk_bytes), links_(participants) {
    for (int peer = 0; peer < participants; ++peer) {
      if (peer == me) continue;
      owned_.push_back(std::make_unique<TcpLink>(std::move(sockets[peer])));
      links_[peer] = owned_.back().get();
    }
  }

  // Sorted times of the slowest participant, on participant 0.
  std::vector<double> Time(const Schedule& schedule, const RunPlan& plan, int iterations) {
    Runner runner(&schedule, links_);
    std::vector<double> times;
    for (int i = 0; i < iterations; ++i) {
      Barrier(shared_, participants_, me_);
      shared_->microseconds[me_] = TimeOnce(&runner, plan);
      Barrier(shared_, participants_, me_);
      times.push_back(*std::max_element(shared_->microseconds, shared_->microseconds + participants_));
    }
    std::sort(times.begin(), times.end());
    return times;
  }

  // only_bytes 0: all sizes.
  void Table(size_t only_bytes) {
    std::vector<float> data((64 << 20) / sizeof(float) * 2, 0.0f);
    if (me_ == 0) Heading();
    for (size_t bytes = 16; bytes <= 64 << 20; bytes *= 4) {
      if (only_bytes == 0 || bytes == only_bytes) Row(bytes, data.data());
    }
  }

 private:
  static void Heading() {
    std::printf("%10s", "bytes");
    for (const char* name : {"links", "exchange", "direct", "ring", "tree", "halving"}) std::printf("%21s", name);
    std::printf("\n");
  }

  static double TimeOnce(Runner* runner, const RunPlan& plan) {
    const auto begin = std::chrono::steady_clock::now();
    runner->Start(plan);
    for (int idle = 0; !runner->done();) {
      bool moved = false;
      Require(runner->Advance(&moved).ok(), "advance");
      if (moved) idle = 0;
      if (!moved && ++idle > 20) sched_yield();
    }
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }

  void Row(size_t bytes, float* data) {
    const int iterations = static_cast<int>(std::max<size_t>(7, std::min<size_t>(2000, (256 << 20) / (bytes + 65536))));
    RunPlan plan;
    plan.data = data;
    plan.dtype = DType::kFloat32;
    plan.element_count = static_cast<int64_t>(bytes / sizeof(float));
    plan.chunk_bytes = chunk_bytes_;
    RunPlan traffic = plan;
    traffic.element_count *= 2;
    traffic.chunk_bytes = 2 * (chunk_bytes_ > 0 ? chunk_bytes_ : DefaultChunkBytes(participants_));
    if (me_ == 0) std::printf("%10zu", bytes);
    Cell(TrafficOnly(participants_, me_), traffic, iterations, true);
    Cell(ExchangeAll(participants_, me_), plan, iterations, bytes <= 1 << 20);
    Cell(DirectAllreduce(participants_, me_), plan, iterations, true);
    Cell(RingAllreduce(participants_, me_), plan, iterations, true);
    Cell(TreeAllreduce(participants_, me_), plan, iterations, true);
    Cell(HalvingAllreduce(participants_, me_), plan, iterations, true);
    if (me_ == 0) std::printf("\n");
    std::fflush(stdout);
  }

  void Cell(const Schedule& schedule, const RunPlan& plan, int iterations, bool wanted) {
    if (wanted) {
      const std::vector<double> times = Time(schedule, plan, iterations);
      if (me_ == 0) std::printf("%10.1f /%9.1f", times.front(), times[times.size() / 2]);
    } else if (me_ == 0) {
      std::printf("%21s", "-");
    }
  }

  Shared* const shared_;
  const int participants_;
  const int me_;
  const size_t chunk_bytes_;
  std::vector<std::unique_ptr<Link>> owned_;
  std::vector<Link*> links_;
};

}  // namespace

int main(int count, char** arguments) {
  const int participants = count > 1 ? std::atoi(arguments[1]) : 2;
  const size_t chunk_bytes = count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 0;
  const size_t only_bytes = count > 3 ? std::strtoul(arguments[3], nullptr, 10) : 0;
  Require(participants >= 2 && participants <= kMostParticipants, "2 to 16 participants");
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Require(memory != MAP_FAILED, "mmap");
  auto* const shared = static_cast<Shared*>(memory);
  auto sockets = ConnectAll(participants);
  int me = 0;
  for (int i = 1; i < participants && me == 0; ++i) {
    if (fork() == 0) me = i;
  }
  PinToCore(me % static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  Bench bench(shared, participants, me, std::move(sockets[me]), chunk_bytes);
  bench.Table(only_bytes);
  if (me == 0) {
    for (int i = 1; i < participants; ++i) wait(nullptr);
  }
  return 0;
}
