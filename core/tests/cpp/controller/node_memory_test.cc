// The memory of a node by itself: counters, the log, where batches end.
#include "controller/node_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "controller/messages.h"
#include "support/pages.h"
#include "transport/shm/slots.h"

namespace farandole {
namespace {

constexpr uint64_t kRing = 4 * kMaxIds;

struct CounterPages : Pages {
  explicit CounterPages(int members) : Pages(ArrivalCounters::BytesFor(members)) {}
};

struct LogPages : Pages {
  explicit LogPages(int members) : Pages(NodeLog::BytesFor(members)) {}
};

TEST(ArrivalCountersTest, TheLastArriverOfEachUseIsToldSo) {
  CounterPages memory(3);
  ArrivalCounters counters(memory.data(), 0, 3);
  for (uint64_t use = 1; use <= 4; ++use) {
    EXPECT_FALSE(counters.Arrive(5, use, 3).last);
    EXPECT_FALSE(counters.Arrive(5, use, 3).last);
    EXPECT_TRUE(counters.Arrive(5, use, 3).last);
  }
  EXPECT_EQ(counters.Evict(5, 3), 4u);
  EXPECT_TRUE(counters.IsEvicted(5));
  EXPECT_TRUE(counters.Arrive(5, 5, 3).evicted);
}

TEST(ArrivalCountersTest, ASetMayHaveFewerLocalMembersThanTheNode) {
  CounterPages memory(3);
  ArrivalCounters counters(memory.data(), 0, 3);
  EXPECT_FALSE(counters.Arrive(5, 1, 2).last);
  EXPECT_TRUE(counters.Arrive(5, 1, 2).last);
  EXPECT_TRUE(counters.Arrive(6, 1, 1).last);
  EXPECT_FALSE(counters.DoneWith(5, 2));
  EXPECT_FALSE(counters.AllDoneWith(5, 2));
  EXPECT_TRUE(counters.DoneWith(5, 2));
  EXPECT_TRUE(counters.AllDoneWith(5, 2));
}

TEST(ArrivalCountersTest, AUseThatIsTakenBackIsNotCounted) {
  CounterPages memory(2);
  ArrivalCounters counters(memory.data(), 0, 2), other(memory.data(), 1, 2);
  counters.Arrive(5, 1, 2);
  EXPECT_TRUE(other.Arrive(5, 1, 2).last);
  counters.Arrive(5, 2, 2);
  EXPECT_TRUE(other.Arrive(5, 3, 2).last);
  counters.TakeBack(5, 2);
  EXPECT_EQ(counters.LatestOf(0, 5), 2u);
  EXPECT_EQ(counters.LatestOf(1, 5), 3u);
  EXPECT_EQ(counters.Evict(5, 2), 1u);
  counters.Reset(5);
  EXPECT_FALSE(counters.IsEvicted(5));
  EXPECT_EQ(counters.LatestOf(1, 5), 0u);
}

TEST(LogTest, EntriesAreReadInOrderOverManyRoundsOfTheRing) {
  LogPages memory(1);
  NodeLog log(memory.data(), 0, 1, kRing);
  for (uint64_t i = 0; i < 100'000; ++i) {
    EXPECT_FALSE(log.Read(i).has_value());
    ASSERT_TRUE(log.TryAppend({LogKind::kEvicted, static_cast<int>(i % kMaxIds), static_cast<uint8_t>(i),
                               static_cast<int>(i * 11 & kMaxSetId)}));
    const auto entry = log.Read(i);
    ASSERT_TRUE(entry.has_value());
    ASSERT_EQ(entry->kind, LogKind::kEvicted);
    ASSERT_EQ(entry->id, static_cast<int>(i % kMaxIds));
    ASSERT_EQ(entry->uses, static_cast<uint8_t>(i));
    ASSERT_EQ(entry->set, static_cast<int>(i * 11 & kMaxSetId));
    log.PublishHead(i + 1);
  }
}

TEST(LogTest, AFullLogTakesNothingUntilTheSlowestHasRead) {
  LogPages memory(2);
  NodeLog fast(memory.data(), 0, 2, kRing), slow(memory.data(), 1, 2, kRing);
  for (uint64_t i = 0; i < kRing; ++i) {
    ASSERT_TRUE(fast.TryAppend({LogKind::kReady, 1, 0, 0})) << i;
    fast.PublishHead(i + 1);
  }
  EXPECT_FALSE(fast.TryAppend({LogKind::kReady, 2, 0, 0}));
  EXPECT_FALSE(slow.TryAppend({LogKind::kReady, 2, 0, 0}));
  EXPECT_EQ(slow.Read(0)->id, 1) << "nothing was overwritten";
  EXPECT_EQ(fast.end(), kRing);
  slow.PublishHead(2);
  EXPECT_TRUE(fast.TryAppend({LogKind::kReady, 2, 0, 0}));
  EXPECT_TRUE(slow.TryAppend({LogKind::kReady, 3, 0, 0}));
  EXPECT_FALSE(fast.TryAppend({LogKind::kReady, 4, 0, 0}));
  EXPECT_EQ(slow.Read(kRing + 1)->id, 3);
}

TEST(LogTest, AllReadersGetTheBatchEndOfTheFirst) {
  LogPages memory(2);
  NodeLog first(memory.data(), 0, 2, kRing), second(memory.data(), 1, 2, kRing);
  for (uint64_t batch = 0; batch < 40'000; ++batch) {
    const uint64_t end = batch * 3 + 5;
    ASSERT_EQ(first.DecideBatchEnd(batch, end), end);
    ASSERT_EQ(second.DecideBatchEnd(batch, end + 2), end);
  }
}

TEST(ArrivalCountersTest, ConcurrentArrivalsHaveExactlyOneLastPerUse) {
  constexpr int kMembers = 4, kUses = 5000;
  CounterPages memory(kMembers);
  std::atomic<int> lasts{0};
  std::atomic<uint64_t> use_done{0};
  std::vector<std::thread> threads;
  for (int m = 0; m < kMembers; ++m) {
    threads.emplace_back([&, m] {
      ArrivalCounters counters(memory.data(), m, kMembers);
      for (uint64_t use = 0; use < kUses; ++use) {
        if (counters.Arrive(1, use + 1, kMembers).last) {
          lasts.fetch_add(1);
          use_done.store(use + 1);
        }
        while (use_done.load() <= use) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lasts.load(), kUses);
}

TEST(GenerationTest, UseAndSequenceNumberAreInItAndItIsNeverZero) {
  for (uint64_t use : {uint64_t{1}, uint64_t{5}, uint64_t{1} << 31}) {
    for (int64_t sequence_number : {int64_t{-1}, int64_t{0}, int64_t{64}, int64_t{1} << 29}) {
      const uint64_t generation = GenerationOf(use, sequence_number);
      EXPECT_NE(generation, 0u);
      EXPECT_EQ(generation & SlotBuffer::kWantsDoorbell, 0u);
      EXPECT_EQ(UseOf(generation), use);
      EXPECT_EQ(SequenceNumberOf(generation), sequence_number);
    }
  }
}

}  // namespace
}  // namespace farandole
