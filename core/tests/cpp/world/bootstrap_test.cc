// The start of a world whose ranks are threads, with real sockets: rendezvous, shared memory, links.
#include "world/world.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <future>

#include "common/failpoint.h"
#include "support/specs.h"

namespace farandole {
namespace {

std::vector<Status> StartAll(std::vector<WorldSpec> specs, std::vector<std::unique_ptr<World>>* worlds,
                             int limit_ms = 20'000) {
  worlds->resize(specs.size());
  std::vector<std::future<Status>> ranks;
  const Deadline deadline = After(std::chrono::milliseconds(limit_ms));
  for (size_t r = 0; r < specs.size(); ++r) {
    ranks.push_back(std::async(std::launch::async, [&, r] { return Bootstrap(specs[r], deadline, &(*worlds)[r]); }));
  }
  std::vector<Status> statuses;
  for (auto& rank : ranks) statuses.push_back(rank.get());
  return statuses;
}

TEST(BootstrapTest, RanksOfOneMachineShareOneSegment) {
  std::vector<std::unique_ptr<World>> worlds;
  for (const Status& status : StartAll(SpecsOf(4, FreshEndpoint()), &worlds))
    ASSERT_TRUE(status.ok()) << status.message();
  for (int r = 0; r < 4; ++r) {
    World& world = *worlds[static_cast<size_t>(r)];
    EXPECT_TRUE(world.one_node());
    EXPECT_EQ(world.node->member(), r);
    world.node->staging(0, r)[0] = static_cast<std::byte>(r + 1);
  }
  for (const auto& world : worlds) {
    for (int m = 0; m < 4; ++m) EXPECT_EQ(world->node->staging(0, m)[0], static_cast<std::byte>(m + 1));
  }
}

TEST(BootstrapTest, RanksWithoutSharedMemoryAreLinked) {
  const int port = 20000 + getpid() % 12000;  // below the ports that the kernel chooses for connections
  std::vector<WorldSpec> specs = SpecsOf(4, "tcp:127.0.0.1:" + std::to_string(port));
  specs[1].shares_memory = specs[3].shares_memory = false;
  std::vector<std::unique_ptr<World>> worlds;
  for (const Status& status : StartAll(specs, &worlds)) ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(worlds[0]->layout.nodes, (std::vector<std::vector<int>>{{0, 2}, {1}, {3}}));
  for (int r = 0; r < 4; ++r) {
    char byte = 0;
    Transport& transport = *worlds[static_cast<size_t>(r)]->transport;
    const std::vector<int> peers = InterNodePeers(worlds[0]->layout, r);
    for (int peer : peers) transport.PostReceive(peer, {}, 0, &byte, 1, 0);
    for (int peer : peers) worlds[static_cast<size_t>(peer)]->transport->PostSend(r, {}, 0, "x", 1, 0);
    std::vector<Transport::Completion> received, sent;
    for (int peer : peers) worlds[static_cast<size_t>(peer)]->transport->Poll(&sent);
    for (int i = 0; i < 1000 && received.size() < peers.size(); ++i) transport.Poll(&received);
    EXPECT_EQ(received.size(), peers.size());
  }
}

TEST(BootstrapTest, AnAddressOfAnotherHostIsRefusedWithTheNameOfItsVariable) {
  for (const char* address : {"192.0.2.1", "no host"}) {
    std::vector<WorldSpec> specs = SpecsOf(2, FreshEndpoint());
    specs[0].shares_memory = false;
    specs[1].interface_address = address;
    std::vector<std::unique_ptr<World>> worlds;
    for (const Status& status : StartAll(specs, &worlds)) {
      EXPECT_NE(status.message().find(std::string("FARANDOLE_ADDRESS is ") + address + ", and must be an address"),
                std::string::npos)
          << status.message();
    }
  }
}

TEST(BootstrapTest, AWrongKeyIsTurnedAwayAndTheOthersSayWhoIsMissing) {
  std::vector<WorldSpec> specs = SpecsOf(3, FreshEndpoint());
  specs[2].key = KeyOf(8);
  std::vector<std::unique_ptr<World>> worlds;
  const std::vector<Status> statuses = StartAll(specs, &worlds, 1500);
  EXPECT_EQ(statuses[0].code(), Code::kDeadline)
      << statuses[0].message() << "; " << statuses[1].message() << "; " << statuses[2].message();
  EXPECT_NE(statuses[0].message().find("rank 2"), std::string::npos) << statuses[0].message();
  EXPECT_FALSE(statuses[2].ok());
}

TEST(BootstrapTest, TwoProcessesWithOneRankAreNotMistakenForTwoRanks) {
  std::vector<WorldSpec> specs = SpecsOf(3, FreshEndpoint());
  specs[2].rank = 1;
  std::vector<std::unique_ptr<World>> worlds;
  const std::vector<Status> statuses = StartAll(specs, &worlds, 1500);
  EXPECT_EQ(statuses[0].code(), Code::kDeadline);
  EXPECT_NE(statuses[0].message().find("rank 2"), std::string::npos) << statuses[0].message();
}

TEST(BootstrapTest, OfTwoProcessesWithOneRankTheSecondIsTold) {
  std::vector<WorldSpec> specs = SpecsOf(3, FreshEndpoint());
  specs[2].rank = 1;
  std::vector<std::unique_ptr<World>> worlds;
  const std::vector<Status> statuses = StartAll(specs, &worlds, 1500);
  const bool told = statuses[1].message().find("two processes started with one rank") != std::string::npos ||
                    statuses[2].message().find("two processes started with one rank") != std::string::npos;
  EXPECT_TRUE(told) << statuses[1].message() << "\n" << statuses[2].message();
}

TEST(BootstrapTest, AWorldWithMoreRanksThanAWordOfTheLogCanHoldIsRefused) {
  WorldSpec spec = SpecsOf(1, FreshEndpoint())[0];
  spec.size = (1 << 20) + 1;
  std::unique_ptr<World> world;
  const Status status = Bootstrap(spec, After(std::chrono::milliseconds(100)), &world);
  EXPECT_EQ(status.code(), Code::kInvalid);
  EXPECT_NE(status.message().find("no more than 1048576 ranks"), std::string::npos) << status.message();
}

TEST(BootstrapTest, ADifferentSettingIsRefusedOnAllRanksWithBothValues) {
  std::vector<WorldSpec> specs = SpecsOf(3, FreshEndpoint());
  for (WorldSpec& spec : specs) spec.settings = {{"FARANDOLE_ORDER", "fixed"}};
  specs[1].settings[0].second = "any";
  std::vector<std::unique_ptr<World>> worlds;
  for (const Status& status : StartAll(specs, &worlds)) {
    EXPECT_EQ(status.code(), Code::kMismatch);
    for (const char* part : {"FARANDOLE_ORDER=any: rank 1 (host", "FARANDOLE_ORDER=fixed: ranks 0, 2 (host"}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    }
  }
}

TEST(BootstrapTest, AtTheDeadlineEveryRankNamesTheOneThatDidNotCome) {
  std::vector<WorldSpec> specs = SpecsOf(4, FreshEndpoint());
  specs.erase(specs.begin() + 2);
  std::vector<std::unique_ptr<World>> worlds;
  const auto start = std::chrono::steady_clock::now();
  for (const Status& status : StartAll(specs, &worlds, 1200)) {
    EXPECT_EQ(status.code(), Code::kDeadline);
    EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status.message();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

TEST(BootstrapTest, ARankThatCannotReachRankZeroSaysHowLongAndWhy) {
  std::vector<WorldSpec> specs = SpecsOf(2, FreshEndpoint());
  specs.erase(specs.begin());
  std::vector<std::unique_ptr<World>> worlds;
  const auto start = std::chrono::steady_clock::now();
  const Status status = StartAll(specs, &worlds, 300)[0];
  const auto spent = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(status.code(), Code::kDeadline);
  for (const char* const part : {"rank 1 waited 0.", "for rank 0", "refused", "Check"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
  EXPECT_GT(spent, std::chrono::milliseconds(150));
  EXPECT_LT(spent, std::chrono::seconds(15));
}

struct Failure {
  const char* name;
  const char* failpoints;
};

class FailureTest : public testing::TestWithParam<Failure> {
 protected:
  ~FailureTest() override { EXPECT_TRUE(SetFailpoints("").ok()); }
};

// The failpoint acts on the first rank that visits it.
TEST_P(FailureTest, OfOneRankEndsTheStartOnAllWithTheRemedy) {
  ASSERT_TRUE(SetFailpoints(GetParam().failpoints).ok());
  std::vector<std::unique_ptr<World>> worlds;
  for (const Status& status : StartAll(SpecsOf(4, FreshEndpoint()), &worlds)) {
    EXPECT_EQ(status.code(), Code::kInternal);
    for (const char* part : {"rank ", "cannot share memory", "FARANDOLE_ARENAS=0"})
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
}

INSTANTIATE_TEST_SUITE_P(All, FailureTest,
                         testing::Values(Failure{"NoMemory", "segment.create=error@1"},
                                         Failure{"NoAddressSpace", "segment.attach=error@1"},
                                         Failure{"NotHandedOut", "shm_setup.hand_out=error@1"},
                                         Failure{"NotLetIn", "shm_setup.enter=error@1"}),
                         [](const auto& info) { return info.param.name; });

// As under a seccomp profile or a kernel without pidfd_open.
TEST(BootstrapTest, ARankThatCannotShareMemoryUsesTcpAndTheOthersStillShareTheirs) {
  ASSERT_TRUE(SetFailpoints("shm_setup.open=error@1").ok());
  std::vector<std::unique_ptr<World>> worlds;
  testing::internal::CaptureStderr();
  const std::vector<Status> statuses = StartAll(SpecsOf(4, FreshEndpoint()), &worlds);
  const std::string warning = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(SetFailpoints("").ok());
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.message();
  size_t together = 0;
  for (const auto& world : worlds) {
    EXPECT_EQ(world->layout.nodes, worlds[0]->layout.nodes);
    together += world->node->count() == 3 ? 1 : 0;
  }
  EXPECT_EQ(together, 3u);
  EXPECT_NE(warning.find("cannot share memory, tcp is used: "), std::string::npos) << warning;
}

}  // namespace
}  // namespace farandole
