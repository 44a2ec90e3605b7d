// How settings are read, and the messages for those that are refused.
#include "common/config.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace farandole {
namespace {

Status ReadWith(const char* name, const char* value, Settings* settings) {
  setenv(name, value, 1);
  const Status status = ReadSettings(settings);
  unsetenv(name);
  return status;
}

std::string RefusalOf(const char* name, const char* value) {
  Settings settings;
  const Status status = ReadWith(name, value, &settings);
  EXPECT_EQ(status.code(), Code::kInvalid);
  return status.message();
}

TEST(ConfigTest, TheRefusalOfANumberNamesItsUnitAndRange) {
  for (const char* wrong : {"4M", "-1", "1e19", "inf", "nan"}) {
    EXPECT_EQ(RefusalOf("FARANDOLE_FUSION_THRESHOLD", wrong),
              std::string("FARANDOLE_FUSION_THRESHOLD=") + wrong +
                  " is not understood; allowed: a number of bytes from 0 to 1e+18, without a unit");
  }
  for (const char* name : {"FARANDOLE_START_TIMEOUT", "FARANDOLE_WARN_AFTER", "FARANDOLE_TIMEOUT"}) {
    EXPECT_EQ(RefusalOf(name, "inf"), std::string(name) +
                                          "=inf is not understood; allowed: a number of seconds from 0 "
                                          "to 1e+09, without a unit");
  }
}

TEST(ConfigTest, SecondsMayHaveAFraction) {
  Settings settings;
  ASSERT_TRUE(ReadWith("FARANDOLE_WARN_AFTER", "0.5", &settings).ok());
  EXPECT_EQ(settings.warn_after_ms, 500);
  ASSERT_TRUE(ReadWith("FARANDOLE_TIMEOUT", "1e9", &settings).ok());
  EXPECT_EQ(settings.timeout_ms, 1'000'000'000'000);
}

TEST(ConfigTest, ASilentHostIsLostAfterOneSecondAtLeast) {
  Settings settings;
  ASSERT_TRUE(ReadWith("FARANDOLE_SILENCE_TIMEOUT", "", &settings).ok());
  EXPECT_EQ(settings.silence_timeout_ms, 4000);
  ASSERT_TRUE(ReadWith("FARANDOLE_SILENCE_TIMEOUT", "20.5", &settings).ok());
  EXPECT_EQ(settings.silence_timeout_ms, 20'500);
  for (const char* wrong : {"0", "-20", "0.5", "1e5", "20s", "nan"}) {
    EXPECT_EQ(RefusalOf("FARANDOLE_SILENCE_TIMEOUT", wrong),
              std::string("FARANDOLE_SILENCE_TIMEOUT=") + wrong +
                  " is not understood; allowed: a number of seconds from 1 to 86400, without a unit");
  }
}

TEST(ConfigTest, RanksWithDifferentSilenceTimeoutsDoNotStart) {
  Settings settings;
  settings.silence_timeout_ms = 20'500;
  const std::pair<std::string, std::string> shared{"FARANDOLE_SILENCE_TIMEOUT", "20.5"};
  EXPECT_EQ(SharedSettingsOf(settings).back(), shared);
}

TEST(ConfigTest, ANetworkIsTakenFromABackendOfTheListOnly) {
  Settings settings;
  setenv("FARANDOLE_NCCL_NETWORK", "0", 1);
  ASSERT_TRUE(ReadWith("FARANDOLE_BACKEND", "mpi,native", &settings).ok());
  EXPECT_TRUE(settings.without_network.empty());
  ASSERT_TRUE(ReadWith("FARANDOLE_BACKEND", "nccl, native", &settings).ok());
  EXPECT_EQ(settings.without_network, std::set<std::string>{"nccl"});
  const std::vector<std::pair<std::string, std::string>> shared{{"FARANDOLE_NCCL_NETWORK", "0"},
                                                                {"FARANDOLE_NATIVE_NETWORK", "1"}};
  EXPECT_EQ(NetworksOf(settings), shared);
  setenv("FARANDOLE_BACKEND", "nccl,native", 1);
  EXPECT_EQ(RefusalOf("FARANDOLE_NCCL_NETWORK", "off"), "FARANDOLE_NCCL_NETWORK=off is not understood; allowed: 0, 1");
  unsetenv("FARANDOLE_BACKEND");
}

TEST(ConfigTest, AnUnknownAlgorithmIsRefusedWithTheKnownOnes) {
  EXPECT_EQ(RefusalOf("FARANDOLE_ALGORITHM", "halving"),
            "FARANDOLE_ALGORITHM=halving is not understood; allowed: auto, direct, ring, tree, exchange");
}

}  // namespace
}  // namespace farandole
