#include "transport/byte_ring.h"

#include <algorithm>
#include <cstring>

namespace farandole {
namespace {

// A move is published in pieces, so that the other end copies the first piece while we copy the second.
constexpr size_t kPieceBytes = 16 * 1024;

}  // namespace

size_t ByteRing::RequiredBytes(size_t capacity_bytes) { return sizeof(Header) + capacity_bytes; }

ByteRing::ByteRing(void* memory, size_t memory_bytes)
    : header_(static_cast<Header*>(memory)),
      bytes_(static_cast<uint8_t*>(memory) + sizeof(Header)),
      capacity_(memory_bytes - sizeof(Header)) {}

size_t ByteRing::Write(const void* data, size_t size_bytes) {
  const auto* from = static_cast<const uint8_t*>(data);
  size_t written = 0;
  while (written < size_bytes) {
    const size_t piece = WritePiece(from + written, std::min(size_bytes - written, kPieceBytes));
    if (piece == 0) break;
    written += piece;
  }
  return written;
}

size_t ByteRing::Read(void* data, size_t size_bytes) {
  auto* to = static_cast<uint8_t*>(data);
  size_t read = 0;
  while (read < size_bytes) {
    const size_t piece = ReadPiece(to + read, std::min(size_bytes - read, kPieceBytes));
    if (piece == 0) break;
    read += piece;
  }
  return read;
}

size_t ByteRing::WritePiece(const uint8_t* data, size_t size_bytes) {
  const uint64_t written = header_->writer.position.load(std::memory_order_relaxed);
  if (written + size_bytes - seen_position_ > capacity_) {
    seen_position_ = header_->reader.position.load(std::memory_order_acquire);
  }
  const size_t piece = std::min<uint64_t>(size_bytes, capacity_ - (written - seen_position_));
  if (piece == 0) return 0;
  const uint64_t begin = written % capacity_;
  const size_t until_wrap = std::min<uint64_t>(piece, capacity_ - begin);
  std::memcpy(bytes_ + begin, data, until_wrap);
  std::memcpy(bytes_, data + until_wrap, piece - until_wrap);
  header_->writer.position.store(written + piece, std::memory_order_release);
  return piece;
}

size_t ByteRing::ReadPiece(uint8_t* data, size_t size_bytes) {
  const uint64_t read = header_->reader.position.load(std::memory_order_relaxed);
  if (seen_position_ < read + size_bytes) {
    seen_position_ = header_->writer.position.load(std::memory_order_acquire);
  }
  const size_t piece = std::min<uint64_t>(size_bytes, seen_position_ - read);
  if (piece == 0) return 0;
  const uint64_t begin = read % capacity_;
  const size_t until_wrap = std::min<uint64_t>(piece, capacity_ - begin);
  std::memcpy(data, bytes_ + begin, until_wrap);
  std::memcpy(data + until_wrap, bytes_, piece - until_wrap);
  header_->reader.position.store(read + piece, std::memory_order_release);
  return piece;
}

void ByteRing::CloseAsWriter() { header_->writer.closed.store(1, std::memory_order_release); }
void ByteRing::CloseAsReader() { header_->reader.closed.store(1, std::memory_order_release); }
bool ByteRing::writer_closed() const { return header_->writer.closed.load(std::memory_order_acquire) != 0; }
bool ByteRing::reader_closed() const { return header_->reader.closed.load(std::memory_order_acquire) != 0; }

}  // namespace farandole
