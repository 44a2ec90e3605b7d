// Ranks that are processes, so that one of them can be killed.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <thread>
#include <vector>

namespace farandole {

// Forks one process per rank, whose exit code is the result of body(rank), and returns their wait statuses. Kills a
// process that does not end in time, and fails the test. REQUIRES: no other thread in this process.
inline std::vector<int> ForkRanks(int size, const std::function<int(int rank)>& body,
                                  std::chrono::seconds limit = std::chrono::seconds(110)) {
  std::vector<pid_t> pids;
  for (int r = 0; r < size; ++r) {
    const pid_t pid = fork();
    if (pid == 0) _exit(body(r));
    EXPECT_GT(pid, 0);
    pids.push_back(pid);
  }
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::vector<int> statuses;
  for (size_t r = 0; r < pids.size(); ++r) {
    int status = 0;
    while (waitpid(pids[r], &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      ADD_FAILURE() << "rank " << r << " did not end in time";
      kill(pids[r], SIGKILL);
      waitpid(pids[r], &status, 0);
      break;
    }
    statuses.push_back(status);
  }
  return statuses;
}

}  // namespace farandole
