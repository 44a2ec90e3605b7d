// poll and wait of the C interface: any limit, and in a forked child.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <thread>

#include "farandole/farandole.h"
#include "support/forked_ranks.h"

namespace farandole {
namespace {

const frd_api* const g_api = frd_get_api();

frd_operation* BeginBarrier(const char* name) {
  frd_request request = {};
  request.struct_size = sizeof(request);
  request.operation = FRD_BARRIER;
  request.prescale = request.postscale = 1;
  request.name = name;
  frd_operation* operation = nullptr;
  return g_api->enqueue(&request, &operation) == FRD_OK ? operation : nullptr;
}

bool Barrier(const char* name) {
  frd_operation* const operation = BeginBarrier(name);
  const bool ended = operation != nullptr && g_api->wait(operation, -1) == FRD_OK;
  if (operation != nullptr) g_api->release(operation);
  return ended;
}

// Runs body(rank) in two ranks, each a process; it returns whether all was as it should be.
void ExpectOnTwoRanks(const std::function<bool(int rank)>& body) {
  static int worlds = 0;
  const std::string endpoint = "unix:farandole-wait-test-" + std::to_string(getpid()) + "-" + std::to_string(++worlds);
  const uint8_t key[32] = {7};
  const std::vector<int> statuses = ForkRanks(2, [&](int rank) {
    const frd_world world = {sizeof(frd_world), rank, 2, endpoint.c_str(), key};
    if (g_api->init(&world) != FRD_OK) return 1;
    const bool fine = body(rank) && Barrier("end");
    g_api->shutdown();
    return fine ? 0 : 2;
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
}

TEST(CWait, TakesTheLargestLimit) {
  ExpectOnTwoRanks([](int rank) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    frd_operation* const operation = BeginBarrier("x");
    const int32_t ended = g_api->wait(operation, std::numeric_limits<int64_t>::max());
    g_api->release(operation);
    return ended == FRD_OK;
  });
}

// Returns the exit status of a forked child that returns `body`.
bool InChild(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(CWait, InAForkedChildIsRefusedUnlessTheOperationHasEnded) {
  ExpectOnTwoRanks([](int rank) {
    if (rank == 1) return Barrier("go") && Barrier("x");
    frd_operation* const operation = BeginBarrier("x");
    const bool refused = InChild([operation] {
      return g_api->poll(operation) == FRD_NOT_INITIALIZED && g_api->wait(operation, 10) == FRD_NOT_INITIALIZED &&
             std::string(g_api->last_error()).find("forked child") != std::string::npos;
    });
    const bool went_on = Barrier("go") && g_api->wait(operation, -1) == FRD_OK;
    const bool told = InChild([operation] { return g_api->poll(operation) == FRD_OK; });
    g_api->release(operation);
    return refused && went_on && told;
  });
}

}  // namespace
}  // namespace farandole
