// SHA-256 (FIPS 180-4), HMAC-SHA256 (RFC 2104) and random bytes, for the handshake between ranks.
//
// The core links to nothing but the system's libraries, so it has its own. A few hundred bytes per connection pass
// through here, so the code is plain rather than fast. Pure functions; any thread may call them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/status.h"

namespace farandole {

using Digest = std::array<uint8_t, 32>;

Digest Sha256(const void* data, size_t size_bytes);
Digest HmacSha256(const void* key, size_t key_bytes, const void* data, size_t size_bytes);

// Takes the same time wherever the first difference is, so that a stranger cannot guess a proof byte by byte.
bool EqualConstantTime(const Digest& left, const Digest& right);

// Unpredictable bytes from the kernel (getrandom), good for keys and nonces.
Status RandomBytes(void* data, size_t size_bytes);

}  // namespace farandole
