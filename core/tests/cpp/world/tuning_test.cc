// Measured limits: their text, and which of several ranks' limits hold for all.
#include <gtest/gtest.h>

#include "world/peer_info.h"

namespace farandole {
namespace {

std::string Merged(const std::vector<std::string>& tunings, bool one_group) {
  std::vector<PeerInfo> peers(tunings.size());
  for (size_t rank = 0; rank < tunings.size(); ++rank) peers[rank].tuning = tunings[rank];
  return MergeTunings(peers, one_group);
}

TEST(TuningTest, TextSurvivesAndAnythingElseIsRefused) {
  const std::string text = "4:65536:131072:0:285000";
  const std::optional<TunedLimits> limits = ParseTuning(text);
  ASSERT_TRUE(limits);
  EXPECT_EQ(limits->ranks, 4);
  EXPECT_EQ(limits->cell_bytes, 65536);
  EXPECT_EQ(limits->round_bytes, 131072);
  EXPECT_EQ(limits->overwrites, 0);
  EXPECT_EQ(limits->cost_ns, 285000);
  for (size_t cut = 0; cut <= text.rfind(':') + 1; ++cut) EXPECT_FALSE(ParseTuning(text.substr(0, cut))) << cut;
  for (const char* other :
       {"", "0", "1:65536:131072:1:1", "4:0:131072:1:1", "4:65536:0:1:1", "4:65536:131073:1:1", "4:65536:1048576:1:1",
        "4:65536:131072:1:0", "4:65536:131072:1", "4:65536:131072:2:1", "4:65536:131072:1:1:", "4:65536:131072:1:1 ",
        "-4:65536:131072:1:1", "4:9999999999999999999:131072:1:1", "4;65536;131072;1;1"}) {
    EXPECT_FALSE(ParseTuning(other)) << other;
  }
}

TEST(TuningTest, RanksOfOneGroupTakeThoseOfRankZeroAndMeasureWhereItHasNone) {
  EXPECT_EQ(Merged({"2:65536:131072:1:1", "2:32768:262144:1:9"}, true), "2:65536:131072:1:1");
  EXPECT_EQ(Merged({"", "2:32768:262144:1:9"}, true), "");
  EXPECT_EQ(Merged({"", "0"}, true), "0") << "a rank that measures nothing would keep the others waiting";
  EXPECT_EQ(Merged({"0", ""}, true), "0");
  EXPECT_EQ(Merged({"damaged", ""}, true), "0");
}

TEST(TuningTest, RanksOfSeveralHostsTakeThoseOfTheSlowest) {
  EXPECT_EQ(Merged({"2:65536:131072:1:5", "2:32768:262144:1:9", "", "0"}, false), "2:32768:262144:1:9");
  EXPECT_EQ(Merged({"", "", ""}, false), "0");
}

TEST(TuningTest, LimitsHoldForSetsOfAsManyRanks) {
  Tuning tuning(1 << 20);
  EXPECT_EQ(tuning.cell_bytes(2), 0);
  EXPECT_TRUE(tuning.overwrites());
  EXPECT_TRUE(tuning.Use("4:65536:131072:0:1"));
  EXPECT_FALSE(tuning.overwrites());
  EXPECT_EQ(tuning.cell_bytes(4), 65536);
  EXPECT_EQ(tuning.round_bytes(4), 131072);
  EXPECT_EQ(tuning.cell_bytes(2), 0);
  EXPECT_EQ(tuning.round_bytes(3), 0);
  EXPECT_FALSE(tuning.Use("4:65536:13"));
  EXPECT_EQ(tuning.text(), "4:65536:131072:0:1");
  EXPECT_TRUE(tuning.Use(kUntuned));
  EXPECT_TRUE(tuning.overwrites());
  EXPECT_EQ(tuning.cell_bytes(4), 0);
}

TEST(TuningTest, WhereNothingIsMeasuredTheCacheSaysWhetherToOverwrite) {
  EXPECT_TRUE(Tuning(0).overwrites());
  Tuning tuning(kLargeSecondLevelBytes);
  EXPECT_FALSE(tuning.overwrites());
  EXPECT_TRUE(tuning.Use("2:65536:131072:1:1"));
  EXPECT_TRUE(tuning.overwrites());
  EXPECT_TRUE(tuning.Use(""));
  EXPECT_FALSE(tuning.overwrites());
}

}  // namespace
}  // namespace farandole
