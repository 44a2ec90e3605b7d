// Messages between ranks that are threads, over real connections: Unix sockets in a node, TCP between nodes.
#include "p2p/messenger.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <iterator>
#include <random>
#include <thread>

#include "support/message_worlds.h"
#include "transport/poll.h"

namespace farandole {
namespace {

constexpr int64_t kLimitMs = 20'000;
const Status kLost{Code::kPeerLost, "rank 1 died"};

Status Wait(Messenger* messenger, const TransferPtr& transfer) {
  if (messenger->Wait(transfer, kLimitMs)) return transfer->status;
  messenger->Cancel(transfer, Internal("timed out"));
  ADD_FAILURE() << transfer->Title() << " timed out";
  return transfer->status;
}

TransferPtr Begin(Messenger* messenger, TransferPtr transfer) {
  const Status begun = messenger->Submit(transfer);
  EXPECT_TRUE(begun.ok()) << begun.message();
  return transfer;
}

TransferPtr Send(Messenger* messenger, int target, std::vector<int32_t>* data, uint64_t tag = 0, int context = 0) {
  return Begin(messenger, TransferOf(true, target, tag, context, data));
}
TransferPtr Receive(Messenger* messenger, int source, std::vector<int32_t>* data, uint64_t tag = 0, int context = 0) {
  return Begin(messenger, TransferOf(false, source, tag, context, data));
}

std::vector<int32_t> Numbers(size_t count, int first) {
  std::vector<int32_t> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = first + static_cast<int32_t>(i);
  return numbers;
}

// In elements: nothing, on credit, the largest on credit, the smallest beyond, several system calls.
const std::vector<size_t> kMessageSizes{0,       1,        300, Link::kEagerBytes / 4, Link::kEagerBytes / 4 + 1,
                                        300'000, 2'000'000};

class MessengerTest : public testing::TestWithParam<std::vector<int>> {};

TEST_P(MessengerTest, MessagesOfAllSizesArriveInTheirOrderInBothDirections) {
  RunMessengers(GetParam(), [](Messenger& messenger, int rank, int size) {
    for (int round = 0; round < 3; ++round) {
      std::vector<TransferPtr> transfers;
      std::deque<std::vector<int32_t>> sent, received;
      for (const size_t count : kMessageSizes) {
        for (int peer = 0; peer < size; ++peer) {
          sent.push_back(Numbers(count, 1000 * rank + round));
          transfers.push_back(Send(&messenger, peer, &sent.back()));
        }
      }
      for (const size_t count : kMessageSizes) {
        for (int peer = 0; peer < size; ++peer) {
          received.emplace_back(count);
          transfers.push_back(Receive(&messenger, peer, &received.back()));
        }
      }
      for (const TransferPtr& each : transfers) EXPECT_EQ(Wait(&messenger, each).message(), "");
      size_t next = 0;
      for (const size_t count : kMessageSizes) {
        for (int peer = 0; peer < size; ++peer) EXPECT_EQ(received[next++], Numbers(count, 1000 * peer + round));
      }
    }
  });
}

// A rank that receives nothing yet keeps no more than the credit; the rest stays with the sender.
TEST_P(MessengerTest, WhatIsBeyondTheCreditWaitsForItsReceive) {
  constexpr int kMessages = 400;
  const size_t count = Link::kEagerBytes / 4;
  std::atomic<bool> sent{false};
  RunMessengers(GetParam(), [&](Messenger& messenger, int rank, int) {
    if (rank > 1) return;
    std::vector<int32_t> hello(1);
    if (rank == 1) {
      std::deque<std::vector<int32_t>> data;
      std::vector<TransferPtr> transfers;
      EXPECT_TRUE(Wait(&messenger, Receive(&messenger, 0, &hello)).ok());
      for (int i = 0; i < kMessages; ++i) {
        data.push_back(Numbers(count, i));
        transfers.push_back(Send(&messenger, 0, &data.back(), i % 2));
      }
      sent = true;
      EXPECT_FALSE(messenger.Wait(transfers.back(), 50));
      for (const TransferPtr& each : transfers) EXPECT_TRUE(Wait(&messenger, each).ok());
      return;
    }
    EXPECT_TRUE(Wait(&messenger, Send(&messenger, 1, &hello)).ok());
    while (!sent) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (const int parity : {1, 0}) {
      for (int i = parity; i < kMessages; i += 2) {
        std::vector<int32_t> data(count);
        EXPECT_TRUE(Wait(&messenger, Receive(&messenger, 1, &data, parity)).ok());
        EXPECT_EQ(data, Numbers(count, i));
      }
    }
  });
}

TEST_P(MessengerTest, MessagesOfNoBytesCostCreditToo) {
  constexpr int kMessages = 5000;
  std::atomic<bool> sent{false};
  RunMessengers(GetParam(), [&](Messenger& messenger, int rank, int) {
    if (rank > 1) return;
    std::vector<int32_t> nothing;
    std::vector<TransferPtr> transfers;
    if (rank == 1) {
      for (int i = 0; i < kMessages; ++i) transfers.push_back(Send(&messenger, 0, &nothing));
      EXPECT_FALSE(messenger.Wait(transfers.back(), 50));
      sent = true;
    } else {
      while (!sent) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      for (int i = 0; i < kMessages; ++i) transfers.push_back(Receive(&messenger, 1, &nothing));
    }
    for (const TransferPtr& each : transfers) ASSERT_TRUE(Wait(&messenger, each).ok());
  });
}

TEST_P(MessengerTest, AReceiveFromAnySourceTakesWhatComesAndSaysFromWhom) {
  RunMessengers(GetParam(), [](Messenger& messenger, int rank, int size) {
    constexpr int kEach = 20;
    std::deque<std::vector<int32_t>> data;
    if (rank != 0) {
      for (int i = 0; i < kEach; ++i) {
        data.push_back(Numbers(i % 2 ? 3 : 30'000, 100 * rank + i));
        EXPECT_TRUE(Wait(&messenger, Send(&messenger, 0, &data.back(), i % 2, 4)).ok());
      }
      return;
    }
    std::vector<int> next(static_cast<size_t>(size), 0);
    for (int i = 0; i < kEach * (size - 1); ++i) {
      std::vector<int32_t> received(i % 2 ? 3 : 30'000);
      const TransferPtr receive = Receive(&messenger, kAnySource, &received, i % 2, 4);
      EXPECT_TRUE(Wait(&messenger, receive).ok());
      EXPECT_EQ(received[0] / 100, receive->source);
      const auto source = static_cast<size_t>(receive->source);
      EXPECT_EQ(received[0] % 100 / 2, next[source] / 2) << "in their order";
      next[source] += i % 2;
      next[source] += i % 2;
    }
  });
}

TEST_P(MessengerTest, AMessageThatDoesNotFitItsReceiveIsAnErrorThatNamesBoth) {
  RunMessengers(GetParam(), [](Messenger& messenger, int rank, int) {
    if (rank > 1) return;
    std::vector<int32_t> four(4, rank), large(1'000'000, rank);
    if (rank == 1) {
      for (auto* const data : {&four, &large, &four, &four})
        EXPECT_TRUE(Wait(&messenger, Send(&messenger, 0, data)).ok());
      return;
    }
    std::vector<int32_t> three(3);
    EXPECT_EQ(Wait(&messenger, Receive(&messenger, 1, &three)).message(),
              "recv from rank 1 with tag 0 failed on rank 0: rank 1 has sent 16 bytes of int32, and the receive takes "
              "12 bytes of int32; the message is dropped");
    EXPECT_EQ(Wait(&messenger, Receive(&messenger, kAnySource, &three)).code(), Code::kMismatch);
    TransferPtr other = TransferOf(false, 1, 0, 0, &four);
    other->dtype = DType::kFloat32;
    EXPECT_NE(Wait(&messenger, Begin(&messenger, other)).message().find("takes 16 bytes of float32"),
              std::string::npos);
    EXPECT_TRUE(Wait(&messenger, Receive(&messenger, 1, &four)).ok());
    EXPECT_EQ(four, std::vector<int32_t>(4, 1));
  });
}

TEST_P(MessengerTest, WhatIsGivenUpIsNotTouchedAndTheOthersGoOn) {
  std::atomic<bool> cancelled{false};
  RunMessengers(GetParam(), [&](Messenger& messenger, int rank, int) {
    if (rank > 1) return;
    const Status given_up{Code::kDeadline, "given up"};
    std::vector<int32_t> large = Numbers(1'000'000, rank), small = Numbers(10, rank);
    if (rank == 1) {
      while (!cancelled) std::this_thread::yield();
      EXPECT_TRUE(Wait(&messenger, Send(&messenger, 0, &small)).ok());
      const TransferPtr withdrawn = Send(&messenger, 0, &large, 7);
      EXPECT_FALSE(messenger.Wait(withdrawn, 20));
      messenger.Cancel(withdrawn, given_up);
      large.assign(large.size(), -1);
      EXPECT_EQ(withdrawn->status.message(), "given up");
      for (int i = 0; i < 15; ++i) {
        large = Numbers(large.size(), i);
        EXPECT_TRUE(Wait(&messenger, Send(&messenger, 0, &large, 8)).ok());
      }
      return;
    }
    std::vector<int32_t> first(10, 0), second(10, 0);
    const TransferPtr receive = Receive(&messenger, 1, &first);
    EXPECT_FALSE(messenger.Wait(receive, 20));
    messenger.Cancel(receive, given_up);
    cancelled = true;
    EXPECT_TRUE(Wait(&messenger, Receive(&messenger, kAnySource, &second)).ok());
    EXPECT_EQ(first, std::vector<int32_t>(10, 0));
    EXPECT_EQ(second, Numbers(10, 1));
    for (int i = 0; i < 15; ++i) {
      std::vector<int32_t> data(large.size(), 0);
      const TransferPtr each = Receive(&messenger, 1, &data, 8);
      if (i % 3 > 0) {
        EXPECT_TRUE(Wait(&messenger, each).ok());
        EXPECT_EQ(data, Numbers(data.size(), i));
        continue;
      }
      messenger.Wait(each, i % 2);
      messenger.Cancel(each, given_up);
      const std::vector<int32_t> then = data;
      if (each->status.ok()) continue;
      // The message may have been dropped with it, or the next receive takes it.
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      EXPECT_EQ(data, then);
      std::vector<int32_t> again(large.size(), 0);
      const TransferPtr next = Receive(&messenger, 1, &again, 8);
      EXPECT_TRUE(Wait(&messenger, next).ok());
      i = again[0];
    }
  });
}

// Threads of every rank send and receive under several keys at once, some in bursts. Under the last tag nobody names
// the sender.
TEST_P(MessengerTest, ThreadsExchangeMessagesAtRandom) {
  constexpr int kEach = 60;  // messages of a rank to each rank under each key
  static constexpr size_t kCounts[] = {3, 12'000, 100};
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    RunMessengers(GetParam(), [seed](Messenger& messenger, int rank, int size) {
      std::vector<std::thread> threads;
      for (uint64_t tag = 0; tag < std::size(kCounts); ++tag) {
        threads.emplace_back([&, tag] {
          std::mt19937 random(seed * 100 + static_cast<uint32_t>(rank));
          std::deque<std::vector<int32_t>> data;
          std::deque<TransferPtr> under_way;
          for (int i = 0; i < kEach; ++i) {
            for (int peer = 0; peer < size; ++peer) {
              data.push_back(Numbers(kCounts[tag], 1000 * rank + i));
              under_way.push_back(Send(&messenger, peer, &data.back(), tag, static_cast<int>(seed)));
            }
            for (const size_t left = random() % 20; under_way.size() > left; under_way.pop_front())
              EXPECT_TRUE(Wait(&messenger, under_way.front()).ok());
          }
          for (const TransferPtr& each : under_way) EXPECT_TRUE(Wait(&messenger, each).ok());
        });
        threads.emplace_back([&, tag] {
          std::vector<int> next(static_cast<size_t>(size), 0);
          for (int i = 0; i < kEach * size; ++i) {
            std::vector<int32_t> received(kCounts[tag]);
            const int source = tag == 2 ? kAnySource : i % size;
            const TransferPtr receive = Receive(&messenger, source, &received, tag, static_cast<int>(seed));
            EXPECT_TRUE(Wait(&messenger, receive).ok());
            const int number = next[static_cast<size_t>(receive->source)]++;
            EXPECT_EQ(received, Numbers(kCounts[tag], 1000 * receive->source + number));
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, MessengerTest,
                         testing::Values(std::vector<int>{2}, std::vector<int>{1, 1}, std::vector<int>{2, 1, 1}));

// ---- ends

TEST(MessengerEndTest, WhatWasSentBeforeARankLeftIsReceivedAndThenTheReasonIsGiven) {
  for (const bool is_known : {true, false}) {
    auto worlds = MessageWorlds({1, 1});
    std::atomic<bool> gone{false};
    const auto reason = [&](int peer) { return is_known && gone && peer == 1 ? kLost : Status::Ok(); };
    Messenger here(worlds[0].get(), reason), there(worlds[1].get(), reason);
    std::vector<int32_t> small(3, 1), large(1'000'000, 1), got(3), never(3), nothing;
    Send(&there, 0, &small);
    const TransferPtr in_vain = Send(&there, 0, &large, 1);
    EXPECT_TRUE(Wait(&here, Receive(&here, 1, &got, 0)).ok());
    Send(&there, 0, &small);
    EXPECT_TRUE(Wait(&there, Send(&there, 0, &nothing, 4)).ok());
    const TransferPtr waits = Receive(&here, 1, &never, 2);
    const TransferPtr any = Receive(&here, kAnySource, &never, 3);
    gone = true;
    there.Shutdown();
    EXPECT_EQ(in_vain->status.code(), Code::kNotInitialized);
    EXPECT_TRUE(Wait(&here, Receive(&here, 1, &got, 0)).ok());
    EXPECT_TRUE(Wait(&here, Receive(&here, 1, &nothing, 4)).ok()) << "nothing, too, is received";
    const std::string text = Wait(&here, waits).message();
    EXPECT_NE(text.find("recv from rank 1 with tag 2 failed on rank 0: rank 1"), std::string::npos) << text;
    EXPECT_EQ(text.find("rank 1 died") != std::string::npos, is_known) << text;
    EXPECT_NE(Wait(&here, any).message().find("all other ranks that could send it have left"), std::string::npos);
    EXPECT_FALSE(Wait(&here, Send(&here, 1, &small)).ok());
    EXPECT_FALSE(Wait(&here, Receive(&here, 1, &large, 1)).ok()) << "it was only announced";
  }
}

TEST(MessengerEndTest, ARankThatIsGoneBeforeTheFirstMessageIsNoticed) {
  for (const std::vector<int>& nodes : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    auto worlds = MessageWorlds(nodes);
    worlds[1].reset();
    Messenger here(worlds[0].get(), [](int) { return Status::Ok(); });
    std::vector<int32_t> data(3);
    const TransferPtr send = Send(&here, 1, &data), receive = Receive(&here, 1, &data, 1);
    EXPECT_EQ(Wait(&here, send).code(), Code::kPeerLost);
    EXPECT_NE(Wait(&here, receive).message().find("rank 1 (host"), std::string::npos) << receive->status.message();
  }
}

// The rank hangs up several times, as if too many ranks connected, and then begins to answer late.
TEST(MessengerEndTest, ARankThatAnswersLateIsNotLost) {
  auto worlds = MessageWorlds({1, 1});
  Descriptor listener;
  ASSERT_TRUE(Listen("tcp:127.0.0.1:0", &listener).ok());
  ASSERT_TRUE(BoundEndpoint(listener.get(), &worlds[0]->peers[1].data_endpoint).ok());
  Messenger here(worlds[0].get(), [](int) { return Status::Ok(); });
  std::vector<int32_t> sent = Numbers(3, 1), got(3);
  const TransferPtr send = Send(&here, 1, &sent);
  Acceptor stranger;
  stranger.Open(Descriptor(dup(listener.get())), Key{}, {"", 1, 0});
  while (stranger.turned_away() < 3) {
    PollSet set;
    stranger.Watch(&set);
    set.Wait();
    std::vector<AuthenticatedPeer> none;
    ASSERT_TRUE(stranger.Step(set, Now(), &none).ok());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(2300));
  stranger.Close();
  EXPECT_FALSE(send->done) << send->status.message();
  worlds[1]->acceptors.emplace_back().Open(std::move(listener), worlds[1]->key, {"", 1, 0});
  Messenger there(worlds[1].get(), [](int) { return Status::Ok(); });
  EXPECT_TRUE(Wait(&there, Receive(&there, 0, &got)).ok());
  EXPECT_EQ(got, sent);
}

// Of a process set, only its members count.
TEST(MessengerEndTest, AReceiveFromAnySourceFailsWhenAllOthersOfItsSetAreGone) {
  auto worlds = MessageWorlds({1, 1, 1});
  Messenger here(worlds[0].get(), [](int peer) { return peer == 1 ? kLost : Status::Ok(); });
  std::vector<int32_t> data(3);
  const TransferPtr of_all = Receive(&here, kAnySource, &data);
  TransferPtr of_two = TransferOf(false, kAnySource, 0, 1, &data);
  of_two->members = std::make_shared<const std::vector<int>>(std::vector<int>{0, 1});
  EXPECT_EQ(Wait(&here, Begin(&here, of_two)).code(), Code::kPeerLost);
  EXPECT_FALSE(here.Wait(of_all, 150)) << "rank 2 may send it";
}

TEST(MessengerEndTest, TheEndOfTheEpochEndsAllAndLaterOnesAreRefused) {
  auto worlds = MessageWorlds({2, 1});
  std::atomic<bool> over{false};
  Messenger here(worlds[0].get(), [&](int) { return over ? kLost : Status::Ok(); });
  Messenger there(worlds[1].get(), [](int) { return Status::Ok(); });
  std::vector<int32_t> data(300'000);
  std::vector<TransferPtr> all{Send(&here, 1, &data), Send(&here, 2, &data), Receive(&here, 1, &data, 1),
                               Receive(&here, kAnySource, &data, 2), Send(&here, 0, &data, 3)};
  EXPECT_FALSE(here.Wait(all[0], 20));
  over = true;
  for (const TransferPtr& each : all) EXPECT_EQ(Wait(&here, each).code(), Code::kPeerLost) << each->Title();
  EXPECT_EQ(all[2]->status.message(), "recv from rank 1 with tag 1 failed on rank 0: rank 1 died");
  const Status refused = here.Submit(TransferOf(true, 1, 0, 0, &data));
  EXPECT_EQ(refused.message(), "send to rank 1 with tag 0 cannot start on rank 0: rank 1 died");
}

TEST(MessengerEndTest, AWaitEndsWithTheShutdownInAnotherThread) {
  auto worlds = MessageWorlds({2});
  Messenger here(worlds[0].get(), [](int) { return Status::Ok(); });
  std::vector<int32_t> data(3);
  const TransferPtr receive = Receive(&here, 1, &data);
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    here.Shutdown();
  });
  EXPECT_EQ(Wait(&here, receive).code(), Code::kNotInitialized);
  ends.join();
}

TEST(MessengerSelfTest, InAWorldOfOneMessagesGoToTheRankItself) {
  Messenger messenger(nullptr, [](int) { return Status::Ok(); });
  for (const size_t count : kMessageSizes) {
    std::vector<int32_t> sent = Numbers(count, 5), received(count), other(count + 1);
    const TransferPtr send = Send(&messenger, 0, &sent);
    EXPECT_EQ(send->done, count * 4 <= Link::kEagerBytes);
    EXPECT_TRUE(Wait(&messenger, Receive(&messenger, kAnySource, &received)).ok());
    EXPECT_TRUE(Wait(&messenger, send).ok());
    EXPECT_EQ(received, sent);
    const TransferPtr first = Receive(&messenger, 0, &other);
    Send(&messenger, 0, &sent);
    EXPECT_EQ(Wait(&messenger, first).code(), Code::kMismatch);
  }
  std::vector<int32_t> data(3);
  EXPECT_EQ(messenger.Submit(TransferOf(true, 1, 0, 0, &data)).code(), Code::kInvalid);
  EXPECT_EQ(messenger.Submit(TransferOf(true, kAnySource, 0, 0, &data)).code(), Code::kInvalid);
}

}  // namespace
}  // namespace farandole
