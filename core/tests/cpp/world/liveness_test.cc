// Evidence in any order, and the rank that is to blame.
#include "world/liveness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "support/seeds.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;
using Evidence = Liveness::Evidence;

const TimePoint kStart = TimePoint(std::chrono::hours(1));

TEST(LivenessTest, AProcessThatEndedIsDeadAtOnce) {
  Liveness liveness;
  liveness.OnProcessEnded(3);
  const auto failed = liveness.FindFailedRank(kStart);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->rank, 3);
  EXPECT_EQ(failed->evidence, Evidence::kProcessEnded);
  EXPECT_FALSE(liveness.FindFailedRank(kStart)) << "told once";
}

TEST(LivenessTest, AClosedConnectionIsBlamedAfterTheSuspicionTime) {
  Liveness liveness;
  liveness.OnConnectionClosed(2, kStart);
  EXPECT_FALSE(liveness.FindFailedRank(kStart + Liveness::kSuspicionTimeout - milliseconds(1)));
  const auto failed = liveness.FindFailedRank(kStart + Liveness::kSuspicionTimeout);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->rank, 2);
  EXPECT_EQ(failed->evidence, Evidence::kConnectionClosed);
}

TEST(LivenessTest, TheFirstToFallSilentIsToBlame) {
  Liveness liveness;
  liveness.OnConnectionClosed(5, kStart);
  liveness.OnConnectionClosed(1, kStart + milliseconds(1));
  liveness.OnConnectionClosed(5, kStart + milliseconds(90));
  EXPECT_EQ(liveness.FindFailedRank(kStart + Liveness::kSuspicionTimeout)->rank, 5);
}

TEST(LivenessTest, ASilentRankZeroIsAlwaysToBlame) {
  Liveness liveness;
  liveness.OnConnectionClosed(2, kStart);
  liveness.OnConnectionClosed(0, kStart + milliseconds(1));
  EXPECT_FALSE(liveness.FindFailedRank(kStart + Liveness::kSuspicionTimeout)) << "it may still say why";
  EXPECT_EQ(liveness.FindFailedRank(kStart + Liveness::kSuspicionTimeout + milliseconds(1))->rank, 0);
  liveness.OnProcessEnded(3);
  liveness.OnProcessEnded(0);
  EXPECT_EQ(liveness.FindFailedRank(kStart + Liveness::kSuspicionTimeout)->rank, 0);
}

TEST(LivenessTest, AnEndedProcessOutweighsConnectionsThatClosedBefore) {
  Liveness liveness;
  liveness.OnConnectionClosed(1, kStart);
  liveness.OnProcessEnded(4);
  EXPECT_EQ(liveness.FindFailedRank(kStart + Liveness::kSuspicionTimeout)->rank, 4);
}

TEST(LivenessTest, ARankThatLeftIsNeverToBlameWhicheverEvidenceComesFirst) {
  for (const bool left_first : {true, false}) {
    Liveness liveness;
    if (left_first) liveness.OnLeft(2, kStart);
    liveness.OnConnectionClosed(2, kStart);
    liveness.OnProcessEnded(2);
    if (!left_first) liveness.OnLeft(2, kStart);
    EXPECT_FALSE(liveness.FindFailedRank(kStart + std::chrono::hours(1)));
    EXPECT_FALSE(liveness.suspects_somebody());
  }
}

TEST(LivenessTest, ARankThatIsLeavingIsNotToBlameAndMayStillBeWaitedFor) {
  for (const bool leaving_first : {true, false}) {
    Liveness liveness;
    if (leaving_first) liveness.OnLeaving(2);
    liveness.OnConnectionClosed(2, kStart);
    liveness.OnProcessEnded(2);
    if (!leaving_first) liveness.OnLeaving(2);
    EXPECT_FALSE(liveness.FindFailedRank(kStart + std::chrono::hours(1)));
    EXPECT_FALSE(liveness.suspects_somebody());
    EXPECT_FALSE(liveness.HasLeft(2));
    EXPECT_FALSE(liveness.HasLeftForLong(kStart + std::chrono::hours(1)));
  }
}

TEST(LivenessTest, AGoodbyeExcusesTheEndOfTheProcessAndOfDataConnections) {
  for (const bool goodbye_first : {true, false}) {
    Liveness liveness;
    if (goodbye_first) liveness.OnGoodbye(2);
    liveness.OnConnectionClosed(2, kStart);
    liveness.OnProcessEnded(2);
    if (!goodbye_first) liveness.OnGoodbye(2);
    EXPECT_FALSE(liveness.FindFailedRank(kStart + std::chrono::hours(1)));
    EXPECT_FALSE(liveness.suspects_somebody());
  }
}

// The control connection ended without LEAVING, so LEAVING is lost, and no other rank can pass it on.
TEST(LivenessTest, AGoodbyeDoesNotExcuseAControlConnectionThatEndsWithoutLeaving) {
  for (const bool goodbye_first : {true, false}) {
    Liveness liveness;
    if (goodbye_first) liveness.OnGoodbye(2);
    liveness.OnControlClosed(2, kStart);
    if (!goodbye_first) liveness.OnGoodbye(2);
    const auto failed = liveness.FindFailedRank(kStart + Liveness::kSuspicionTimeout);
    ASSERT_TRUE(failed);
    EXPECT_EQ(failed->rank, 2);
  }
}

TEST(LivenessTest, LeavingExcusesTheEndOfTheControlConnection) {
  for (const bool leaving_first : {true, false}) {
    Liveness liveness;
    if (leaving_first) liveness.OnLeaving(2);
    liveness.OnControlClosed(2, kStart);
    if (!leaving_first) liveness.OnLeaving(2);
    EXPECT_FALSE(liveness.FindFailedRank(kStart + std::chrono::hours(1)));
  }
}

TEST(LivenessTest, HasLeftForLongAWhileAfterTheFirstHasLeft) {
  Liveness liveness;
  EXPECT_FALSE(liveness.HasLeftForLong(kStart));
  liveness.OnLeft(1, kStart);
  liveness.OnLeft(2, kStart + milliseconds(60));
  EXPECT_FALSE(liveness.HasLeftForLong(kStart + Liveness::kSuspicionTimeout - milliseconds(1)));
  EXPECT_TRUE(liveness.HasLeftForLong(kStart + Liveness::kSuspicionTimeout));
}

// One rank dies. The survivors see its end. They give up one after the other, so they also see each other's connections
// close. Ranks that leave say so shortly after their connection closed; rank 0 always does. Evidence is late by random
// times.
TEST(LivenessTest, WhateverTheOrderOfTheEvidenceTheDeadRankIsNamed) {
  const Seeds seeds = SeedsFromEnvironment(1000);
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    std::mt19937_64 random(seed);
    const auto within = [&](int limit_ms) { return milliseconds(random() % static_cast<uint64_t>(limit_ms)); };
    const int dead = static_cast<int>(random() % 6);
    const bool same_machine = random() % 2 == 0;
    struct Event {
      TimePoint at;
      int rank;
      enum { kEnded, kClosed, kLeft } what;
    };
    std::vector<Event> events{{kStart + within(5), dead, Event::kClosed}};
    if (same_machine) events.push_back({kStart + within(20), dead, Event::kEnded});
    for (int other = 0; other < 6; ++other) {
      if (other == dead) continue;
      const TimePoint closed = kStart + milliseconds(5) + within(90);
      events.push_back({closed, other, Event::kClosed});
      if (random() % 3 == 0 || other == 0) events.push_back({closed + within(90), other, Event::kLeft});
    }
    std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.at < b.at; });
    Liveness liveness;
    std::optional<Liveness::FailedRank> failed;
    size_t next = 0;
    for (TimePoint now = kStart; !failed && now < kStart + milliseconds(400); now += milliseconds(1)) {
      for (; next < events.size() && events[next].at <= now; ++next) {
        const Event& event = events[next];
        if (event.what == Event::kEnded) liveness.OnProcessEnded(event.rank);
        if (event.what == Event::kClosed) liveness.OnConnectionClosed(event.rank, event.at);
        if (event.what == Event::kLeft) liveness.OnLeft(event.rank, event.at);
      }
      failed = liveness.FindFailedRank(now);
      const bool late = same_machine && !failed && now >= kStart + milliseconds(20);
      ASSERT_FALSE(late) << "FARANDOLE_SEED=" << seed;
    }
    ASSERT_TRUE(failed) << "FARANDOLE_SEED=" << seed;
    ASSERT_EQ(failed->rank, dead) << "FARANDOLE_SEED=" << seed;
  }
}

}  // namespace
}  // namespace farandole
