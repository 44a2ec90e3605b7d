// What the core and the diagnosis of its process tell each other; a thread of C++ stands in for Python's.
#include "operation/diagnosis.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/descriptor.h"
#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

using News = DiagnosisChannel::News;
using Heard = std::function<void(DiagnosisChannel*, const News&)>;

// A diagnosis that does this with all news.
class Diagnosis {
 public:
  Diagnosis(Engine& engine, const Heard& heard)
      : engine_(&engine), thread_([channel = engine.diagnosis(), heard] {
          for (News news; channel->Await(&news);) heard(channel, news);
        }) {}
  ~Diagnosis() {
    engine_->Shutdown();
    thread_.join();
  }

 private:
  Engine* const engine_;
  std::thread thread_;
};

Settings Impatient() {
  Settings settings;
  settings.warn_after_ms = 200;
  settings.timeout_ms = 60'000;
  settings.log_level = 0;
  return settings;
}

Status Barrier(Engine& engine, const std::string& name) {
  return SubmitAndWait(engine, Make(OpKind::kBarrier, {}, name));
}

class DiagnosisTest : public testing::TestWithParam<std::vector<int>> {};

// Ends the world with what the other rank answers.
TEST_P(DiagnosisTest, QuestionsAnswersAndTheEndTravelBetweenRanks) {
  std::atomic<bool> over{false};
  const auto body = [&](Engine& engine) {
    uint64_t entered = 0;
    bool has_asked = false;
    const Diagnosis diagnosis(engine, [&](DiagnosisChannel* channel, const News& news) {
      for (int asker : news.askers) channel->Reply(asker, "in train.py");
      for (const RankAnswer& answer : news.answers)
        channel->Decide({{Code::kDeadlock, "rank ", answer.rank, " is ", answer.text}, answer.rank, entered});
      if (!news.report || news.report->waits.empty() || has_asked) return;
      has_asked = true;
      entered = news.report->entered;
      EXPECT_EQ(news.report->waits[0].title, "barrier 'w'");
      channel->Ask(news.report->waits[0].missing);
    });
    if (engine.rank() == 1) return AwaitThat([&] { return over.load(); });
    const Status status = Barrier(engine, "w");
    over = true;
    EXPECT_EQ(status.code(), Code::kDeadlock);
    EXPECT_NE(status.message().find("rank 1 is in train.py"), std::string::npos) << status.message();
  };
  RunRanks(GetParam(), body, Impatient());
}

TEST_P(DiagnosisTest, AnEndThatCameTooLateEndsNothing) {
  const auto body = [&](Engine& engine) {
    const Diagnosis diagnosis(engine, [&](DiagnosisChannel* channel, const News& news) {
      if (!news.report || news.report->waits.empty()) return;
      channel->Decide({{Code::kDeadlock, "by what was known before"}, 1, news.report->entered - 1});
      channel->Decide({{Code::kDeadline, "which is not over"}, 1, news.report->entered});
    });
    if (engine.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    EXPECT_TRUE(Barrier(engine, "w").ok());
    EXPECT_TRUE(Barrier(engine, "all have waited").ok());
  };
  RunRanks(GetParam(), body, Impatient());
}

INSTANTIATE_TEST_SUITE_P(Worlds, DiagnosisTest, testing::Values(std::vector<int>{2}, std::vector<int>{1, 1}));

TEST(DiagnosisLimitTest, AWaitBeyondTheLimitEndsWithTheWordsOfTheDiagnosis) {
  Settings settings = Impatient();
  settings.timeout_ms = 500;
  std::atomic<bool> over{false};
  const auto body = [&](Engine& engine) {
    const Diagnosis diagnosis(engine, [&](DiagnosisChannel* channel, const News& news) {
      if (news.report && news.report->is_overdue) channel->Decide({{Code::kDeadline, "it is late"}, 1, 0});
    });
    if (engine.rank() == 1) return AwaitThat([&] { return over.load(); });
    EXPECT_NE(Barrier(engine, "w").message().find("it is late"), std::string::npos);
    over = true;
  };
  RunRanks({2}, body, settings);
}

TEST(DiagnosisLimitTest, TheCoreSpeaksWhereTheDiagnosisDoesNotRespond) {
  Settings settings = Impatient();
  settings.timeout_ms = 1000;
  std::atomic<int> over{0};
  std::atomic<bool> has_answer{false};
  const auto body = [&](Engine& engine) {
    const Diagnosis diagnosis(engine, [&](DiagnosisChannel* channel, const News& news) {
      if (engine.rank() == 0 && news.report && !news.report->waits.empty() && !has_answer) channel->Ask({1});
      for (const RankAnswer& answer : news.answers)
        has_answer = answer.text.find("no thread here gets Python's lock") == 0;
      if (engine.rank() == 1 || has_answer) AwaitThat([&] { return over == 1; });
    });
    if (engine.rank() == 1) return AwaitThat([&] { return over == 1; });
    const Status status = Barrier(engine, "w");
    ++over;
    EXPECT_TRUE(has_answer);
    EXPECT_EQ(status.code(), Code::kDeadline);
    EXPECT_NE(status.message().find("barrier 'w' has waited"), std::string::npos) << status.message();
  };
  RunRanks({2}, body, settings);
}

Descriptor g_file(memfd_create("stacks", MFD_CLOEXEC));

void WriteWhere(int) { (void)!write(g_file.get(), "File \"late.py\"\n", 15); }

TEST(StackSignalTest, ItsHandlerWritesTheStacksAndNoOtherHandlerIsCalled) {
  const int number = SIGRTMIN + 3;
  EXPECT_EQ(StacksBySignal(), "");
  ASSERT_NE(signal(number, &WriteWhere), SIG_ERR);
  SetStackSignal(number, g_file.get());
  for (int look = 0; look < 2; ++look) EXPECT_EQ(StacksBySignal(), "File \"late.py\"\n");
  ASSERT_NE(signal(number, SIG_DFL), SIG_ERR);  // would end the process
  EXPECT_EQ(StacksBySignal(), "");
}

}  // namespace
}  // namespace farandole
