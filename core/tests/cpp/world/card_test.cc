// What ranks say about themselves, and which differences are refused with whose names.
#include "world/card.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

Card CardOf(const std::string& host) {
  Card card{host, "boot:4:0", 4711, true, "unix:meeting"};
  card.size = 3;
  card.settings = {{"FARANDOLE_ORDER", "fixed"}, {"FARANDOLE_FUSION_THRESHOLD", "4096"}};
  return card;
}

TEST(CardTest, SurvivesTheWireAndRefusesAnythingElse) {
  const Card card = CardOf("node7");
  Card read;
  ASSERT_TRUE(Card::Decode(card.Encode(), &read).ok());
  EXPECT_EQ(read.host, "node7");
  EXPECT_EQ(read.pid, 4711);
  EXPECT_EQ(read.meeting, "unix:meeting");
  EXPECT_EQ(read.size, 3);
  EXPECT_EQ(read.settings, card.settings);
  const std::string text = card.Encode();
  for (size_t cut = 0; cut < text.size(); ++cut) {
    Card broken;
    EXPECT_FALSE(Card::Decode(text.substr(0, cut), &broken).ok()) << cut;
  }
  Card longer;
  EXPECT_FALSE(Card::Decode(text + "x", &longer).ok());
}

TEST(CardTest, OfAnotherVersionIsReadAsFarAsItsHost) {
  Card other = CardOf("node9");
  other.version = "farandole 9.9";
  Card read;
  ASSERT_TRUE(Card::Decode(other.Encode() + "of the future", &read).ok());
  EXPECT_EQ(read.version, "farandole 9.9");
  EXPECT_EQ(read.host, "node9");
}

TEST(CheckCardsTest, LetsEqualCardsPass) {
  std::vector<int> odd;
  EXPECT_TRUE(CheckCards({CardOf("a"), CardOf("a"), CardOf("b")}, &odd).ok());
  EXPECT_TRUE(odd.empty());
}

struct Difference {
  const char* name;
  void (*change)(Card*);
  std::vector<std::string> said;
};

class DifferenceTest : public testing::TestWithParam<Difference> {};

TEST_P(DifferenceTest, IsRefusedWithATableOfRanksHostsAndValues) {
  std::vector<Card> cards{CardOf("a"), CardOf("b"), CardOf("b")};
  GetParam().change(&cards[2]);
  std::vector<int> odd;
  const Status status = CheckCards(cards, &odd);
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_EQ(odd, std::vector<int>{2});
  for (const std::string& part : GetParam().said) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part << " in: " << status.message();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, DifferenceTest,
    testing::Values(Difference{"version",
                               [](Card* card) { card->version = "farandole 9.9"; },
                               {"farandole 0.1: ranks 0 (host a), 1 (host b)", "farandole 9.9: rank 2 (host b)"}},
                    Difference{"size",
                               [](Card* card) { card->size = 4; },
                               {"3 ranks: ranks 0 (host a), 1 (host b)", "4 ranks: rank 2 (host b)"}},
                    Difference{"setting",
                               [](Card* card) { card->settings[0].second = "any"; },
                               {"FARANDOLE_ORDER=fixed: ranks 0 (host a), 1 (host b)",
                                "FARANDOLE_ORDER=any: rank 2 (host b)", "Set FARANDOLE_ORDER"}},
                    Difference{"unknown",
                               [](Card* card) { card->settings.pop_back(); },
                               {"FARANDOLE_FUSION_THRESHOLD=4096: ranks 0", "unknown: rank 2 (host b)"}}),
    [](const auto& info) { return info.param.name; });

TEST(CheckCardsTest, IgnoresRanksWhoseCardHasNotCome) {
  Card absent;
  absent.version.clear();
  std::vector<int> odd;
  EXPECT_TRUE(CheckCards({CardOf("a"), absent, CardOf("b")}, &odd).ok());
}

}  // namespace
}  // namespace farandole
