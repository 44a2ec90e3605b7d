// A rank's warnings and errors when it waits for others for too long, in a process without a diagnosis: a C program.
#include <gtest/gtest.h>
#include <regex.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

Status Barrier(Engine& engine, const std::string& name, int set = 0) {
  Request request = Make(OpKind::kBarrier, {}, name);
  request.process_set = set;
  return SubmitAndWait(engine, std::move(request));
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
  const Said said;
  const std::string warning = "rank 2 \\(host [^)]*\\) has kept allreduce 'w[0-9]+' waiting for ";
  std::atomic<int> started{0};
  const auto body = [&](Engine& engine) {
    ++started;
    AwaitThat([&] { return started == 3; });  // a rank whose start takes long would be late, too
    if (engine.rank() == 2) {
      AwaitThat([&] { return CountOf(said.text(), warning) >= warnings; });
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // superfluous warnings would come by then
    }
    constexpr size_t kTensors = 40;
    const std::vector<float> input(3, 1.0f);
    std::vector<std::vector<float>> outputs(kTensors, std::vector<float>(3));
    std::vector<OperationPtr> operations(kTensors);
    for (size_t i = 0; i < kTensors; ++i) {
      Request request = Make(OpKind::kAllreduce, {TensorOf(input, &outputs[i])}, "w" + std::to_string(i));
      ASSERT_TRUE(SubmitTo(engine, request, &operations[i]).ok());
    }
    for (const OperationPtr& operation : operations) ASSERT_TRUE(engine.Wait(operation, kWaitMs));
  };
  RunRanks(GetParam(), body, settings);
  const std::string text = said.text();
  EXPECT_EQ(CountOf(text, warning), warnings) << text;
  EXPECT_EQ(CountOf(text, " waiting for "), warnings) << text;
}

// The name is known, so no rank describes the operation, and other machines see only that a node has not come.
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
  std::vector<int> nodes;
  bool known;
};
class MutualWaitTest : public testing::TestWithParam<MutualWait> {};

TEST_P(MutualWaitTest, IsToldWithBothCallsAndTheRule) {
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
        "while rank (1 waits for rank 0 in barrier 'metric'|0 waits for rank 1 in barrier 'batch'): every rank must "
        "make the same calls";
    EXPECT_EQ(CountOf(status.message(), told), 1u) << status.message();
  };
  RunRanks(GetParam().nodes, body, settings);
}

INSTANTIATE_TEST_SUITE_P(Worlds, MutualWaitTest,
                         testing::Values(MutualWait{{2}, false}, MutualWait{{2}, true}, MutualWait{{1, 1}, false},
                                         MutualWait{{1, 1}, true}),
                         [](const auto& info) {
                           return std::string(info.param.nodes.size() == 1 ? "Together" : "Apart") +
                                  (info.param.known ? "Known" : "Unknown");
                         });

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
