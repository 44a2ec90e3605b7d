// What rank 0 says of ranks that do not come.
#include "world/registrar.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

TEST(RegistrarTest, WhoWaitsForLongIsToldWhatToDo) {
  const TimePoint begin = TimePoint() + std::chrono::hours(1);
  Registrar registrar(2, "tcp:host:1", begin, begin + std::chrono::seconds(120));
  Card card;
  card.size = 2;
  registrar.OnMessage(0, {StartMessage::kCard, 0, Code::kOk, {}, card.Encode(), {}}, begin);
  registrar.OnTime(begin + std::chrono::seconds(9));
  EXPECT_TRUE(registrar.TakeNotes().empty());
  registrar.OnTime(begin + std::chrono::seconds(10));
  EXPECT_EQ(registrar.TakeNotes(),
            (std::vector<std::string>{
                "rank 0 has waited 10 s for rank 1 at host:1; look at the output there: did it end, or not "
                "call init()? The job gives up after 120 s (FARANDOLE_START_TIMEOUT)"}));
}

}  // namespace
}  // namespace farandole
