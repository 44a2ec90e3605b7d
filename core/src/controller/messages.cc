#include "controller/messages.h"

#include <algorithm>

#include "controller/board.h"

namespace farandole {

Status Unreadable(int from) {
  return {Code::kPeerLost, "rank " + std::to_string(from) + " sent a control message that cannot be read"};
}

bool IsId(int32_t id) { return id >= 0 && id < kMaxIds; }

bool IsAbort(const Bytes& message) {
  ByteReader reader(message);
  const auto kind = reader.Get<MessageKind>();
  Decode<Aborted>(&reader);
  return reader.AtEnd() && kind == MessageKind::kAbort;
}

Bytes EncodePut(const EagerPut& put) {
  ByteWriter writer(kEagerPutBytes);
  Encode(&writer, put);
  Bytes head = writer.Take();
  head.resize(kEagerPutBytes);
  return head;
}

// No head of an operation: there is no such id.
Bytes EncodeFarewell() { return Bytes(kEagerPutBytes, 0xff); }

bool IsFarewell(const uint8_t* head, size_t size_bytes) {
  return std::all_of(head, head + size_bytes, [](uint8_t byte) { return byte == 0xff; });
}

EagerPut DecodePut(ByteReader* reader) {
  const auto put = Decode<EagerPut>(reader);
  while (reader->left() > 0 && reader->ok()) {
    if (reader->Get<uint64_t>() != 0) reader->Fail();
  }
  return put;
}

}  // namespace farandole
