// Callers without their framework's stream: tensors are ready after all work that their device was asked for, and
// `done` comes when the results may be read. Staged on the host by the native backend, and on the device by NCCL
// (fakes).
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "support/fake_framework.h"
#include "support/fake_gpus.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

// The device's memory at the time of `done`, as a framework without a stream sees it.
struct SeenWhenDone {
  SeenWhenDone(FakeCuda* of, const float* at, size_t values) : cuda(of), memory(at), count(values) {}

  FakeCuda* const cuda;
  const float* const memory;
  const size_t count;
  std::function<void()> then = [] {};
  std::atomic<int> calls{0};
  std::vector<float> values;
  Event event = nullptr;
  Status status;

  void Attach(Request* request) {
    request->ready = Ready::kAfterAll;
    request->done_when_readable = true;
    request->done_argument = this;
    request->done = [](void* argument, const Status& status, Event event) {
      auto* const self = static_cast<SeenWhenDone*>(argument);
      self->event = event;
      self->status = status;
      const auto* const now = static_cast<const float*>(self->cuda->Contents(self->memory));
      if (self->count > 0) self->values.assign(now, now + self->count);
      self->then();
      self->calls.fetch_add(1);
    };
  }
};

Tensor WithoutEvent(float* memory, size_t count) {
  Tensor tensor;
  tensor.input = tensor.output = memory;
  tensor.shape = {static_cast<int64_t>(count)};
  tensor.device = static_cast<int32_t>(DeviceKind::kCuda);
  return tensor;
}

using Case = std::tuple<std::vector<int>, std::vector<std::string>>;  // nodes, backends

class Streamless : public OnFakeGpus<testing::TestWithParam<Case>> {
 protected:
  void Run(const std::function<void(Engine&, Framework&)>& body) {
    const auto& [nodes, backends] = GetParam();
    Settings settings = SettingsOfFakes();
    settings.backends = backends;
    RunRanks(
        nodes,
        [&](Engine& engine) {
          Framework framework(cuda_, engine.rank());
          body(engine, framework);
        },
        settings);
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, Streamless,
                         testing::Combine(testing::Values(std::vector<int>{2}, std::vector<int>{2, 1}),
                                          testing::Values(std::vector<std::string>{"native"},
                                                          std::vector<std::string>{"nccl", "native"})));

TEST_P(Streamless, ResultsAreThereWhenDoneComes) {
  cuda_.SetDelay(milliseconds(3));
  Run([this](Engine& engine, Framework& framework) {
    for (size_t count : {size_t{5}, size_t{70'001}, size_t{0}}) {
      float* const values = framework.Compute(count, engine.rank());
      Request request = Make(OpKind::kAllreduce, {WithoutEvent(values, count)});
      SeenWhenDone seen(&cuda_, values, count);
      seen.Attach(&request);
      const Status status = SubmitAndWait(engine, std::move(request));
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(seen.calls, 1);
      EXPECT_EQ(seen.event, nullptr);
      ExpectSum(seen.values, engine.size());
    }
  });
}

TEST_P(Streamless, SeveralInFlightAmongThoseWithAStream) {
  constexpr int kCount = 12;
  cuda_.SetDelay(std::chrono::microseconds(300));
  Run([this](Engine& engine, Framework& framework) {
    std::vector<OperationPtr> operations(kCount);
    std::vector<float*> values;
    for (int i = 0; i < kCount; ++i) {
      values.push_back(framework.Compute(1000, engine.rank()));
      Request request = Make(OpKind::kAllreduce, {framework.TensorOf(values[i], values[i], 1000)});
      if (i % 3 != 0) {
        request.ready = Ready::kAfterAll;
        request.tensors[0].ready_event = nullptr;
      }
      ASSERT_TRUE(SubmitTo(engine, request, &operations[i]).ok());
    }
    for (int i = 0; i < kCount; ++i) {
      ASSERT_TRUE(engine.Wait(operations[i], kWaitMs));
      ASSERT_TRUE(operations[i]->status().ok()) << operations[i]->status().message();
      ExpectSum(framework.Read(values[i], 1000), engine.size());
    }
  });
}

// Another rank leaves while this one's device has still to read the tensor: the operation is over, but `done` comes
// only when the device has stopped using the tensor.
TEST_P(Streamless, AFailureIsToldWhenTheDeviceHasLetGo) {
  std::atomic<bool> let_go{false};
  const auto begun = [this] { return cuda_.calls("cuMemcpyDtoHAsync_v2") + nccl_.calls("ncclAllReduce"); };
  Run([&](Engine& engine, Framework& framework) {
    if (engine.rank() == 0) framework.Launch([&let_go] { AwaitThat([&let_go] { return let_go.load(); }); });
    float* const values = framework.Compute(1000, engine.rank());
    Request request = Make(OpKind::kAllreduce, {WithoutEvent(values, 1000)}, "grad");
    SeenWhenDone seen(&cuda_, values, 0);
    bool had_let_go = false;
    seen.then = [&] { had_let_go = let_go; };
    seen.Attach(&request);
    OperationPtr operation;
    ASSERT_TRUE(SubmitTo(engine, request, &operation).ok());
    AwaitThat([&] { return begun() >= engine.size() || operation->done(); });
    if (engine.rank() != 0) return engine.Shutdown();
    std::thread device([&let_go] {
      std::this_thread::sleep_for(milliseconds(200));
      let_go = true;
    });
    EXPECT_TRUE(engine.Wait(operation, kWaitMs));
    device.join();
    EXPECT_EQ(seen.calls, 1);
    EXPECT_TRUE(had_let_go);
    EXPECT_EQ(seen.status.code(), Code::kPeerLost) << seen.status.message();
  });
}

TEST(StreamlessDriver, ThatCannotBeOpenedIsSaidOfTheOperation) {
  Settings settings;
  settings.cuda_driver = "libfarandole-absent.so.1";
  RunRanks(
      {1, 1},
      [](Engine& engine) {
        float here = 0;
        Request request = Make(OpKind::kAllreduce, {WithoutEvent(&here, 1)}, "grad");
        request.ready = Ready::kAfterAll;
        OperationPtr operation;
        const Status status = SubmitTo(engine, request, &operation);
        EXPECT_EQ(status.message().rfind("allreduce 'grad': the CUDA driver cannot be opened", 0), 0u)
            << status.message();
      },
      settings);
}

}  // namespace
}  // namespace farandole
