// What ranks and rank 0 say to each other while a job starts; see server.h and client.h. Values; no thread rule.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "common/wire.h"

namespace farandole {

struct RendezvousMessage {
  // The numbers are none that the messages of a running job begin with.
  enum Kind : uint8_t {
    kPeerInfo = 0xE0,  // to rank 0      text: its PeerInfo
    kWaiting,          // from rank 0    ranks: who is not there yet
    kLayout,           // from rank 0    round, ranks: who is apart, texts: all PeerInfos (first round only)
    kOutcome,  // to rank 0      round, ranks: whom to take apart (none: the group has met), text: why or data endpoint
    kLinks,    // from rank 0    round, texts: data endpoints by rank
    kReady,    // to rank 0      round: this rank is linked
    kGo,       // from rank 0    everybody is ready
    kGiveUp,   // both           code, text: why the job cannot start, ranks: because of whom; none: rank 0 knows
  };

  Kind kind = kPeerInfo;
  int round = 0;
  Code code = Code::kOk;
  std::vector<int> ranks;
  std::string text;
  std::vector<std::string> texts;

  template <typename Visitor, typename... Self>
  static void Visit(Visitor&& visit, Self&... self) {
    visit("kind", self.kind...);
    visit("round", self.round...);
    visit("code", self.code...);
    visit("ranks", self.ranks...);
    visit("text", self.text...);
    visit("texts", self.texts...);
  }

  Bytes Encode() const;
  // kMismatch when this is no such message.
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
