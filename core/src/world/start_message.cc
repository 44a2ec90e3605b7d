#include "world/start_message.h"

namespace farandole {

Bytes StartMessage::Encode() const {
  ByteWriter writer;
  writer.Put<uint8_t>(kind);
  writer.Put<int32_t>(round);
  writer.Put<int32_t>(static_cast<int32_t>(code));
  writer.PutList(std::vector<int64_t>(ranks.begin(), ranks.end()));
  writer.PutString(text);
  writer.Put<uint32_t>(static_cast<uint32_t>(texts.size()));
  for (const std::string& each : texts) writer.PutString(each);
  return writer.Take();
}

Status StartMessage::Decode(const Bytes& bytes, StartMessage* message) {
  ByteReader reader(bytes);
  const uint8_t kind = reader.Get<uint8_t>();
  message->kind = static_cast<Kind>(kind);
  message->round = reader.Get<int32_t>();
  const int32_t code = reader.Get<int32_t>();
  message->code = static_cast<Code>(code);
  message->ranks.clear();
  for (int64_t rank : reader.GetList()) message->ranks.push_back(static_cast<int>(rank));
  message->text = reader.GetString();
  message->texts.clear();
  // Each text has a length of its own, so no count can ask for more memory than the message has.
  const uint32_t count = reader.Get<uint32_t>();
  if (count > reader.left() / sizeof(uint32_t)) reader.Fail();
  for (uint32_t i = 0; reader.ok() && i < count; ++i) message->texts.push_back(reader.GetString());
  const bool known = kind >= kCard && kind <= kGiveUp && code >= 0 && code <= static_cast<int32_t>(Code::kInternal);
  if (known && reader.AtEnd()) return Status::Ok();
  return {Code::kMismatch, "a message that cannot be read while the job starts"};
}

}  // namespace farandole
