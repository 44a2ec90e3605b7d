// The warnings of rank 0 about missing ranks.
#include "world/rendezvous/server.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

TEST(RendezvousServerTest, AWarningAboutALongWaitSaysWhatToDo) {
  const TimePoint begin = TimePoint() + std::chrono::hours(1);
  RendezvousServer server(2, "tcp:host:1", begin, begin + std::chrono::seconds(120));
  PeerInfo peer_info;
  peer_info.size = 2;
  server.OnMessage(0, {RendezvousMessage::kPeerInfo, Code::kOk, peer_info.Encode(), {}, 120'000}, begin);
  server.OnTime(begin + std::chrono::seconds(9));
  EXPECT_TRUE(server.TakeNotes().empty());
  server.OnTime(begin + std::chrono::seconds(10));
  EXPECT_EQ(server.TakeNotes(),
            (std::vector<std::string>{
                "rank 0 has waited 10 s for rank 1 at host:1; look at the output there: it may have ended, "
                "or not called init(). The job gives up after 120 s (FARANDOLE_START_TIMEOUT)"}));
}

}  // namespace
}  // namespace farandole
