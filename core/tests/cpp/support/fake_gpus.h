// A test with the fake driver and the fake NCCL. Both are reset before it; after it no misuse and no communicator may
// be left.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "common/config.h"
#include "support/fake_nccl.h"

namespace farandole {

// The settings of an engine that finds both.
inline Settings SettingsOfFakes() {
  Settings settings;
  settings.cuda_driver = FakeCudaPath();
  settings.backends = {"nccl", "native"};
  settings.libraries["nccl"] = FakeNcclPath();
  settings.log_level = 0;
  return settings;
}

// Test: ::testing::Test, or one with a parameter.
template <typename Test>
class OnFakeGpus : public Test {
 protected:
  void SetUp() override {
    cuda_.Reset();
    nccl_.Reset();
  }
  void TearDown() override {
    for (const std::string& misuse : cuda_.misuses()) ADD_FAILURE() << misuse;
    for (const std::string& misuse : nccl_.misuses()) ADD_FAILURE() << misuse;
    EXPECT_EQ(nccl_.live(), 0) << "communicators are left behind";
  }

  FakeCuda& cuda_ = OpenFakeCuda();
  FakeNccl& nccl_ = OpenFakeNccl();
};

}  // namespace farandole
