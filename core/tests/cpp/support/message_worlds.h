// Worlds whose ranks are threads of the test and exchange single messages over real connections. They have nothing else
// that a world has.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "p2p/messenger.h"
#include "transport/socket.h"

namespace farandole {

using Worlds = std::vector<std::unique_ptr<World>>;

// Has a rank listen, as a start leaves it, and returns the endpoint.
inline std::string ListenForMessages(const std::string& wanted, World* world) {
  Descriptor listener;
  std::string endpoint;
  EXPECT_TRUE(Listen(wanted, &listener).ok());
  EXPECT_TRUE(BoundEndpoint(listener.get(), &endpoint).ok());
  world->acceptors.emplace_back().Open(std::move(listener), world->key, {"", static_cast<uint32_t>(world->rank), 0});
  return endpoint;
}

// One world for each rank of nodes of these sizes, connected by Unix sockets in a node and by TCP between nodes.
inline Worlds MessageWorlds(const std::vector<int>& node_sizes) {
  static std::atomic<int> jobs{0};
  const std::string job = std::to_string(getpid()) + "-" + std::to_string(++jobs) + "-";
  std::vector<PeerInfo> peers;
  for (size_t g = 0; g < node_sizes.size(); ++g) {
    for (int i = 0; i < node_sizes[g]; ++i)
      peers.push_back({"host" + std::to_string(g), "machine" + std::to_string(g), 1, true, ""});
  }
  Worlds worlds;
  for (size_t r = 0; r < peers.size(); ++r) {
    World& world = *worlds.emplace_back(std::make_unique<World>());
    world.rank = static_cast<int>(r);
    world.size = static_cast<int>(peers.size());
    world.layout = MakeLayout(peers);
    world.key.fill(7);
    peers[r].segment_endpoint = ListenForMessages("unix:farandole-test-" + job + std::to_string(r), &world);
    peers[r].data_endpoint = ListenForMessages("tcp:127.0.0.1:0", &world);
  }
  for (const auto& world : worlds) world->peers = peers;
  return worlds;
}

// A transfer of the numbers, which must outlive it.
inline TransferPtr TransferOf(bool sends, int peer, uint64_t tag, int context, std::vector<int32_t>* data) {
  auto transfer = std::make_shared<Transfer>();
  transfer->sends = sends;
  transfer->peer = peer;
  transfer->key = {context, tag};
  transfer->dtype = DType::kInt32;
  transfer->data = reinterpret_cast<std::byte*>(data->data());
  transfer->size_bytes = data->size() * sizeof(int32_t);
  return transfer;
}

// Runs body(messenger, rank, size) for every rank in a thread, and shuts down when all have ended.
inline void RunMessengers(const std::vector<int>& node_sizes,
                          const std::function<void(Messenger&, int rank, int size)>& body) {
  const Worlds worlds = MessageWorlds(node_sizes);
  std::vector<std::unique_ptr<Messenger>> messengers;
  std::vector<std::thread> threads;
  for (const auto& world : worlds) {
    messengers.push_back(std::make_unique<Messenger>(world.get(), [](int) { return Status::Ok(); }));
    threads.emplace_back([&body, rank = world->rank, size = world->size, messenger = messengers.back().get()] {
      body(*messenger, rank, size);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace farandole
