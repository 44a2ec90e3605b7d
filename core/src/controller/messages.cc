#include "controller/messages.h"

#include <type_traits>

#include "controller/board.h"

namespace farandole {
namespace {

// ---- one field of a message

template <typename Number>
void Put(ByteWriter* writer, Number number) {
  static_assert(std::is_arithmetic_v<Number>);
  writer->Put(number);
}
void Put(ByteWriter* writer, const std::string& text) { writer->PutString(text); }
void Put(ByteWriter* writer, const std::vector<int64_t>& numbers) { writer->PutList(numbers); }
void Put(ByteWriter* writer, const Description& description) { description.Encode(writer); }

template <typename Number>
void Get(ByteReader* reader, Number* number) {
  static_assert(std::is_arithmetic_v<Number>);
  *number = reader->Get<Number>();
}
void Get(ByteReader* reader, std::string* text) { *text = reader->GetString(); }
void Get(ByteReader* reader, std::vector<int64_t>* numbers) { *numbers = reader->GetList(); }

// ---- all of them, in one order for both directions

template <typename... Fields>
void PutAll(ByteWriter* writer, const Fields&... fields) {
  (Put(writer, fields), ...);
}

template <typename... Fields>
void GetAll(ByteReader* reader, Fields*... fields) {
  (Get(reader, fields), ...);
}

template <typename... Fields>
Bytes Message(MessageKind kind, const Fields&... fields) {
  ByteWriter writer;
  writer.Put(kind);
  PutAll(&writer, fields...);
  return writer.Take();
}

void CheckId(int32_t id, ByteReader* reader) {
  if (id < 0 || id >= kMaxIds) reader->Fail();
}

}  // namespace

Status Unreadable(int from) {
  return {Code::kPeerLost, "rank " + std::to_string(from) + " sent a control message that cannot be read"};
}

Bytes EncodeDescribe(const Description& description) { return Message(MessageKind::kDescribe, description); }

Bytes EncodeIdMessage(MessageKind kind, int id, uint64_t value) { return Message(kind, id, value); }

Bytes EncodeComplete(const Completion& completion) {
  return Message(MessageKind::kComplete, completion.id, completion.turn, completion.sequence, completion.extents);
}

Completion DecodeComplete(ByteReader* reader) {
  Completion completion;
  GetAll(reader, &completion.id, &completion.turn, &completion.sequence, &completion.extents);
  CheckId(completion.id, reader);
  return completion;
}

Bytes EncodeAssign(const Assignment& assignment) {
  return Message(MessageKind::kAssign, assignment.name, assignment.set, assignment.id, assignment.span_offset,
                 assignment.serial);
}

Assignment DecodeAssign(ByteReader* reader) {
  Assignment assignment;
  GetAll(reader, &assignment.name, &assignment.set, &assignment.id, &assignment.span_offset, &assignment.serial);
  CheckId(assignment.id, reader);
  return assignment;
}

Bytes EncodeInvite(const Assignment& assignment, const Description& description) {
  return Message(MessageKind::kInvite, assignment.id, assignment.span_offset, assignment.serial, description);
}

Assignment DecodeInvite(ByteReader* reader) {
  Assignment assignment;
  GetAll(reader, &assignment.id, &assignment.span_offset, &assignment.serial);
  CheckId(assignment.id, reader);
  return assignment;
}

Bytes EncodeError(int set, const std::string& name, const Status& refusal) {
  return Message(MessageKind::kError, set, name, static_cast<int32_t>(refusal.code()), refusal.message(),
                 refusal.kinds());
}

Bytes EncodeAbort(int code, int culprit, const std::string& text) {
  return Message(MessageKind::kAbort, code, culprit, text);
}

bool IsAbort(const Bytes& message) {
  ByteReader reader(message);
  const auto kind = reader.Get<MessageKind>();
  int code = 0, culprit = 0;
  std::string text;
  GetAll(&reader, &code, &culprit, &text);
  return reader.AtEnd() && kind == MessageKind::kAbort;
}

Bytes EncodeLead(const Lead& lead) {
  return Message(MessageKind::kLead, lead.id, lead.set, lead.extent_count, lead.flat, lead.payload_bytes,
                 lead.span_offset, lead.span_bytes, lead.eager);
}

Lead DecodeLead(ByteReader* reader) {
  Lead lead;
  GetAll(reader, &lead.id, &lead.set, &lead.extent_count, &lead.flat, &lead.payload_bytes, &lead.span_offset,
         &lead.span_bytes, &lead.eager);
  CheckId(lead.id, reader);
  return lead;
}

Bytes EncodeAsk(const std::vector<int64_t>& ranks) { return Message(MessageKind::kAsk, ranks); }

Bytes EncodeAbsent(const std::vector<Absence>& absences) {
  ByteWriter writer;
  writer.Put(MessageKind::kAbsent);
  writer.Put(static_cast<uint32_t>(absences.size()));
  for (const Absence& absence : absences) PutAll(&writer, absence.title, absence.ranks, absence.here);
  return writer.Take();
}

std::vector<Absence> DecodeAbsent(ByteReader* reader) {
  std::vector<Absence> absences;
  const uint32_t count = reader->Get<uint32_t>();
  for (uint32_t i = 0; i < count && reader->ok(); ++i) {
    Absence absence;
    GetAll(reader, &absence.title, &absence.ranks, &absence.here);
    absences.push_back(std::move(absence));
  }
  return absences;
}

Bytes EncodeRefused(const Refused& refused) {
  return Message(MessageKind::kRefused, refused.rank, refused.turn, refused.text);
}

Refused DecodeRefused(ByteReader* reader) {
  Refused refused;
  GetAll(reader, &refused.rank, &refused.turn, &refused.text);
  return refused;
}

Bytes EncodeStacks(int rank, const Whereabouts& where) {
  ByteWriter writer;
  writer.Put(MessageKind::kStacks);
  PutAll(&writer, rank, where.stacks, static_cast<uint32_t>(where.waits_only_for.size()));
  for (const std::string& title : where.waits_only_for) writer.PutString(title);
  return writer.Take();
}

Whereabouts DecodeStacks(ByteReader* reader) {
  Whereabouts where;
  uint32_t count = 0;
  GetAll(reader, &where.stacks, &count);
  for (uint32_t i = 0; i < count && reader->ok(); ++i) where.waits_only_for.push_back(reader->GetString());
  return where;
}

Bytes EncodeReady(const std::vector<ReadyItem>& items) {
  ByteWriter writer;
  writer.Put(MessageKind::kReady);
  writer.Put(static_cast<uint32_t>(items.size()));
  for (const ReadyItem& item : items) PutAll(&writer, item.id, item.set, item.turn, item.extents);
  return writer.Take();
}

std::vector<ReadyItem> DecodeReady(ByteReader* reader) {
  std::vector<ReadyItem> items;
  const uint32_t count = reader->Get<uint32_t>();
  if (count > kMaxIds) reader->Fail();  // an id is ready once at a time
  for (uint32_t i = 0; i < count && reader->ok(); ++i) {
    ReadyItem item;
    GetAll(reader, &item.id, &item.set, &item.turn, &item.extents);
    items.push_back(std::move(item));
  }
  return items;
}

Bytes EncodeJoin(MessageKind kind, int rank, const Turns& turns) {
  ByteWriter writer;
  writer.Put(kind);
  PutAll(&writer, rank, static_cast<uint32_t>(turns.size()));
  for (const auto& [set, turn] : turns) PutAll(&writer, set, turn);
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

Bytes EncodePut(const EagerPut& put) {
  ByteWriter writer(kEagerPutBytes);
  PutAll(&writer, put.id, put.serial, put.sequence, put.round, put.payload_bytes);
  Bytes head = writer.Take();
  head.resize(kEagerPutBytes);
  return head;
}

EagerPut DecodePut(ByteReader* reader) {
  EagerPut put;
  GetAll(reader, &put.id, &put.serial, &put.sequence, &put.round, &put.payload_bytes);
  CheckId(put.id, reader);
  while (reader->left() > 0 && reader->ok()) {
    if (reader->Get<uint64_t>() != 0) reader->Fail();
  }
  return put;
}

}  // namespace farandole
