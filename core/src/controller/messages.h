// What ranks and the coordinator (on rank 0) say to each other. Only what is new or has changed is said; the steady
// state of one group needs no message at all, that of several groups one per group and batch in each direction.
//
//   rank -> coordinator     DESCRIBE   an operation this rank does not know, or knows otherwise
//                           STUCK      an unnamed operation waits in an id while others may wait in another one
//                           LEAVE      this rank shuts down in good order        ABORT  this epoch cannot go on
//   leader -> coordinator   COMPLETE   all of my group have arrived at this id (with their extents)
//                           RETIRE_INFO  the id is closed in my group after this many uses
//                           FREE       nobody in my group will touch the id again
//   coordinator -> rank     ASSIGN     a name's id and span                      ERROR  the ranks disagree, with the text
//                           ABORT
//   coordinator -> leader   READY      a batch: ids in order, with all extents   RETIRE, RETIRED (uses)   LEFT (rank)
//
// Every message starts with its kind (one byte). Decoding checks limits; a message that cannot be read ends the epoch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "controller/description.h"

namespace farandole {

enum class MessageKind : uint8_t {
  kDescribe = 1,
  kStuck = 2,
  kLeave = 3,
  kAbort = 4,
  kComplete = 5,
  kRetireInfo = 6,
  kFree = 7,
  kAssign = 8,
  kError = 9,
  kReady = 10,
  kRetire = 11,
  kRetired = 12,
  kLeft = 13,
};

struct Outgoing {
  int rank;
  Bytes message;
};

// READY: what a leader appends to its group's log. The extents of all ranks (rank by rank) go into half `turn` & 1 of
// the span.
struct ReadyItem {
  int id = 0;
  uint64_t turn = 0;
  int64_t span_offset = -1;
  std::vector<int64_t> extents;
};

Bytes EncodeDescribe(const Description& description);
Bytes EncodeIdMessage(MessageKind kind, int id,
                      uint64_t value = 0);  // STUCK, RETIRE_INFO, FREE, RETIRE, RETIRED, LEFT, LEAVE
Bytes EncodeComplete(int id, uint64_t turn, const std::vector<int64_t>& extents);
Bytes EncodeAssign(const std::string& name, int id, int64_t span_offset);
Bytes EncodeError(const std::string& name, const std::string& text);
Bytes EncodeAbort(int code, int culprit, const std::string& text);
bool IsAbort(const Bytes& message);  // the whole of it can be read
Bytes EncodeReady(const std::vector<ReadyItem>& items);
std::vector<ReadyItem> DecodeReady(ByteReader* reader);

}  // namespace farandole
