#include "world/start_message.h"

namespace farandole {

Bytes StartMessage::Encode() const {
  ByteWriter writer;
  farandole::Encode(&writer, *this);
  return writer.Take();
}

Status StartMessage::Decode(const Bytes& bytes, StartMessage* message) {
  ByteReader reader(bytes);
  *message = farandole::Decode<StartMessage>(&reader);
  if (reader.AtEnd()) return Status::Ok();
  return {Code::kMismatch, "a message that cannot be read while the job starts"};
}

}  // namespace farandole
