// Mutual proof that both ends of a fresh connection know the job's key.
//
// A handshake precedes every other read from a socket, because no byte from a stranger may reach a parser. The key
// never crosses the wire. Nonces make every proof valid for one connection only. The two directions have different
// labels, so a proof that is sent back to its sender (reflection) is not valid.
//
//   client                                                     server
//     | hello_c ------------------------------------------------> |   wrong magic: closed without an answer
//     | <------------------------------------------------ hello_s |
//     | HMAC(key, "farandole client v1" 0 | hello_c | hello_s) --> |   wrong: closed without an answer
//     | <-- HMAC(key, "farandole server v1" 0 | hello_c | hello_s) |
//
// The client proves first, so a stranger that connects receives no byte that depends on the key.
//
// The hello has 68 bytes in all versions, little-endian:
//   | magic "FRDL" 4 | version 4 | purpose 16 | rank 4 | epoch 8 | nonce 32 |
//
// A Handshake never blocks, so a failing one delays no other connection. It stores at most 200 bytes of messages. It is
// owned by the Acceptor or Connector of its connection and used by one thread at a time.
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

// Increased whenever the meaning of any byte on a socket changes.
inline constexpr uint32_t kProtocolVersion = 12;

// Long enough for every rank. The connection of a silent stranger is closed after this time.
inline constexpr std::chrono::milliseconds kHandshakeTimeout{2000};

struct Hello {
  std::string purpose;  // of the connection: "control", "segment", "ordered", "early", "messages"; at most 16 bytes
  uint32_t rank = 0;
  uint64_t epoch = 0;
};

// One end of a handshake. On success theirs() is the hello of a peer that holds the key; the caller checks its purpose,
// rank and epoch. After an error the caller closes the connection. kMismatch: the peer has another protocol, version or
// key; kPeerLost: the peer closed the connection; kDeadline: limit() has passed.
class Handshake {
 public:
  enum class Side { kClient, kServer };

  Handshake(Side side, const Key& key, Hello mine, TimePoint now);

  // Sends or receives as many bytes as the socket allows now. Returns Ok while the handshake is under way and when it
  // is done.
  Status Step(int fd, TimePoint now);
  bool done() const { return stage_ == kDone; }
  // The events of poll(2) to wait for before the next step.
  short events() const;
  // The time at which the handshake fails. A client has no limit until the server's hello has arrived, because the
  // server may be busy. From then on both ends have kHandshakeTimeout.
  TimePoint limit() const { return limit_; }
  const Hello& theirs() const { return theirs_; }
  // True if the server closed the connection after our proof: it lacks the key, or it has just ended.
  bool closed_after_proof() const { return closed_after_proof_; }

 private:
  // A client sends its hello and then reads the server's; a server does this in the reverse order. Each end sends one
  // proof and receives the other.
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
  Bytes moving_;           // the bytes that the current stage sends or receives
  size_t moved_ = 0;
  bool closed_after_proof_ = false;
  Hello theirs_;
};

}  // namespace farandole
