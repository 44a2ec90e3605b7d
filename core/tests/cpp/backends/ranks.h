// Ranks as threads that hand tasks straight to a backend, without an engine and without negotiation: every thread must
// perform the same tasks in the same order.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "backends/table.h"
#include "support/thread_worlds.h"

namespace farandole::tests {

class Rank {
 public:
  Rank(World* world, const Settings& settings) : world_(world), backends_(world, settings, BackendList()) {}

  int rank() const { return world_->rank; }
  const World& world() const { return *world_; }
  const Backend* backend() const { return backend_; }  // that performed the last task

  // Sleeps this long after every poll that moved nothing.
  void BeSlow(std::chrono::milliseconds pause) { pause_ = pause; }

  // Returns "" or the error.
  std::string Perform(const Task& task, std::chrono::seconds limit = std::chrono::seconds(110)) {
    backend_ = backends_.At(task.backend);
    if (backend_ == nullptr) return "not there";
    const auto deadline = std::chrono::steady_clock::now() + limit;
    Status status = backend_->Start(&task);
    for (bool done = false; status.ok() && !done;) {
      bool moved = false;
      status = backend_->Poll(&moved, &done);
      if (moved) continue;
      if (std::chrono::steady_clock::now() > deadline) return "not done in time; waits for " + Waits(*backend_);
      pause_.count() > 0 ? std::this_thread::sleep_for(pause_) : std::this_thread::yield();
    }
    return status.message();
  }

  void Forget(int set_id) { backend_->Forget(set_id); }  // REQUIRES: something was performed

 private:
  static std::string Waits(const Backend& backend) {
    std::string ranks;
    for (int rank : backend.WaitingOn()) ranks += " " + std::to_string(rank);
    return ranks.empty() ? "nobody" : "rank" + ranks;
  }

  World* world_;
  BackendTable backends_;
  Backend* backend_ = nullptr;
  std::chrono::milliseconds pause_{0};
};

// Runs body(rank) in a thread per rank of nodes of the given sizes. Returns "" or the first error. With a seed over
// loopback, else over sockets.
inline std::string RunBackends(const std::vector<int>& node_sizes, const std::function<std::string(Rank&)>& body,
                               const Settings& settings = Settings(), uint32_t loopback_seed = 0) {
  const std::vector<std::unique_ptr<World>> worlds = ThreadWorlds(node_sizes);
  if (loopback_seed > 0) ConnectByLoopback(worlds, loopback_seed);
  std::vector<std::string> errors(worlds.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < worlds.size(); ++r) {
    threads.emplace_back([&, r] {
      Rank rank(worlds[r].get(), settings);
      errors[r] = body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (size_t r = 0; r < errors.size(); ++r) {
    if (!errors[r].empty()) all += "rank " + std::to_string(r) + ": " + errors[r] + "\n";
  }
  return all;
}

}  // namespace farandole::tests
