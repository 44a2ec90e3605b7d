// What ranks and the coordinator (on rank 0) say to each other. Only what is new or has changed is said; the steady
// state of one group needs no message at all, that of several groups one per group and batch in each direction.
//
//   rank -> coordinator     DESCRIBE   an operation this rank does not know, or knows otherwise
//                           STUCK      an id should be described anew (unnamed ones in several ids, a joined
//                                      root, an id that was used very often)
//                           JOIN       this rank has no more data     LEAVE  it shuts down in good order
//                           ABORT      this epoch cannot go on
//                           WHOM       for whom do I wait?
//                           ASK        where are these ranks?                  STACKS  here (the answer)
//   leader -> coordinator   COMPLETE   all of my group have arrived at this id (with their extents)
//                           RETIRE_INFO  the id is closed in my group after so many uses (eager: what we said last)
//                           FREE       nobody in my group will touch the id again
//   coordinator -> rank     ASSIGN     a name's id and span           INVITE  that and all else, to one that has joined
//                           ERROR      why it cannot be               OPEN    an operation waits for joined ranks alone
//                           JOINED     it has heard JOIN              JOIN_RESULT  who joined last, turns
//                           ABSENT     who has not come to what       TELL    somebody asks where you are
//                           STACKS     where that rank is             ABORT
//   coordinator -> leader   LEAD       what a leader must know of an id
//                           READY      a batch: ids in order, with all extents
//                           RETIRE, RETIRED (uses)   LEFT (rank)   JOIN_END
//
//   rank -> rank            PUT        I have come to an eager operation; my data; a connection of its own (inbox.h)
//
// Every message but PUT starts with its kind (one byte). Decoding checks limits; a message that cannot be read ends the
// epoch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/status.h"
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
  kJoin = 14,
  kInvite = 15,
  kOpen = 16,
  kJoinResult = 17,
  kJoinEnd = 18,
  kLead = 19,
  kAsk = 20,
  kTell = 21,
  kStacks = 22,
  kWhom = 23,
  kAbsent = 24,
  kRefused = 25,
  kJoined = 26,
};

inline constexpr int kCoordinatorRank = 0;

// What `from` sent cannot have come from one of us.
Status Unreadable(int from);

struct Outgoing {
  int rank;
  Bytes message;
};

// How many unnamed operations a rank has submitted, by process set: what a rank that joined has missed.
using Turns = std::map<int32_t, int64_t>;

struct Assignment {
  std::string name;
  int32_t set = 0;
  int32_t id = -1;
  int64_t span_offset = -1;
  uint32_t serial = 0;  // counts all that were given out, so that what was put to a former name of the id is told apart
};

// What leading a group asks to be known of an id, also by a leader that is not in its set.
struct Lead {
  int32_t id = -1;
  int32_t set = 0;
  uint32_t extent_count = 0;  // of each rank
  uint8_t flat = 0;           // small: see common/flat.h
  int64_t payload_bytes = 0;  // of a small one
  int64_t span_offset = -1;
  int64_t span_bytes = 0;
  uint8_t eager = 0;  // see inbox.h
};

// COMPLETE
struct Completion {
  int32_t id = 0;
  uint64_t turn = 0;
  uint64_t sequence = 0;         // what the members said, see sequence.h
  std::vector<int64_t> extents;  // of the group's positions
};

// READY: what a leader appends to its group's log. The extents of all positions, one after the other, go into half
// `turn` & 1 of the span.
struct ReadyItem {
  int32_t id = 0;
  int32_t set = 0;
  uint64_t turn = 0;
  std::vector<int64_t> extents;
};

// PUT, the head of the data
struct EagerPut {
  int32_t id = 0;
  uint32_t serial = 0;         // of the id's assignment
  uint64_t sequence = 0;       // what the sender says, see sequence.h
  uint32_t round = 0;          // how often it has seen all ranks join
  uint32_t payload_bytes = 0;  // behind the head; 0: it has come, its data follow once the receiver has come, too
};

// ABSENT: ranks that have not come to an operation, and those that have, as far as rank 0 knows.
struct Absence {
  std::string title;
  std::vector<int64_t> ranks;
  std::vector<int64_t> here;
};

// STACKS: what a rank does.
struct Whereabouts {
  std::string stacks;
  // Titles of the operations for which its program waits, where no thread of it can do anything else; else none.
  std::vector<std::string> waits_only_for;
};

// REFUSED: rank `rank` has by itself refused to change the process sets, when it was about to take this turn of set 0.
struct Refused {
  int32_t rank = 0;
  int64_t turn = 0;
  std::string text;
};

Bytes EncodeDescribe(const Description& description);
// STUCK, RETIRE_INFO, FREE, RETIRE, RETIRED, OPEN (what the others said), LEFT, LEAVE, JOINED, JOIN_END, WHOM,
// TELL (who asks)
Bytes EncodeIdMessage(MessageKind kind, int id, uint64_t value = 0);
Bytes EncodeComplete(const Completion& completion);
Completion DecodeComplete(ByteReader* reader);
Bytes EncodeAssign(const Assignment& assignment);
Assignment DecodeAssign(ByteReader* reader);
Bytes EncodeInvite(const Assignment& assignment, const Description& description);
Assignment DecodeInvite(ByteReader* reader);  // up to the description
Bytes EncodeError(int set, const std::string& name, const Status& refusal);
Bytes EncodeAbort(int code, int culprit, const std::string& text);
bool IsAbort(const Bytes& message);  // the whole of it can be read
Bytes EncodeLead(const Lead& lead);
Lead DecodeLead(ByteReader* reader);
Bytes EncodeAsk(const std::vector<int64_t>& ranks);
Bytes EncodeRefused(const Refused& refused);
Refused DecodeRefused(ByteReader* reader);
Bytes EncodeAbsent(const std::vector<Absence>& absences);
std::vector<Absence> DecodeAbsent(ByteReader* reader);
Bytes EncodeStacks(int rank, const Whereabouts& where);  // to rank 0: for whom; from there: whose
Whereabouts DecodeStacks(ByteReader* reader);            // behind the rank
Bytes EncodeReady(const std::vector<ReadyItem>& items);
std::vector<ReadyItem> DecodeReady(ByteReader* reader);
Bytes EncodeJoin(MessageKind kind, int rank, const Turns& turns);  // JOIN: who joins; JOIN_RESULT: who was last
Turns DecodeTurns(ByteReader* reader);
// Filled up to a cache line: the kernel copies data faster that are aligned behind it (2 % of 64 KB).
inline constexpr size_t kEagerPutBytes = 64;
Bytes EncodePut(const EagerPut& put);
EagerPut DecodePut(ByteReader* reader);

}  // namespace farandole
