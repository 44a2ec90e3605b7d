#include "engine/conductor.h"

#include "common/failpoint.h"
#include "engine/small.h"
#include "engine/tags.h"

namespace farandole {
namespace {

// Sockets are asked with a system call, so not in every pass: often where data or messages come over them.
unsigned DescriptorInterval(const World& world) { return world.one_group() ? 256 : 8; }

}  // namespace

Conductor::Conductor(World* world, Table* table, Role* role, const Settings& settings)
    : world_(world),
      table_(table),
      role_(role),
      settings_(settings),
      registry_(world, settings),
      copies_(world->group->event()),
      whole_world_(WholeWorld(world->layout, world->rank)) {
  if (world->rank == 0) coordinator_.emplace(world->layout);
}

Status Conductor::Open() {
  FRD_RETURN_IF_ERROR(poller_.Open());
  FRD_RETURN_IF_ERROR(poller_.Watch(world_->group->event(), MakeTag(TagKind::kBell, 0)));
  for (int r = 0; r < world_->size; ++r) {
    const auto at = static_cast<size_t>(r);
    if (world_->control[at].open())
      FRD_RETURN_IF_ERROR(poller_.Watch(world_->control[at].descriptor(), MakeTag(TagKind::kControl, r)));
    if (world_->pidfds[at].valid())
      FRD_RETURN_IF_ERROR(poller_.Watch(world_->pidfds[at].get(), MakeTag(TagKind::kDeath, r)));
    const bool linked = world_->links[at] && world_->links[at]->descriptor() >= 0;
    if (linked) FRD_RETURN_IF_ERROR(poller_.Watch(world_->links[at]->descriptor(), MakeTag(TagKind::kLink, r), true));
  }
  return Status::Ok();
}

bool Conductor::Drive() {
  bool moved = false;
  if (passes_++ % DescriptorInterval(*world_) == 0) {
    moved |= ReadDescriptors();
    Tick();
  }
  moved |= PollCopies();
  if (CheckAbortWord()) return moved;
  moved |= ReadLog();
  moved |= RunWorks();
  moved |= SendOutgoing();
  return moved;
}

void Conductor::Sleep(int timeout_ms) const {
  std::vector<uint64_t> tags;
  poller_.Wait(timeout_ms, &tags);
}

bool Conductor::ReadLog() {
  std::vector<Agreement::Event> events;
  bool moved = false;
  bool ring = false;
  {
    if (!table_->agreement.HasNews()) return false;
    std::lock_guard<std::mutex> lock(table_->mutex);
    moved = table_->agreement.Advance(&events);
    ring = table_->agreement.TakeRing();
    if (table_->agreement.HasOutgoing()) table_->has_outgoing = true;
  }
  if (ring) world_->group->RingOthers();
  for (const Agreement::Event& event : events) Handle(event);
  return moved;
}

void Conductor::Handle(const Agreement::Event& event) {
  switch (event.kind) {
    case Agreement::Event::kBatch:
      return StartBatch(event);
    case Agreement::Event::kTake:
      return TakeResult(event);
    case Agreement::Event::kFailed:
      if (const OperationPtr operation = TakeOperation(event.items[0].ticket)) Finish(operation, event.status);
      return;
    case Agreement::Event::kLeft:
      return OnLeft(event.rank);
    case Agreement::Event::kAbort:
      return Abort(event.status.code(), event.rank, event.status.message());
  }
}

void Conductor::StartBatch(const Agreement::Event& event) {
  std::vector<ReadyOperation> batch;
  for (const Agreement::Item& item : event.items) {
    OperationPtr operation = TakeOperation(item.ticket);
    if (!operation) continue;
    if (operation->request.kind == OpKind::kBarrier) {
      Finish(operation, Status::Ok());  // everybody has arrived, there is nothing to move
    } else {
      copies_.Await(operation);
      batch.push_back({std::move(operation), item.extents});
    }
  }
  std::vector<PlannedWork> works;
  const Status planned = PlanBatch(batch, whole_world_, settings_.fusion_threshold_bytes, &works);
  for (PlannedWork& work : works) works_.push_back(std::move(work));
  if (planned.ok()) return;
  Abort(planned.code(), world_->rank, planned.message());
  for (const ReadyOperation& ready : batch) Finish(ready.operation, planned);
}

void Conductor::TakeResult(const Agreement::Event& event) {
  const OperationPtr operation = TakeOperation(event.items[0].ticket);
  if (!operation) return;
  ReadFromSpan(*operation, event.span, world_->size);
  Finish(operation, Status::Ok());
}

bool Conductor::RunWorks() {
  if (works_.empty()) return false;
  const FloatingPointScope scope;
  bool moved = false;
  while (!works_.empty()) {
    PlannedWork& front = works_.front();
    if (running_ == nullptr) {
      if (!InputsReady(&front)) return moved;
      running_ = registry_.Find(front.work);
      last_progress_ = Now();
      const Status started = running_ ? running_->Start(&front.work)
                                      : Internal("no back end supports " + std::string(NameOf(front.work.kind)));
      if (!started.ok()) {
        Abort(started.code(), world_->rank, started.message());
        return true;
      }
    }
    bool done = false;
    if (const Status polled = running_->Poll(&moved, &done); !polled.ok()) {
      if (!SuspectBrokenLinks() && !liveness_.suspects_somebody()) Abort(polled.code(), world_->rank, polled.message());
      return moved;
    }
    if (moved) last_progress_ = Now();
    if (!done) return moved;
    moved = true;
    running_ = nullptr;
    PlannedWork finished = std::move(front);
    works_.pop_front();
    FinishWork(&finished);
  }
  return moved;
}

void Conductor::FinishWork(PlannedWork* planned) {
  for (const OperationPtr& operation : planned->operations) {
    if (--operation->works_left == 0) FinishCollective(operation);
  }
}

// Null when the operation was given up meanwhile.
OperationPtr Conductor::TakeOperation(Ticket ticket) {
  std::lock_guard<std::mutex> lock(table_->mutex);
  const auto found = table_->operations.find(ticket);
  if (found == table_->operations.end()) return nullptr;
  OperationPtr operation = std::move(found->second);
  table_->operations.erase(found);
  return operation;
}

void Conductor::Finish(const OperationPtr& operation, Status status) {
  if (operation->done()) return;
  table_->in_flight.fetch_sub(1);
  operation->Complete(std::move(status));
  role_->NotifyWaiters();
}

}  // namespace farandole
