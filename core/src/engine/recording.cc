#include "engine/recording.h"

#include "engine/batch.h"
#include "engine/operation.h"
#include "engine/trace/timeline.h"

namespace farandole {

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

void StampStart(PlannedTask* planned) {
  planned->started_ns = Timeline::Stamp();
  for (const OperationPtr& operation : planned->operations) {
    if (operation->started_ns == 0) operation->started_ns = planned->started_ns;
  }
}

void RecordWork(const PlannedTask& planned) {
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

}  // namespace farandole
