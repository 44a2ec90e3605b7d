// Participants as threads over a full mesh of links.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/runner.h"
#include "transport/link_pairs.h"

namespace farandole::tests {

inline constexpr std::chrono::seconds kLimit{60};  // for operations that end by themselves

class Mesh {
 public:
  Mesh(int participants, const std::function<LinkPair()>& make) : links_(participants) {
    for (auto& row : links_) row.resize(participants);
    for (int i = 0; i < participants; ++i) {
      for (int j = i + 1; j < participants; ++j) {
        LinkPair pair = make();
        links_[i][j] = std::move(pair.first);
        links_[j][i] = std::move(pair.second);
      }
    }
  }

  int participants() const { return static_cast<int>(links_.size()); }
  std::vector<Link*> LinksOf(int me) const {
    std::vector<Link*> links;
    for (const auto& link : links_[me]) links.push_back(link.get());
    return links;
  }
  void CloseLinksOf(int me) {
    for (auto& link : links_[me]) link.reset();
  }

  // Calls body(me) in one thread per participant. Returns the first error, or "" when all bodies returned "".
  std::string Run(const std::function<std::string(int)>& body) const {
    std::vector<std::string> complaints(links_.size());
    std::vector<std::thread> threads;
    for (int me = 0; me < participants(); ++me) threads.emplace_back([&, me] { complaints[me] = body(me); });
    for (std::thread& thread : threads) thread.join();
    for (int me = 0; me < participants(); ++me) {
      if (!complaints[me].empty()) return "participant " + std::to_string(me) + ": " + complaints[me];
    }
    return "";
  }

 private:
  std::vector<std::vector<std::unique_ptr<Link>>> links_;
};

// Drives `runner` through `plan`.
inline Status RunToEnd(Runner* runner, const RunPlan& plan, const TimeLimit& limit) {
  runner->Start(plan);
  while (!runner->done()) {
    bool moved = false;
    FRD_RETURN_IF_ERROR(runner->Advance(&moved));
    if (moved) continue;
    if (limit.passed()) return {Code::kDeadline, "time limit passed"};
    std::this_thread::yield();
  }
  return Status::Ok();
}

}  // namespace farandole::tests
