// The messages of ranks and the coordinator (on rank 0). They say only what is new or has changed: the steady state of
// one group needs no message at all, that of several groups one per group and batch in each direction.
//
//   rank -> coordinator     DESCRIBE   an operation this rank does not know, or knows otherwise, or why it refuses one
//                           STUCK      an id should be described anew (unnamed ones in several ids, a joined
//                                      root, an id that was used very often)
//                           JOIN       this rank has no more data     LEAVE  it shuts down in good order
//                           ABORT      this epoch cannot go on
//                           WHOM       asks for whom this rank waits
//                           ASK        asks where these ranks are              STACKS  answers TELL
//   leader -> coordinator   COMPLETE   all of the group have arrived at this id (with their counts)
//                           RETIRE_INFO  the id is closed in the group after so many uses (early: its last stamp)
//                           FREE       nobody in the group will touch the id again
//   coordinator -> rank     ASSIGN     a name's id, path and span     INVITE  the same and all else, to a joined rank
//                           ERROR      why it is refused              OPEN    an operation waits for joined ranks alone
//                           JOINED     it has heard JOIN              JOIN_RESULT  who joined last, sequence numbers
//                           ABSENT     operations' missing ranks      TELL    a rank asks where this one is
//                           STACKS     what that rank answers         ABORT
//   coordinator -> leader   LEAD       what a leader must know of an id
//                           READY      a batch: ids in order, with all counts
//                           RETIRE, RETIRED (uses)   LEFT (rank)   JOIN_END
//
// Early operations are announced by their data (peer_arrivals.h).
//
// Every message starts with its kind (one byte). Decoding checks limits; a message that cannot be read ends the
// epoch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/wire.h"
#include "controller/signature.h"

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
  kJoined = 25,
};

inline constexpr int kCoordinatorRank = 0;
inline constexpr int kMaxIds = 4096;
inline constexpr size_t kSpanBytes = 256u << 20;  // address space of all ids' spans; pages cost memory when touched
inline constexpr int64_t kSpanAlignment = 256;    // and the smallest

// The error for a message that no rank of this job sends.
inline Status Unreadable(int from) {
  return {Code::kPeerLost, "rank ", from, " sent a control message that cannot be read"};
}

struct Outgoing {
  int rank;
  Bytes message;
};

// How many unnamed operations a rank has submitted, by process set. A rank that joined learns from it what it missed.
using SequenceNumbers = std::map<int32_t, int64_t>;

// True for a number that an id can have.
inline bool IsId(int32_t id) { return id >= 0 && id < kMaxIds; }

// ---- stamps: a rank arrives at an operation with a stamp, which holds how often the rank has arrived and the sequence
// number. Ranks with different stamps mean different operations.

// Never 0, which means that the rank has not arrived. sequence_number: -1 when the user has named the operation.
inline uint64_t StampOf(uint64_t use, int64_t sequence_number) {
  return (static_cast<uint64_t>(sequence_number + 1) & 0x7fffffff) << 32 | static_cast<uint32_t>(use + 1);
}
inline uint64_t UsesIn(uint64_t stamp) { return static_cast<uint32_t>(stamp); }
inline int64_t SequenceNumberIn(uint64_t stamp) { return static_cast<int64_t>(stamp >> 32) - 1; }
// A stamp of a use that is known to mean the same on all ranks; RETIRE_INFO may have one.
inline uint64_t UnknownStamp(uint64_t uses) { return uint64_t{1} << 63 | uses; }
inline bool IsUnknown(uint64_t stamp) { return stamp >> 63 != 0; }
// Uses of one id are counted in 32 bits. After this many the name asks for a new id, and gets it long before the count
// overflows.
inline constexpr uint64_t kMostUses = uint64_t{1} << 31;

// ---- the contents of messages, which follow the kind. DESCRIBE has a Description; the kinds without a struct are
// IdMessages.

struct Assignment {
  static constexpr MessageKind kKind = MessageKind::kAssign;
  std::string name;
  int32_t set = 0;
  int32_t id = -1;
  Protocol protocol{};  // of its uses, but for the first, which is in the log
  int64_t span_offset = -1;
  uint32_t serial = 0;        // counts assignments, so that data put to a former name of the id are told apart
  bool names_differ = false;  // unnamed: the ranks have different names for it

  FRD_FIELDS(name, set, id, protocol, span_offset, serial, names_differ)
  bool IsValid() const { return IsId(id); }
};

struct Invited {
  static constexpr MessageKind kKind = MessageKind::kInvite;
  Assignment assignment;  // without a name and a set, which are those of the description
  Description description;

  FRD_FIELDS(assignment, description)
};

// ERROR
struct Failure {
  static constexpr MessageKind kKind = MessageKind::kError;
  int32_t set = 0;
  std::string name;
  Code code = Code::kInvalid;
  std::string text;
  uint32_t kinds = 0;  // as in Status

  FRD_FIELDS(set, name, code, text, kinds)
};

struct Aborted {
  static constexpr MessageKind kKind = MessageKind::kAbort;
  int32_t code = 0;  // a Code; an abort with an unknown one still counts
  int32_t culprit = -1;
  std::string text;

  FRD_FIELDS(code, culprit, text)
};

// Tells a leader about an id, even where the leader is not in the id's set.
struct Lead {
  static constexpr MessageKind kKind = MessageKind::kLead;
  int32_t id = -1;
  int32_t set = 0;
  uint32_t counts_per_rank = 0;  // of each rank
  Protocol protocol{};
  int64_t payload_bytes = 0;  // in cells
  int64_t span_offset = -1;
  int64_t span_bytes = 0;

  FRD_FIELDS(id, set, counts_per_rank, protocol, payload_bytes, span_offset, span_bytes)
  bool IsValid() const { return IsId(id); }
  bool cells() const { return protocol == Protocol::kCells; }
  bool early() const { return protocol == Protocol::kEarly; }
};

// COMPLETE
struct Completion {
  static constexpr MessageKind kKind = MessageKind::kComplete;
  int32_t id = 0;
  uint64_t use = 0;
  uint64_t stamp = 0;           // of all the group's members, see StampOf
  std::vector<int64_t> counts;  // of the group's positions

  FRD_FIELDS(id, use, stamp, counts)
  bool IsValid() const { return IsId(id); }
};

// An entry that a leader appends to its group's log. The counts of all positions, one after the other, go into the
// buffer of this use.
struct ReadyItem {
  int32_t id = 0;
  int32_t set = 0;
  uint64_t use = 0;
  std::vector<int64_t> counts;

  FRD_FIELDS(id, set, use, counts)
};
struct ReadyBatch {
  static constexpr MessageKind kKind = MessageKind::kReady;
  std::vector<ReadyItem> items;

  FRD_FIELDS(items)
};

struct Asked {
  static constexpr MessageKind kKind = MessageKind::kAsk;
  std::vector<int64_t> ranks;

  FRD_FIELDS(ranks)
};

// Ranks that have not come to an operation, and those that have, as far as rank 0 knows.
struct Absence {
  std::string title;
  std::vector<int64_t> ranks;
  std::vector<int64_t> here;

  FRD_FIELDS(title, ranks, here)
};
struct Absent {
  static constexpr MessageKind kKind = MessageKind::kAbsent;
  std::vector<Absence> absences;

  FRD_FIELDS(absences)
};

// What the diagnosis of a rank says of it (engine/diagnosis.h).
struct Answered {
  static constexpr MessageKind kKind = MessageKind::kStacks;
  int32_t rank = 0;  // to rank 0: who asked; from rank 0: who answers
  std::string text;

  FRD_FIELDS(rank, text)
};

struct Joined {
  static constexpr MessageKind kKind = MessageKind::kJoin;
  int32_t rank = 0;
  SequenceNumbers sequence_numbers;

  FRD_FIELDS(rank, sequence_numbers)
};
struct JoinResult : Joined {  // of the rank that joined last
  static constexpr MessageKind kKind = MessageKind::kJoinResult;
};

// STUCK, RETIRE_INFO, FREE, RETIRE, RETIRED, OPEN (what the others said), LEFT, LEAVE, JOINED, JOIN_END, WHOM,
// TELL (who asks)
struct IdMessage {
  int32_t id = 0;
  uint64_t value = 0;

  FRD_FIELDS(id, value)
};

template <typename T>
Bytes Encode(MessageKind kind, const T& said) {
  ByteWriter writer;
  writer.Put(kind);
  Encode(&writer, said);
  return writer.Take();
}
template <typename T>
Bytes Encode(const T& said) {
  return Encode(T::kKind, said);
}
inline Bytes EncodeIdMessage(MessageKind kind, int id, uint64_t value = 0) {
  return Encode(kind, IdMessage{id, value});
}

// True for an ABORT that can be read in full.
inline bool IsAbort(const Bytes& message) {
  ByteReader reader(message);
  const auto kind = reader.Get<MessageKind>();
  Decode<Aborted>(&reader);
  return reader.AtEnd() && kind == MessageKind::kAbort;
}

}  // namespace farandole
