#include "controller/messages.h"

#include "controller/board.h"

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

Bytes EncodeComplete(const Completion& completion) {
  ByteWriter writer;
  writer.Put(MessageKind::kComplete);
  writer.Put(completion.id);
  writer.Put(completion.turn);
  writer.Put(completion.sequence);
  writer.PutList(completion.extents);
  return writer.Take();
}

Completion DecodeComplete(ByteReader* reader) {
  Completion completion;
  completion.id = reader->Get<int32_t>();
  completion.turn = reader->Get<uint64_t>();
  completion.sequence = reader->Get<uint64_t>();
  completion.extents = reader->GetList();
  if (completion.id < 0 || completion.id >= kMaxIds) reader->Fail();
  return completion;
}

Bytes EncodeAssign(const Assignment& assignment) {
  ByteWriter writer;
  writer.Put(MessageKind::kAssign);
  writer.PutString(assignment.name);
  writer.Put(assignment.set);
  writer.Put(assignment.id);
  writer.Put(assignment.span_offset);
  return writer.Take();
}

Assignment DecodeAssign(ByteReader* reader) {
  Assignment assignment;
  assignment.name = reader->GetString();
  assignment.set = reader->Get<int32_t>();
  assignment.id = reader->Get<int32_t>();
  assignment.span_offset = reader->Get<int64_t>();
  if (assignment.id < 0 || assignment.id >= kMaxIds) reader->Fail();
  return assignment;
}

Bytes EncodeInvite(int id, int64_t span_offset, const Description& description) {
  ByteWriter writer;
  writer.Put(MessageKind::kInvite);
  writer.Put<int32_t>(id);
  writer.Put(span_offset);
  description.Encode(&writer);
  return writer.Take();
}

Bytes EncodeError(int set, const std::string& name, const std::string& text) {
  ByteWriter writer;
  writer.Put(MessageKind::kError);
  writer.Put<int32_t>(set);
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

Bytes EncodeLead(const Lead& lead) {
  ByteWriter writer;
  writer.Put(MessageKind::kLead);
  writer.Put(lead.id);
  writer.Put(lead.set);
  writer.Put(lead.extent_count);
  writer.Put(lead.flat);
  writer.Put(lead.payload_bytes);
  writer.Put(lead.span_offset);
  writer.Put(lead.span_bytes);
  return writer.Take();
}

Bytes EncodeAsk(int set, const std::string& name, const std::vector<int64_t>& missing) {
  ByteWriter writer;
  writer.Put(MessageKind::kAsk);
  writer.Put<int32_t>(set);
  writer.PutString(name);
  writer.PutList(missing);
  return writer.Take();
}

Bytes EncodeStacks(int rank, const std::string& text) {
  ByteWriter writer;
  writer.Put(MessageKind::kStacks);
  writer.Put<int32_t>(rank);
  writer.PutString(text);
  return writer.Take();
}

Bytes EncodeReady(const std::vector<ReadyItem>& items) {
  ByteWriter writer;
  writer.Put(MessageKind::kReady);
  writer.Put<uint32_t>(static_cast<uint32_t>(items.size()));
  for (const ReadyItem& item : items) {
    writer.Put(item.id);
    writer.Put(item.set);
    writer.Put(item.turn);
    writer.PutList(item.extents);
  }
  return writer.Take();
}

std::vector<ReadyItem> DecodeReady(ByteReader* reader) {
  std::vector<ReadyItem> items;
  const uint32_t count = reader->Get<uint32_t>();
  if (count > kMaxIds) reader->Fail();  // an id is ready once at a time
  for (uint32_t i = 0; i < count && reader->ok(); ++i) {
    ReadyItem item;
    item.id = reader->Get<int32_t>();
    item.set = reader->Get<int32_t>();
    item.turn = reader->Get<uint64_t>();
    item.extents = reader->GetList();
    items.push_back(std::move(item));
  }
  return items;
}

Bytes EncodeJoin(MessageKind kind, int last_rank, const Turns& turns) {
  ByteWriter writer;
  writer.Put(kind);
  writer.Put<int32_t>(last_rank);
  writer.Put<uint32_t>(static_cast<uint32_t>(turns.size()));
  for (const auto& [set, turn] : turns) {
    writer.Put(set);
    writer.Put(turn);
  }
  return writer.Take();
}

Turns DecodeTurns(ByteReader* reader) {
  Turns turns;
  const uint32_t count = reader->Get<uint32_t>();
  for (uint32_t i = 0; i < count && reader->ok(); ++i) {
    const auto set = reader->Get<int32_t>();
    turns[set] = reader->Get<int64_t>();
  }
  return turns;
}

}  // namespace farandole
