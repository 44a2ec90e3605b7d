// Worlds whose ranks are threads of the test: real shared memory, socket pairs for connections, no processes.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "support/loopback.h"
#include "world/world.h"

namespace farandole {

inline Layout LayoutOfNodes(const std::vector<int>& sizes, std::vector<PeerInfo>* peers) {
  for (size_t g = 0; g < sizes.size(); ++g) {
    for (int i = 0; i < sizes[g]; ++i)
      peers->push_back({"host" + std::to_string(g), "machine" + std::to_string(g), 1, true, ""});
  }
  return MakeLayout(*peers);
}

inline std::pair<Descriptor, Descriptor> SocketPair() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

inline Descriptor Duplicate(int descriptor) { return Descriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)); }

inline void JoinNode(std::vector<std::unique_ptr<World>>& worlds, const std::vector<int>& ranks,
                     const SegmentPlan& plan) {
  std::vector<Descriptor> events(ranks.size());
  for (Descriptor& event : events) EXPECT_TRUE(MakeEvent(&event).ok());
  SharedSegment first;
  const size_t bytes = ShmNode::SegmentBytes(plan, ranks.size());
  EXPECT_TRUE(SharedSegment::Create(bytes, &first).ok());
  for (size_t m = ranks.size(); m-- > 0;) {
    std::vector<Descriptor> copies;
    for (const Descriptor& event : events) copies.push_back(Duplicate(event.get()));
    SharedSegment segment;
    EXPECT_TRUE(SharedSegment::Attach(Duplicate(first.descriptor()), bytes, &segment).ok());
    worlds[static_cast<size_t>(ranks[m])]->node.emplace(std::move(segment), std::move(copies), plan,
                                                        static_cast<int>(m));
  }
}

// Copies of the sockets of a job's transports, by the lower and the higher rank.
struct Sockets {
  std::map<std::pair<int, int>, Descriptor> ordered, early;
};

// Connects the transports of all worlds, as a start does.
inline void ConnectAll(const std::vector<std::unique_ptr<World>>& worlds, Sockets* sockets) {
  std::vector<std::vector<PeerConnection>> connections(worlds.size());
  for (int r = 0; static_cast<size_t>(r) < worlds.size(); ++r) {
    const Layout& layout = worlds[0]->layout;
    for (int peer : InterNodePeers(layout, r)) {
      for (const Lane lane : {Lane::kOrdered, Lane::kEarly}) {
        if (peer > r || (lane == Lane::kEarly && !HasEarlyLanes(layout))) continue;
        auto [low, high] = SocketPair();
        if (sockets != nullptr)
          (lane == Lane::kEarly ? sockets->early : sockets->ordered)[{peer, r}] = Duplicate(low.get());
        connections[static_cast<size_t>(peer)].push_back({r, lane, std::move(low), worlds[0]->NameOf(r)});
        connections[static_cast<size_t>(r)].push_back({peer, lane, std::move(high), worlds[0]->NameOf(peer)});
      }
    }
  }
  for (size_t r = 0; r < worlds.size(); ++r)
    worlds[r]->transport = MakeTransport(std::move(connections[r]), static_cast<int>(worlds.size()));
}

// One world for each rank of nodes of the given sizes: {2, 1} is ranks 0 and 1 on one machine, rank 2 on another.
inline std::vector<std::unique_ptr<World>> ThreadWorlds(const std::vector<int>& node_sizes,
                                                        Sockets* sockets = nullptr) {
  std::vector<PeerInfo> peers;
  const Layout layout = LayoutOfNodes(node_sizes, &peers);
  const auto size = static_cast<size_t>(layout.size());
  std::vector<std::unique_ptr<World>> worlds;
  for (size_t r = 0; r < size; ++r) {
    auto world = std::make_unique<World>();
    world->rank = static_cast<int>(r);
    world->size = static_cast<int>(size);
    world->peers = peers;
    world->layout = layout;
    world->control.resize(size);
    world->pidfds.resize(size);
    worlds.push_back(std::move(world));
  }
  for (const auto& ranks : layout.nodes) JoinNode(worlds, ranks, Engine::PlanFor(static_cast<int>(size)));
  for (size_t r = 1; r < size; ++r) {
    auto [hub, spoke] = SocketPair();
    worlds[0]->control[r] = MessageStream(std::move(hub));
    worlds[r]->control[0] = MessageStream(std::move(spoke));
  }
  ConnectAll(worlds, sockets);
  return worlds;
}

// Connects the worlds by a loopback in place of sockets. It takes no early messages: no name
// is used twice for an allreduce.
inline std::shared_ptr<LoopbackNet> ConnectByLoopback(const std::vector<std::unique_ptr<World>>& worlds,
                                                      uint32_t seed) {
  auto net = std::make_shared<LoopbackNet>(static_cast<int>(worlds.size()), seed);
  for (const auto& world : worlds) world->transport = std::make_unique<Loopback>(net, world->rank);
  return net;
}

// Waits for a condition that other ranks of the test bring about, so that no test relies on their speed.
template <typename Condition>
void AwaitThat(Condition condition) {
  for (int i = 0; i < 20'000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(condition());
}

// Runs body(engine) for every rank in a separate thread. The test fails when one does not return in time. `records`:
// the ranks record their operations, in memory of their own.
inline void RunWorlds(std::vector<std::unique_ptr<World>> worlds, const std::function<void(Engine&)>& body,
                      const std::function<Settings(int rank)>& settings_of,
                      std::chrono::seconds limit = std::chrono::seconds(110), bool records = false) {
  std::vector<std::future<void>> ranks;
  std::vector<std::thread> threads;
  for (auto& world : worlds) {
    std::packaged_task<void()> task(
        [&body, settings = settings_of(world->rank), records, owned = std::move(world)]() mutable {
          std::unique_ptr<Engine> engine;
          auto recorder = records ? std::make_unique<FlightRecorder>() : nullptr;
          const Status status = Engine::Start(std::move(owned), settings, &engine, std::move(recorder));
          ASSERT_TRUE(status.ok()) << status.message();
          body(*engine);
        });
    ranks.push_back(task.get_future());
    threads.emplace_back(std::move(task));
  }
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].wait_until(deadline) == std::future_status::ready) continue;
    ADD_FAILURE() << "rank " << r << " did not end in time";
    std::abort();  // its thread still uses objects that are about to be destroyed
  }
  for (std::thread& thread : threads) thread.join();  // a later test may fork, which requires that no thread is left
  for (auto& rank : ranks) rank.get();
}

inline void RunWorlds(std::vector<std::unique_ptr<World>> worlds, const std::function<void(Engine&)>& body,
                      const Settings& settings = Settings(), std::chrono::seconds limit = std::chrono::seconds(110),
                      bool records = false) {
  RunWorlds(std::move(worlds), body, [&settings](int) { return settings; }, limit, records);
}

inline void RunRanks(const std::vector<int>& node_sizes, const std::function<void(Engine&)>& body,
                     const Settings& settings = Settings(), std::chrono::seconds limit = std::chrono::seconds(110),
                     bool records = false) {
  RunWorlds(ThreadWorlds(node_sizes), body, settings, limit, records);
}

}  // namespace farandole
