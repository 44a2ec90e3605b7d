// The CUDA device against the fake driver: the calls of the driver, and the messages when it refuses.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "common/config.h"
#include "device/device.h"
#include "support/fake_cuda.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

class CudaTest : public testing::Test {
 protected:
  void SetUp() override { fake_.Reset(); }
  void TearDown() override {
    for (const std::string& misuse : fake_.misuses()) ADD_FAILURE() << misuse;
  }

  static Device* DeviceOf(const void* address, const std::string& driver = FakeCudaPath()) {
    Device* device = nullptr;
    const Status found = Devices(driver).Find(DeviceKind::kCuda, address, &device);
    EXPECT_TRUE(found.ok()) << found.message();
    return device;
  }
  static void Await(Device* device, Event event) {
    for (bool happened = false; !happened;) ASSERT_TRUE(device->HasHappened(event, &happened).ok());
  }

  FakeCuda& fake_ = OpenFakeCuda();
};

TEST_F(CudaTest, TheDeviceOfAnAddressIsFoundWhereverItPointsInside) {
  auto* const on_first = static_cast<char*>(fake_.Allocate(0, 1000));
  auto* const on_second = static_cast<char*>(fake_.Allocate(1, 1000));
  EXPECT_EQ(DeviceOf(on_first)->name(), "CUDA device 0");
  EXPECT_EQ(DeviceOf(on_second + 999)->name(), "CUDA device 1");
  EXPECT_EQ(DeviceOf(on_first), DeviceOf(on_first + 500));
  fake_.Free(on_first);
  fake_.Free(on_second);
}

TEST_F(CudaTest, AnAddressOfTheHostIsRefusedWithTheAddress) {
  const int here = 0;
  Device* device = nullptr;
  const Status status = Devices(FakeCudaPath()).Find(DeviceKind::kCuda, &here, &device);
  char address[32];
  std::snprintf(address, sizeof(address), "%p", static_cast<const void*>(&here));
  EXPECT_EQ(status.code(), Code::kInvalid);
  EXPECT_NE(status.message().find(address), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("CUDA_ERROR_INVALID_VALUE (1)"), std::string::npos) << status.message();
  EXPECT_EQ(device, nullptr);
}

TEST_F(CudaTest, CopiesGoThroughStreamsAndEventsSayWhenTheyAreMade) {
  constexpr size_t kBytes = 100'000;
  void* const source = fake_.Allocate(0, kBytes);
  void* const target = fake_.Allocate(0, kBytes);
  std::memset(fake_.Contents(source), 7, kBytes);
  Device* const device = DeviceOf(source);
  void* pinned = nullptr;
  Stream stream = nullptr;
  Event in = nullptr, out = nullptr;
  ASSERT_TRUE(device->AllocatePinned(kBytes, &pinned).ok());
  ASSERT_TRUE(device->CreateStream(&stream).ok());
  ASSERT_TRUE(device->CreateEvent(&in).ok());
  ASSERT_TRUE(device->CreateEvent(&out).ok());
  fake_.SetDelay(milliseconds(20));
  ASSERT_TRUE(device->CopyToHost(pinned, source, kBytes, stream).ok());
  ASSERT_TRUE(device->Record(in, stream).ok());
  bool happened = true;
  ASSERT_TRUE(device->HasHappened(in, &happened).ok());
  EXPECT_FALSE(happened);
  Await(device, in);
  EXPECT_EQ(static_cast<char*>(pinned)[kBytes - 1], 7);
  ASSERT_TRUE(device->CopyToDevice(target, pinned, kBytes, stream).ok());
  ASSERT_TRUE(device->Record(out, stream).ok());
  Await(device, out);
  EXPECT_EQ(std::memcmp(fake_.Contents(source), fake_.Contents(target), kBytes), 0);
  device->DestroyEvent(in);
  device->DestroyEvent(out);
  device->DestroyStream(stream);
  device->FreePinned(pinned);
  fake_.Free(source);
  fake_.Free(target);
}

TEST_F(CudaTest, AStreamWaitsForAnEventOfAnotherDevice) {
  void* const memory = fake_.Allocate(1, 64);
  Device* const device = DeviceOf(memory);
  void* const framework = fake_.MakeStream(0);
  void* pinned = nullptr;
  Stream stream = nullptr;
  Event copied = nullptr;
  ASSERT_TRUE(device->AllocatePinned(64, &pinned).ok());
  ASSERT_TRUE(device->CreateStream(&stream).ok());
  ASSERT_TRUE(device->CreateEvent(&copied).ok());
  fake_.SetDelay(milliseconds(20));
  fake_.Launch(framework, [&] { std::memset(fake_.Contents(memory), 3, 64); });
  ASSERT_TRUE(device->WaitInStream(stream, fake_.RecordNewEvent(framework)).ok());
  fake_.SetDelay(milliseconds(0));
  ASSERT_TRUE(device->CopyToHost(pinned, memory, 64, stream).ok());
  ASSERT_TRUE(device->Record(copied, stream).ok());
  Await(device, copied);
  EXPECT_EQ(static_cast<char*>(pinned)[63], 3);
  device->DestroyEvent(copied);
  device->DestroyStream(stream);
  device->FreePinned(pinned);
}

TEST_F(CudaTest, NotifyRunsAfterEarlierWork) {
  void* const memory = fake_.Allocate(0, 64);
  Device* const device = DeviceOf(memory);
  Stream stream = nullptr;
  Event before = nullptr;
  ASSERT_TRUE(device->CreateStream(&stream).ok());
  ASSERT_TRUE(device->CreateEvent(&before).ok());
  fake_.SetDelay(milliseconds(5));
  ASSERT_TRUE(device->Record(before, stream).ok());
  std::atomic<bool> called{false};
  ASSERT_TRUE(device->Notify(stream, [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &called).ok());
  while (!called) std::this_thread::yield();
  bool happened = false;
  ASSERT_TRUE(device->HasHappened(before, &happened).ok());
  EXPECT_TRUE(happened);
  device->DestroyEvent(before);
  device->DestroyStream(stream);
}

TEST_F(CudaTest, AMarkOfAllHappensAfterTheWorkOfEveryStream) {
  void* const memory = fake_.Allocate(0, 64);
  Device* const device = DeviceOf(memory);
  void* const streams[] = {fake_.MakeStream(0), fake_.MakeStream(0)};
  std::atomic<int> ended{0};
  std::atomic<bool> may_end{false};
  for (void* const stream : streams) {
    fake_.Launch(stream, [&] {
      while (!may_end) std::this_thread::yield();
      ++ended;
    });
  }
  Event mark = nullptr;
  ASSERT_TRUE(device->MarkAll(&mark).ok());
  ASSERT_NE(mark, nullptr);
  bool happened = true;
  ASSERT_TRUE(device->HasHappened(mark, &happened).ok());
  EXPECT_FALSE(happened);
  may_end = true;
  Await(device, mark);
  EXPECT_EQ(ended, 2);
  device->DestroyEvent(mark);
}

TEST_F(CudaTest, AnOlderDriverThatCannotMarkAllIsWaitedFor) {
  FakeCuda& older = OpenFakeCuda(FakeCudaPath("_before_12_5"));
  Device* const device = DeviceOf(older.Allocate(0, 64), FakeCudaPath("_before_12_5"));
  std::atomic<bool> ended{false};
  older.SetDelay(milliseconds(5));
  older.Launch(older.MakeStream(0), [&] { ended = true; });
  Event mark = &ended;
  ASSERT_TRUE(device->MarkAll(&mark).ok());
  EXPECT_EQ(mark, nullptr);
  EXPECT_TRUE(ended);
}

TEST_F(CudaTest, AMarkThatTheDriverRefusesIsAnErrorAndLeavesNoEvent) {
  Device* const device = DeviceOf(fake_.Allocate(0, 64));
  fake_.Fail("cuCtxRecordEvent", 900);
  Event mark = nullptr;
  const Status status = device->MarkAll(&mark);
  EXPECT_NE(status.message().find("cuCtxRecordEvent failed on CUDA device 0"), std::string::npos) << status.message();
  EXPECT_EQ(mark, nullptr);
  EXPECT_EQ(fake_.calls("cuEventCreate"), fake_.calls("cuEventDestroy_v2"));
}

// While a framework captures a graph, the driver refuses unsafe calls in all threads.
TEST_F(CudaTest, NothingIsRefusedWhileAnotherThreadCapturesAGraph) {
  void* const memory = fake_.Allocate(0, 64);
  Device* const device = DeviceOf(memory);
  Event event = nullptr;
  void* pinned = nullptr;
  bool happened = false;
  ASSERT_TRUE(device->CreateEvent(&event).ok());
  fake_.SetCapturing(true);
  EXPECT_TRUE(device->AllocatePinned(64, &pinned).ok());
  EXPECT_TRUE(device->HasHappened(event, &happened).ok());
  device->FreePinned(pinned);
  fake_.SetCapturing(false);
  device->DestroyEvent(event);
}

TEST_F(CudaTest, ARefusalNamesTheCallTheErrorAndTheDevice) {
  void* const memory = fake_.Allocate(1, 64);
  Device* const device = DeviceOf(memory);
  Stream stream = nullptr;
  Event event = nullptr;
  void* pinned = nullptr;
  bool happened = false;
  ASSERT_TRUE(device->CreateStream(&stream).ok());
  ASSERT_TRUE(device->CreateEvent(&event).ok());
  ASSERT_TRUE(device->AllocatePinned(64, &pinned).ok());
  void* none = nullptr;
  const std::vector<std::pair<std::string, std::function<Status()>>> calls = {
      {"cuCtxPushCurrent_v2", [&] { return device->Record(event, stream); }},
      {"cuCtxPushCurrent_v2", [&] { return device->HasHappened(event, &happened); }},
      {"cuMemHostAlloc", [&] { return device->AllocatePinned(64, &none); }},
      {"cuStreamCreateWithPriority", [&] { return device->CreateStream(&none); }},
      {"cuEventCreate", [&] { return device->CreateEvent(&none); }},
      {"cuMemcpyDtoHAsync_v2", [&] { return device->CopyToHost(pinned, memory, 64, stream); }},
      {"cuMemcpyHtoDAsync_v2", [&] { return device->CopyToDevice(memory, pinned, 64, stream); }},
      {"cuStreamWaitEvent", [&] { return device->WaitInStream(stream, event); }},
      {"cuEventRecord", [&] { return device->Record(event, stream); }},
      {"cuLaunchHostFunc", [&] { return device->Notify(stream, [](void*) {}, nullptr); }},
      {"cuEventQuery", [&] { return device->HasHappened(event, &happened); }},
  };
  for (const auto& [call, make] : calls) {
    fake_.Fail(call, 700);
    const Status status = make();
    EXPECT_EQ(status.code(), Code::kInternal) << call;
    EXPECT_EQ(status.message(), call +
                                    " failed on CUDA device 1: CUDA_ERROR_ILLEGAL_ADDRESS (700), an illegal memory "
                                    "access was encountered");
    EXPECT_TRUE(make().ok()) << call << ": a refused call leaves something behind";
  }
}

TEST_F(CudaTest, AnErrorThatTheDriverCannotNameIsStillReported) {
  void* const memory = fake_.Allocate(0, 64);
  fake_.Fail("cuEventCreate", 12345);
  Event event = nullptr;
  EXPECT_EQ(DeviceOf(memory)->CreateEvent(&event).message(),
            "cuEventCreate failed on CUDA device 0: unknown CUDA error (12345)");
}

// ---- opening the driver

Status FindBy(const std::string& driver) {
  const int memory = 0;
  Device* device = nullptr;
  return Devices(driver).Find(DeviceKind::kCuda, &memory, &device);
}

TEST(CudaDriverTest, WithoutADriverTheMessageSaysWhatWasLookedForAndWhatToDo) {
  const Status status = FindBy("libfarandole-absent.so.1");
  EXPECT_EQ(status.code(), Code::kInvalid);
  EXPECT_EQ(
      status.message(),
      "the CUDA driver cannot be opened: looked for libfarandole-absent.so.1 where the system looks for libraries "
      "(libfarandole-absent.so.1: cannot open shared object file: No such file or directory); install NVIDIA's "
      "driver (in a container: start it with --gpus all), set FARANDOLE_CUDA_DRIVER to the path of its libcuda.so.1, "
      "or hand in a tensor in host memory");
}

TEST(CudaDriverTest, ALibraryThatIsNoDriverIsRefusedByAFunctionThatItLacks) {
  const Status status = FindBy("libm.so.6");
  EXPECT_EQ(status.code(), Code::kInvalid);
  EXPECT_NE(status.message().find("libm.so.6 has no function cu"), std::string::npos) << status.message();
}

TEST(CudaDriverTest, ADriverWithoutADeviceSaysSoAndMayBeTriedAgain) {
  // A separate copy of the library, which is not initialized yet.
  const std::string path = testing::TempDir() + "/libfake_cuda_" + std::to_string(getpid()) + ".so";
  std::filesystem::copy_file(FakeCudaPath(), path);
  FakeCuda& fake = OpenFakeCuda(path);
  std::filesystem::remove(path);
  void* const memory = fake.Allocate(0, 8);
  fake.Fail("cuInit", 100);
  Device* device = nullptr;
  // The file is removed, but the library is found by the name under which it was loaded.
  const Status status = Devices(path).Find(DeviceKind::kCuda, memory, &device);
  EXPECT_EQ(status.message(),
            "cuInit failed on " + path + ": CUDA_ERROR_NO_DEVICE (100), no CUDA-capable device is detected");
  EXPECT_TRUE(Devices(path).Find(DeviceKind::kCuda, memory, &device).ok());
}

TEST(CudaDriverTest, TheEnvironmentNamesTheDriver) {
  Settings settings;
  ASSERT_TRUE(ReadSettings(&settings).ok());
  EXPECT_EQ(settings.cuda_driver, "libcuda.so.1");
  setenv("FARANDOLE_CUDA_DRIVER", "/somewhere/libcuda.so", 1);
  ASSERT_TRUE(ReadSettings(&settings).ok());
  unsetenv("FARANDOLE_CUDA_DRIVER");
  EXPECT_EQ(settings.cuda_driver, "/somewhere/libcuda.so");
}

}  // namespace
}  // namespace farandole
