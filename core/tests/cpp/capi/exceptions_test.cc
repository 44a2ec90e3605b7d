// An allocation that fails in a call of the C interface: either the call has begun, and the caller has its operation
// and hears of its end; or it returns an error, and nothing else happens.
#include <gtest/gtest.h>

#include <cstdint>

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

}  // namespace
}  // namespace farandole
