// Mutual proof that both ends of a fresh connection know the job's key.
//
// A handshake runs before anything else is read from a socket, because nothing that a stranger sends may reach a
// parser. The key never crosses the wire, nonces make every proof valid for one connection only, and labels distinguish
// the directions, so that a proof sent back to its maker (reflection) proves nothing.
//
//   client                                                     server
//     | hello_c ------------------------------------------------> |   wrong magic: closed without a word
//     | <------------------------------------------------ hello_s |
//     | HMAC(key, "farandole client v1" 0 | hello_c | hello_s) --> |   wrong: closed without a word
//     | <-- HMAC(key, "farandole server v1" 0 | hello_c | hello_s) |
//
// The client proves first: a stranger who connects gets the fixed hello and nothing that depends on the key.
//
//   hello, 68 bytes, little-endian
//   | magic "FRDL" 4 | version 4 | purpose 16 | rank 4 | epoch 8 | nonce 32 |
//
// A Handshake never blocks, so that a failing one delays nobody else, and it holds 200 bytes at most. The Acceptor or
// the Connector of its connection owns it; one thread at a time.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/status.h"

namespace farandole {

using Key = std::array<uint8_t, 32>;

// Raised whenever anything that crosses a socket changes its meaning.
inline constexpr uint32_t kProtocolVersion = 6;

// No honest peer needs longer; the connection of a silent stranger is closed after it.
inline constexpr std::chrono::milliseconds kHandshakeTimeout{2000};

struct Hello {
  std::string purpose;  // what the connection is for: "control", "segment", "data", "puts"; at most 16 bytes
  uint32_t rank = 0;
  uint64_t epoch = 0;
};

// One end of one handshake. On success theirs() is what a holder of the key said; the caller decides whether purpose,
// rank and epoch suit. After an error the connection is of no further use: close it.
// kMismatch: another protocol, version or key; kPeerLost: it closed; kDeadline: it was not done by limit().
class Handshake {
 public:
  enum class Side { kClient, kServer };

  Handshake(Side side, const Key& key, Hello mine, TimePoint now);

  // Moves what the socket gives and takes now. Ok while the handshake is under way, and when it is done.
  Status Step(int fd, TimePoint now);
  bool done() const { return stage_ == kDone; }
  // The events of poll to wait for before the next step.
  short events() const;
  // A client waits without limit for the first bytes of a server, which may be busy. Afterwards both ends are quick.
  TimePoint limit() const { return limit_; }
  const Hello& theirs() const { return theirs_; }
  // The server hung up on our proof: it does not know the key, or it has just ended.
  bool hung_up_on() const { return hung_up_on_; }

 private:
  // In the order of the drawing. kOurs: a client sends its hello; kPrefix: magic and version of the other hello come
  // in; kAnswer: a server sends its hello; kRest: the rest of the other hello comes in. Of the proofs each end sends
  // one and receives the other.
  enum Stage { kOurs, kPrefix, kAnswer, kRest, kClientProof, kServerProof, kDone };

  // Begins a stage: fills `moving_` with what it sends, or with room for what it receives.
  void Enter(Stage stage);
  Status Move(int fd, bool* blocked);
  // Judges what has moved and enters the next stage.
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
