// An allocation that fails in a call of the C interface: either the call has begun, and the caller has its operation
// and hears of its end; or it returns an error, and nothing else happens.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "farandole/farandole.h"
#include "support/failing_allocations.h"

namespace farandole {
namespace {

class CallsWithoutMemory : public testing::Test {
 protected:
  void SetUp() override {
    const frd_world world = {sizeof(frd_world), 0, 1, nullptr, nullptr};
    ASSERT_EQ(api_->init(&world), FRD_OK) << api_->last_error();
    for (frd_tensor& tensor : tensors_) {
      tensor.struct_size = sizeof(tensor);
      tensor.dtype = FRD_FLOAT32;
      tensor.input = input_;
      tensor.output = output_;
      tensor.shape = shape_;
      tensor.dimension_count = 1;
    }
    request_.struct_size = sizeof(request_);
    request_.operation = FRD_ALLREDUCE;
    request_.tensors = tensors_;
    request_.tensor_count = 2;
    request_.name = "a name that needs memory of its own";
    request_.prescale = request_.postscale = 1;
    request_.done = [](void* count, int32_t, const char*, void*) { ++*static_cast<int*>(count); };
    request_.done_argument = &ended_;
  }
  void TearDown() override { api_->shutdown(); }

  // Makes the call with this allocation failing. Returns whether it has failed.
  bool Enqueue(int fails_at) {
    ended_ = 0;
    frd_operation* operation = nullptr;
    int32_t code;
    {
      const FailingAllocation failing(fails_at);
      code = api_->enqueue(&request_, &operation);
    }
    EXPECT_EQ(operation != nullptr, code == FRD_OK) << "allocation " << fails_at;
    EXPECT_EQ(ended_, code == FRD_OK ? 1 : 0) << "allocation " << fails_at;
    if (operation != nullptr) api_->release(operation);
    return code != FRD_OK;
  }

  const frd_api* const api_ = frd_get_api();
  const float input_[2] = {1, 2};
  float output_[2] = {};
  const int64_t shape_[1] = {2};
  frd_tensor tensors_[2] = {};
  frd_request request_ = {};
  int ended_ = 0;
};

TEST_F(CallsWithoutMemory, HaveBegunOrHaveNot) {
  int fails_at = 1;
  while (Enqueue(fails_at)) ++fails_at;
  EXPECT_GT(fails_at, 5) << "it sees too few allocations";
}

// Returns what the init of a forked child returns; -1 if it does not return.
int InitInChild(const frd_api* api, const frd_world& world) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    _exit(api->init(&world));
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A process whose init has failed is no rank, and neither are its children.
TEST(InitTest, WithoutMemoryLeavesForkedChildrenFree) {
  const frd_api* const api = frd_get_api();
  const frd_world world = {sizeof(frd_world), 0, 1, nullptr, nullptr};
  int fails_at = 1;
  const auto has_failed = [&] {
    const FailingAllocation failing(fails_at);
    return api->init(&world) != FRD_OK;
  };
  for (; has_failed(); ++fails_at) ASSERT_EQ(InitInChild(api, world), FRD_OK) << "allocation " << fails_at;
  api->shutdown();
  EXPECT_GT(fails_at, 5) << "it sees too few allocations";
}

#if !defined(__SANITIZE_THREAD__)  // whose pthread_once, unlike glibc's, is not prepared for forks
// Whatever init is doing when the process forks: a child never waits for a thread that it does not have.
TEST(InitTest, ReturnsInAChildThatIsForkedMeanwhile) {
  const frd_api* const api = frd_get_api();
  const frd_world world = {sizeof(frd_world), 0, 1, nullptr, nullptr};
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    for (; !is_over; api->shutdown()) EXPECT_EQ(api->init(&world), FRD_OK);
  });
  bool has_returned = true;
  for (int i = 0; i < 100 && has_returned; ++i) has_returned = InitInChild(api, world) != -1;
  is_over = true;
  other.join();
  EXPECT_TRUE(has_returned);
}
#endif

}  // namespace
}  // namespace farandole
