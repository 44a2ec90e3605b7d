// A tensor on a (fake) CUDA device through the C interface: what a plugin's native part sees of it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "farandole/farandole.h"
#include "support/fake_cuda.h"

namespace farandole {
namespace {

// A world of one rank, whose sum is its own values times the prescale factor.
struct CInterfaceTest : testing::Test {
  void SetUp() override {
    fake_.Reset();
    setenv("FARANDOLE_CUDA_DRIVER", FakeCudaPath().c_str(), 1);
    const frd_world world = {sizeof(frd_world), 0, 1, nullptr, nullptr};
    ASSERT_EQ(api_->init(&world), FRD_OK) << api_->last_error();
    stream_ = fake_.MakeStream(0);
    values_ = static_cast<float*>(fake_.Allocate(0, kCount * sizeof(float)));
  }
  void TearDown() override {
    api_->shutdown();
    unsetenv("FARANDOLE_CUDA_DRIVER");
    fake_.Synchronize(stream_);
    fake_.Free(values_);
    for (const std::string& misuse : fake_.misuses()) ADD_FAILURE() << misuse;
  }

  float* contents() { return static_cast<float*>(fake_.Contents(values_)); }
  frd_tensor TensorOf(void* address) {
    frd_tensor tensor = {};
    tensor.struct_size = sizeof(tensor);
    tensor.dtype = FRD_FLOAT32;
    tensor.input = tensor.output = address;
    tensor.shape = &shape_;
    tensor.dimension_count = 1;
    tensor.device = FRD_CUDA;
    tensor.ready_event = fake_.RecordNewEvent(stream_);
    return tensor;
  }
  static frd_request Tripled(const frd_tensor* tensor) {
    frd_request request = {};
    request.struct_size = sizeof(request);
    request.operation = FRD_ALLREDUCE;
    request.tensors = tensor;
    request.tensor_count = 1;
    request.prescale = 3.0;
    request.postscale = 1.0;
    return request;
  }

  static constexpr int64_t kCount = 100;
  const int64_t shape_ = kCount;
  const frd_api* const api_ = frd_get_api();
  FakeCuda& fake_ = OpenFakeCuda();
  void* stream_ = nullptr;
  float* values_ = nullptr;
};

TEST_F(CInterfaceTest, DoneHandsOverTheEventForWhichTheStreamWaits) {
  fake_.SetDelay(std::chrono::milliseconds(3));
  fake_.Launch(stream_, [to = contents()] {
    for (int64_t i = 0; i < kCount; ++i) to[i] = static_cast<float>(i);
  });
  const frd_tensor tensor = TensorOf(values_);
  frd_request request = Tripled(&tensor);
  request.done_argument = this;
  request.done = [](void* argument, int32_t code, const char* message, void* event) {
    auto* const self = static_cast<CInterfaceTest*>(argument);
    EXPECT_EQ(code, FRD_OK) << message;
    EXPECT_NE(event, nullptr);
    self->fake_.Wait(self->stream_, event);
  };
  ASSERT_EQ(api_->enqueue(&request, nullptr), FRD_OK) << api_->last_error();
  float last = 0;
  fake_.Launch(stream_, [&last, from = contents()] { last = from[kCount - 1]; });
  fake_.Synchronize(stream_);
  EXPECT_EQ(last, 3.0f * (kCount - 1));
}

TEST_F(CInterfaceTest, WithoutDoneTheResultIsThereWhenWaitReturns) {
  contents()[0] = 5.0f;
  fake_.SetDelay(std::chrono::milliseconds(3));
  const frd_tensor tensor = TensorOf(values_);
  const frd_request request = Tripled(&tensor);
  frd_operation* operation = nullptr;
  ASSERT_EQ(api_->enqueue(&request, &operation), FRD_OK) << api_->last_error();
  EXPECT_EQ(api_->wait(operation, 10'000), FRD_OK);
  EXPECT_EQ(contents()[0], 15.0f);
  api_->release(operation);
}

TEST_F(CInterfaceTest, WithoutAStreamDoneComesWhenTheResultIsThere) {
  fake_.SetDelay(std::chrono::milliseconds(3));
  fake_.Launch(stream_, [to = contents()] { to[0] = 5.0f; });
  frd_tensor tensor = TensorOf(values_);
  tensor.ready_event = nullptr;
  frd_request request = Tripled(&tensor);
  request.ready = FRD_READY_AFTER_ALL;
  request.done_when_readable = 1;
  struct Seen {
    const float* contents;
    float value;
    void* event;
  } seen = {contents(), 0, this};
  request.done_argument = &seen;
  request.done = [](void* argument, int32_t, const char*, void* event) {
    auto* const to = static_cast<Seen*>(argument);
    *to = {to->contents, to->contents[0], event};
  };
  ASSERT_EQ(api_->enqueue(&request, nullptr), FRD_OK) << api_->last_error();
  EXPECT_EQ(seen.value, 15.0f);
  EXPECT_EQ(seen.event, nullptr);
}

TEST_F(CInterfaceTest, AnUnknownValueOfReadyIsRefused) {
  const frd_tensor tensor = TensorOf(values_);
  frd_request request = Tripled(&tensor);
  request.ready = 2;
  EXPECT_EQ(api_->enqueue(&request, nullptr), FRD_INVALID);
  EXPECT_EQ(std::string(api_->last_error()), "unknown value of ready: 2");
}

TEST_F(CInterfaceTest, AnAddressThatIsNotOnADeviceIsRefused) {
  float here[kCount] = {};
  const frd_tensor tensor = TensorOf(here);
  const frd_request request = Tripled(&tensor);
  frd_operation* operation = nullptr;
  EXPECT_EQ(api_->enqueue(&request, &operation), FRD_INVALID);
  EXPECT_NE(std::string(api_->last_error()).find("does not have the address"), std::string::npos) << api_->last_error();
}

}  // namespace
}  // namespace farandole
