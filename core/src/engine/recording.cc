#include "engine/recording.h"

#include <dlfcn.h>

#include "common/log.h"
#include "engine/batch.h"
#include "engine/operation.h"
#include "engine/trace/timeline.h"

namespace farandole {

// ---- records of operations and tasks

// A field that is 0 says that the operation did not come to that point; see TraceRecord.
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
  for (const OperationPtr& operation : planned->operations) {
    if (operation->started_ns == 0) operation->started_ns = planned->started_ns;
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
  if (handle == nullptr) return Log(LogLevel::kInfo, std::string("no ranges for profilers: ") + dlerror());
  const auto start = reinterpret_cast<Start>(dlsym(handle, "nvtxRangeStartA"));
  const auto stop = reinterpret_cast<Stop>(dlsym(handle, "nvtxRangeEnd"));
  if (start == nullptr || stop == nullptr) {
    return Log(LogLevel::kInfo, "no ranges for profilers: " + library + " has no nvtxRangeStartA and nvtxRangeEnd");
  }
  stop_.store(stop);
  start_.store(start, std::memory_order_release);
}

// start_ is seen only after stop_ was set, so whoever has begun a range can end it.
uint64_t Nvtx::Begin(const Operation& operation) {
  const Start start = start_.load(std::memory_order_acquire);
  return start == nullptr ? 0 : start(("farandole " + operation.Title()).c_str());
}

void Nvtx::End(uint64_t range) { stop_.load(std::memory_order_relaxed)(range); }

}  // namespace farandole
