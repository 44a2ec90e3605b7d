// A rank's warnings and errors when it waits for others for too long.
#include <gtest/gtest.h>
#include <regex.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "engine/stacks.h"
#include "engine/stalls.h"
#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

std::atomic<int> g_asked{0};

std::string SayWhere() {
  ++g_asked;
  return "File \"late.py\", line 7 in main\n";
}

Status Barrier(Engine& engine, const std::string& name, int set = 0) {
  Request request = Make(OpKind::kBarrier, {}, name);
  request.process_set = set;
  return SubmitAndWait(engine, std::move(request));
}

OperationPtr Named(const std::string& name) { return std::make_shared<Operation>(Make(OpKind::kBarrier, {}, name)); }

TimePoint At(int64_t milliseconds) {
  return TimePoint() + std::chrono::hours(1) + std::chrono::milliseconds(milliseconds);
}

TEST(DelaysTest, ARankIsSpokenOfOnceHoweverManyOperationsWaitForIt) {
  Delays delays(10'000);
  std::vector<Wait> waits;
  for (int i = 0; i < 120; ++i) waits.push_back({Named("w" + std::to_string(i)), 9999 - i, {1}});
  EXPECT_TRUE(delays.News(waits, At(0)).empty());
  for (Wait& wait : waits) ++wait.waited_ms;
  const std::vector<Delay> news = delays.News(waits, At(1));
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].ranks, std::vector<int>{1});
  EXPECT_EQ(news[0].waited_ms, 10'000);
  EXPECT_EQ(TitleOf(news[0]), "120 operations, the first of them barrier 'w0',");
  EXPECT_TRUE(delays.News(waits, At(60'000)).empty());
  EXPECT_EQ(delays.News(waits, At(60'001)).size(), 1u) << "a minute later";
}

TEST(DelaysTest, RanksThatAreLateForTheSameOperationsAreNamedTogether) {
  Delays delays(100);
  const OperationPtr first = Named("w"), second = Named("v");
  const std::vector<Delay> news = delays.News({{first, 300, {1, 2, 3}}, {second, 200, {1, 3}}}, At(0));
  ASSERT_EQ(news.size(), 2u);
  EXPECT_EQ(news[0].ranks, (std::vector<int>{1, 3}));
  EXPECT_EQ(news[0].operations, 2u);
  EXPECT_EQ(news[1].ranks, std::vector<int>{2});
  EXPECT_EQ(TitleOf(news[1]), "barrier 'w'");
}

TEST(DelaysTest, WhoCameMeanwhileAndIsLateAgainIsSpokenOfAgain) {
  Delays delays(100);
  EXPECT_EQ(delays.News({{Named("w"), 100, {1}}}, At(0)).size(), 1u);
  EXPECT_EQ(delays.News({{Named("v"), 99, {1}}}, At(1)).size(), 0u);
  EXPECT_EQ(delays.News({{Named("v"), 100, {1}}}, At(2)).size(), 1u);
}

TEST(DelaysTest, WhatAnotherRankTellsIsToldHereOnceItIsOurs) {
  Delays delays(100);
  const OperationPtr shared = Named("w"), own = Named("v");
  const std::vector<Delay> first = delays.News({{shared, 100, {1}, true}}, At(0));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_FALSE(first[0].is_ours_to_tell);
  EXPECT_TRUE(delays.News({{shared, 200, {1}, true}}, At(100)).empty());
  const std::vector<Delay> second = delays.News({{shared, 300, {1}, true}, {own, 100, {1}}}, At(200));
  ASSERT_EQ(second.size(), 1u);
  EXPECT_TRUE(second[0].is_ours_to_tell);
  EXPECT_TRUE(delays.News({{shared, 400, {1}, true}, {own, 200, {1}}}, At(300)).empty());
}

TEST(DelaysTest, RankZeroHasTimeToSayWhoIsMissing) {
  Delays delays(100);
  EXPECT_TRUE(delays.News({{Named("w"), 200, {kUnknownRanks}}}, At(0)).empty());
  EXPECT_EQ(delays.News({{Named("w"), 200, {2}}}, At(50)).size(), 1u);
  EXPECT_EQ(delays.News({{Named("v"), 10'000, {kUnknownRanks}}}, At(100)).size(), 1u);
}

TEST(DelaysTest, ARankThatWaitsForThisOneHasTimeToSayWhetherForEver) {
  Delays delays(100);
  Wait wait{Named("w"), 200, {1}};
  wait.is_mutual = true;
  EXPECT_TRUE(delays.News({wait}, At(0)).empty());
  wait.waited_ms = 3100;
  EXPECT_EQ(delays.News({wait}, At(2900)).size(), 1u);
}

// By POSIX: std::regex fills a table of the locale without a lock, and GCC 12 warns of it under the address sanitizer.
size_t CountOf(const std::string& text, const std::string& pattern) {
  regex_t expression;
  EXPECT_EQ(regcomp(&expression, pattern.c_str(), REG_EXTENDED), 0) << pattern;
  size_t count = 0;
  regmatch_t match;
  for (const char* rest = text.c_str(); regexec(&expression, rest, 1, &match, 0) == 0; rest += match.rm_eo) ++count;
  regfree(&expression);
  return count;
}

// Collects what the process writes to stderr meanwhile.
class Said {
 public:
  Said() : file_(std::tmpfile()), before_(dup(STDERR_FILENO)) { dup2(fileno(file_), STDERR_FILENO); }
  ~Said() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    std::fclose(file_);
  }
  std::string text() const {
    std::string text(1 << 20, '\0');
    const ssize_t got = pread(fileno(file_), text.data(), text.size(), 0);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
  }

 private:
  std::FILE* const file_;
  const int before_;
};

class LateRankTest : public testing::TestWithParam<std::vector<int>> {};

// The names are new, so only rank 0 knows which rank is missing. On each machine one rank names it.
TEST_P(LateRankTest, OneRankOfEachMachineNamesWhoIsLateInOneWarning) {
  const size_t warnings = GetParam().size() == 1 ? 1 : 2;
  Settings settings;
  settings.warn_after_ms = 1000;  // ranks 0 and 1 submit all operations meanwhile, on any machine
  SetStackFunction(&SayWhere);
  const Said said;
  std::atomic<int> started{0};
  const auto body = [&](Engine& engine) {
    ++started;
    AwaitThat([&] { return started == 3; });  // a rank whose start takes long would be late, too
    if (engine.rank() == 2) {
      AwaitThat([&] { return CountOf(said.text(), "that is where rank 2") >= warnings; });
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // superfluous warnings would come by then
    }
    constexpr size_t kTensors = 40;
    const std::vector<float> input(3, 1.0f);
    std::vector<std::vector<float>> outputs(kTensors, std::vector<float>(3));
    std::vector<OperationPtr> operations(kTensors);
    for (size_t i = 0; i < kTensors; ++i) {
      Request request = Make(OpKind::kAllreduce, {TensorOf(input, &outputs[i])}, "w" + std::to_string(i));
      ASSERT_TRUE(engine.Submit(std::move(request), &operations[i]).ok());
    }
    for (const OperationPtr& operation : operations) ASSERT_TRUE(engine.Wait(operation, kWaitMs));
  };
  RunRanks(GetParam(), body, settings);
  SetStackFunction(nullptr);
  const std::string text = said.text();
  const std::string warning =
      "rank 2 \\(host [^)]*\\) has kept [0-9]+ operations, the first of them allreduce 'w0', waiting for ";
  EXPECT_EQ(CountOf(text, warning), warnings) << text;
  EXPECT_EQ(CountOf(text, " waiting for "), warnings) << text;
  EXPECT_EQ(CountOf(text, "that is where rank 2"), warnings) << text;
}

TEST_P(LateRankTest, TheDeadlineErrorOfEveryRankTellsWhereItWas) {
  Settings settings;
  settings.warn_after_ms = 200;
  settings.timeout_ms = 6000;
  settings.log_level = 0;
  SetStackFunction(&SayWhere);
  std::atomic<int> over{0};
  const auto body = [&](Engine& engine) {
    if (engine.rank() == 2) return AwaitThat([&] { return over == 2; });
    const Status status = Barrier(engine, "w");
    ++over;
    EXPECT_EQ(status.code(), Code::kDeadline);
    EXPECT_EQ(CountOf(status.message(), "rank 2 was last seen in File \"late.py\", line 7"), 1u) << status.message();
  };
  RunRanks(GetParam(), body, settings);
  SetStackFunction(nullptr);
}

// The name is known, so no rank describes the operation, and other machines see only that a group has not come.
TEST_P(LateRankTest, ARankThatIsLateToAKnownSumIsNamedOnEachMachine) {
  const size_t warnings = GetParam().size() == 1 ? 1 : 2;
  Settings settings;
  settings.warn_after_ms = 1000;
  const Said said;
  const std::string warning = "rank 2 \\(host [^)]*\\) has kept allreduce 'known' waiting for ";
  const auto body = [&](Engine& engine) {
    for (int use = 0; use < 4; ++use) {
      if (use == 3 && engine.rank() == 2) AwaitThat([&] { return CountOf(said.text(), warning) >= warnings; });
      auto values = Values<float>(engine.rank(), 10, use);
      ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "known")).ok());
      ExpectSum(values, engine.size(), use);
    }
  };
  RunRanks(GetParam(), body, settings);
  EXPECT_EQ(CountOf(said.text(), warning), warnings) << said.text();
  EXPECT_EQ(CountOf(said.text(), " waiting for "), warnings) << said.text();
}

INSTANTIATE_TEST_SUITE_P(Worlds, LateRankTest,
                         testing::Values(std::vector<int>{3}, std::vector<int>{1, 1, 1}, std::vector<int>{1, 2}));

// Rank 0 has more batches than rank 1, which goes on to something else. Names are known where they were used before.
struct MutualWait {
  std::vector<int> groups;
  bool known;
};
class MutualWaitTest : public testing::TestWithParam<MutualWait> {};

TEST_P(MutualWaitTest, IsToldWithBothCallsAndItsUsualCause) {
  Settings settings;
  settings.warn_after_ms = 200;
  settings.timeout_ms = 6000;
  settings.log_level = 0;
  const auto body = [&](Engine& engine) {
    if (GetParam().known) {
      for (const char* name : {"batch", "metric"}) ASSERT_TRUE(Barrier(engine, name).ok());
    }
    const Status status = Barrier(engine, engine.rank() == 0 ? "batch" : "metric");
    EXPECT_EQ(status.code(), Code::kDeadline);
    const std::string told =
        "while rank (1 waits for this one to call barrier 'metric'|0 waits for this one to call "
        "barrier 'batch'): they wait for each other, .* let each call join\\(\\)";
    EXPECT_EQ(CountOf(status.message(), told), 1u) << status.message();
  };
  RunRanks(GetParam().groups, body, settings);
}

INSTANTIATE_TEST_SUITE_P(Worlds, MutualWaitTest,
                         testing::Values(MutualWait{{2}, false}, MutualWait{{2}, true}, MutualWait{{1, 1}, false},
                                         MutualWait{{1, 1}, true}),
                         [](const auto& info) {
                           return std::string(info.param.groups.size() == 1 ? "Together" : "Apart") +
                                  (info.param.known ? "Known" : "Unknown");
                         });

// Rank 2 is late once, and arrives. When rank 1 does not arrive at another operation, rank 2's former place does not
// matter.
TEST(DelayTest, TheDeadlineErrorTellsWhereRanksAreThatAreWaitedForNow) {
  Settings settings;
  settings.warn_after_ms = 200;
  settings.timeout_ms = 6000;
  settings.log_level = 0;
  g_asked = 0;
  SetStackFunction(&SayWhere);
  std::atomic<bool> over{false};
  const auto body = [&](Engine& engine) {
    Request add = Make(OpKind::kAddProcessSet, {});
    add.ranks = {0, 1};
    ASSERT_TRUE(SubmitAndWait(engine, std::move(add)).ok());
    if (engine.rank() == 2) AwaitThat([] { return g_asked > 0; });
    ASSERT_TRUE(Barrier(engine, "first").ok());
    ASSERT_TRUE(Barrier(engine, "behind the answer").ok());
    if (engine.rank() != 0) return AwaitThat([&] { return over.load(); });
    const Status status = Barrier(engine, "second", 1);
    over = true;
    EXPECT_EQ(status.code(), Code::kDeadline);
    EXPECT_NE(status.message().find("rank 1 was last seen in File \"late.py\", line 7"), std::string::npos)
        << status.message();
    EXPECT_EQ(status.message().find("rank 2 was last seen"), std::string::npos) << status.message();
  };
  RunRanks({3}, body, settings);
  SetStackFunction(nullptr);
}

class RefusedTest : public testing::TestWithParam<std::vector<int>> {};

// Either may come first: the refusal, or the ranks that wait.
TEST_P(RefusedTest, WhoWaitsForASetThatOneRankRefusesIsToldWhy) {
  for (int first : {0, 1}) {
    const Said said;
    std::atomic<int> begun{0};
    const auto body = [&](Engine& engine) {
      Request add = Make(OpKind::kAddProcessSet, {});
      add.ranks = {0};
      add.site = "sets.py:3";
      if (engine.rank() == 1) {
        AwaitThat([&] { return first == 1 || begun == engine.size() - 1; });
        add.ranks = {0, 7};
        OperationPtr none;
        EXPECT_EQ(engine.Submit(add, &none).code(), Code::kInvalid);
        ++begun;
        const std::string pattern =
            "rank 1 \\(host [^)]*\\) has refused a change of process sets for which this rank waits \\(sets.py:3\\): "
            "add_process_set: rank 7 is out of range";
        AwaitThat([&] { return CountOf(said.text(), pattern) == static_cast<size_t>(engine.size() - 1); });
        add.ranks = {0};
      } else {
        AwaitThat([&] { return first == 0 || begun > 0; });
      }
      OperationPtr added;
      ASSERT_TRUE(engine.Submit(add, &added).ok());
      ++begun;
      ASSERT_TRUE(engine.Wait(added, kWaitMs));
      EXPECT_TRUE(added->status().ok());
    };
    RunRanks(GetParam(), body);
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, RefusedTest, testing::Values(std::vector<int>{3}, std::vector<int>{1, 1, 1}));

class LateJoinTest : public testing::TestWithParam<std::vector<int>> {};

TEST_P(LateJoinTest, WhoNeitherJoinsNorTakesPartIsNamedAndMissedAtTheDeadline) {
  Settings settings;
  settings.warn_after_ms = 200;
  settings.timeout_ms = 6000;
  std::atomic<int> over{0};
  const Said said;
  const auto body = [&](Engine& engine) {
    if (engine.rank() == 1) return AwaitThat([&] { return over == 2; });
    const Status status = SubmitAndWait(engine, Make(OpKind::kJoin, {}));
    ++over;
    EXPECT_EQ(status.code(), Code::kDeadline);
    EXPECT_EQ(CountOf(status.message(), "join has waited [0-9.]+ s on rank [02] for rank 1 \\(host"), 1u)
        << status.message();
  };
  RunRanks(GetParam(), body, settings);
  EXPECT_GE(CountOf(said.text(), "rank 1 \\(host [^)]*\\) has kept join waiting for "), 1u) << said.text();
}

TEST_P(LateJoinTest, WhoGoesOnIsNotLate) {
  Settings settings;
  settings.warn_after_ms = 800;
  settings.timeout_ms = 1600;
  const Said said;
  const auto body = [&](Engine& engine) {
    const TimePoint begin = Now();
    while (engine.rank() == 1 && MillisecondsBetween(begin, Now()) < 2500) ASSERT_TRUE(Barrier(engine, "step").ok());
    const Status status = SubmitAndWait(engine, Make(OpKind::kJoin, {}));
    EXPECT_TRUE(status.ok()) << status.message();
  };
  RunRanks(GetParam(), body, settings);
  EXPECT_EQ(CountOf(said.text(), "waiting"), 0u) << said.text();
}

INSTANTIATE_TEST_SUITE_P(Worlds, LateJoinTest, testing::Values(std::vector<int>{3}, std::vector<int>{1, 1, 1}));

}  // namespace
}  // namespace farandole
