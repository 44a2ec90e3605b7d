// Tensors on (fake) CUDA devices through the engine, ranks as threads. Streams run late, so a missing wait gives wrong
// values.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "support/fake_cuda.h"
#include "support/fake_framework.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

class DeviceEngine : public testing::TestWithParam<std::vector<int>> {
 protected:
  void SetUp() override {
    fake_.Reset();
    pinned_before_ = fake_.pinned_bytes();
  }
  void TearDown() override {
    for (const std::string& misuse : fake_.misuses()) ADD_FAILURE() << misuse;
    EXPECT_EQ(fake_.pinned_bytes(), pinned_before_) << "pinned memory is left behind";
  }
  void Run(const std::function<void(Engine&, Framework&)>& body, const std::vector<int>& nodes) {
    Settings settings;
    settings.cuda_driver = FakeCudaPath();
    RunRanks(
        nodes,
        [&](Engine& engine) {
          Framework framework(fake_, engine.rank() % 2);
          body(engine, framework);
        },
        settings);
  }
  void Run(const std::function<void(Engine&, Framework&)>& body) { Run(body, GetParam()); }

  FakeCuda& fake_ = OpenFakeCuda();
  size_t pinned_before_ = 0;
};

TEST_P(DeviceEngine, AllreduceWaitsForTheInputAndTheStreamForTheResult) {
  fake_.SetDelay(milliseconds(3));
  Run([](Engine& engine, Framework& framework) {
    for (size_t count : {size_t{5}, size_t{1}, size_t{300'000}, size_t{0}, size_t{70'001}}) {
      float* const values = framework.Compute(count, engine.rank());
      Request request = Make(OpKind::kAllreduce, {framework.TensorOf(values, values, count)});
      OnDone done(&framework);
      done.Attach(&request);
      const Status status = SubmitAndWait(engine, std::move(request));
      ASSERT_TRUE(status.ok()) << status.message();
      ExpectSum(framework.Read(values, count), engine.size());
      EXPECT_EQ(done.calls, 1);
      EXPECT_EQ(done.event == nullptr, count == 0);
    }
  });
}

TEST_P(DeviceEngine, WithoutADoneFunctionTheResultIsThereWhenWaitReturns) {
  fake_.SetDelay(milliseconds(3));
  Run([this](Engine& engine, Framework& framework) {
    for (size_t count : {size_t{5}, size_t{100'000}}) {
      float* const values = framework.Compute(count, engine.rank());
      ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {framework.TensorOf(values, values, count)})).ok());
      const auto* const now = static_cast<float*>(fake_.Contents(values));
      ExpectSum(std::vector<float>(now, now + count), engine.size());
    }
  });
}

TEST_P(DeviceEngine, OutOfPlaceLeavesTheInputAlone) {
  fake_.SetDelay(milliseconds(1));
  Run([](Engine& engine, Framework& framework) {
    float* const input = framework.Compute(1000, engine.rank());
    float* const output = framework.Empty(1000);
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {framework.TensorOf(input, output, 1000)})).ok());
    ExpectSum(framework.Read(output, 1000), engine.size());
    const std::vector<float> kept = framework.Read(input, 1000);
    for (size_t i = 0; i < kept.size(); ++i) ASSERT_EQ(kept[i], ValueOf(engine.rank(), i));
  });
}

TEST_P(DeviceEngine, ManyInFlightSomeOfThemOnTheHost) {
  fake_.SetDelay(milliseconds(1));
  Run([](Engine& engine, Framework& framework) {
    constexpr size_t kOperations = 12, kCount = 3000;
    std::vector<float*> on_device(kOperations);
    std::vector<std::vector<float>> on_host(kOperations, std::vector<float>(kCount));
    std::vector<OperationPtr> operations(kOperations);
    for (size_t k = 0; k < kOperations; ++k) {
      // Each rank in an order of its own.
      const size_t n = (k * 5 + static_cast<size_t>(engine.rank())) % kOperations;
      Tensor tensor;
      if (n % 3 == 0) {
        for (size_t i = 0; i < kCount; ++i) on_host[n][i] = static_cast<float>(ValueOf(engine.rank(), i));
        tensor.input = tensor.output = on_host[n].data();
        tensor.shape = {static_cast<int64_t>(kCount)};
      } else {
        on_device[n] = framework.Compute(kCount, engine.rank());
        tensor = framework.TensorOf(on_device[n], on_device[n], kCount);
      }
      Request request = Make(OpKind::kAllreduce, {tensor}, "t" + std::to_string(n));
      ASSERT_TRUE(SubmitTo(engine, request, &operations[n]).ok());
    }
    for (size_t n = 0; n < kOperations; ++n) {
      ASSERT_TRUE(engine.Wait(operations[n], kWaitMs));
      ASSERT_TRUE(operations[n]->status().ok()) << operations[n]->status().message();
      ExpectSum(n % 3 == 0 ? on_host[n] : framework.Read(on_device[n], kCount), engine.size());
    }
  });
}

TEST_P(DeviceEngine, AGroupedCallMixesSizesAndElementTypes) {
  fake_.SetDelay(milliseconds(1));
  Run([this](Engine& engine, Framework& framework) {
    float* const a = framework.Compute(7, engine.rank());
    float* const b = framework.Compute(50'000, engine.rank());
    float* const c = framework.Empty(9);
    for (size_t i = 0; i < 9; ++i) static_cast<int32_t*>(fake_.Contents(c))[i] = engine.rank() + static_cast<int>(i);
    Request request = Make(OpKind::kAllreduce, {framework.TensorOf(a, a, 7), framework.TensorOf(c, c, 9),
                                                framework.TensorOf(b, b, 50'000)});
    request.tensors[1].dtype = DType::kInt32;
    ASSERT_TRUE(SubmitAndWait(engine, std::move(request)).ok());
    ExpectSum(framework.Read(a, 7), engine.size());
    ExpectSum(framework.Read(b, 50'000), engine.size());
    for (int i = 0; i < 9; ++i) {
      ASSERT_EQ(static_cast<int32_t*>(fake_.Contents(c))[i],
                engine.size() * (engine.size() - 1) / 2 + engine.size() * i);
    }
  });
}

TEST_P(DeviceEngine, BroadcastDoesNotOverwriteWhatIsStillRead) {
  fake_.SetDelay(milliseconds(5));
  Run([this](Engine& engine, Framework& framework) {
    constexpr size_t kCount = 20'000;
    const int root = engine.size() - 1;
    float* const values = framework.Compute(kCount, engine.rank());
    // The framework reads later in its own stream, before the ready event.
    auto old = std::make_shared<std::vector<float>>(kCount);
    auto* const contents = static_cast<float*>(fake_.Contents(values));
    framework.Launch([old, contents] { std::memcpy(old->data(), contents, kCount * sizeof(float)); });
    Request request = Make(OpKind::kBroadcast, {framework.TensorOf(values, values, kCount)});
    request.root = root;
    OnDone done(&framework);
    done.Attach(&request);
    ASSERT_TRUE(SubmitAndWait(engine, std::move(request)).ok());
    const std::vector<float> now = framework.Read(values, kCount);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(now[i], ValueOf(root, i));
      ASSERT_EQ((*old)[i], ValueOf(engine.rank(), i)) << "overwritten too early";
    }
  });
}

TEST_P(DeviceEngine, AllgatherLeavesItsResultInHostMemory) {
  fake_.SetDelay(milliseconds(2));
  Run([](Engine& engine, Framework& framework) {
    const size_t rows = static_cast<size_t>(engine.rank()) * 500;  // rank 0 has none
    float* const part = framework.Compute(rows, engine.rank());
    OperationPtr operation;
    Request request = Make(OpKind::kAllgather, {framework.TensorOf(part, nullptr, rows)});
    ASSERT_TRUE(SubmitAndWait(engine, std::move(request), &operation).ok());
    const auto* all = reinterpret_cast<const float*>(operation->outputs.at(0).memory.get());
    for (int r = 0; r < engine.size(); ++r) {
      for (size_t i = 0; i < static_cast<size_t>(r) * 500; ++i) ASSERT_EQ(*all++, ValueOf(r, i));
    }
  });
}

TEST_P(DeviceEngine, ASteadyStateAllocatesNothing) {
  std::atomic<int> before{0};
  Run([&](Engine& engine, Framework& framework) {
    float* const values = framework.Compute(200'000, engine.rank());
    for (int step = 0; step < 8; ++step) {
      Request request = Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 200'000)});
      ASSERT_TRUE(SubmitAndWait(engine, std::move(request)).ok());
      if (step == 2) before = fake_.calls("cuMemHostAlloc");
    }
  });
  EXPECT_EQ(fake_.calls("cuMemHostAlloc"), before);
}

TEST_P(DeviceEngine, ACopyInThatFailsEndsTheJobWithTheCallItsErrorAndTheRank) {
  for (const char* call : {"cuMemcpyDtoHAsync_v2", "cuStreamWaitEvent", "cuEventRecord", "cuEventQuery",
                           "cuMemHostAlloc", "cuStreamCreateWithPriority", "cuEventCreate"}) {
    fake_.Reset();
    fake_.Fail(call, 719, 0, true);
    Run([call](Engine& engine, Framework& framework) {
      float* const values = framework.Compute(1000, engine.rank());
      const Status status =
          SubmitAndWait(engine, Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 1000)}, "grad"));
      EXPECT_EQ(status.code(), Code::kInternal);
      const std::string& text = status.message();
      EXPECT_NE(text.find("allreduce 'grad' failed on rank " + std::to_string(engine.rank())), std::string::npos)
          << text;
      EXPECT_NE(text.find(std::string(call) + " failed on CUDA device"), std::string::npos) << text;
      EXPECT_NE(text.find("CUDA_ERROR_LAUNCH_FAILED (719)"), std::string::npos) << text;
    });
  }
  fake_.Reset();
  pinned_before_ = fake_.pinned_bytes();  // memory that a broken device may still use is not freed
}

TEST_P(DeviceEngine, AWakeThatTheDriverRefusesCostsTimeOnly) {
  fake_.SetDelay(milliseconds(3));
  fake_.Fail("cuLaunchHostFunc", 719, 0, true);
  Run([](Engine& engine, Framework& framework) {
    float* const values = framework.Compute(1000, engine.rank());
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 1000)})).ok());
    ExpectSum(framework.Read(values, 1000), engine.size());
  });
}

TEST_P(DeviceEngine, ACopyOutThatFailsIsTheErrorOfThatRankAlone) {
  fake_.Fail("cuMemcpyHtoDAsync_v2", 719);
  std::atomic<int> failed{0};
  Run([&](Engine& engine, Framework& framework) {
    float* const values = framework.Compute(1000, engine.rank());
    Request request = Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 1000)}, "grad");
    const Status status = SubmitAndWait(engine, std::move(request));
    if (!status.ok()) {
      failed.fetch_add(1);
      EXPECT_NE(status.message().find("cuMemcpyHtoDAsync_v2 failed on CUDA device"), std::string::npos)
          << status.message();
    }
    float* const again = framework.Compute(1000, engine.rank());
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {framework.TensorOf(again, again, 1000)})).ok());
    ExpectSum(framework.Read(again, 1000), engine.size());
  });
  EXPECT_EQ(failed, 1);
  pinned_before_ = fake_.pinned_bytes();
}

INSTANTIATE_TEST_SUITE_P(Nodes, DeviceEngine,
                         testing::Values(std::vector<int>{2}, std::vector<int>{3}, std::vector<int>{1, 1},
                                         std::vector<int>{2, 1}));

class DeviceEngineOfTwo : public DeviceEngine {};
INSTANTIATE_TEST_SUITE_P(Nodes, DeviceEngineOfTwo, testing::Values(std::vector<int>{2}));

TEST_P(DeviceEngineOfTwo, AHostTensorAndADeviceTensorDisagree) {
  Run([](Engine& engine, Framework& framework) {
    std::vector<float> here(4);
    Tensor tensor;
    tensor.input = tensor.output = here.data();
    tensor.shape = {4};
    if (engine.rank() == 1) {
      float* const values = framework.Compute(4, 1);
      tensor = framework.TensorOf(values, values, 4);
    }
    const Status status = SubmitAndWait(engine, Make(OpKind::kAllreduce, {tensor}, "x"));
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_NE(status.message().find("device: rank 0 has host, rank 1 has CUDA"), std::string::npos) << status.message();
  });
}

TEST_P(DeviceEngineOfTwo, WhatALeavingRankWillNotJoinFailsOnce) {
  fake_.SetDelay(milliseconds(10));
  Run([](Engine& engine, Framework& framework) {
    float* const first = framework.Compute(1000, engine.rank());
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {framework.TensorOf(first, first, 1000)}, "x")).ok());
    if (engine.rank() == 1) return;
    float* const values = framework.Compute(1000, engine.rank());
    Request request = Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 1000)}, "x");
    OnDone done(&framework);
    done.Attach(&request);
    OperationPtr operation;
    const Status submitted = SubmitTo(engine, request, &operation);
    if (!submitted.ok()) {  // the other rank has left already
      EXPECT_EQ(submitted.code(), Code::kPeerLost);
      EXPECT_EQ(done.calls, 0);
      return;
    }
    ASSERT_TRUE(engine.Wait(operation, kWaitMs));
    EXPECT_EQ(operation->status().code(), Code::kPeerLost);
    EXPECT_EQ(done.calls, 1);
  });
}

TEST_P(DeviceEngineOfTwo, WithoutADriverATensorOnADeviceIsRefusedOnThatRankAlone) {
  Settings settings;
  settings.cuda_driver = "libfarandole-absent.so.1";
  RunRanks(
      {2},
      [](Engine& engine) {
        std::vector<float> values(4, 1.0f);
        Tensor tensor;
        tensor.input = tensor.output = values.data();
        tensor.shape = {4};
        tensor.device = 1;
        OperationPtr operation;
        const Status status = SubmitTo(engine, Make(OpKind::kAllreduce, {tensor}, "grad"), &operation);
        EXPECT_EQ(status.code(), Code::kInvalid);
        const std::string start =
            "allreduce 'grad': the CUDA driver cannot be opened: looked for libfarandole-absent.so.1";
        EXPECT_EQ(status.message().substr(0, start.size()), start);
        tensor.device = 0;
        EXPECT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {tensor}, "grad")).ok());
        tensor.device = 2;
        EXPECT_EQ(SubmitTo(engine, Make(OpKind::kAllreduce, {tensor}, "grad"), &operation).message(),
                  "allreduce 'grad': this build knows no device of kind 2");
      },
      settings);
}

TEST_P(DeviceEngineOfTwo, ADeviceThatIsLateIsNamedAndThenADeadline) {
  Settings settings;
  settings.cuda_driver = FakeCudaPath();
  settings.timeout_ms = 300;
  settings.log_level = 0;
  std::atomic<int> over{0};
  RunRanks(
      {2},
      [this, &over](Engine& engine) {
        Framework framework(fake_, 0);
        if (engine.rank() == 0) framework.Launch([&over] { AwaitThat([&over] { return over == 2; }); });
        float* const values = framework.Compute(1000, engine.rank());
        Request request = Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 1000)}, "grad");
        const Status status = SubmitAndWait(engine, std::move(request));
        ++over;
        EXPECT_EQ(status.code(), Code::kDeadline);
        EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
      },
      settings);
}

TEST_P(DeviceEngine, OperandsAreScaledOnceTheyAreOnTheHost) {
  Run([](Engine& engine, Framework& framework) {
    float* const values = framework.Compute(1000, engine.rank());
    Request request = Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 1000)});
    request.reduce = ReduceOp::kMax;
    request.prescale = -1.0;
    ASSERT_TRUE(SubmitAndWait(engine, std::move(request)).ok());
    const std::vector<float> now = framework.Read(values, 1000);
    for (size_t i = 0; i < now.size(); ++i) ASSERT_EQ(now[i], -static_cast<float>(ValueOf(0, i)));
  });
}

// ---- one rank

class DeviceEngineOfOne : public DeviceEngine {
 protected:
  void RunAlone(const std::function<void(Engine&, Framework&)>& body) {
    Settings settings;
    settings.cuda_driver = FakeCudaPath();
    WorldSpec spec;
    spec.size = 1;
    std::unique_ptr<Engine> engine;
    ASSERT_TRUE(Engine::Start(spec, settings, &engine).ok());
    Framework framework(fake_, 0);
    body(*engine, framework);
  }
};
INSTANTIATE_TEST_SUITE_P(Nodes, DeviceEngineOfOne, testing::Values(std::vector<int>{1}));

TEST_P(DeviceEngineOfOne, TheResultIsTheOwnContribution) {
  fake_.SetDelay(milliseconds(2));
  RunAlone([](Engine& engine, Framework& framework) {
    for (const bool with_done : {false, true}) {
      float* const values = framework.Compute(1000, 0);
      Request request = Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 1000)});
      request.prescale = 2.0;
      OnDone done(&framework);
      if (with_done) done.Attach(&request);
      const Status status = SubmitAndWait(engine, std::move(request));
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(done.event != nullptr, with_done);
      const std::vector<float> now = framework.Read(values, 1000);
      for (size_t i = 0; i < now.size(); ++i) ASSERT_EQ(now[i], 2.0f * ValueOf(0, i));
    }
  });
}

TEST_P(DeviceEngineOfOne, AFailureNamesTheCallAndTheNextOperationGoesOn) {
  RunAlone([this](Engine& engine, Framework& framework) {
    float* const values = framework.Compute(1000, 0);
    fake_.Fail("cuMemHostAlloc", 2);
    const Status status = SubmitAndWait(engine, Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 1000)}));
    EXPECT_NE(status.message().find("cuMemHostAlloc failed on CUDA device 0: CUDA_ERROR_OUT_OF_MEMORY (2)"),
              std::string::npos)
        << status.message();
    EXPECT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {framework.TensorOf(values, values, 1000)})).ok());
  });
}

TEST_P(DeviceEngineOfOne, TensorsOfOneOperationLieOnOneDevice) {
  RunAlone([this](Engine& engine, Framework& framework) {
    Framework other(fake_, 1);
    float* const a = framework.Compute(10, 0);
    float* const b = other.Compute(10, 0);
    OperationPtr operation;
    Request request = Make(OpKind::kAllreduce, {framework.TensorOf(a, a, 10), other.TensorOf(b, b, 10)}, "pair");
    EXPECT_EQ(
        SubmitTo(engine, request, &operation).message(),
        "allreduce 'pair': its tensors lie on CUDA device 0 and on CUDA device 1; use one operation for each device");
  });
}

}  // namespace
}  // namespace farandole
