// The board by itself: cells, the log, seals.
#include "controller/board.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "controller/sequence.h"
#include "support/pages.h"
#include "transport/shm/cells.h"

namespace farandole {
namespace {

constexpr uint64_t kRing = 4 * kMaxIds;

struct BoardMemory : Pages {
  explicit BoardMemory(int members) : Pages(Board::BytesFor(members)) {}
};

TEST(BoardTest, TheLastArriverOfEachUseIsToldSo) {
  BoardMemory memory(3);
  Board board(memory.data(), 0, 3);
  for (uint64_t use = 1; use <= 4; ++use) {
    EXPECT_FALSE(board.Arrive(5, use, 3).last);
    EXPECT_FALSE(board.Arrive(5, use, 3).last);
    EXPECT_TRUE(board.Arrive(5, use, 3).last);
  }
  EXPECT_EQ(board.Retire(5, 3), 4u);
  EXPECT_TRUE(board.IsRetired(5));
  EXPECT_TRUE(board.Arrive(5, 5, 3).retired);
}

TEST(BoardTest, SharersAreFewerThanMembersWhereASetIs) {
  BoardMemory memory(3);
  Board board(memory.data(), 0, 3);
  EXPECT_FALSE(board.Arrive(5, 1, 2).last);
  EXPECT_TRUE(board.Arrive(5, 1, 2).last);
  EXPECT_TRUE(board.Arrive(6, 1, 1).last);
  EXPECT_FALSE(board.DoneWith(5, 2));
  EXPECT_FALSE(board.AllDoneWith(5, 2));
  EXPECT_TRUE(board.DoneWith(5, 2));
  EXPECT_TRUE(board.AllDoneWith(5, 2));
}

TEST(BoardTest, AUseThatIsTakenBackIsNotCounted) {
  BoardMemory memory(2);
  Board board(memory.data(), 0, 2), other(memory.data(), 1, 2);
  board.Arrive(5, 1, 2);
  EXPECT_TRUE(other.Arrive(5, 1, 2).last);
  board.Arrive(5, 2, 2);
  EXPECT_TRUE(other.Arrive(5, 3, 2).last);
  board.TakeBack(5, 2);
  EXPECT_EQ(board.LatestOf(0, 5), 2u);
  EXPECT_EQ(board.LatestOf(1, 5), 3u);
  EXPECT_EQ(board.Retire(5, 2), 1u);
  board.Reset(5);
  EXPECT_FALSE(board.IsRetired(5));
  EXPECT_EQ(board.LatestOf(1, 5), 0u);
}

TEST(BoardTest, EntriesAreReadInOrderOverManyRoundsOfTheRing) {
  BoardMemory memory(1);
  Board board(memory.data(), 0, 1);
  for (uint64_t i = 0; i < 100'000; ++i) {
    EXPECT_FALSE(board.Read(i).has_value());
    ASSERT_TRUE(board.TryAppend({LogKind::kRetired, static_cast<int>(i % kMaxIds), static_cast<uint8_t>(i),
                                 static_cast<int>(i * 11 & kMaxSetId)}));
    const auto entry = board.Read(i);
    ASSERT_TRUE(entry.has_value());
    ASSERT_EQ(entry->kind, LogKind::kRetired);
    ASSERT_EQ(entry->id, static_cast<int>(i % kMaxIds));
    ASSERT_EQ(entry->uses, static_cast<uint8_t>(i));
    ASSERT_EQ(entry->set, static_cast<int>(i * 11 & kMaxSetId));
    board.PublishHead(i + 1);
  }
}

TEST(BoardTest, AFullLogTakesNothingUntilTheSlowestHasRead) {
  BoardMemory memory(2);
  Board fast(memory.data(), 0, 2), slow(memory.data(), 1, 2);
  for (uint64_t i = 0; i < kRing; ++i) {
    ASSERT_TRUE(fast.TryAppend({LogKind::kReady, 1, 0, 0})) << i;
    fast.PublishHead(i + 1);
  }
  EXPECT_FALSE(fast.TryAppend({LogKind::kReady, 2, 0, 0}));
  EXPECT_FALSE(slow.TryAppend({LogKind::kReady, 2, 0, 0}));
  EXPECT_EQ(slow.Read(0)->id, 1) << "nothing was overwritten";
  EXPECT_EQ(fast.log_end(), kRing);
  slow.PublishHead(2);
  EXPECT_TRUE(fast.TryAppend({LogKind::kReady, 2, 0, 0}));
  EXPECT_TRUE(slow.TryAppend({LogKind::kReady, 3, 0, 0}));
  EXPECT_FALSE(fast.TryAppend({LogKind::kReady, 4, 0, 0}));
  EXPECT_EQ(slow.Read(kRing + 1)->id, 3);
}

TEST(BoardTest, AllReadersGetTheSealOfTheFirst) {
  BoardMemory memory(2);
  Board first(memory.data(), 0, 2), second(memory.data(), 1, 2);
  for (uint64_t batch = 0; batch < 40'000; ++batch) {
    EXPECT_FALSE(first.ReadSeal(SealKind::kInside, batch).has_value());
    const uint64_t end = batch * 3 + 5;
    ASSERT_EQ(first.SealOrRead(SealKind::kInside, batch, end), end);
    ASSERT_EQ(second.SealOrRead(SealKind::kInside, batch, end + 2), end);
    ASSERT_FALSE(second.ReadSeal(SealKind::kAcross, batch).has_value()) << "the kinds do not touch each other";
    ASSERT_EQ(second.SealOrRead(SealKind::kAcross, batch, end + 7), end + 7);
  }
}

TEST(BoardTest, ConcurrentArrivalsHaveExactlyOneLastPerUse) {
  constexpr int kMembers = 4, kUses = 5000;
  BoardMemory memory(kMembers);
  std::atomic<int> lasts{0};
  std::atomic<uint64_t> use_done{0};
  std::vector<std::thread> threads;
  for (int m = 0; m < kMembers; ++m) {
    threads.emplace_back([&, m] {
      Board board(memory.data(), m, kMembers);
      for (uint64_t use = 0; use < kUses; ++use) {
        if (board.Arrive(1, use + 1, kMembers).last) {
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

TEST(SequenceTest, UseAndTurnAreInItAndItIsNeverZero) {
  for (uint64_t use : {uint64_t{0}, uint64_t{5}, uint64_t{1} << 31}) {
    for (int64_t turn : {int64_t{-1}, int64_t{0}, int64_t{64}, int64_t{1} << 29}) {
      const uint64_t sequence = SequenceOf(use, turn);
      EXPECT_NE(sequence, 0u);
      EXPECT_EQ(sequence & CellBuffer::kWantsBell, 0u);
      EXPECT_EQ(UsesIn(sequence), use + 1);
      EXPECT_EQ(TurnIn(sequence), turn);
    }
  }
}

}  // namespace
}  // namespace farandole
