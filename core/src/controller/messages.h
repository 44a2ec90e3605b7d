// The messages of ranks and the coordinator (on rank 0). In the steady state one node exchanges no messages, and
// several nodes exchange one message per node and batch in each direction.
//
//   rank -> coordinator     DESCRIBE   an operation whose name has no id here or another signature, or the reason for a
//                                      refusal
//                           STUCK      an id should be described anew (the ranks may use several for one operation)
//                           JOIN       this rank has no more data
//   leader -> coordinator   REPORT     what its node has completed, closed and finished with
//   coordinator -> rank     ASSIGN     an id: to the ranks of its set and the leaders of their nodes
//                           ERROR      why an operation is refused
//                           JOIN_END   all had joined: who came last, sequence numbers
//   coordinator -> leader   EVICT      stop counting arrivals at the id
//                           LOG        entries to append, in order
//   both                    LEAVE      a rank shuts down in good order; sent on to those that cannot see it
//                           ABORT      this epoch cannot go on; sent on to all
//                           QUESTION   where these ranks are, sent on to them; or, to no rank, who is missing
//                           ANSWER     to the rank that asked
//
// Early operations are announced by their data (execution/early_sum.h).
//
// Every message starts with its kind (one byte). Decoding checks limits; a message that cannot be read ends the
// epoch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "common/wire.h"
#include "controller/signature.h"

namespace farandole {

enum class MessageKind : uint8_t {
  kDescribe = 1,
  kStuck,
  kReport,
  kAssign,
  kError,
  kJoinEnd,
  kEvict,
  kLog,
  kJoin,
  kLeave,
  kAbort,
  kQuestion,
  kAnswer,
};

inline constexpr int kCoordinatorRank = 0;
inline constexpr int kMaxIds = 4096;
// The address space of all ids' buffers; pages cost memory when touched.
inline constexpr size_t kBufferPoolBytes = 256u << 20;
inline constexpr int64_t kBufferAlignment = 256;  // and the smallest size

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

// ---- uses and generations. A use is one operation under an id. Uses are counted from 0, which is the operation that
// was described to get the id. A rank arrives at each later one with a generation, which holds the number of the use
// and the sequence number. Ranks with different generations mean different operations.

// Never 0, which means that the rank has not arrived: nobody arrives at use 0. sequence_number: -1 when the user has
// named the operation.
inline uint64_t GenerationOf(uint64_t use, int64_t sequence_number) {
  return (static_cast<uint64_t>(sequence_number + 1) & 0x7fffffff) << 32 | static_cast<uint32_t>(use);
}
inline uint64_t UseOf(uint64_t generation) { return static_cast<uint32_t>(generation); }
inline int64_t SequenceNumberOf(uint64_t generation) { return static_cast<int64_t>(generation >> 32) - 1; }
// Uses of one id are counted in 32 bits. After this many the name is described anew, long before the count overflows.
inline constexpr uint64_t kMaxUses = uint64_t{1} << 31;

// ---- the contents of messages, which follow the kind. DESCRIBE has a Description; the kinds without a struct are
// IdMessages.

struct Assignment {
  static constexpr MessageKind kKind = MessageKind::kAssign;
  int32_t id = -1;
  Protocol protocol{};  // of its uses, but for the first, which is in the log
  int64_t buffer_offset = -1;
  uint32_t serial = 0;  // counts assignments from 1, since an id means one name after the other
  bool names_differ =
      false;                // unnamed: the ranks have different names for it, and the sequence number says which it is
  bool once = false;        // the id is for the described use alone: every rank forgets it there
  Description description;  // without data

  FRD_FIELDS(id, protocol, buffer_offset, serial, names_differ, once, description)
  bool IsValid() const { return IsId(id); }
};

struct Error {
  static constexpr MessageKind kKind = MessageKind::kError;
  int32_t set = 0;
  std::string name;
  Code code = Code::kInvalid;
  std::string text;
  uint32_t kinds = 0;  // as in Status

  FRD_FIELDS(set, name, code, text, kinds)
};

struct Abort {
  static constexpr MessageKind kKind = MessageKind::kAbort;
  int32_t code = 0;  // a Code; an abort with an unknown one still counts
  int32_t culprit = -1;
  std::string text;

  FRD_FIELDS(code, culprit, text)
};

// ---- reports. Merge is associative and commutative.

// All ranks of some nodes have arrived at a use.
struct Completion {
  int32_t id = 0;
  uint64_t generation = 0;                         // of all their members, see GenerationOf
  std::map<int32_t, std::vector<int64_t>> counts;  // by node: of its members, in the order of their positions

  FRD_FIELDS(id, generation, counts)
  bool IsValid() const { return IsId(id); }
  uint64_t use() const { return UseOf(generation); }
  // Returns false when the others mean a different operation.
  bool Merge(Completion other) {
    if (!counts.empty() && generation != other.generation) return false;
    id = other.id;
    generation = other.generation;
    counts.merge(other.counts);
    return true;
  }
};

// Some nodes have closed an id. An arrival at an early use is final, so the use is complete once all ranks have
// arrived, unless they meant different operations.
struct Closing {
  int32_t id = 0;
  int32_t nodes = 0;
  uint64_t min_uses = ~uint64_t{0};  // that a node has completed
  uint64_t max_uses = 0;
  uint64_t generation = 0;  // early: of the last complete use of a node; 0 where none knows it
  bool differ = false;      // early: another had another generation

  FRD_FIELDS(id, nodes, min_uses, max_uses, generation, differ)
  bool IsValid() const { return IsId(id); }
  // Returns how many uses all of the nodes have completed.
  uint64_t uses() const { return min_uses - (differ && min_uses == max_uses ? 1 : 0); }
  void Merge(const Closing& other) {
    id = other.id;
    nodes += other.nodes;
    min_uses = std::min(min_uses, other.min_uses);
    max_uses = std::max(max_uses, other.max_uses);
    differ = differ || other.differ || (generation != 0 && other.generation != 0 && generation != other.generation);
    if (generation == 0) generation = other.generation;
  }
};

struct Report {
  static constexpr MessageKind kKind = MessageKind::kReport;
  std::vector<Completion> completed;
  std::vector<Closing> closed;
  std::vector<int32_t> finished;  // ids that nobody in the node will touch again

  FRD_FIELDS(completed, closed, finished)
  bool empty() const { return completed.empty() && closed.empty() && finished.empty(); }
};

// ---- the log

enum class LogKind : uint8_t {
  kReady = 1,           // all ranks of a set inside the node have arrived: run it in a batch
  kReadyInterNode = 2,  // the same of a set across nodes
  kEndOfBatch = 3,      // of a set across nodes
  kEvicted = 4,         // the id means nothing from here on
  kLeft = 5,            // a rank has left the job
  kJoinEnd = 6,         // all ranks had joined; they go on together
};
inline bool IsKnown(LogKind kind) { return kind >= LogKind::kReady && kind <= LogKind::kJoinEnd; }

// An entry that a leader appends to its node's log.
struct LogItem {
  LogKind kind = LogKind::kReady;
  int32_t id = 0;
  int32_t set = 0;
  uint64_t use = 0;             // kEvicted: the last that was completed
  std::vector<int64_t> counts;  // of all positions, one after the other: for the buffer of this use

  FRD_FIELDS(kind, id, set, use, counts)
};
struct LogItems {
  static constexpr MessageKind kKind = MessageKind::kLog;
  std::vector<LogItem> items;

  FRD_FIELDS(items)
};

// ---- ranks that wait, and ranks that have joined

struct Question {
  static constexpr MessageKind kKind = MessageKind::kQuestion;
  int32_t asker = 0;
  std::vector<int32_t> ranks;

  FRD_FIELDS(asker, ranks)
};

// Ranks that have not come to an operation, and those that have, as far as rank 0 knows.
struct Absence {
  std::string title;
  std::vector<int64_t> ranks;
  std::vector<int64_t> here;

  FRD_FIELDS(title, ranks, here)
};

struct Answer {
  static constexpr MessageKind kKind = MessageKind::kAnswer;
  int32_t asker = 0;
  // Whose diagnosis it is (operation/diagnosis.h); kNobody: the coordinator knows these absences.
  int32_t rank = kNobody;
  std::string text;
  std::vector<Absence> absences;

  static constexpr int32_t kNobody = -1;
  FRD_FIELDS(asker, rank, text, absences)
};

// JOIN, and JOIN_END for the rank that joined last
struct Join {
  int32_t rank = 0;
  SequenceNumbers sequence_numbers;

  FRD_FIELDS(rank, sequence_numbers)
};

struct Leave {
  static constexpr MessageKind kKind = MessageKind::kLeave;
  int32_t rank = 0;

  FRD_FIELDS(rank)
};

// STUCK, EVICT
struct IdMessage {
  int32_t id = 0;

  FRD_FIELDS(id)
  bool IsValid() const { return IsId(id); }
};

template <typename T>
Bytes Encode(MessageKind kind, const T& message) {
  ByteWriter writer;
  writer.Put(kind);
  Encode(&writer, message);
  return writer.Take();
}
template <typename T>
Bytes Encode(const T& message) {
  return Encode(T::kKind, message);
}
inline Bytes EncodeIdMessage(MessageKind kind, int id) { return Encode(kind, IdMessage{id}); }

// Null for a message of another kind, or one that cannot be read in full.
template <typename T>
std::optional<T> ReadAs(const Bytes& message, MessageKind kind = T::kKind) {
  ByteReader reader(message);
  if (reader.Get<MessageKind>() != kind) return std::nullopt;
  auto decoded = Decode<T>(&reader);
  return reader.AtEnd() ? std::optional<T>(std::move(decoded)) : std::nullopt;
}
}  // namespace farandole
