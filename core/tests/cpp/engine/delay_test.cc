// What a rank says when others let it wait for too long.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "engine/stacks.h"
#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

std::atomic<int> g_asked{0};

std::string SayWhere() {
  ++g_asked;
  return "File \"late.py\", line 7 in main\n";
}

template <typename Condition>
void AwaitThat(Condition condition) {
  for (int i = 0; i < 20'000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(condition());
}

Status Barrier(Engine& engine, const std::string& name, int set = 0) {
  Request request = Make(OpKind::kBarrier, {}, name);
  request.process_set = set;
  return SubmitAndWait(engine, std::move(request));
}

// Rank 2 is late once, and comes. When rank 1 does not come to something else, where rank 2 was is of no use.
TEST(DelayTest, TheDeadlineErrorTellsWhereRanksAreThatAreWaitedForNow) {
  Settings settings;
  settings.warn_after_ms = 200;
  settings.timeout_ms = 2500;
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

}  // namespace
}  // namespace farandole
