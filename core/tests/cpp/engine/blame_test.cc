// A connection between two live ranks ends for both. They agree on which of them is lost.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "common/failpoint.h"
#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

Request MakeSum(std::vector<float>* values, int rank) {
  return Make(OpKind::kAllreduce, {TensorOf(*values, values)}, "of rank " + std::to_string(rank));
}

// An operation that no other rank submits.
OperationPtr BeginAlone(Engine& engine, std::vector<float>* values) {
  OperationPtr alone;
  EXPECT_TRUE(SubmitTo(engine, MakeSum(values, engine.rank()), &alone).ok());
  return alone;
}

// Returns the rank that this one has lost, -1 if it is itself the lost one.
int LostWith(Engine& engine, const OperationPtr& alone) {
  EXPECT_TRUE(engine.Wait(alone, kWaitMs));
  EXPECT_EQ(alone->status().code(), Code::kPeerLost) << alone->status().message();
  std::string reason;
  return engine.LostRank(&reason);
}

bool HasSaidThatOneIsLost(const Descriptor& connection) {
  std::array<char, 4096> bytes;
  const ssize_t got = recv(connection.get(), bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  return got > 0 && std::string(bytes.data(), static_cast<size_t>(got)).find("was lost") != std::string::npos;
}

// Rank 0 is kept from its messages until ranks 1 and 2 have each blamed the other.
struct CutBetween1And2 {
  explicit CutBetween1And2(const std::vector<std::unique_ptr<World>>& worlds, const Sockets& sockets)
      : between(Duplicate(sockets.early.at({1, 2}).get())),
        to_1(Duplicate(worlds[0]->control[1].descriptor())),
        to_2(Duplicate(worlds[0]->control[2].descriptor())) {}
  void CutAndAwaitBoth() const {
    shutdown(between.get(), SHUT_RDWR);
    AwaitThat([this] { return HasSaidThatOneIsLost(to_1) && HasSaidThatOneIsLost(to_2); });
  }

  const Descriptor between, to_1, to_2;
};

TEST(BlameTest, RanksThatLoseEachOtherHearFromRankZeroWhichOfThemIsLost) {
  Sockets sockets;
  std::vector<std::unique_ptr<World>> worlds = ThreadWorlds({1, 1, 1}, &sockets);
  CutBetween1And2 cut(worlds, std::exchange(sockets, {}));
  std::array<std::atomic<int>, 3> lost{-2, -2, -2};
  RunWorlds(std::move(worlds), [&](Engine& engine) {
    std::vector<float> values(5);
    for (int rank : {1, 2}) ASSERT_TRUE(SubmitAndWait(engine, MakeSum(&values, rank)).ok());
    const OperationPtr alone = BeginAlone(engine, &values);  // ranks 1 and 2 wait for each other's data
    Request together = Make(OpKind::kBarrier, {}, "together");
    if (engine.rank() == 0) {
      together.done = [](void* it, const Status&, Event) { static_cast<CutBetween1And2*>(it)->CutAndAwaitBoth(); };
      together.done_argument = &cut;
    }
    ASSERT_TRUE(SubmitAndWait(engine, std::move(together)).ok());
    lost[static_cast<size_t>(engine.rank())] = LostWith(engine, alone);
  });
  const int blamed = lost[0];
  ASSERT_TRUE(blamed == 1 || blamed == 2) << blamed;
  EXPECT_EQ(lost[static_cast<size_t>(blamed)], -1);
  EXPECT_EQ(lost[static_cast<size_t>(3 - blamed)], blamed);
}

TEST(BlameTest, RanksOfANodeThatLoseEachOtherTakeWhatTheFirstIsWriting) {
  std::vector<std::unique_ptr<World>> worlds = ThreadWorlds({2});
  const Descriptor between = Duplicate(worlds[0]->control[1].descriptor());
  std::atomic<int> begun{0};
  std::array<std::atomic<int>, 2> lost{-2, -2};
  ASSERT_TRUE(SetFailpoints("abort.write=delay:200").ok());
  RunWorlds(std::move(worlds), [&](Engine& engine) {
    std::vector<float> values(5);
    const OperationPtr alone = BeginAlone(engine, &values);
    ++begun;
    AwaitThat([&] { return begun == 2; });
    shutdown(between.get(), SHUT_RDWR);
    lost[static_cast<size_t>(engine.rank())] = LostWith(engine, alone);
  });
  ASSERT_TRUE(SetFailpoints("").ok());
  const std::pair<int, int> both{lost[0], lost[1]};
  EXPECT_TRUE(both == std::make_pair(1, -1) || both == std::make_pair(-1, 0)) << both.first << " and " << both.second;
}

}  // namespace
}  // namespace farandole
