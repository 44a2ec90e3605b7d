// Behaviour of TCP alone; transport_suite_test.cc tests what all transports have in common.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "support/transports.h"

namespace farandole::tests {
namespace {

// Receives one byte or an error within 10 s.
Status ReceiveByte(Transport* transport, char* byte) {
  std::vector<Transport::Completion> completions;
  transport->PostReceive(0, {}, 0, byte, 1, 1);
  const TimeLimit limit(std::chrono::seconds(10));
  while (completions.empty() && !limit.passed()) transport->Poll(&completions);
  return completions.empty() ? Internal("nothing came in time") : completions[0].status;
}

TEST(Tcp, AForkedChildThatDropsItsCopyLeavesTheConnectionOpen) {
  Transports pair = TcpTransports(2);
  const pid_t child = fork();
  if (child == 0) {
    pair[0].reset();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  std::vector<Transport::Completion> completions;
  pair[0]->PostSend(1, {}, 0, "x", 1, 1);
  EXPECT_TRUE(pair[0]->Poll(&completions));
  char byte = 0;
  EXPECT_TRUE(ReceiveByte(pair[1].get(), &byte).ok());
  EXPECT_EQ(byte, 'x');
}

TEST(Tcp, ClosingIsSeenAlthoughAForkedChildHoldsACopy) {
  Transports pair = TcpTransports(2);
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    close(hold[1]);
    _exit(static_cast<int>(read(hold[0], &byte, 1)));
  }
  pair[0].reset();
  char byte;
  EXPECT_EQ(ReceiveByte(pair[1].get(), &byte).code(), Code::kPeerLost);
  close(hold[0]);
  close(hold[1]);
  waitpid(child, nullptr, 0);
}

TEST(Tcp, TheKernelCountsWhatALinkCarries) {
  Transports pair = TcpTransports(2);
  std::string sent(100'000, 'x'), received(sent.size(), 'y');
  std::vector<Transport::Completion> completions;
  pair[0]->PostSend(1, {}, 0, sent.data(), sent.size(), 1);
  pair[1]->PostReceive(0, {}, 0, received.data(), received.size(), 2);
  const TimeLimit limit(std::chrono::seconds(10));
  std::vector<LinkFacts> facts;
  while ((facts.empty() || facts[0].sent_bytes < sent.size()) && !limit.passed()) {
    pair[0]->Poll(&completions);
    pair[1]->Poll(&completions);
    facts.clear();
    pair[0]->AppendLinkFacts(&facts);
  }
  ASSERT_EQ(facts.size(), 1u);
  EXPECT_EQ(facts[0].peer, 1);
  EXPECT_GE(facts[0].sent_bytes, sent.size());
  EXPECT_GT(facts[0].round_trip_us, 0u);
}

TEST(Tcp, AnErrorOfThisProcessIsNotBlamedOnThePeer) {
  std::vector<PeerConnection> connections;
  connections.push_back({0, Lane::kOrdered, Descriptor(-1), "rank 0"});
  const std::unique_ptr<Transport> transport = MakeTransport(std::move(connections));
  char byte;
  EXPECT_EQ(ReceiveByte(transport.get(), &byte).code(), Code::kInternal);
}

}  // namespace
}  // namespace farandole::tests
