// Who is there: mutual proof that both ends of a fresh connection know the job's key.
//
// Runs before anything else is read from a socket, because nothing that a stranger sends may reach a parser. The key
// never crosses the wire, nonces make every proof good for one connection, and labels tell the directions apart, so
// that a proof sent back to its maker (reflection) proves nothing.
//
//   client                                                     server
//     | hello_c ------------------------------------------------> |   wrong magic: closed without a word
//     | <------------------------------------------------ hello_s |
//     | HMAC(key, "farandole client v1" 0 | hello_c | hello_s) --> |   wrong: closed without a word
//     | <-- HMAC(key, "farandole server v1" 0 | hello_c | hello_s) |
//
// The client proves first: a stranger who knocks gets the fixed hello and nothing that depends on the key.
//
//   hello, 68 bytes, little-endian
//   | magic "FRDL" 4 | version 4 | purpose 16 | rank 4 | epoch 8 | nonce 32 |
//
// Functions block, with a deadline, and keep no state; different threads may use different sockets.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "common/status.h"
#include "transport/socket.h"

namespace farandole {

using Key = std::array<uint8_t, 32>;

// Raised whenever anything that crosses a socket changes its meaning.
inline constexpr uint32_t kProtocolVersion = 1;

// No honest peer needs longer; a stranger that says nothing holds the server no longer.
inline constexpr std::chrono::milliseconds kHandshakeTimeout{2000};

struct Hello {
  std::string purpose;  // what the connection is for: "store", "arena", "data"; at most 16 bytes
  uint32_t rank = 0;
  uint64_t epoch = 0;
};

// On success *theirs is what a holder of the key said; whether purpose, rank and epoch suit is for the caller to
// decide. The deadline counts, but a server waits no longer than kHandshakeTimeout in all, a client from the server's
// first word on: a server may have to sit out a silent stranger first. After an error the connection is of no further
// use: close it.
// kMismatch: another protocol, version or key; kPeerLost: it closed; kDeadline: it said nothing.
Status HandshakeClient(int fd, const Key& key, const Hello& mine, Hello* theirs, Deadline deadline);
Status HandshakeServer(int fd, const Key& key, const Hello& mine, Hello* theirs, Deadline deadline);

}  // namespace farandole
