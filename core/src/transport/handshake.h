// Mutual proof that both ends of a fresh connection know the job's key.
//
// A handshake precedes every other read from a socket, because no byte of a stranger may reach a parser. The key never
// crosses the wire. Nonces make every proof valid for one connection only. Labels distinguish the directions, so a
// proof that is sent back to its maker (reflection) proves nothing.
//
//   client                                                     server
//     | hello_c ------------------------------------------------> |   wrong magic: closed without an answer
//     | <------------------------------------------------ hello_s |
//     | HMAC(key, "farandole client v1" 0 | hello_c | hello_s) --> |   wrong: closed without an answer
//     | <-- HMAC(key, "farandole server v1" 0 | hello_c | hello_s) |
//
// The client proves first, so a stranger who connects receives no byte that depends on the key.
//
//   hello, 68 bytes in all versions, little-endian
//   | magic "FRDL" 4 | version 4 | purpose 16 | rank 4 | epoch 8 | nonce 32 |
//
// A Handshake never blocks, so a failing one delays no other connection. It stores at most 200 bytes of messages. The
// Acceptor or the Connector of its connection owns it; one thread at a time.
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

// Raised whenever the meaning of any byte on a socket changes.
inline constexpr uint32_t kProtocolVersion = 12;

// Enough for every rank; the connection of a silent stranger is closed after this time.
inline constexpr std::chrono::milliseconds kHandshakeTimeout{2000};

struct Hello {
  std::string purpose;  // of the connection: "control", "segment", "ordered", "early", "messages"; at most 16 bytes
  uint32_t rank = 0;
  uint64_t epoch = 0;
};

// One end of one handshake. On success theirs() is the hello of a holder of the key; the caller decides whether
// purpose, rank and epoch suit. After an error the caller closes the connection. kMismatch: the peer has another
// protocol, version or key; kPeerLost: the peer closed the connection; kDeadline: limit() has passed.
class Handshake {
 public:
  enum class Side { kClient, kServer };

  Handshake(Side side, const Key& key, Hello mine, TimePoint now);

  // Moves the bytes that the socket gives or takes now. Ok while the handshake is under way, and when it is done.
  Status Step(int fd, TimePoint now);
  bool done() const { return stage_ == kDone; }
  // The events of poll(2) to wait for before the next step.
  short events() const;
  // A client has no limit until the hello of a server, which may be busy. Then both ends have kHandshakeTimeout.
  TimePoint limit() const { return limit_; }
  const Hello& theirs() const { return theirs_; }
  // The server closed the connection after our proof: it lacks the key, or it has just ended.
  bool closed_after_proof() const { return closed_after_proof_; }

 private:
  // A client sends its hello and then reads the other one, a server the other way round. Each end sends one of the
  // proofs and receives the other.
  enum Stage { kSendHello, kReadHello, kClientProof, kServerProof, kDone };

  // Begins a stage: fills `moving_` with the bytes to send, or makes room for the bytes to receive.
  void Enter(Stage stage);
  Status Move(int fd, bool* blocked);
  // Checks the bytes that have moved and enters the next stage.
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
  Bytes moving_;           // the bytes that the stage sends or receives
  size_t moved_ = 0;
  bool closed_after_proof_ = false;
  Hello theirs_;
};

}  // namespace farandole
