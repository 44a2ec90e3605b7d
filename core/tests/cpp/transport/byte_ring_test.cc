#include "transport/byte_ring.h"

#include <gtest/gtest.h>

#include <vector>

namespace farandole {
namespace {

// Zeroed, aligned memory for a ring of `capacity` bytes.
class Memory {
 public:
  explicit Memory(size_t capacity) : size_(ByteRing::RequiredBytes(capacity)), blocks_(size_ / sizeof(Block) + 1) {}
  ByteRing Ring() { return ByteRing(blocks_.data(), size_); }

 private:
  struct alignas(128) Block {
    uint8_t bytes[128] = {};
  };
  size_t size_;
  std::vector<Block> blocks_;
};

std::vector<uint8_t> Counting(size_t size, uint8_t first) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < size; ++i) bytes.push_back(static_cast<uint8_t>(first + i));
  return bytes;
}

TEST(ByteRing, ZeroFilledMemoryIsAnEmptyOpenRing) {
  Memory memory(16);
  ByteRing ring = memory.Ring();
  uint8_t byte;
  EXPECT_EQ(ring.Read(&byte, 1), 0u);
  EXPECT_FALSE(ring.writer_closed());
  EXPECT_FALSE(ring.reader_closed());
}

TEST(ByteRing, HoldsExactlyItsCapacity) {
  for (size_t capacity : {1u, 2u, 63u, 64u, 100u, 40000u}) {
    Memory memory(capacity);
    ByteRing writer = memory.Ring();
    const std::vector<uint8_t> data(capacity + 5, 1);
    EXPECT_EQ(writer.Write(data.data(), data.size()), capacity);
    EXPECT_EQ(writer.Write(data.data(), 1), 0u);
  }
}

TEST(ByteRing, KeepsOrderAcrossTheWrapForEveryOffset) {
  Memory memory(7);
  ByteRing writer = memory.Ring(), reader = memory.Ring();
  for (int round = 0; round < 50; ++round) {
    for (size_t size = 1; size <= 7; ++size) {
      const std::vector<uint8_t> sent = Counting(size, static_cast<uint8_t>(round * 8 + size));
      std::vector<uint8_t> received(size);
      ASSERT_EQ(writer.Write(sent.data(), size), size);
      ASSERT_EQ(reader.Read(received.data(), size), size);
      ASSERT_EQ(received, sent);
    }
  }
}

TEST(ByteRing, AnEndMayBeAttachedAnew) {
  Memory memory(10);
  for (uint8_t round = 0; round < 20; ++round) {
    ByteRing writer = memory.Ring(), reader = memory.Ring();
    const std::vector<uint8_t> sent = Counting(10, round);
    std::vector<uint8_t> received(10);
    ASSERT_EQ(writer.Write(sent.data(), 10), 10u);
    ASSERT_EQ(writer.Write(sent.data(), 1), 0u);
    ASSERT_EQ(reader.Read(received.data(), 10), 10u);
    ASSERT_EQ(received, sent);
  }
}

TEST(ByteRing, EachEndSeesTheOtherClose) {
  Memory memory(8);
  ByteRing writer = memory.Ring(), reader = memory.Ring();
  writer.CloseAsWriter();
  EXPECT_TRUE(reader.writer_closed());
  EXPECT_FALSE(writer.reader_closed());
  reader.CloseAsReader();
  EXPECT_TRUE(writer.reader_closed());
}

}  // namespace
}  // namespace farandole
