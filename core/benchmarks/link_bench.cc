// Schedules over TCP: one process for each rank, every algorithm, all in turns.
//
//   link_bench [participants = 2] [chunk bytes = 0, the default] [bytes = 0, all sizes] [ranks each = 1] [network ...]
//
// Without networks: over the loopback interface. With them (hosts.py makes them): `path@address`, one for each
// participant, is the file of a network namespace and this participant's address there. With several ranks each,
// every rank of a participant carries its share of the bytes over connections of its own, at the same time as the
// others: what a collective between hosts does after its ranks have reduced among themselves.
//
// A line is `allreduce` and the bytes of the tensor, or `allgather` and the bytes of each participant's block; what the
// core chooses there where the order of summation is kept, and where it is not; then `name minimum/median`, in
// microseconds, of each algorithm. A time is that of a batch, from the first to begin to the last to end, divided by
// its operations. "links" is the same traffic of a direct exchange without chunks and reductions: what the links alone
// allow. On a busy machine compare minimums of one run, as ratios.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
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
#include <string>
#include <vector>

#include "algorithms/plan.h"
#include "algorithms/schedule.h"
#include "collectives/runner.h"
#include "transport/poll.h"
#include "transport/transport.h"

using namespace farandole;

namespace {

constexpr int kMaxRanks = 32;
constexpr int kBufferBytes = 4 << 20;
constexpr size_t kMaxBytes = 64 << 20;
constexpr size_t kMaxBlockBytes = 256 << 10;
constexpr size_t kMaxExchangedBytes = 256 << 10;
constexpr double kRowSeconds = 0.25;
constexpr int kMinRounds = 5, kMaxRounds = 400;
constexpr int kPauses = 70;  // tries before a rank sleeps

void Require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::_Exit(1);
}

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// In memory that all processes share.
struct Shared {
  pthread_barrier_t barrier;
  std::atomic<bool> enough;
  double begin[kMaxRanks], end[kMaxRanks];  // seconds
};

struct Options {
  int participants = 2;
  size_t chunk_bytes = 0;
  size_t only_bytes = 0;  // 0: all sizes
  int ranks_each = 1;
  std::vector<std::string> networks;  // none: the loopback interface

  int ranks() const { return participants * ranks_each; }
};

// ---- Connections ----------------------------------------------------------------------------------------------------

// Sockets belong to the network namespace in which they are made. Returns the address there.
in_addr Enter(const Options& options, int participant) {
  in_addr address{htonl(INADDR_LOOPBACK)};
  if (options.networks.empty()) return address;
  const std::string& network = options.networks[static_cast<size_t>(participant)];
  const size_t at = network.find('@');
  Require(at != std::string::npos && inet_aton(network.c_str() + at + 1, &address) == 1, "path@address");
  const Descriptor space(open(network.substr(0, at).c_str(), O_RDONLY | O_CLOEXEC));
  Require(space.valid() && setns(space.get(), CLONE_NEWNET) == 0, network.c_str());
  return address;
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

SocketPair Connect(const Options& options, int first, int second) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr = Enter(options, second);
  const Descriptor listener = NewSocket();
  socklen_t size = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  Require(bind(listener.get(), raw, size) == 0 && listen(listener.get(), 1) == 0, "listen");
  Require(getsockname(listener.get(), raw, &size) == 0, "getsockname");
  Enter(options, first);
  SocketPair pair{NewSocket(), {}};
  Require(connect(pair.first.get(), raw, size) == 0, "connect");
  pair.second = Descriptor(accept(listener.get(), nullptr, nullptr));
  Require(pair.second.valid(), "accept");
  return pair;
}

// Meshes made before the fork: sockets[i + participants * m][j] is the end of the m-th rank of i towards that of j.
std::vector<std::vector<Descriptor>> ConnectAll(const Options& options) {
  const int n = options.participants;
  std::vector<std::vector<Descriptor>> sockets(static_cast<size_t>(options.ranks()));
  for (auto& row : sockets) row.resize(static_cast<size_t>(n));
  for (int first = 0; first < options.ranks(); ++first) {
    for (int j = first % n + 1; j < n; ++j) {
      SocketPair pair = Connect(options, first % n, j);
      sockets[first][j] = std::move(pair.first);
      sockets[first - first % n + j][first % n] = std::move(pair.second);
    }
  }
  return sockets;
}

// Left alone, the scheduler may put two processes that answer each other on one core.
void PinToCore(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

// ---- What is measured -----------------------------------------------------------------------------------------------

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

const char* NameOf(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kTree:
      return "tree";
    case Algorithm::kExchange:
      return "exchange";
    default:
      return "direct";
  }
}

// An algorithm's column of one row. Its runner points into it.
struct Contestant {
  Contestant(const char* called, Schedule steps, RunPlan operation)
      : name(called), schedule(std::move(steps)), plan(std::move(operation)) {}

  const char* name;
  Schedule schedule;
  RunPlan plan;
  std::unique_ptr<Runner> runner;
  std::vector<double> microseconds;
};

class Bench {
 public:
  Bench(const Options& options, Shared* shared, int rank, std::vector<Descriptor> sockets)
      : options_(options), shared_(shared), rank_(rank), participants_(options.participants) {
    std::vector<PeerConnection> connections;
    for (int peer = 0; peer < participants_; ++peer) {
      ranks_.push_back(peer);
      Descriptor& socket = sockets[static_cast<size_t>(peer)];
      if (socket.valid()) connections.push_back({peer, Lane::kOrdered, std::move(socket), "a peer"});
    }
    transport_ = MakeTransport(std::move(connections));
    Require(poller_.Open().ok() && transport_->Watch(&poller_, 0).ok(), "poller");
  }

  void Table() {
    const size_t max_bytes = options_.only_bytes > 0 ? options_.only_bytes : kMaxBytes;
    const size_t blocks_bytes = std::min(max_bytes, kMaxBlockBytes) * static_cast<size_t>(participants_);
    data_.resize(std::max(2 * max_bytes, blocks_bytes));  // "links" has twice the elements
    for (size_t bytes = 16; bytes <= kMaxBytes; bytes *= 4) {
      if (options_.only_bytes == 0 || bytes == options_.only_bytes) Allreduce(bytes);
    }
    for (size_t bytes = 16; bytes <= kMaxBlockBytes; bytes *= 4) {
      if (options_.only_bytes == 0 || bytes == options_.only_bytes) Allgather(bytes);
    }
  }

 private:
  int me() const { return rank_ % participants_; }

  const char* ChosenFor(OpKind kind, size_t size_bytes, bool order_matters) const {
    TaskFacts facts;
    facts.kind = kind;
    facts.node_count = participants_;
    facts.size_bytes = size_bytes;
    facts.order_matters = order_matters;
    return NameOf(ChoosePlan(facts).algorithm);
  }

  // chunk_bytes: of all blocks; 0: the default.
  Contestant Vector(const char* name, Schedule schedule, size_t size_bytes, size_t chunk_bytes) {
    RunPlan plan;
    plan.dtype = DType::kFloat32;
    const auto element_count = static_cast<int64_t>(size_bytes / sizeof(float));
    plan.blocks = CutBlocks(data_.data(), data_.data(), element_count, sizeof(float), schedule.block_count);
    plan.window_bytes = chunk_bytes / static_cast<size_t>(schedule.block_count);
    return {name, std::move(schedule), std::move(plan)};
  }

  void Allreduce(size_t bytes) {
    const size_t share_bytes = std::max(sizeof(float), bytes / static_cast<size_t>(options_.ranks_each));
    const size_t chunk_bytes = options_.chunk_bytes;
    const size_t block_bytes = DefaultWindowBytes(participants_);
    const size_t traffic_bytes = 2 * (chunk_bytes > 0 ? chunk_bytes : static_cast<size_t>(participants_) * block_bytes);
    std::vector<Contestant> row;
    row.push_back(Vector("links", TrafficOnly(participants_, me()), 2 * share_bytes, traffic_bytes));
    if (bytes <= kMaxExchangedBytes)
      row.push_back(Vector("exchange", ExchangeAll(participants_, me()), share_bytes, chunk_bytes));
    row.push_back(Vector("direct", DirectAllreduce(participants_, me()), share_bytes, chunk_bytes));
    row.push_back(Vector("ring", RingAllreduce(participants_, me()), share_bytes, chunk_bytes));
    row.push_back(Vector("tree", TreeAllreduce(participants_, me()), share_bytes, chunk_bytes));
    const auto chosen = [&](bool order_matters) { return ChosenFor(OpKind::kAllreduce, share_bytes, order_matters); };
    Measure(&row, share_bytes);
    Print("allreduce", bytes, chosen(true), chosen(false), row);
  }

  void Allgather(size_t bytes) {
    RunPlan plan;
    plan.window_bytes = options_.chunk_bytes / static_cast<size_t>(participants_);
    const size_t share_bytes = bytes / static_cast<size_t>(options_.ranks_each);
    for (int p = 0; p < participants_; ++p) {
      char* const block = data_.data() + static_cast<size_t>(p) * share_bytes;
      plan.blocks.push_back({block, block, share_bytes});
    }
    std::vector<Contestant> row;
    row.emplace_back("direct", DirectAllgather(participants_, me()), plan);
    row.emplace_back("ring", RingAllgather(participants_, me()), plan);
    const char* chosen = ChosenFor(OpKind::kAllgather, share_bytes, /*order_matters=*/true);
    Measure(&row, share_bytes * static_cast<size_t>(participants_));
    Print("allgather", bytes, chosen, chosen, row);
  }

  // Batches in turns.
  void Measure(std::vector<Contestant>* row, size_t bytes) {
    for (Contestant& each : *row) each.runner = std::make_unique<Runner>(&each.schedule, transport_.get(), ranks_);
    const int repetitions = bytes <= 16 << 10 ? 8 : bytes <= 256 << 10 ? 2 : 1;
    const double limit = Now() + kRowSeconds;
    bool enough = false;
    for (int round = 0; round < kMaxRounds && !enough; ++round) {
      for (Contestant& each : *row) Batch(&each, repetitions);
      if (rank_ == 0) shared_->enough = round + 1 >= kMinRounds && Now() > limit;
      pthread_barrier_wait(&shared_->barrier);
      enough = shared_->enough;  // not written again before all have come to the next batch
    }
    for (Contestant& each : *row) std::sort(each.microseconds.begin(), each.microseconds.end());
  }

  void Batch(Contestant* contestant, int repetitions) {
    pthread_barrier_wait(&shared_->barrier);
    shared_->begin[rank_] = Now();
    for (int i = 0; i < repetitions; ++i) RunOnce(contestant->runner.get(), contestant->plan);
    shared_->end[rank_] = Now();
    pthread_barrier_wait(&shared_->barrier);
    const double begin = *std::min_element(shared_->begin, shared_->begin + options_.ranks());
    const double end = *std::max_element(shared_->end, shared_->end + options_.ranks());
    contestant->microseconds.push_back((end - begin) * 1e6 / repetitions);
  }

  void RunOnce(Runner* runner, const RunPlan& plan) {
    runner->Start(plan);
    for (int idle = 0; !runner->done();) {
      bool moved = false;
      Require(runner->Post(&moved).ok(), "post");
      moved |= Runner::PollAll(transport_.get(), &completions_);
      runner->ReduceReady(&moved);
      if (moved) idle = 0;
      if (moved || runner->done()) continue;
      if (++idle < kPauses) {
        sched_yield();
      } else {
        Sleep();
      }
    }
  }

  // Until something can be moved.
  void Sleep() const {
    std::vector<uint64_t> tags;
    poller_.Wait(20000, &tags);
    Require(!tags.empty(), "poll");
  }

  void Print(const char* what, size_t bytes, const char* in_order, const char* any_order,
             const std::vector<Contestant>& row) const {
    if (rank_ != 0) return;
    std::printf("%s %zu %s %s", what, bytes, in_order, any_order);
    for (const Contestant& each : row) {
      const std::vector<double>& times = each.microseconds;
      std::printf(" %s %.1f/%.1f", each.name, times.front(), times[times.size() / 2]);
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  const Options& options_;
  Shared* const shared_;
  const int rank_;
  const int participants_;
  std::unique_ptr<Transport> transport_;
  std::vector<Transport::Completion> completions_;
  Poller poller_;
  std::vector<int> ranks_;
  std::vector<char> data_;
};

Options Read(int count, char** arguments) {
  Options options;
  if (count > 1) options.participants = std::atoi(arguments[1]);
  if (count > 2) options.chunk_bytes = std::strtoul(arguments[2], nullptr, 10);
  if (count > 3) options.only_bytes = std::strtoul(arguments[3], nullptr, 10);
  if (count > 4) options.ranks_each = std::atoi(arguments[4]);
  for (int i = 5; i < count; ++i) options.networks.emplace_back(arguments[i]);
  Require(options.participants >= 2 && options.ranks_each >= 1 && options.ranks() <= kMaxRanks, "2 to 32 ranks");
  Require(options.networks.empty() || static_cast<int>(options.networks.size()) == options.participants,
          "a network for each participant");
  return options;
}

}  // namespace

int main(int count, char** arguments) {
  const Options options = Read(count, arguments);
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Require(memory != MAP_FAILED, "mmap");
  auto* const shared = static_cast<Shared*>(memory);
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &attributes, static_cast<unsigned>(options.ranks()));
  auto sockets = ConnectAll(options);
  int rank = 0;
  for (int i = 1; i < options.ranks() && rank == 0; ++i) {
    if (fork() == 0) rank = i;
  }
  PinToCore(rank % static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  Bench(options, shared, rank, std::move(sockets[static_cast<size_t>(rank)])).Table();
  if (rank == 0) {
    for (int i = 1; i < options.ranks(); ++i) wait(nullptr);
  }
  return 0;
}
