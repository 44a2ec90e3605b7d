#include "common/sha256.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace farandole {
namespace {

constexpr size_t kBlockBytes = 64;

// FIPS 180-4, 4.2.2: the fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// 5.3.3: the fractional parts of the square roots of the first 8 primes.
constexpr std::array<uint32_t, 8> kInitial = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                              0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

uint32_t RotateRight(uint32_t value, int count) { return value >> count | value << (32 - count); }

uint32_t LoadBigEndian(const uint8_t* from) {
  return uint32_t{from[0]} << 24 | uint32_t{from[1]} << 16 | uint32_t{from[2]} << 8 | uint32_t{from[3]};
}

void StoreBigEndian(uint32_t value, uint8_t* to) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<uint8_t>(value >> (24 - 8 * i));
}

// 6.2.2, step 1.
void ExpandSchedule(const uint8_t* block, uint32_t* w) {
  for (int t = 0; t < 16; ++t) w[t] = LoadBigEndian(block + 4 * t);
  for (int t = 16; t < 64; ++t) {
    const uint32_t s0 = RotateRight(w[t - 15], 7) ^ RotateRight(w[t - 15], 18) ^ w[t - 15] >> 3;
    const uint32_t s1 = RotateRight(w[t - 2], 17) ^ RotateRight(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = s1 + w[t - 7] + s0 + w[t - 16];
  }
}

class Hash {
 public:
  void Add(const void* data, size_t size_bytes) {
    const uint8_t* from = static_cast<const uint8_t*>(data);
    total_bytes_ += size_bytes;
    while (size_bytes > 0) {
      const size_t piece = std::min(size_bytes, kBlockBytes - filled_);
      std::memcpy(block_ + filled_, from, piece);
      filled_ += piece;
      from += piece;
      size_bytes -= piece;
      if (filled_ == kBlockBytes) Compress();
    }
  }

  // 5.1.1: a 1 bit, zeros, and the length in bits as the last 8 bytes of a block.
  Digest Finish() {
    const uint64_t total_bits = uint64_t{total_bytes_} * 8;
    const uint8_t one = 0x80, zero = 0;
    Add(&one, 1);
    while (filled_ != kBlockBytes - 8) Add(&zero, 1);
    uint8_t length[8];
    StoreBigEndian(static_cast<uint32_t>(total_bits >> 32), length);
    StoreBigEndian(static_cast<uint32_t>(total_bits), length + 4);
    Add(length, sizeof(length));
    Digest digest;
    for (size_t i = 0; i < state_.size(); ++i) StoreBigEndian(state_[i], digest.data() + 4 * i);
    return digest;
  }

 private:
  void Compress() {
    uint32_t w[64];
    ExpandSchedule(block_, w);
    auto [a, b, c, d, e, f, g, h] = state_;
    for (int t = 0; t < 64; ++t) {
      const uint32_t sum1 = RotateRight(e, 6) ^ RotateRight(e, 11) ^ RotateRight(e, 25);
      const uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + kRound[t] + w[t];
      const uint32_t sum0 = RotateRight(a, 2) ^ RotateRight(a, 13) ^ RotateRight(a, 22);
      const uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = d + t1;
      d = c;
      c = b;
      b = a;
      a = t1 + t2;
    }
    const uint32_t change[8] = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < state_.size(); ++i) state_[i] += change[i];
    filled_ = 0;
  }

  std::array<uint32_t, 8> state_ = kInitial;
  uint8_t block_[kBlockBytes];
  size_t filled_ = 0;
  size_t total_bytes_ = 0;
};

}  // namespace

Digest Sha256(const void* data, size_t size_bytes) {
  Hash hash;
  hash.Add(data, size_bytes);
  return hash.Finish();
}

Digest HmacSha256(const void* key, size_t key_bytes, const void* data, size_t size_bytes) {
  uint8_t padded[kBlockBytes] = {};
  if (key_bytes > kBlockBytes) {
    const Digest shorter = Sha256(key, key_bytes);
    std::memcpy(padded, shorter.data(), shorter.size());
  } else if (key_bytes > 0) {
    std::memcpy(padded, key, key_bytes);
  }

  uint8_t inner_key[kBlockBytes], outer_key[kBlockBytes];
  for (size_t i = 0; i < kBlockBytes; ++i) {
    inner_key[i] = padded[i] ^ 0x36;
    outer_key[i] = padded[i] ^ 0x5c;
  }
  Hash inner;
  inner.Add(inner_key, kBlockBytes);
  inner.Add(data, size_bytes);
  const Digest inner_digest = inner.Finish();
  Hash outer;
  outer.Add(outer_key, kBlockBytes);
  outer.Add(inner_digest.data(), inner_digest.size());
  return outer.Finish();
}

bool EqualConstantTime(const Digest& left, const Digest& right) {
  // volatile: the compiler must not leave the loop at the first difference.
  volatile uint8_t difference = 0;
  for (size_t i = 0; i < left.size(); ++i) difference = static_cast<uint8_t>(difference | (left[i] ^ right[i]));
  return difference == 0;
}

Status RandomBytes(void* data, size_t size_bytes) {
  uint8_t* to = static_cast<uint8_t*>(data);
  while (size_bytes > 0) {
    const ssize_t got = getrandom(to, size_bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return SystemError("getrandom");
    to += got;
    size_bytes -= static_cast<size_t>(got);
  }
  return Status::Ok();
}

}  // namespace farandole
