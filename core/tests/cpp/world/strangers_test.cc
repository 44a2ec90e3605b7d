// Strangers at every port of a job, while it starts and while it runs. They get no answer, and no rank waits for them.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>
#include <set>
#include <sstream>
#include <thread>

#include "common/failpoint.h"
#include "support/connect.h"
#include "support/specs.h"
#include "transport/connections.h"
#include "world/world.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

const char* const kWords[] = {
    "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS client hello, or what begins like one",
    "SSH-2.0-OpenSSH_9.2\r\n",
    "\x7f\x01\x80\xff random bytes \x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f",
    "F",
    "",  // half-open
};

// One rank has no shared memory, so the job makes all kinds of connections.
std::vector<WorldSpec> MixedSpecs(int size, const std::string& store) {
  std::vector<WorldSpec> specs = SpecsOf(size, store);
  specs.back().shares_memory = false;
  return specs;
}

std::string FreePort() {
  Descriptor listener;
  std::string endpoint;
  EXPECT_TRUE(Listen("tcp:127.0.0.1:0", &listener).ok());
  EXPECT_TRUE(BoundEndpoint(listener.get(), &endpoint).ok());
  return endpoint;
}

std::set<std::string> InodesOfThisProcess() {
  std::set<std::string> inodes;
  DIR* const folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    char target[64] = {};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    const ssize_t length = readlink(path.c_str(), target, sizeof(target) - 1);
    if (length > 9 && std::string(target, 8) == "socket:[") inodes.insert(std::string(target + 8, target + length - 1));
  }
  closedir(folder);
  return inodes;
}

// The endpoints at which this process listens.
std::vector<std::string> OpenEndpoints() {
  const std::set<std::string> mine = InodesOfThisProcess();
  std::vector<std::string> endpoints;
  std::string line, word;
  for (std::ifstream file("/proc/net/tcp"); std::getline(file, line);) {
    std::istringstream fields(line);
    std::vector<std::string> words;
    while (fields >> word) words.push_back(word);
    if (words.size() < 10 || words[3] != "0A" || mine.count(words[9]) == 0) continue;
    endpoints.push_back("tcp:127.0.0.1:" +
                        std::to_string(std::stoi(words[1].substr(words[1].find(':') + 1), nullptr, 16)));
  }
  for (std::ifstream file("/proc/net/unix"); std::getline(file, line);) {
    std::istringstream fields(line);
    std::vector<std::string> words;
    while (fields >> word) words.push_back(word);
    const bool listens = words.size() == 8 && words[3] == "00010000" && mine.count(words[6]) > 0;
    if (listens && words[7][0] == '@') endpoints.push_back("unix:" + words[7].substr(1));
  }
  return endpoints;
}

Descriptor ConnectAsStranger(const std::string& endpoint, const std::string& words) {
  Descriptor connection;
  if (ConnectOnce(endpoint, After(milliseconds(500)), &connection).ok() && !words.empty())
    (void)SendAll(connection.get(), words.data(), words.size(), After(milliseconds(500)));
  return connection;
}

// Returns whether at least one byte came back.
bool WasAnswered(const Descriptor& connection) {
  char byte = 0;
  return connection.valid() && recv(connection.get(), &byte, 1, MSG_DONTWAIT) > 0;
}

struct Job {
  std::vector<std::unique_ptr<World>> worlds;
  std::vector<std::future<Status>> ranks;

  explicit Job(size_t size) : worlds(size) {}
  void Begin(const WorldSpec& spec) {
    std::unique_ptr<World>* const world = &worlds[static_cast<size_t>(spec.rank)];
    ranks.push_back(std::async(std::launch::async,
                               [spec, world] { return Bootstrap(spec, After(std::chrono::seconds(20)), world); }));
  }
  void ExpectStarted() {
    for (auto& rank : ranks) {
      const Status status = rank.get();
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
};

TEST(StrangersTest, AHundredWhoSayNothingDoNotKeepAJobFromStarting) {
  const std::vector<WorldSpec> specs = MixedSpecs(3, FreePort());
  Job job(specs.size());
  job.Begin(specs[0]);
  std::vector<Descriptor> silent;
  while (silent.size() < 100) {
    silent.push_back(ConnectAsStranger(specs[0].rendezvous_endpoint, ""));
    if (!silent.back().valid()) silent.pop_back();
  }
  const auto start = std::chrono::steady_clock::now();
  job.Begin(specs[1]);
  job.Begin(specs[2]);
  job.ExpectStarted();
  EXPECT_LT(std::chrono::steady_clock::now() - start, kHandshakeTimeout) << "somebody waited for a stranger";
  for (const Descriptor& stranger : silent) EXPECT_FALSE(WasAnswered(stranger));
}

TEST(StrangersTest, AThousandOneAfterTheOtherGetNoAnswerAndChangeNothing) {
  const std::vector<WorldSpec> specs = MixedSpecs(3, FreePort());
  Job job(specs.size());
  job.Begin(specs[0]);
  Descriptor first;
  ASSERT_TRUE(ConnectRetry(specs[0].rendezvous_endpoint, After(std::chrono::seconds(5)), &first).ok());
  for (int i = 0; i < 1000; ++i) {
    const Descriptor stranger =
        ConnectAsStranger(specs[0].rendezvous_endpoint, kWords[static_cast<size_t>(i) % std::size(kWords)]);
    EXPECT_FALSE(WasAnswered(stranger));
  }
  job.Begin(specs[1]);
  job.Begin(specs[2]);
  job.ExpectStarted();
}

TEST(StrangersTest, AtEveryPortOfAStartingJobGetNoAnswer) {
  // Each step is delayed, so that strangers find the endpoints that it opens.
  ASSERT_TRUE(SetFailpoints("bootstrap.send=delay:50").ok());
  for (int round = 0; round < 2; ++round) {
    const std::vector<WorldSpec> specs = MixedSpecs(4, FreePort());
    std::atomic<bool> over{false};
    std::set<std::string> endpoints;
    std::thread strangers([&] {
      std::vector<Descriptor> connections;
      for (size_t i = 0; !over; ++i) {
        for (const std::string& endpoint : OpenEndpoints()) {
          endpoints.insert(endpoint);
          connections.push_back(ConnectAsStranger(endpoint, kWords[(i + connections.size()) % std::size(kWords)]));
        }
        for (const Descriptor& connection : connections) EXPECT_FALSE(WasAnswered(connection));
        if (connections.size() > 200) connections.clear();
      }
    });
    Job job(specs.size());
    for (const WorldSpec& spec : specs) {
      job.Begin(spec);
      std::this_thread::sleep_for(milliseconds(20));
    }
    job.ExpectStarted();
    over = true;
    strangers.join();
    EXPECT_GE(endpoints.size(), 4u) << "rendezvous, segment and data endpoints were found";
  }
  ASSERT_TRUE(SetFailpoints("").ok());
}

// The ports are for messages (p2p/messenger.h), which nobody has sent yet.
TEST(StrangersTest, AreAnsweredByNobodyWhileAJobRuns) {
  const std::vector<WorldSpec> specs = MixedSpecs(3, FreePort());
  Job job(specs.size());
  for (const WorldSpec& spec : specs) job.Begin(spec);
  job.ExpectStarted();
  std::vector<Descriptor> strangers;
  for (const std::string& endpoint : OpenEndpoints()) {
    for (const auto& words : kWords) strangers.push_back(ConnectAsStranger(endpoint, words));
  }
  std::this_thread::sleep_for(milliseconds(100));
  for (const Descriptor& stranger : strangers) EXPECT_FALSE(WasAnswered(stranger));
}

TEST(AcceptorTest, KeepsALimitedNumberOfStrangersAndDropsThemInTime) {
  Descriptor listener;
  std::string endpoint;
  ASSERT_TRUE(Listen("tcp:127.0.0.1:0", &listener).ok());
  ASSERT_TRUE(BoundEndpoint(listener.get(), &endpoint).ok());
  Acceptor acceptor;
  acceptor.Open(std::move(listener), KeyOf(7), {"control", 0, 0});
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(ConnectAsStranger(endpoint, "FR"));
  Connector honest(endpoint, KeyOf(7), {"control", 3, 0}, Now());
  std::vector<AuthenticatedPeer> peers;
  const auto start = Now();
  const auto step = [&] {
    PollSet set;
    acceptor.Watch(&set);
    honest.Watch(&set);
    set.WakeAt(Now() + milliseconds(50));
    set.Wait();
    ASSERT_TRUE(acceptor.Step(set, Now(), &peers).ok());
    ASSERT_TRUE(honest.Step(Now()).ok());
    EXPECT_LE(acceptor.pending(), Acceptor::kMaxPending);
  };
  while ((peers.empty() || !honest.done()) && Now() < start + std::chrono::seconds(5)) step();
  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0].hello.rank, 3u);
  EXPECT_LT(Now() - start, kHandshakeTimeout);
  while (acceptor.pending() > 0 && Now() < start + std::chrono::seconds(5)) {
    PollSet set;
    acceptor.Watch(&set);
    set.Wait();
    ASSERT_TRUE(acceptor.Step(set, Now(), &peers).ok());
  }
  EXPECT_EQ(acceptor.pending(), 0u);
  EXPECT_EQ(acceptor.turned_away(), 300u);
  for (const Descriptor& stranger : strangers) EXPECT_FALSE(WasAnswered(stranger));
}

}  // namespace
}  // namespace farandole
