// Participants as threads, each with a transport to all others.
#pragma once

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/runner.h"
#include "support/transports.h"

namespace farandole::tests {

// A runner that has its transport for itself.
class DrivenRunner : public Runner {
 public:
  DrivenRunner(const Schedule* schedule, Transport* transport, const std::vector<int>& ranks, int under_way)
      : Runner(schedule, transport, ranks, under_way), transport_(transport) {}

  Status Advance(bool* moved) {
    FRD_RETURN_IF_ERROR(Post(moved));
    *moved |= PollAll(transport_, &completions_);
    ReduceReady(moved);
    return Status::Ok();
  }

 private:
  Transport* const transport_;
  std::vector<Transport::Completion> completions_;
};

class Mesh {
 public:
  explicit Mesh(Transports transports) : transports_(std::move(transports)), ranks_(transports_.size()) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }

  int participants() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }
  Transport* transport(int me) const { return transports_[static_cast<size_t>(me)].get(); }
  void Close(int me) { transports_[static_cast<size_t>(me)].reset(); }

  // *schedule outlives the runner.
  std::unique_ptr<DrivenRunner> MakeRunner(const Schedule* schedule, int me, int under_way = kChunksUnderWay) const {
    return std::make_unique<DrivenRunner>(schedule, transport(me), ranks_, under_way);
  }

  // Calls body(me) in one thread per participant. Returns the first error, or "" when all bodies returned "".
  std::string Run(const std::function<std::string(int)>& body) const {
    std::vector<std::string> errors(ranks_.size());
    std::vector<std::thread> threads;
    for (int me = 0; me < participants(); ++me) threads.emplace_back([&, me] { errors[me] = body(me); });
    for (std::thread& thread : threads) thread.join();
    for (int me = 0; me < participants(); ++me) {
      if (!errors[me].empty()) return "participant " + std::to_string(me) + ": " + errors[me];
    }
    return "";
  }

 private:
  Transports transports_;
  std::vector<int> ranks_;
};

// Drives `runner` through `plan`.
inline Status RunToEnd(DrivenRunner* runner, const RunPlan& plan, const TimeLimit& limit) {
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
