// What a timeline records, and how it is told in the Trace Event Format of Chrome, which https://ui.perfetto.dev and
// chrome://tracing open. Pure.
//
// A process of the trace is a rank. An operation is an asynchronous event ("b" to "e") under its name and kind, with
// its phases inside; tasks of back ends, which carry the data of several operations, are on a thread of their own.
//
//   gradient.3 (allreduce)   [ submitted                              done ]
//                              [ NEGOTIATE ][ QUEUE ][ ALLREDUCE          ]
//   back end                                         [ allreduce of 5     ]
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "common/types.h"

namespace farandole {

struct TraceRecord {
  enum class What : uint8_t { kOperation, kWork, kCycle };
  static constexpr size_t kNameBytes = 72;

  // Nanoseconds of the monotonic clock; 0: it did not come to that. Small operations need neither of the middle two.
  int64_t submitted = 0;
  int64_t agreed = 0;   // all ranks had come to it, and this one knew
  int64_t started = 0;  // its data began to move
  int64_t done = 0;
  int64_t bytes = 0;
  int32_t process_set = 0;
  uint32_t tensors = 0;
  OpKind kind = OpKind::kAllreduce;
  What what = What::kOperation;
  bool failed = false;
  std::array<char, kNameBytes> name{};  // zero at the end

  // Of a longer one, the end, which tells more.
  void SetName(const std::string& whole);
};

// The events that say who this is; the first of a file.
std::string DescribeRank(int rank, const std::string& title);
// The record's events, with ",\n" between them. `offset_ns` is by how much this rank's clock is ahead of rank 0's,
// `number` tells operations of one file apart.
std::string EventsOf(const TraceRecord& record, int rank, int64_t offset_ns, uint64_t number);
// That so many operations were not recorded, until then.
std::string EventOfLoss(uint64_t lost, int rank, int64_t at_ns);

}  // namespace farandole
