// A rank calls the kernel for those sockets only that have something to do.
//
// The measured rank is a process of its own, with a link to each of 63 peers. It makes sums with one of them, in a
// process set of the two, and the other 62 links are idle. The C library's functions are replaced in the whole test
// program by ones that count while they are asked to (Counting).
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "support/forked_ranks.h"
#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

enum SystemCall : size_t {
  kSendmsg,
  kRecvmsg,
  kSend,
  kRecv,
  kRead,
  kWrite,
  kGetsockopt,
  kPoll,
  kEpollWait,
  kSchedYield,
  kCallKinds
};
constexpr const char* kCallNames[kCallKinds] = {"sendmsg", "recvmsg",    "send", "recv",       "read",
                                                "write",   "getsockopt", "poll", "epoll_wait", "sched_yield"};

constexpr size_t kDescriptors = 4096;
std::atomic<bool> g_counts{false};
std::array<std::atomic<int64_t>, kCallKinds> g_calls;
std::array<std::atomic<int64_t>, kDescriptors> g_on_descriptor;

void CountCall(SystemCall call, int descriptor = -1) {
  if (!g_counts.load(std::memory_order_relaxed)) return;
  ++g_calls[call];
  if (descriptor >= 0 && static_cast<size_t>(descriptor) < kDescriptors)
    ++g_on_descriptor[static_cast<size_t>(descriptor)];
}

// The next definition of a function: the C library's, or that of a sanitizer.
template <typename Function>
Function* NextDefinition(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace
}  // namespace farandole

// Finds the next definition of `name` while the program is loaded, since a signal handler may not call dlsym.
#define FRD_NEXT(name)                                                 \
  static auto* Next_##name() {                                         \
    static auto* const next = farandole::NextDefinition(&name, #name); \
    return next;                                                       \
  }                                                                    \
  [[maybe_unused]] static const auto* const g_has_##name = reinterpret_cast<const void*>(Next_##name());

// `name` counts a call of the descriptor `fd`, and goes on as usual.
#define FRD_COUNTED(result, name, call, fd, parameters, arguments)           \
  FRD_NEXT(name)                                                             \
  extern "C" __attribute__((visibility("default"))) result name parameters { \
    farandole::CountCall(farandole::call, fd);                               \
    return Next_##name() arguments;                                          \
  }

FRD_COUNTED(ssize_t, sendmsg, kSendmsg, fd, (int fd, const msghdr* message, int flags), (fd, message, flags))
FRD_COUNTED(ssize_t, recvmsg, kRecvmsg, fd, (int fd, msghdr* message, int flags), (fd, message, flags))
FRD_COUNTED(ssize_t, send, kSend, fd, (int fd, const void* data, size_t bytes, int flags), (fd, data, bytes, flags))
FRD_COUNTED(ssize_t, recv, kRecv, fd, (int fd, void* data, size_t bytes, int flags), (fd, data, bytes, flags))
FRD_COUNTED(ssize_t, read, kRead, fd, (int fd, void* data, size_t bytes), (fd, data, bytes))
FRD_COUNTED(ssize_t, write, kWrite, fd, (int fd, const void* data, size_t bytes), (fd, data, bytes))
FRD_COUNTED(int, epoll_wait, kEpollWait, -1, (int fd, epoll_event* events, int most, int timeout_ms),
            (fd, events, most, timeout_ms))
// The C library declares that poll only writes its entries, so they are read after it.
FRD_NEXT(poll)
extern "C" __attribute__((visibility("default"))) int poll(pollfd* entries, nfds_t count, int timeout_ms) {
  const int result = Next_poll()(entries, count, timeout_ms);
  farandole::CountCall(farandole::kPoll, count == 1 ? entries->fd : -1);
  return result;
}
FRD_NEXT(getsockopt)
extern "C" __attribute__((visibility("default"))) int getsockopt(int fd, int level, int name, void* value,
                                                                 socklen_t* size) noexcept {
  farandole::CountCall(farandole::kGetsockopt, fd);
  return Next_getsockopt()(fd, level, name, value, size);
}
FRD_NEXT(sched_yield)
extern "C" __attribute__((visibility("default"))) int sched_yield() noexcept {
  farandole::CountCall(farandole::kSchedYield);
  return Next_sched_yield()();
}

#undef FRD_COUNTED
#undef FRD_NEXT

namespace farandole {
namespace {

// The calls since it was made.
class Counting {
 public:
  Counting() {
    for (auto& each : g_calls) each = 0;
    for (auto& each : g_on_descriptor) each = 0;
    g_counts = true;
  }
  ~Counting() { g_counts = false; }

  int64_t Of(SystemCall call) const { return g_calls[call]; }
  int64_t On(int descriptor) const { return g_on_descriptor[static_cast<size_t>(descriptor)]; }
  int64_t all() const { return std::accumulate(g_calls.begin(), g_calls.end(), int64_t{0}); }
  void Print(const char* per, int64_t uses) const {
    for (size_t call = 0; call < kCallKinds; ++call) {
      if (g_calls[call] == 0) continue;
      std::fprintf(stderr, "%s per %s: %.3f\n", kCallNames[call], per,
                   static_cast<double>(g_calls[call]) / static_cast<double>(uses));
    }
  }
};

constexpr int kStarRanks = 64, kMeasured = 0, kPartner = 1;

// One rank per node. Only the measured one has links, one to each of the others.
class Star {
 public:
  Star() : layout_(LayoutOfNodes(std::vector<int>(kStarRanks, 1), &peers_)) {
    for (int r = 1; r < kStarRanks; ++r) {
      for (Line* line : {&control_, &ordered_, &early_}) {
        auto [hub, spoke] = SocketPair();
        line->hub[static_cast<size_t>(r)] = std::move(hub);
        line->spoke[static_cast<size_t>(r)] = std::move(spoke);
      }
      sockets_to_[static_cast<size_t>(r)] = {ordered_.hub[static_cast<size_t>(r)].get(),
                                             early_.hub[static_cast<size_t>(r)].get()};
    }
  }

  // Of the measured rank: its ordered and its early lane to the peer.
  std::array<int, 2> SocketsTo(int peer) const { return sockets_to_[static_cast<size_t>(peer)]; }

  // Shared memory is not inherited by a forked process, so each process makes the worlds of its ranks.
  std::vector<std::unique_ptr<World>> MakeWorlds(int begin, int end) {
    std::vector<std::unique_ptr<World>> worlds(kStarRanks);
    for (int r = begin; r < end; ++r) {
      worlds[static_cast<size_t>(r)] = MakeWorld(r);
      JoinNode(worlds, {r}, Engine::PlanFor(kStarRanks));
    }
    return {std::make_move_iterator(worlds.begin() + begin), std::make_move_iterator(worlds.begin() + end)};
  }

 private:
  struct Line {
    std::array<Descriptor, kStarRanks> hub, spoke;  // by the other rank
  };

  std::unique_ptr<World> MakeWorld(int rank) {
    auto world = std::make_unique<World>();
    world->rank = rank;
    world->size = kStarRanks;
    world->peers = peers_;
    world->layout = layout_;
    world->control.resize(kStarRanks);
    world->pidfds.resize(kStarRanks);
    std::vector<PeerConnection> connections;
    const auto connect = [&](int peer, int of, std::array<Descriptor, kStarRanks> Line::* end) {
      const auto at = static_cast<size_t>(of);
      world->control[static_cast<size_t>(peer)] = MessageStream(std::move((control_.*end)[at]));
      connections.push_back({peer, Lane::kOrdered, std::move((ordered_.*end)[at]), world->NameOf(peer)});
      connections.push_back({peer, Lane::kEarly, std::move((early_.*end)[at]), world->NameOf(peer)});
    };
    if (rank == kMeasured) {
      for (int peer = 1; peer < kStarRanks; ++peer) connect(peer, peer, &Line::hub);
    } else {
      connect(kMeasured, rank, &Line::spoke);
    }
    world->transport = MakeTransport(std::move(connections));
    return world;
  }

  std::vector<PeerInfo> peers_;
  const Layout layout_;
  Line control_, ordered_, early_;
  std::array<std::array<int, 2>, kStarRanks> sockets_to_{};
};

// What the processes of a test share.
struct Shared {
  std::atomic<int> stage{0};
};

void AwaitStage(const Shared& shared, int stage) {
  AwaitThat([&shared, stage] { return shared.stage >= stage; });
}

int64_t AddPair(Engine& engine) {
  Request request = Make(OpKind::kAddProcessSet, {});
  request.ranks = {kMeasured, kPartner};
  OperationPtr added;
  EXPECT_TRUE(SubmitAndWait(engine, std::move(request), &added).ok());
  int64_t set = 0;
  std::memcpy(&set, added->outputs.at(0).memory.get(), sizeof set);
  return set;
}

void MakeSums(Engine& engine, int64_t set, int count, std::chrono::microseconds delay) {
  for (int use = 0; use < count; ++use) {
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    auto values = Values<float>(engine.rank(), 1, use);
    Request request = Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "small");
    request.process_set = static_cast<int>(set);
    OperationPtr sum;
    ASSERT_TRUE(SubmitTo(engine, request, &sum, /*will_wait=*/true).ok());
    ASSERT_TRUE(engine.Wait(sum, kWaitMs));
    ASSERT_TRUE(sum->status().ok()) << sum->status().message();
    ExpectSum(values, 2, use);
  }
}

constexpr int kSums = 1000;
constexpr std::chrono::seconds kIdle{2};
constexpr int64_t kMaxCallsPerIdleSecond = 200;  // about twice as many as there are

// The partner may let the measured rank wait for every sum so long that it sleeps.
void RunStar(std::chrono::microseconds partner_delay,
             const std::function<void(Engine&, int64_t set, const Star&)>& measure) {
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Shared& shared = *new (memory) Shared;
  Star star;
  const std::vector<int> statuses = ForkRanks(3, [&](int process) {
    const int begin = process, end = process < 2 ? process + 1 : kStarRanks;
    RunWorlds(star.MakeWorlds(begin, end), [&](Engine& engine) {
      const int64_t set = AddPair(engine);
      if (engine.rank() == kMeasured) {
        measure(engine, set, star);
        shared.stage = 1;
      } else if (engine.rank() == kPartner) {
        MakeSums(engine, set, 2, std::chrono::microseconds(0));
        MakeSums(engine, set, kSums, partner_delay);
      }
      AwaitStage(shared, 1);
    });
    return testing::Test::HasFailure() ? 1 : 0;
  });
  for (const int status : statuses) EXPECT_EQ(status, 0);
  munmap(memory, sizeof(Shared));
}

int64_t CallsOnIdleSockets(const Counting& counting, const Star& star) {
  int64_t calls = 0;
  for (int r = 1; r < kStarRanks; ++r) {
    for (const int socket : star.SocketsTo(r)) calls += r == kPartner ? 0 : counting.On(socket);
  }
  return calls;
}

class SystemCallsTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(MicrosecondsThatThePartnerIsLate, SystemCallsTest, testing::Values(0, 2000));

TEST_P(SystemCallsTest, SumsWithOnePeerUseNoSocketOfAnother) {
  RunStar(std::chrono::microseconds(GetParam()), [](Engine& engine, int64_t set, const Star& star) {
    MakeSums(engine, set, 2, std::chrono::microseconds(0));  // the second one is early
    const Counting counting;
    MakeSums(engine, set, kSums, std::chrono::microseconds(0));
    counting.Print("sum", kSums);
    EXPECT_EQ(CallsOnIdleSockets(counting, star), 0);
    EXPECT_EQ(counting.Of(kSendmsg), kSums);
    const auto [ordered, early] = star.SocketsTo(kPartner);
    EXPECT_LT(counting.On(ordered), kSums / 10) << "the ordered lane has nothing to do";
    EXPECT_GE(counting.On(early), 2 * kSums);
  });
}

// A thread that sleeps looks around now and then, however many links there are.
TEST(IdleSystemCallsTest, ARankWithoutWorkSleeps) {
  RunStar(std::chrono::microseconds(0), [](Engine& engine, int64_t set, const Star& star) {
    MakeSums(engine, set, 2, std::chrono::microseconds(0));
    MakeSums(engine, set, kSums, std::chrono::microseconds(0));
    const Counting counting;
    std::this_thread::sleep_for(kIdle);
    counting.Print("idle second", kIdle.count());
    EXPECT_EQ(CallsOnIdleSockets(counting, star), 0);
    for (const int socket : star.SocketsTo(kPartner)) EXPECT_LE(counting.On(socket), 4);
    EXPECT_LT(counting.all(), kMaxCallsPerIdleSecond * kIdle.count());
  });
}

}  // namespace
}  // namespace farandole
