// The messages between the ranks and rank 0 while a job starts. server.h and client.h say when they are sent. Values;
// no thread rule.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "common/wire.h"
#include "world/peer_info.h"

namespace farandole {

struct RendezvousMessage {
  // Messages of a running job begin with other numbers.
  enum Kind : uint8_t {
    kPeerInfo = 0xE0,  // to rank 0      text: its PeerInfo, left_ms: until its deadline
    kPeers,            // from rank 0    peers: of all ranks, left_ms: until rank 0 gives up
    kReady,            // to rank 0      this rank shares memory with its node and is linked to all others
    kGo,               // from rank 0    all ranks are ready
    kGiveUp,           // both           code, text: why the job cannot start, ranks: the culprits
  };

  Kind kind = kPeerInfo;
  Code code = Code::kOk;
  std::string text = {};
  std::vector<int> ranks = {};
  int64_t left_ms = 0;
  std::vector<PeerInfo> peers = {};

  FRD_FIELDS(kind, code, text, ranks, left_ms, peers)

  Bytes Encode() const;
  // kMismatch: the bytes are no such message.
  static Status Decode(const Bytes& bytes, RendezvousMessage* message);
};

inline bool IsKnown(RendezvousMessage::Kind kind) {
  return kind >= RendezvousMessage::kPeerInfo && kind <= RendezvousMessage::kGiveUp;
}

inline Bytes RendezvousMessage::Encode() const {
  ByteWriter writer;
  farandole::Encode(&writer, *this);
  return writer.Take();
}

inline Status RendezvousMessage::Decode(const Bytes& bytes, RendezvousMessage* message) {
  ByteReader reader(bytes);
  *message = farandole::Decode<RendezvousMessage>(&reader);
  if (reader.AtEnd()) return Status::Ok();
  return {Code::kMismatch, "a message that cannot be read while the job starts"};
}

}  // namespace farandole
