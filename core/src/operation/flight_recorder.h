// The last operations of this rank, in a file that other processes read: while the rank works, while it hangs, and
// after it was killed.
//
//   header | records, a ring | texts: names with shapes, and places in the user's program | links: to other hosts
//
// The file is mapped, so a record is in it as soon as its stores are done, whatever ends the process. It lies in memory
// where /dev/shm can hold it, and is allocated before it is mapped: a file system that fills up later ends no rank.
// Where no file can be made, a line of the log says so and nothing is recorded. Python says where
// (core/python/farandole/_start/flight_files.py), and removes files; core/python/farandole/observe/records.py reads
// them. Change the layout there, too.
//
// A record belongs to its operation until that has ended: the ring passes over the records of operations in flight,
// and operations that find no free record are counted. So the thread that ends an operation needs no lock.
//
// Thread rule: Begin under the lock of Operations, FlightRecord::End by the thread that ends the operation, the others
// by any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "common/types.h"
#include "controller/admission.h"
#include "transport/transport.h"

namespace farandole {

// One cache line. A reader that finds an even sequence, or another one after its copy than before, drops the copy.
struct alignas(64) FlightRecord {
  static constexpr uint8_t kFailed = 1;

  std::atomic<uint64_t> sequence{0};   // 2n while operation n is being written, then 2n + 1; 0: empty
  std::atomic<uint64_t> submitted{0};  // ticks
  std::atomic<uint64_t> ended{0};      // ticks; 0: in flight. Equal to `submitted`: in the first looks of a small call
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint32_t> agreed{0};   // 1024 ticks after `submitted`, at least 1: all ranks had come; 0: not known
  std::atomic<uint32_t> started{0};  // likewise: its data began to move
  std::atomic<uint32_t> name{0};     // FlightRecorder's number of a text; 0: none
  std::atomic<uint32_t> site{0};     // likewise
  std::atomic<int32_t> process_set{0};
  std::atomic<uint32_t> count{0};  // which operation of its name this is on this rank, or the number of an unnamed one
  std::atomic<uint8_t> kind{0}, dtype{0}, reduce{0}, flags{0};
  std::atomic<uint32_t> tensors{0};

  void End(uint64_t ticks, bool failed = false) {
    if (failed) flags.store(kFailed, std::memory_order_relaxed);
    ended.store(ticks, std::memory_order_release);
  }
  void Agree(uint64_t ticks) { agreed.store(Since(ticks), std::memory_order_relaxed); }
  void Start(uint64_t ticks) {
    if (started.load(std::memory_order_relaxed) == 0) started.store(Since(ticks), std::memory_order_relaxed);
  }

 private:
  uint32_t Since(uint64_t ticks) const {
    const uint64_t passed = (ticks - submitted.load(std::memory_order_relaxed)) >> 10;
    return static_cast<uint32_t>(passed < 1 ? 1 : passed > UINT32_MAX ? UINT32_MAX : passed);
  }
};
static_assert(sizeof(FlightRecord) == 64);

struct FlightHeader {
  enum State : uint32_t { kRunning = 1, kLeft = 2, kEnded = 3 };  // kEnded: by a failure, which `reason` tells
  static constexpr size_t kReasonBytes = 2048;

  std::array<char, 8> magic{};
  uint32_t record_count = 0, text_count = 0, link_count = 0;
  int32_t pid = 0, rank = 0, size = 0;
  std::atomic<uint32_t> state{kRunning};
  uint32_t epoch = 0;
  uint64_t process_start = 0;  // as /proc/PID/stat has it: a number may be used for another process later
  // Two moments by both clocks: the start of the epoch and a late one, which `clock_sequence` guards like a record.
  std::atomic<uint64_t> clock_sequence{0};
  uint64_t first_ticks = 0;
  int64_t first_ns = 0;
  std::atomic<uint64_t> late_ticks{0};
  std::atomic<int64_t> late_ns{0};
  std::atomic<uint64_t> begun{0}, lost{0};
  std::atomic<int32_t> culprit{-1};
  std::atomic<uint32_t> reason_bytes{0};  // set after the reason
  std::array<char, 16> run{};             // of the job, equal on all its ranks
  std::array<char, kReasonBytes> reason{};
};

struct FlightText {
  static constexpr size_t kBytes = 120;
  std::atomic<uint32_t> number{0};  // 0: being written, or empty
  uint16_t first_bytes = 0;         // the name, or the place
  uint16_t second_bytes = 0;        // the shapes
  std::array<char, kBytes> text{};
};
static_assert(sizeof(FlightText) == 128);

// The counts of the connections to one peer, see LinkFacts. The sequence of the clock guards them.
struct alignas(64) FlightLink {
  std::atomic<uint64_t> sent_bytes{0}, received_bytes{0}, sending_us{0}, retransmits{0};
  std::atomic<uint32_t> round_trip_us{0};
  std::atomic<int32_t> peer{-1};  // -1: none
};
static_assert(sizeof(FlightLink) == 64);

// The facts of an operation that Begin writes.
struct FlightFacts {
  OpKind kind = OpKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  int32_t process_set = 0;
  uint32_t tensors = 0;
  uint64_t bytes = 0;
};

class FlightRecorder {
 public:
  static constexpr size_t kRecords = 4096, kTexts = 2048, kLinks = 64;

  struct Place {
    int rank = 0, size = 1;
    std::string run;     // hexadecimal digits
    std::string path;    // of the file
    uint32_t epoch = 0;  // of an elastic job: the number of its world
  };
  // Null where the file cannot be made, which the log tells.
  static std::unique_ptr<FlightRecorder> Make(const Place& place);

  // In memory of this process alone, for tests.
  FlightRecorder();
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // Begins a record; null when all are in flight. `number`: of an unnamed operation, else -1. `texts()` returns name
  // and shapes of an operation that has no label yet.
  template <typename Texts>
  FlightRecord* Begin(FlightLabel* label, const FlightFacts& facts, std::string_view site, int64_t number,
                      Texts texts) {
    if (!Knows(label->name)) {
      const auto [name, shapes] = texts();
      label->name = NumberOf(name, shapes);
    }
    if (!site.empty() && !Knows(label->site)) label->site = NumberOf(site, {});
    return Write(*label, facts, number < 0 ? ++label->count : static_cast<uint32_t>(number));
  }

  // Notes the time by both clocks. Call it now and then: while a rank waits, it tells readers that the rank is alive.
  void NoteTime();
  // Notes the links that have sent most, up to kLinks of them. Without any, as at the end of an epoch, the last ones
  // stay.
  void NoteLinks(std::vector<LinkFacts> links);
  // Says how the epoch has ended; the first call counts.
  void NoteEnd(FlightHeader::State state, int culprit, const std::string& reason);
  const FlightHeader& header() const { return *header_; }
  const FlightRecord* records() const { return records_; }
  const FlightText* texts() const { return texts_; }
  const FlightLink* links() const { return links_; }

 private:
  explicit FlightRecorder(void* memory);
  void Describe(const Place& place);
  // Lets nobody read the clock and what it guards, until both are set anew.
  void NoteLate(const std::vector<LinkFacts>* links);

  FlightRecord* Write(const FlightLabel& label, const FlightFacts& facts, uint32_t count) {
    const uint64_t number = ++begun_;
    FlightRecord* const record = Free();
    header_->begun.store(number, std::memory_order_relaxed);
    if (record == nullptr) return Lose();
    record->sequence.store(2 * number, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    record->submitted.store(Ticks(), std::memory_order_relaxed);
    record->ended.store(0, std::memory_order_relaxed);
    record->bytes.store(facts.bytes, std::memory_order_relaxed);
    record->agreed.store(0, std::memory_order_relaxed);
    record->started.store(0, std::memory_order_relaxed);
    record->name.store(label.name, std::memory_order_relaxed);
    record->site.store(label.site, std::memory_order_relaxed);
    record->process_set.store(facts.process_set, std::memory_order_relaxed);
    record->count.store(count, std::memory_order_relaxed);
    record->kind.store(static_cast<uint8_t>(facts.kind), std::memory_order_relaxed);
    record->dtype.store(static_cast<uint8_t>(facts.dtype), std::memory_order_relaxed);
    record->reduce.store(static_cast<uint8_t>(facts.reduce), std::memory_order_relaxed);
    record->flags.store(0, std::memory_order_relaxed);
    record->tensors.store(facts.tensors, std::memory_order_relaxed);
    record->sequence.store(2 * number + 1, std::memory_order_release);
    return record;
  }

  bool Knows(uint32_t text) const {
    return text != 0 && texts_[text % kTexts].number.load(std::memory_order_relaxed) == text;
  }
  uint32_t NumberOf(std::string_view first, std::string_view second);
  FlightRecord* Free() {
    FlightRecord* const record = &records_[next_++ % kRecords];
    if (next_ % kRecords == 0) NoteTime();
    const bool in_flight =
        record->ended.load(std::memory_order_acquire) == 0 && record->sequence.load(std::memory_order_relaxed) != 0;
    return in_flight ? FindFreeRecord() : record;
  }
  FlightRecord* FindFreeRecord();
  FlightRecord* Lose();

  FlightHeader* header_ = nullptr;
  FlightRecord* records_ = nullptr;
  FlightText* texts_ = nullptr;
  FlightLink* links_ = nullptr;
  uint64_t next_ = 0, begun_ = 0;
  uint32_t last_text_ = 0;
  std::unordered_map<std::string, uint32_t> numbers_;  // of texts, by both parts
  std::array<std::string, kTexts> keys_;               // of numbers_, by place
  std::mutex mutex_;                                   // of the clocks and the end
};

}  // namespace farandole
