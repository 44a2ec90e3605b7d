// The encoding of PeerInfos, and the messages about differences between ranks.
#include "world/peer_info.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

PeerInfo CardOf(const std::string& host) {
  PeerInfo peer_info{host, "boot:4:0", 4711, true, "unix:segment"};
  peer_info.size = 3;
  peer_info.settings = {{"FARANDOLE_ORDER", "fixed"}, {"FARANDOLE_FUSION_THRESHOLD", "4096"}};
  peer_info.cores = {0b101};
  return peer_info;
}

TEST(PeerInfoTest, SurvivesTheWireAndRefusesAnythingElse) {
  const PeerInfo peer_info = CardOf("node7");
  PeerInfo read;
  ASSERT_TRUE(PeerInfo::Decode(peer_info.Encode(), &read).ok());
  EXPECT_EQ(read.host, "node7");
  EXPECT_EQ(read.pid, 4711);
  EXPECT_EQ(read.segment_endpoint, "unix:segment");
  EXPECT_EQ(read.size, 3);
  EXPECT_EQ(read.settings, peer_info.settings);
  EXPECT_EQ(read.cores, peer_info.cores);
  const std::string text = peer_info.Encode();
  for (size_t cut = 0; cut < text.size(); ++cut) {
    PeerInfo broken;
    EXPECT_FALSE(PeerInfo::Decode(text.substr(0, cut), &broken).ok()) << cut;
  }
  PeerInfo longer;
  EXPECT_FALSE(PeerInfo::Decode(text + "x", &longer).ok());
}

TEST(PeerInfoTest, OfAnotherVersionIsReadAsFarAsItsHost) {
  PeerInfo other = CardOf("node9");
  other.version = "farandole 9.9";
  PeerInfo read;
  ASSERT_TRUE(PeerInfo::Decode(other.Encode() + "of the future", &read).ok());
  EXPECT_EQ(read.version, "farandole 9.9");
  EXPECT_EQ(read.host, "node9");
}

TEST(CheckPeersTest, AcceptsEqualPeers) {
  std::vector<int> odd;
  EXPECT_TRUE(CheckPeers({CardOf("a"), CardOf("a"), CardOf("b")}, &odd).ok());
  EXPECT_TRUE(odd.empty());
}

struct Difference {
  const char* name;
  void (*change)(PeerInfo*);
  std::vector<std::string> said;
};

class DifferenceTest : public testing::TestWithParam<Difference> {};

TEST_P(DifferenceTest, IsRefusedWithATableOfRanksHostsAndValues) {
  std::vector<PeerInfo> peers{CardOf("a"), CardOf("b"), CardOf("b")};
  GetParam().change(&peers[2]);
  std::vector<int> odd;
  const Status status = CheckPeers(peers, &odd);
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_EQ(odd, std::vector<int>{2});
  for (const std::string& part : GetParam().said) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part << " in: " << status.message();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, DifferenceTest,
    testing::Values(Difference{"version",
                               [](PeerInfo* peer_info) { peer_info->version = "farandole 9.9"; },
                               {"farandole 0.1: ranks 0 (host a), 1 (host b)", "farandole 9.9: rank 2 (host b)"}},
                    Difference{"size",
                               [](PeerInfo* peer_info) { peer_info->size = 4; },
                               {"3 ranks: ranks 0 (host a), 1 (host b)", "4 ranks: rank 2 (host b)"}},
                    Difference{"setting",
                               [](PeerInfo* peer_info) { peer_info->settings[0].second = "any"; },
                               {"FARANDOLE_ORDER=fixed: ranks 0 (host a), 1 (host b)",
                                "FARANDOLE_ORDER=any: rank 2 (host b)", "Set FARANDOLE_ORDER"}},
                    Difference{"unknown",
                               [](PeerInfo* peer_info) { peer_info->settings.pop_back(); },
                               {"FARANDOLE_FUSION_THRESHOLD=4096: ranks 0", "unknown: rank 2 (host b)"}}),
    [](const auto& info) { return info.param.name; });

TEST(CheckPeersTest, IgnoresRanksWhosePeerInfoHasNotArrived) {
  PeerInfo absent;
  absent.version.clear();
  std::vector<int> odd;
  EXPECT_TRUE(CheckPeers({CardOf("a"), absent, CardOf("b")}, &odd).ok());
}

TEST(SharesCoresTest, CountsTheCoresOfAllRanksOfTheMachine) {
  const auto shares = [](std::vector<std::vector<uint64_t>> cores_of_ranks) {
    std::vector<PeerInfo> peers{CardOf("elsewhere")};
    peers[0].machine = "another";
    for (const auto& cores : cores_of_ranks) {
      peers.push_back(CardOf("here"));
      peers.back().cores = cores;
    }
    return SharesCores(peers, 1);
  };
  EXPECT_FALSE(shares({{0b11}, {0b11}}));
  EXPECT_TRUE(shares({{0b11}, {0b11}, {0b11}}));
  EXPECT_FALSE(shares({{0b1}, {0b10}, {0, 0b1}})) << "each has one of its own";
  EXPECT_TRUE(shares({{0b1}, {0b10}, {0b1}}));
  EXPECT_FALSE(shares({{0b1}, {}})) << "a rank does not know";
}

}  // namespace
}  // namespace farandole
