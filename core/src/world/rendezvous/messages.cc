#include "world/rendezvous/messages.h"

namespace farandole {

Bytes RendezvousMessage::Encode() const {
  ByteWriter writer;
  farandole::Encode(&writer, *this);
  return writer.Take();
}

Status RendezvousMessage::Decode(const Bytes& bytes, RendezvousMessage* message) {
  ByteReader reader(bytes);
  *message = farandole::Decode<RendezvousMessage>(&reader);
  if (reader.AtEnd()) return Status::Ok();
  return {Code::kMismatch, "a message that cannot be read while the job starts"};
}

}  // namespace farandole
