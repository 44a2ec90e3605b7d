#include "operation/timeline.h"

#include <dlfcn.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "common/log.h"
#include "operation/batch.h"
#include "operation/operation.h"

namespace farandole {

namespace {

constexpr size_t kMaxRecords = 1 << 15;

struct Queue {
  std::mutex mutex;                               // guards the members below
  std::vector<TraceRecord> records{kMaxRecords};  // a ring, so that Record does not allocate
  uint64_t recorded = 0, taken = 0, lost = 0;
};

// Allocated by the first Start and never freed: a thread that has seen on() may record at any later time.
std::atomic<Queue*> g_queue{nullptr};

}  // namespace

void Timeline::Start(bool marks_batches) {
  if (g_queue == nullptr) g_queue = new Queue();
  Queue& queue = *g_queue;
  std::lock_guard<std::mutex> lock(queue.mutex);
  queue.taken = queue.recorded;
  queue.lost = 0;
  marks_batches_ = marks_batches;
  on_ = true;
}

void Timeline::Stop() { on_ = false; }

// The lock may be held by a thread that the child does not have, so the child abandons the queue.
void Timeline::ForgetInChild() {
  on_ = false;
  g_queue = nullptr;
}

void Timeline::Record(const TraceRecord& record) {
  Queue* const queue = g_queue;
  if (queue == nullptr) return;
  std::lock_guard<std::mutex> lock(queue->mutex);
  if (queue->recorded - queue->taken == kMaxRecords) {
    ++queue->lost;
  } else {
    queue->records[queue->recorded++ % kMaxRecords] = record;
  }
}

bool Timeline::Take(TraceRecord* record) {
  Queue* const queue = g_queue;
  if (queue == nullptr) return false;
  std::lock_guard<std::mutex> lock(queue->mutex);
  if (queue->taken == queue->recorded) return false;
  *record = queue->records[queue->taken++ % kMaxRecords];
  return true;
}

uint64_t Timeline::TakeLost() {
  Queue* const queue = g_queue;
  if (queue == nullptr) return 0;
  std::lock_guard<std::mutex> lock(queue->mutex);
  return std::exchange(queue->lost, 0);
}

void TraceRecord::SetName(const std::string& whole) {
  size_t begin = whole.size() < kNameBytes ? 0 : whole.size() - (kNameBytes - 1);
  while (begin < whole.size() && (static_cast<unsigned char>(whole[begin]) & 0xC0) == 0x80) ++begin;
  const size_t size = whole.size() - begin;
  std::memcpy(name.data(), whole.data() + begin, size);
  name[size] = '\0';
}

// ---- records of operations and tasks

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

void RecordBatch(const std::vector<ReadyOperation>& batch) {
  const uint64_t ticks = Ticks();
  for (const ReadyOperation& ready : batch) {
    if (ready.operation->record != nullptr) ready.operation->record->Agree(ticks);
  }
  const int64_t now_ns = Timeline::Timestamp();
  if (now_ns == 0 || batch.empty()) return;
  for (const ReadyOperation& ready : batch) ready.operation->agreed_ns = now_ns;
  if (!Timeline::marks_batches()) return;
  TraceRecord record;
  record.what = TraceRecord::What::kBatch;
  record.started = now_ns;
  record.tensors = static_cast<uint32_t>(batch.size());
  Timeline::Record(record);
}

// An operation of several tasks starts with the first one.
void RecordStart(PlannedTask* planned) {
  planned->started_ns = Timeline::Timestamp();
  const uint64_t ticks = Ticks();
  for (const OperationPtr& operation : planned->operations) {
    if (operation->started_ns == 0) operation->started_ns = planned->started_ns;
    if (operation->record != nullptr) operation->record->Start(ticks);
  }
}

void RecordTask(const PlannedTask& planned) {
  if (planned.started_ns == 0) return;
  TraceRecord record;
  record.what = TraceRecord::What::kTask;
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

// A thread that sees start_ also sees stop_, so it can end every range that it begins.
uint64_t Nvtx::Begin(const Operation& operation) {
  const Start start = start_.load(std::memory_order_acquire);
  return start == nullptr ? 0 : start(("farandole " + operation.Title()).c_str());
}

void Nvtx::End(uint64_t range) { stop_.load(std::memory_order_relaxed)(range); }

}  // namespace farandole
