#include "controller/messages.h"

namespace farandole {

Bytes EncodeDescribe(const Description& description) {
  ByteWriter writer;
  writer.Put(MessageKind::kDescribe);
  description.Encode(&writer);
  return writer.Take();
}

Bytes EncodeIdMessage(MessageKind kind, int id, uint64_t value) {
  ByteWriter writer;
  writer.Put(kind);
  writer.Put<int32_t>(id);
  writer.Put(value);
  return writer.Take();
}

Bytes EncodeComplete(int id, uint64_t turn, const std::vector<int64_t>& extents) {
  ByteWriter writer;
  writer.Put(MessageKind::kComplete);
  writer.Put<int32_t>(id);
  writer.Put(turn);
  writer.PutList(extents);
  return writer.Take();
}

Bytes EncodeAssign(const std::string& name, int id, int64_t span_offset) {
  ByteWriter writer;
  writer.Put(MessageKind::kAssign);
  writer.PutString(name);
  writer.Put<int32_t>(id);
  writer.Put(span_offset);
  return writer.Take();
}

Bytes EncodeError(const std::string& name, const std::string& text) {
  ByteWriter writer;
  writer.Put(MessageKind::kError);
  writer.PutString(name);
  writer.PutString(text);
  return writer.Take();
}

Bytes EncodeAbort(int code, int culprit, const std::string& text) {
  ByteWriter writer;
  writer.Put(MessageKind::kAbort);
  writer.Put<int32_t>(code);
  writer.Put<int32_t>(culprit);
  writer.PutString(text);
  return writer.Take();
}

bool IsAbort(const Bytes& message) {
  ByteReader reader(message);
  const auto kind = reader.Get<MessageKind>();
  reader.Get<int32_t>();
  reader.Get<int32_t>();
  reader.GetString();
  return reader.AtEnd() && kind == MessageKind::kAbort;
}

Bytes EncodeReady(const std::vector<ReadyItem>& items) {
  ByteWriter writer;
  writer.Put(MessageKind::kReady);
  writer.Put<uint32_t>(static_cast<uint32_t>(items.size()));
  for (const ReadyItem& item : items) {
    writer.Put<int32_t>(item.id);
    writer.Put(item.turn);
    writer.Put(item.span_offset);
    writer.PutList(item.extents);
  }
  return writer.Take();
}

std::vector<ReadyItem> DecodeReady(ByteReader* reader) {
  std::vector<ReadyItem> items;
  const uint32_t count = reader->Get<uint32_t>();
  for (uint32_t i = 0; i < count && reader->ok(); ++i) {
    ReadyItem item;
    item.id = reader->Get<int32_t>();
    item.turn = reader->Get<uint64_t>();
    item.span_offset = reader->Get<int64_t>();
    item.extents = reader->GetList();
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace farandole
