// Ranks leave in good order right after an operation, while others are slow. A rank that has submitted that operation
// gets its result, since everything for it is there or will come.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/failpoint.h"
#include "support/requests.h"
#include "support/thread_worlds.h"
#include "world/liveness.h"

namespace farandole {
namespace {

// Keeps the driver of a rank in the `done` of an operation.
class Hold {
 public:
  Request In(Request request) {
    request.done = [](void* self, const Status&, Event) { static_cast<Hold*>(self)->Enter(); };
    request.done_argument = this;
    return request;
  }
  void AwaitHeld() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return is_held_; });
  }
  void LetGo() {
    std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }

 private:
  void Enter() {
    std::unique_lock<std::mutex> lock(mutex_);
    is_held_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_over_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_held_ = false, is_over_ = false;
};

// Long enough for a connection that has ended to be taken for a death.
void AwaitSuspicion() {
  std::this_thread::sleep_for(4 * Liveness::kSuspicionTimeout + FailureMonitor::kConfirmationTimeout);
}

Request Barrier(const std::string& name) { return Make(OpKind::kBarrier, {}, name); }

Request Broadcast(std::vector<float>* values, int root) {
  Request request = Make(OpKind::kBroadcast, {TensorOf(*values, values)}, "cast");
  request.root = root;
  return request;
}

// Early where no two share memory, except the first sum.
Request Sum(std::vector<float>* values, const char* name = "known") {
  return Make(OpKind::kAllreduce, {TensorOf(*values, values)}, name);
}

OperationPtr Begin(Engine& engine, Request request) {
  OperationPtr operation;
  const Status status = SubmitTo(engine, request, &operation);
  EXPECT_TRUE(status.ok()) << status.message();
  return operation;
}

void ExpectDone(Engine& engine, const OperationPtr& operation) {
  ASSERT_TRUE(engine.Wait(operation, kWaitMs)) << operation->Title();
  EXPECT_TRUE(operation->status().ok()) << operation->status().message();
}

// Rank 0's connections end at once; the message that it leaves comes through the leader of the other node, which is
// slow.
TEST(LeavingTest, RankZeroIsNotTakenForDeadWhereTheFirstOfANodeIsSlow) {
  Hold hold;
  std::atomic<bool> has_left{false};
  RunRanks({1, 2}, [&](Engine& engine) {
    auto values = Values<float>(engine.rank(), 1000);
    if (engine.rank() == 1) {
      const OperationPtr cast = Begin(engine, Broadcast(&values, 0));
      Begin(engine, hold.In(Barrier("before")));
      AwaitThat([&] { return has_left.load(); });
      AwaitSuspicion();
      hold.LetGo();
      ExpectDone(engine, cast);
    } else {
      ExpectDone(engine, Begin(engine, Barrier("before")));
      hold.AwaitHeld();
      ExpectDone(engine, Begin(engine, Broadcast(&values, 0)));
      if (engine.rank() == 0) engine.Shutdown();
      has_left = has_left || engine.rank() == 0;
    }
    EXPECT_EQ(values, Values<float>(0, 1000));
  });
}

// Four nodes: rank 1 sends its values to all, by way of rank 3 to rank 0, and leaves. Rank 3 is slow, so they are to
// come to rank 0 yet, and rank 0 is slow to hear that rank 1 has left.
void CastAndLeave(const std::vector<int>& nodes, const std::function<OperationPtr(Engine&)>& begin_what_fails,
                  int rank_that_fails) {
  Hold hold_0, hold_3;
  std::atomic<bool> has_left{false}, has_begun{false}, is_over{false};
  RunRanks(nodes, [&](Engine& engine) {
    auto values = Values<float>(engine.rank(), 1000);
    auto known = values;
    ExpectDone(engine, Begin(engine, Sum(&known)));
    OperationPtr cast;
    if (engine.rank() == 3) {
      cast = Begin(engine, Broadcast(&values, 1));
      Begin(engine, Barrier("after"));
      Begin(engine, hold_3.In(Barrier("before")));
    } else {
      ExpectDone(engine, Begin(engine, Barrier("before")));
      hold_3.AwaitHeld();
      cast = Begin(engine, Broadcast(&values, 1));
      const OperationPtr after = Begin(engine, engine.rank() == 0 ? hold_0.In(Barrier("after")) : Barrier("after"));
      if (engine.rank() > 0) ExpectDone(engine, after);
      if (engine.rank() > 0) ExpectDone(engine, cast);
    }
    if (engine.rank() == 1) {
      hold_0.AwaitHeld();
      engine.Shutdown();
      has_left = true;
      return;
    }
    AwaitThat([&] { return has_left.load(); });
    OperationPtr failing;
    if (engine.rank() == rank_that_fails) {
      failing = begin_what_fails(engine);
      has_begun = true;
    }
    AwaitThat([&] { return has_begun.load(); });
    if (engine.rank() == 0) {
      if (rank_that_fails != 0) AwaitSuspicion();
      hold_0.LetGo();
      AwaitSuspicion();
      hold_3.LetGo();
    }
    ExpectDone(engine, cast);
    EXPECT_EQ(values, Values<float>(1, 1000));
    if (failing) {
      EXPECT_TRUE(engine.Wait(failing, kWaitMs));
      const std::string text = failing->status().message();
      EXPECT_NE(text.find("rank 1 (host host1, pid 1) has left"), std::string::npos) << text;
      is_over = true;
    }
    AwaitThat([&] { return is_over.load(); });  // nobody else leaves before
  });
}

// The name now stands for another operation, of which rank 0 tells the leader of each node.
TEST(LeavingTest, ThatARankLeavesIsReadThoughItCannotBeSentAnythingAnyMore) {
  std::vector<double> others(7);
  CastAndLeave(
      {1, 1, 1, 2},
      [&](Engine& engine) { return Begin(engine, Make(OpKind::kAllreduce, {TensorOf(others, &others)}, "known")); }, 0);
}

// A rank that waits for its data sees the connection end long before rank 0 forwards that it has left.
TEST(LeavingTest, WhoWaitsForItsDataDoesNotTakeItForDead) {
  std::vector<float> values(1000);
  CastAndLeave({1, 1, 1, 1}, [&](Engine& engine) { return Begin(engine, Sum(&values)); }, 2);
}

// The data are in the socket, and rank 2 reads it after rank 1 has left.
TEST(LeavingTest, WhatItHasWrittenIsTakenAfterItHasLeft) {
  Hold hold;
  std::atomic<bool> has_left{false};
  RunRanks({1, 1, 1}, [&](Engine& engine) {
    auto first = Values<float>(engine.rank(), 1000), second = first;
    for (const char* name : {"first", "second"}) {  // the names are known from here on
      auto values = first;
      ExpectDone(engine, Begin(engine, Sum(&values, name)));
    }
    if (engine.rank() == 2) {
      const OperationPtr last = Begin(engine, Sum(&second, "second"));
      Begin(engine, hold.In(Sum(&first, "first")));
      AwaitThat([&] { return has_left.load(); });
      AwaitSuspicion();
      hold.LetGo();
      ExpectDone(engine, last);
    } else {
      ExpectDone(engine, Begin(engine, Sum(&first, "first")));
      hold.AwaitHeld();
      ExpectDone(engine, Begin(engine, Sum(&second, "second")));
      if (engine.rank() == 1) engine.Shutdown();
      has_left = has_left || engine.rank() == 1;
    }
    ExpectSum(second, engine.size());
  });
}

// The connections of the rank that left have ended, but explain nothing.
TEST(LeavingTest, AFailureAfterItHasLeftIsToldAtOnce) {
  Hold hold;
  std::atomic<bool> is_under_way{false}, has_failed{false};
  RunRanks({1, 1, 1}, [&](Engine& engine) {
    Request add = Make(OpKind::kAddProcessSet, {});
    add.ranks = {0, 1};
    ExpectDone(engine, Begin(engine, std::move(add)));
    auto values = Values<float>(engine.rank(), 1000);
    Request request = Broadcast(&values, 1), behind = Barrier("behind");
    request.process_set = behind.process_set = 1;
    OperationPtr cast;
    if (engine.rank() == 1) {
      cast = Begin(engine, std::move(request));
      Begin(engine, std::move(behind));
      Begin(engine, hold.In(Barrier("before")));
      AwaitThat([&] { return has_failed.load(); });
      hold.LetGo();
      return;
    }
    ExpectDone(engine, Begin(engine, Barrier("before")));
    if (engine.rank() == 2) {
      AwaitThat([&] { return is_under_way.load(); });
      return;
    }
    hold.AwaitHeld();
    cast = Begin(engine, std::move(request));
    ExpectDone(engine, Begin(engine, std::move(behind)));
    is_under_way = true;
    const Status lost = SubmitAndWait(engine, Barrier("after"));
    EXPECT_NE(lost.message().find("rank 2 (host host2, pid 1) has left"), std::string::npos) << lost.message();
    EXPECT_FALSE(cast->done()) << cast->status().message();
    EXPECT_TRUE(SetFailpoints("link.recv=error").ok());
    EXPECT_TRUE(engine.Wait(cast, kWaitMs));
    EXPECT_NE(cast->status().message().find("link.recv"), std::string::npos) << cast->status().message();
    EXPECT_TRUE(SetFailpoints("").ok());
    has_failed = true;
  });
}

// A connection on which messages from one end to the other can be held up or lost.
class BadConnection {
 public:
  template <typename End>  // a Descriptor, or what is made of one
  BadConnection(End* from, End* to) {
    auto [near, inner_near] = SocketPair();
    auto [far, inner_far] = SocketPair();
    *from = End(std::move(near));
    *to = End(std::move(far));
    ends_[0] = std::move(inner_near);
    ends_[1] = std::move(inner_far);
    there_ = std::thread([this] { Carry(ends_[0].get(), ends_[1].get(), is_held_up_, loses_); });
    back_ = std::thread([this] { Carry(ends_[1].get(), ends_[0].get(), never_, never_); });
  }
  // REQUIRES: both ends are closed.
  ~BadConnection() {
    there_.join();
    back_.join();
  }
  void HoldUp(bool on) { is_held_up_ = on; }
  // From here on only the end of the connection arrives.
  void Lose() { loses_ = true; }

 private:
  static void Carry(int from, int to, const std::atomic<bool>& is_held_up, const std::atomic<bool>& loses) {
    char bytes[4096];
    for (ssize_t got = 1; got > 0;) {
      pollfd ready{from, POLLIN, 0};
      poll(&ready, 1, -1);
      while (is_held_up) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      got = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);
      for (ssize_t sent = loses ? got : 0; sent < got;) {
        const ssize_t moved = send(to, bytes + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
        if (moved < 0 && errno != EAGAIN) break;
        sent += std::max<ssize_t>(moved, 0);
      }
    }
    shutdown(to, SHUT_WR);
  }

  Descriptor ends_[2];
  std::atomic<bool> is_held_up_{false}, loses_{false}, never_{false};
  std::thread there_, back_;
};

void Connect(World* world, int peer, Descriptor ordered, Descriptor early) {
  std::vector<PeerConnection> connections;
  connections.push_back({peer, Lane::kOrdered, std::move(ordered), world->NameOf(peer)});
  connections.push_back({peer, Lane::kEarly, std::move(early), world->NameOf(peer)});
  world->transport = MakeTransport(std::move(connections), world->size);
}

// The log says that all have joined, and each rank needs a message of rank 0 before it reads on. So rank 2 sees the end
// of rank 1's process before it can read that rank 1 has left.
TEST(LeavingTest, WhoHasSaidSoInTheLogIsNotTakenForDeadBeforeTheLogCanBeRead) {
  std::vector<std::unique_ptr<World>> worlds = ThreadWorlds({3});
  BadConnection connection(&worlds[0]->control[2], &worlds[2]->control[0]);
  auto [process, its_end] = SocketPair();  // readable when the other is closed, as a pidfd when the process ends
  worlds[2]->pidfds[1] = std::move(process);
  std::atomic<bool> is_held_up{false}, has_ended{false};
  RunWorlds(std::move(worlds), [&, end = &its_end](Engine& engine) {
    ExpectDone(engine, Begin(engine, Barrier("start")));
    if (engine.rank() == 2) {
      connection.HoldUp(true);
      is_held_up = true;
    }
    AwaitThat([&] { return is_held_up.load(); });
    const OperationPtr join = Begin(engine, Make(OpKind::kJoin, {}));
    if (engine.rank() == 2) {
      AwaitThat([&] { return has_ended.load(); });
      AwaitSuspicion();
      connection.HoldUp(false);
    }
    ExpectDone(engine, join);
    if (engine.rank() != 1) return;
    engine.Shutdown();
    end->Reset();
    has_ended = true;
  });
}

// The data of an operation in which a joined rank takes part may come after the end of the join, and after another
// rank has left.
TEST(LeavingTest, AJoinWaitsForTheOperationsInWhichTheRankTakesPart) {
  std::vector<std::unique_ptr<World>> worlds = ThreadWorlds({1, 1});
  Descriptor ends[2];
  BadConnection data(&ends[0], &ends[1]);
  auto [early, other_early] = SocketPair();
  Connect(worlds[0].get(), 1, std::move(ends[0]), std::move(early));
  Connect(worlds[1].get(), 0, std::move(ends[1]), std::move(other_early));
  data.HoldUp(true);
  std::atomic<bool> has_joined{false};
  RunWorlds(std::move(worlds), [&](Engine& engine) {
    std::vector<float> values(1000);
    if (engine.rank() == 0) ExpectDone(engine, Begin(engine, Broadcast(&values, 0)));
    const OperationPtr join = Begin(engine, Make(OpKind::kJoin, {}));
    if (engine.rank() == 1) {
      AwaitThat([&] { return has_joined.load(); });
      EXPECT_FALSE(engine.Wait(join, 300)) << "the broadcast is still under way here";
      data.HoldUp(false);
    }
    ExpectDone(engine, join);
    has_joined = true;
  });
}

// The rank has said on its data connections that it leaves, so their ends are no evidence of a death. But its message
// to rank 0 is lost with the connection. A rank that waits for it learns that.
TEST(LeavingTest, WhoseWordIsLostIsMissedByThoseThatWaitForIt) {
  std::vector<std::unique_ptr<World>> worlds = ThreadWorlds({1, 1, 1});
  BadConnection connection(&worlds[1]->control[0], &worlds[0]->control[1]);
  RunWorlds(std::move(worlds), [&](Engine& engine) {
    auto values = Values<float>(engine.rank(), 1000);
    auto known = values;
    ExpectDone(engine, Begin(engine, Sum(&known)));
    if (engine.rank() == 1) {
      connection.Lose();
      return engine.Shutdown();
    }
    const OperationPtr operation = Begin(engine, Sum(&values));
    ASSERT_TRUE(engine.Wait(operation, kWaitMs));
    EXPECT_EQ(operation->status().code(), Code::kPeerLost);
    const std::string text = operation->status().message();
    EXPECT_NE(text.find("the connection to rank 1 (host host1, pid 1) was lost"), std::string::npos) << text;
  });
}

void ExpectLost(const Status& status, int rank) {
  EXPECT_EQ(status.code(), Code::kPeerLost) << status.message();
  EXPECT_NE(status.message().find("rank " + std::to_string(rank) + " "), std::string::npos) << status.message();
}

Request InSet(Request request, int set) {
  request.process_set = set;
  return request;
}

void AddSet(Engine& engine, std::vector<int64_t> ranks) {
  Request add = Make(OpKind::kAddProcessSet, {});
  add.ranks = std::move(ranks);
  ExpectDone(engine, Begin(engine, std::move(add)));
}

// One thread of rank 0 leaves while another comes last to an operation for which rank 1 waits.
TEST(LeavingTest, WhatAnotherThreadBeginsMeanwhileFailsOnAllRanks) {
  std::atomic<bool> waits{false};
  RunRanks({2}, [&](Engine& engine) {
    auto values = Values<float>(engine.rank(), 1000);
    ExpectDone(engine, Begin(engine, Broadcast(&values, 0)));  // the name is known from here on
    if (engine.rank() == 1) {
      const OperationPtr cast = Begin(engine, Broadcast(&values, 0));
      waits = true;
      ASSERT_TRUE(engine.Wait(cast, kWaitMs));
      return ExpectLost(cast->status(), 0);
    }
    AwaitThat([&] { return waits.load(); });
    ASSERT_TRUE(SetFailpoints("engine.break=hold").ok());
    std::thread leaver([&] { engine.Shutdown(); });
    AwaitThat([] { return HeldAtFailpoints() > 0; });
    OperationPtr cast;
    const Status begun = SubmitTo(engine, Broadcast(&values, 0), &cast);
    ASSERT_TRUE(SetFailpoints("").ok());
    leaver.join();
    EXPECT_FALSE(begun.ok() && cast->status().ok());
  });
}

// Rank 0 leaves, so an operation of ranks 1 and 2 fails on rank 1, which then leaves, too. Rank 2 is slow to hear of
// either, and comes last to the operation.
TEST(LeavingTest, WhatHasFailedOnOneRankDoesNotHangOnAnother) {
  Hold hold;
  std::atomic<bool> waits{false}, has_failed{false};
  RunRanks({3}, [&](Engine& engine) {
    AddSet(engine, {1, 2});
    auto values = Values<float>(engine.rank(), 1000);
    const Request cast = InSet(Broadcast(&values, 1), 1);
    if (engine.rank() > 0) ExpectDone(engine, Begin(engine, cast));  // the name is known from here on
    const OperationPtr before = Begin(engine, engine.rank() == 2 ? hold.In(Barrier("before")) : Barrier("before"));
    if (engine.rank() < 2) ExpectDone(engine, before);
    hold.AwaitHeld();
    if (engine.rank() == 0) return AwaitThat([&] { return waits.load(); });
    if (engine.rank() == 2) AwaitThat([&] { return has_failed.load(); });
    const OperationPtr operation = Begin(engine, cast);
    waits = true;
    if (engine.rank() == 2) hold.LetGo();
    ASSERT_TRUE(engine.Wait(operation, kWaitMs));
    ExpectLost(operation->status(), 0);
    has_failed = true;
  });
}

// Rank 2 leaves, so the join of rank 1 fails, which then leaves, too. Rank 0 is slow to hear of either, and begins an
// operation in which rank 1 would take part.
TEST(LeavingTest, WhoseJoinHasFailedIsNotAwaited) {
  Hold hold;
  std::atomic<bool> has_joined{false}, has_failed{false};
  RunRanks({3}, [&](Engine& engine) {
    AddSet(engine, {0, 1});
    auto values = Values<float>(engine.rank(), 20'000);
    const OperationPtr before = Begin(engine, engine.rank() == 0 ? hold.In(Barrier("before")) : Barrier("before"));
    if (engine.rank() > 0) ExpectDone(engine, before);
    hold.AwaitHeld();
    if (engine.rank() == 2) return AwaitThat([&] { return has_joined.load(); });
    if (engine.rank() == 0) AwaitThat([&] { return has_failed.load(); });
    const uint64_t sent = engine.messages_sent();
    const OperationPtr operation = Begin(engine, engine.rank() == 0 ? InSet(Sum(&values), 1) : Make(OpKind::kJoin, {}));
    if (engine.rank() == 1) AwaitThat([&] { return engine.messages_sent() > sent; });
    has_joined = true;
    if (engine.rank() == 0) hold.LetGo();
    ASSERT_TRUE(engine.Wait(operation, kWaitMs));
    ExpectLost(operation->status(), 2);
    has_failed = true;
  });
}

TEST(LeavingTest, AJoinThatIsRefusedNamesWhoHasLeftAndWhatToDo) {
  std::atomic<bool> has_left{false};
  RunRanks({2}, [&](Engine& engine) {
    ExpectDone(engine, Begin(engine, Barrier("before")));
    if (engine.rank() == 1) {
      engine.Shutdown();
      has_left = true;
      return;
    }
    AwaitThat([&] { return has_left.load(); });
    AwaitSuspicion();  // the loop thread has read it long before
    OperationPtr join;
    const Status refused = SubmitTo(engine, Make(OpKind::kJoin, {}), &join);
    ExpectLost(refused, 1);
    EXPECT_NE(refused.message().find("call shutdown and init"), std::string::npos) << refused.message();
    std::string reason;
    EXPECT_EQ(engine.LostRank(&reason), 1);
  });
}

TEST(LeavingTest, AMessageFromAnySourceIsNotAwaitedOnceAllOthersHaveLeft) {
  RunRanks({2, 1}, [&](Engine& engine) {
    ExpectDone(engine, Begin(engine, Barrier("before")));
    if (engine.rank() > 0) return engine.Shutdown();
    const auto receive = std::make_shared<Transfer>();
    receive->peer = kAnySource;
    ASSERT_TRUE(engine.Begin(receive).ok());
    ASSERT_TRUE(engine.Wait(receive, kWaitMs));
    EXPECT_EQ(receive->status.code(), Code::kPeerLost) << receive->status.message();
  });
}

}  // namespace
}  // namespace farandole
