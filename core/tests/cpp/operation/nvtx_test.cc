#include "operation/timeline.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/fake_cuda.h"
#include "support/requests.h"

namespace farandole {
namespace {

std::string FakeNvtxPath() {
  std::string path = FakeCudaPath();
  return path.replace(path.rfind("fake_cuda"), 9, "fake_nvtx");
}

std::string Said() {
  void* const library = dlopen(FakeNvtxPath().c_str(), RTLD_LAZY | RTLD_NOLOAD);
  return reinterpret_cast<const char* (*)()>(dlsym(library, "fake_nvtx_said"))();
}

TEST(Nvtx, AnOperationIsARangeFromItsCallToItsEnd) {
  Nvtx::Open("");
  EXPECT_FALSE(Nvtx::on());
  Nvtx::Open("/nowhere/libnvToolsExt.so.1");
  EXPECT_FALSE(Nvtx::on());
  Nvtx::Open(FakeNvtxPath());
  ASSERT_TRUE(Nvtx::on());
  std::unique_ptr<Engine> engine;
  ASSERT_TRUE(Engine::Start(WorldSpec(), Settings(), &engine).ok());
  float value = 1;
  Request request;
  request.name = "grad";
  request.tensors.resize(1);
  request.tensors[0].input = request.tensors[0].output = &value;
  OperationPtr operation;
  ASSERT_TRUE(SubmitTo(*engine, request, &operation).ok());
  EXPECT_TRUE(engine->Wait(operation, 1000));
  EXPECT_EQ(Said(), "begin 1 farandole allreduce 'grad'\nend 1\n");
}

}  // namespace
}  // namespace farandole
