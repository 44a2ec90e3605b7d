// Messages of engines whose ranks are threads, which cannot connect for them.
#include <gtest/gtest.h>

#include <string>

#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

TransferPtr Receive(Engine& engine, int source) {
  const auto receive = std::make_shared<Transfer>();
  receive->peer = source;
  EXPECT_TRUE(engine.Begin(receive).ok());
  return receive;
}

TEST(EngineMessagesTest, APollThatFindsALossTellsTheLauncher) {
  RunRanks({2}, [](Engine& engine) {
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kBarrier, {}, "before")).ok());
    if (engine.rank() > 0) return engine.Shutdown();
    const TransferPtr receive = Receive(engine, kAnySource);
    AwaitThat([&] { return receive->done || engine.Poll(receive); });
    EXPECT_TRUE(engine.Poll(receive)) << "it may have ended in another thread";
    EXPECT_EQ(receive->status.code(), Code::kPeerLost) << receive->status.message();
    std::string reason;
    EXPECT_EQ(engine.LostRank(&reason), 1);
  });
}

}  // namespace
}  // namespace farandole
