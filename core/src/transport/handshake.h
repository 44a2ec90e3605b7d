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
// A Handshake never blocks, so that one that comes to nothing keeps nobody waiting; it holds 200 bytes at most. One
// thread at a time.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/status.h"
#include "transport/socket.h"

namespace farandole {

using Key = std::array<uint8_t, 32>;

// Raised whenever anything that crosses a socket changes its meaning.
inline constexpr uint32_t kProtocolVersion = 5;

// No honest peer needs longer; a stranger that says nothing is forgotten after it.
inline constexpr std::chrono::milliseconds kHandshakeTimeout{2000};

struct Hello {
  std::string purpose;  // what the connection is for: "control", "segment", "data", "puts"; at most 16 bytes
  uint32_t rank = 0;
  uint64_t epoch = 0;
};

// One end of one handshake. On success theirs() is what a holder of the key said; whether purpose, rank and epoch suit
// is for the caller to decide. After an error the connection is of no further use: close it.
// kMismatch: another protocol, version or key; kPeerLost: it closed; kDeadline: it was not done by limit().
class Handshake {
 public:
  enum class Side { kClient, kServer };

  Handshake(Side side, const Key& key, Hello mine, TimePoint now);

  // Moves what the socket gives and takes now.
  Status Step(int fd, TimePoint now);
  bool done() const { return stage_ == kDone; }
  // What poll has to wait for before the next step.
  short events() const;
  // A client gives a server all the time it wants until its first word: a server may be busy. Afterwards both are
  // quick.
  TimePoint limit() const { return limit_; }
  const Hello& theirs() const { return theirs_; }
  // The server hung up on our proof: it does not know the key, or it has just ended.
  bool hung_up_on() const { return hung_up_on_; }

 private:
  // In the order of the drawing. Only a client has kOurs, only a server kAnswer; of the proofs one is sent, one
  // received.
  enum Stage { kOurs, kPrefix, kAnswer, kRest, kClientProof, kServerProof, kDone };

  void Enter(Stage stage);             // says what moves in it
  Status Move(int fd, bool* blocked);  // moves it
  Status Complete(int fd, TimePoint now);
  Status EncodeOurs();
  Status CheckProof(int fd, const char* label) const;
  bool is_sending() const;

  const Side side_;
  const Key key_;
  const Hello mine_;
  Stage stage_;
  TimePoint limit_;
  Bytes ours_, received_;  // the hellos
  Bytes moving_;           // what the stage sends or receives
  size_t moved_ = 0;
  bool hung_up_on_ = false;
  Hello theirs_;
};

}  // namespace farandole
