#include "engine/timeline.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cinttypes>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "common/log.h"
#include "engine/batch.h"
#include "engine/operation.h"
#include "engine/trace_file.h"

namespace farandole {

namespace {

constexpr auto kInterval = std::chrono::milliseconds(200);
constexpr auto kPatience = std::chrono::seconds(5);  // how long Stop waits for the writer
constexpr size_t kCells = 1 << 15;
constexpr size_t kWriteBytes = 1 << 16;

// Never freed: a thread that has seen on() may push at any time.
struct Queue {
  TraceRing<TraceRecord, kCells> ring;
  std::atomic<uint64_t> lost{0};
  std::mutex reading;  // of the ring: an abandoned writer may return while the next one runs
};

Queue& TheQueue() {
  static auto* const queue = new Queue();
  return *queue;
}

// Shared by the writer and the thread that stops it.
struct Writer {
  explicit Writer(TimelineOptions given) : options(std::move(given)) {}

  const TimelineOptions options;
  const pid_t process = getpid();
  TraceFile file;
  uint64_t number = 0, lost_before = 0;

  std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false, ended = false, abandoned = false;

  Status Begin(const std::string& path, TraceFile* begun) const;
  Status WriteSome();
  void Run();
};

std::mutex g_mutex;  // guards g_writer
std::shared_ptr<Writer>& Current() {
  static auto* const writer = new std::shared_ptr<Writer>();
  return *writer;
}

// The difference is read anew for each file, since the time of day is corrected while programs run.
Status Writer::Begin(const std::string& path, TraceFile* begun) const {
  FRD_RETURN_IF_ERROR(begun->Open(path));
  const auto time_of_day = std::chrono::system_clock::now().time_since_epoch();
  const int64_t unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time_of_day).count();
  const int64_t zero_unix_ns = unix_ns - (Timeline::NowNs() - options.offset_ns);
  return begun->Append(DescribeRank(options.rank, options.title, zero_unix_ns));
}

// Writes all that is in the ring.
Status Writer::WriteSome() {
  std::lock_guard<std::mutex> lock(TheQueue().reading);
  std::string events;
  const auto add = [&events](const std::string& more) { events += (events.empty() ? "" : ",\n") + more; };
  TraceRecord record;
  while (TheQueue().ring.Pop(&record)) {
    add(EventsOf(record, options.rank, options.offset_ns, number++));
    if (events.size() < kWriteBytes) continue;
    FRD_RETURN_IF_ERROR(file.Append(events));
    events.clear();
  }
  if (const uint64_t lost = TheQueue().lost; lost != lost_before) {
    add(EventOfLoss(lost - lost_before, options.rank, Timeline::NowNs() - options.offset_ns));
    lost_before = lost;
  }
  return file.Append(events);
}

void Writer::Run() {
  Status status;
  for (bool last = false; status.ok() && !last;) {
    {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait_for(lock, kInterval, [this] { return stopping; });
      last = stopping;
    }
    status = WriteSome();
    std::lock_guard<std::mutex> lock(mutex);
    if (abandoned) return;  // new records belong to another timeline
  }
  if (!status.ok()) {
    Timeline::Forget();
    Log(LogLevel::kWarning, status.message(), "; training goes on without it");
  }
  std::lock_guard<std::mutex> lock(mutex);
  ended = true;
  changed.notify_all();
}

}  // namespace

// The ring outlives each timeline, so this drops records that late threads pushed for the one before.
Status Timeline::Start(const TimelineOptions& options) {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (Current()) {
    return Invalid("a timeline is being recorded to '", Current()->options.path, "'; call stop_timeline() first");
  }
  const auto writer = std::make_shared<Writer>(options);
  std::unique_lock<std::mutex> reading(TheQueue().reading, std::try_to_lock);
  if (!reading) return Invalid("the end of the timeline before is still being written; try again later");
  FRD_RETURN_IF_ERROR(writer->Begin(options.path, &writer->file));
  TraceRecord late;  // of the timeline before
  while (TheQueue().ring.Pop(&late)) continue;
  writer->lost_before = TheQueue().lost;
  Current() = writer;
  marks_batches_ = options.marks_batches;
  on_ = true;
  std::thread([writer] { writer->Run(); }).detach();
  return Status::Ok();
}

Status Timeline::Continue(const std::string& path) {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (!Current()) return Invalid("no timeline is being recorded");
  TraceFile next;
  FRD_RETURN_IF_ERROR(Current()->Begin(path, &next));
  std::lock_guard<std::mutex> reading(TheQueue().reading);  // the writer has it while it writes
  Current()->file = std::move(next);
  return Status::Ok();
}

// Waits for the writer as long as a working file system needs, then abandons it.
bool Timeline::Stop() {
  std::shared_ptr<Writer> writer;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    on_ = false;
    writer = std::move(Current());
  }
  if (!writer || writer->process != getpid()) return false;  // a fork has no thread to wait for
  std::unique_lock<std::mutex> lock(writer->mutex);
  writer->stopping = true;
  writer->changed.notify_all();
  writer->abandoned = !writer->changed.wait_for(lock, kPatience, [&writer] { return writer->ended; });
  if (writer->abandoned) {
    Log(LogLevel::kWarning, "the end of the timeline '", writer->options.path,
        "' is still to be written: the file system does not answer; what is there is complete");
  }
  return true;
}

void Timeline::Forget() { on_ = false; }

void Timeline::Record(const TraceRecord& record) {
  if (!TheQueue().ring.Push(record)) TheQueue().lost.fetch_add(1, std::memory_order_relaxed);
}

namespace {

constexpr int kOperations = 0, kBackend = 1;  // "threads" of a rank

// True when the second byte may follow the first: not in an overlong form, a surrogate, or beyond U+10FFFF.
bool MayFollow(unsigned char first, unsigned char second) {
  if (first == 0xE0) return second >= 0xA0;
  if (first == 0xED) return second < 0xA0;
  if (first == 0xF0) return second >= 0x90;
  return first != 0xF4 || second < 0x90;
}

// Returns how many bytes the character at `text[i]` has in UTF-8; 0 when it is not valid.
size_t CharacterAt(const std::string& text, size_t i) {
  const auto first = static_cast<unsigned char>(text[i]);
  const size_t size = first < 0x80                    ? 1
                      : first >= 0xC2 && first < 0xE0 ? 2
                      : first >= 0xE0 && first < 0xF0 ? 3
                      : first >= 0xF0 && first < 0xF5 ? 4
                                                      : 0;
  if (i + size > text.size()) return 0;
  for (size_t k = 1; k < size; ++k) {
    if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return 0;
  }
  return size < 2 || MayFollow(first, static_cast<unsigned char>(text[i + 1])) ? size : 0;
}

// JSON must be UTF-8, and a name may be anything: bytes that are no character become question marks.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (size_t i = 0; i < text.size();) {
    const size_t size = CharacterAt(text, i);
    if (size == 0) {
      quoted += '?';
    } else if (static_cast<unsigned char>(text[i]) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", text[i]);
      quoted += code;
    } else {
      if (text[i] == '"' || text[i] == '\\') quoted += '\\';
      quoted += text.substr(i, size);
    }
    i += std::max<size_t>(size, 1);
  }
  return quoted + '"';
}

std::string Microseconds(int64_t ns) {
  char text[40];
  std::snprintf(text, sizeof text, "%s%" PRId64 ".%03d", ns < 0 ? "-" : "", std::abs(ns) / 1000,
                static_cast<int>(std::abs(ns) % 1000));
  return text;
}

struct Common {
  int rank, thread;
  int64_t offset_ns;

  std::string Event(const char* phase, const std::string& name, int64_t at_ns, const std::string& more) const {
    return std::string("{\"ph\":\"") + phase + "\",\"name\":" + Quoted(name) + ",\"pid\":" + std::to_string(rank) +
           ",\"tid\":" + std::to_string(thread) + ",\"ts\":" + Microseconds(at_ns - offset_ns) + more + "}";
  }
};

std::string Upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string Arguments(const TraceRecord& record) {
  return ",\"args\":{\"bytes\":" + std::to_string(record.bytes) + ",\"tensors\":" + std::to_string(record.tensors) +
         ",\"process_set\":" + std::to_string(record.process_set) + (record.failed ? ",\"failed\":true" : "") + "}";
}

std::string OperationEvents(const TraceRecord& record, const Common& common, uint64_t number) {
  const std::string kind = NameOf(record.kind);
  const std::string same = ",\"cat\":" + Quoted(kind) + ",\"id\":" + std::to_string(number);
  const std::string name = record.name[0] != '\0' ? record.name.data() : "unnamed " + kind;
  std::string events = common.Event("b", name, record.submitted, same + Arguments(record));
  const auto add_phase = [&](const std::string& phase, int64_t from, int64_t to) {
    if (from == 0) return;
    events += ",\n" + common.Event("b", phase, from, same) + ",\n" + common.Event("e", phase, to, same);
  };
  if (record.agreed != 0) add_phase("NEGOTIATE", record.submitted, record.agreed);
  if (record.started != 0) add_phase("QUEUE", record.agreed, record.started);
  add_phase(Upper(kind), record.started != 0 ? record.started : record.agreed, record.done);
  return events + ",\n" + common.Event("e", name, record.done, same);
}

std::string WorkEvent(const TraceRecord& record, const Common& common) {
  const std::string name = std::string(NameOf(record.kind)) +
                           (record.tensors > 1 ? " of " + std::to_string(record.tensors) + " tensors" : "");
  return common.Event("X", name, record.started,
                      ",\"dur\":" + Microseconds(record.done - record.started) + Arguments(record));
}

std::string Metadata(int rank, int thread, const char* name, const std::string& value) {
  return std::string("{\"ph\":\"M\",\"name\":\"") + name + "\",\"pid\":" + std::to_string(rank) +
         ",\"tid\":" + std::to_string(thread) + ",\"args\":{" + value + "}}";
}

}  // namespace

void TraceRecord::SetName(const std::string& whole) {
  size_t begin = whole.size() < kNameBytes ? 0 : whole.size() - (kNameBytes - 1);
  while (begin < whole.size() && (static_cast<unsigned char>(whole[begin]) & 0xC0) == 0x80) ++begin;
  const size_t size = whole.size() - begin;
  std::memcpy(name.data(), whole.data() + begin, size);
  name[size] = '\0';
}

std::string DescribeRank(int rank, const std::string& title, int64_t zero_unix_ns) {
  return Metadata(rank, kOperations, "process_name", "\"name\":" + Quoted(title)) + ",\n" +
         Metadata(rank, kOperations, "process_sort_index", "\"sort_index\":" + std::to_string(rank)) + ",\n" +
         Metadata(rank, kOperations, "clock", "\"zero_unix_ns\":\"" + std::to_string(zero_unix_ns) + "\"") + ",\n" +
         Metadata(rank, kOperations, "thread_name", "\"name\":\"operations\"") + ",\n" +
         Metadata(rank, kBackend, "thread_name", "\"name\":\"backend\"");
}

std::string EventsOf(const TraceRecord& record, int rank, int64_t offset_ns, uint64_t number) {
  switch (record.what) {
    case TraceRecord::What::kWork:
      return WorkEvent(record, {rank, kBackend, offset_ns});
    case TraceRecord::What::kCycle:
      return Common{rank, kBackend, offset_ns}.Event("i", "BATCH", record.started, ",\"s\":\"t\"" + Arguments(record));
    default:
      return OperationEvents(record, {rank, kOperations, offset_ns}, number);
  }
}

std::string EventOfLoss(uint64_t lost, int rank, int64_t at_ns) {
  return Common{rank, kOperations, 0}.Event(
      "i", std::to_string(lost) + " operations were not recorded: the file system is too slow for them", at_ns,
      ",\"s\":\"p\"");
}

// ---- records of operations and tasks

// A field that is 0 says that the operation did not reach that point; see TraceRecord.
void RecordOperation(const Operation& operation) {
  TraceRecord record;
  record.submitted = operation.submitted_ns;
  record.agreed = operation.agreed_ns;
  record.started = operation.started_ns;
  record.done = Timeline::NowNs();
  for (const Tensor& tensor : operation.request.tensors) record.bytes += static_cast<int64_t>(tensor.size_bytes());
  record.process_set = operation.request.process_set;
  record.tensors = static_cast<uint32_t>(operation.request.tensors.size());
  record.kind = operation.request.kind;
  record.failed = !operation.status().ok();
  record.SetName(operation.request.name);
  Timeline::Record(record);
}

// Operations that were agreed on before the timeline began have no time of agreement.
void RecordBatch(const std::vector<ReadyOperation>& batch) {
  const uint64_t ticks = Ticks();
  for (const ReadyOperation& ready : batch) {
    if (ready.operation->record != nullptr) ready.operation->record->Agree(ticks);
  }
  const int64_t now_ns = Timeline::Stamp();
  if (now_ns == 0 || batch.empty()) return;
  for (const ReadyOperation& ready : batch) ready.operation->agreed_ns = now_ns;
  if (!Timeline::marks_batches()) return;
  TraceRecord record;
  record.what = TraceRecord::What::kCycle;
  record.started = now_ns;
  record.tensors = static_cast<uint32_t>(batch.size());
  Timeline::Record(record);
}

// An operation of several tasks starts with the first.
void StampStart(PlannedTask* planned) {
  planned->started_ns = Timeline::Stamp();
  const uint64_t ticks = Ticks();
  for (const OperationPtr& operation : planned->operations) {
    if (operation->started_ns == 0) operation->started_ns = planned->started_ns;
    if (operation->record != nullptr) operation->record->Start(ticks);
  }
}

void RecordTask(const PlannedTask& planned) {
  if (planned.started_ns == 0) return;
  TraceRecord record;
  record.what = TraceRecord::What::kWork;
  record.kind = planned.task.kind;
  record.started = planned.started_ns;
  record.done = Timeline::NowNs();
  record.bytes = static_cast<int64_t>(planned.task.TotalBytes());
  record.process_set = planned.task.set->id;
  record.tensors = static_cast<uint32_t>(planned.operations.size());
  Timeline::Record(record);
}

// ---- ranges for profilers

void Nvtx::Open(const std::string& library) {
  if (library.empty() || on()) return;
  void* const handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);  // never closed: ranges may be open
  if (handle == nullptr) return Log(LogLevel::kInfo, "no ranges for profilers: ", dlerror());
  const auto start = reinterpret_cast<Start>(dlsym(handle, "nvtxRangeStartA"));
  const auto stop = reinterpret_cast<Stop>(dlsym(handle, "nvtxRangeEnd"));
  if (start == nullptr || stop == nullptr) {
    return Log(LogLevel::kInfo, "no ranges for profilers: ", library, " has no nvtxRangeStartA and nvtxRangeEnd");
  }
  stop_.store(stop);
  start_.store(start, std::memory_order_release);
}

// start_ is seen only after stop_ was set, so a thread that has begun a range can end it.
uint64_t Nvtx::Begin(const Operation& operation) {
  const Start start = start_.load(std::memory_order_acquire);
  return start == nullptr ? 0 : start(("farandole " + operation.Title()).c_str());
}

void Nvtx::End(uint64_t range) { stop_.load(std::memory_order_relaxed)(range); }

}  // namespace farandole
