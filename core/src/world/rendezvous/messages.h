// The messages between the ranks and rank 0 while a job starts. server.h and client.h say when they are sent. Values;
// no thread rule.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "common/wire.h"

namespace farandole {

struct RendezvousMessage {
  // Messages of a running job begin with other numbers.
  enum Kind : uint8_t {
    kPeerInfo = 0xE0,  // to rank 0      text: its PeerInfo
    kLayout,           // from rank 0    round, ranks: without shared memory, texts: all PeerInfos (round 0 only)
    kOutcome,          // to rank 0      round, ranks: culprits (none: memory is shared), text: reason or data endpoint
    kLinks,            // from rank 0    round, texts: data endpoints by rank
    kReady,            // to rank 0      round: this rank is linked
    kGo,               // from rank 0    all ranks are ready
    kGiveUp,           // both           code, text: why the job cannot start, ranks: the culprits (none: asks rank 0)
  };

  Kind kind = kPeerInfo;
  int round = 0;
  Code code = Code::kOk;
  std::vector<int> ranks;
  std::string text;
  std::vector<std::string> texts;

  FRD_FIELDS(kind, round, code, ranks, text, texts)

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
