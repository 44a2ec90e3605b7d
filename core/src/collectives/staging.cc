#include "collectives/staging.h"

#include <algorithm>

#include "common/failpoint.h"

namespace farandole {

namespace {

constexpr uint64_t kMaxDepth = std::max(uint64_t{3}, kInterNodeDepth);
constexpr size_t kCountersBytes = 4096;

uint64_t UserOf(int set_id) { return static_cast<uint64_t>(set_id) + 1; }

}  // namespace

struct Staging::Counters {
  std::atomic<uint64_t> user;  // 0: nobody, else the set's id + 1
  alignas(128) std::atomic<uint64_t> published;
  alignas(128) std::atomic<uint64_t> combined;
};

size_t Staging::BytesPerMember() { return kCountersBytes + 2 * kMaxDepth * kSlotBytes; }

Staging::Staging(const ShmNode* node, int channel, int set_id, std::vector<int> segment_members, int member,
                 uint64_t depth)
    : node_(node),
      channel_(channel),
      user_(UserOf(set_id)),
      segment_members_(std::move(segment_members)),
      member_(member),
      depth_(depth) {}

Staging::Counters* Staging::segment_counters(int segment_member) const {
  return reinterpret_cast<Counters*>(node_->staging(channel_, segment_member));
}

bool Staging::HasBeenLeft(int old_set_id) const {
  for (int m = 0; m < node_->count(); ++m) {
    if (segment_counters(m)->user.load(std::memory_order_acquire) == UserOf(old_set_id)) return false;
  }
  return true;
}

void Staging::Enter() const { counters(member_)->user.store(user_, std::memory_order_relaxed); }

void Staging::Leave() const {
  counters(member_)->user.store(0, std::memory_order_release);
  node_->RingOthers();
}

// A set of all the segment's members rings with one fence.
void Staging::RingOthers() const {
  if (count() == node_->count()) return node_->RingOthers();
  for (int m = 0; m < count(); ++m) {
    if (m != member_) node_->RingMember(segment_members_[static_cast<size_t>(m)]);
  }
}

std::byte* Staging::slot(int member, uint64_t round) const {
  return node_->staging(channel_, segment_members_[static_cast<size_t>(member)]) + kCountersBytes +
         (round % depth_) * kSlotBytes;
}

std::byte* Staging::result(int member, uint64_t round) const { return slot(member, round) + kMaxDepth * kSlotBytes; }

void Staging::Publish(uint64_t end) const {
  counters(member())->published.store(end, std::memory_order_release);
  RingOthers();
}

void Staging::Combined(uint64_t end) const {
  counters(member())->combined.store(end, std::memory_order_release);
  RingOthers();
}

bool Staging::HasPublished(int member, uint64_t end) const {
  return counters(member)->published.load(std::memory_order_acquire) >= end;
}

bool Staging::HasCombined(int member, uint64_t end) const {
  return counters(member)->combined.load(std::memory_order_acquire) >= end;
}

bool Staging::AllPublished(uint64_t end) const {
  for (int m = 0; m < count(); ++m) {
    if (m != member() && !HasPublished(m, end)) return false;
  }
  return true;
}

std::vector<int> Staging::WaitingOn() const {
  const uint64_t published = counters(member())->published.load(std::memory_order_relaxed);
  const uint64_t combined = counters(member())->combined.load(std::memory_order_relaxed);
  std::vector<int> members;
  for (int m = 0; m < count(); ++m) {
    if (m != member() && (!HasPublished(m, published) || !HasCombined(m, combined))) members.push_back(m);
  }
  return members;
}

bool Staging::AllCombined(uint64_t end) const {
  for (int m = 0; m < count(); ++m) {
    if (m != member() && !HasCombined(m, end)) return false;
  }
  return true;
}

// ---- operations

StagedOperation::StagedOperation(const OperationStart& start, uint64_t rounds, bool is_exchanged)
    : staging_(start.staging),
      task_(start.task),
      exchange_(start.exchange),
      first_(start.first_round),
      rounds_(rounds),
      is_exchanged_(is_exchanged && start.exchange->partition().node_count() > 1) {
  if (is_exchanged_) exchange_->BeginRounds(rounds, staging_->depth());
}

Status StagedOperation::Advance(bool* moved) {
  for (bool any = true; any && !done();) {
    any = false;
    FRD_RETURN_IF_ERROR(exchange_->Advance(&any));
    any |= TakeExchanged();
    any |= WriteNext() || MakeNext() || FinishNext();
    *moved |= any;
  }
  return Status::Ok();
}

// One round ahead of the one that is made.
bool StagedOperation::WriteNext() {
  if (written_ == rounds_ || written_ > made_ + 1 || written_ >= finished_ + staging_->depth()) return false;
  FRD_FAILPOINT("native.write");
  Write(written_);
  staging_->Publish(number(written_) + 1);
  ++written_;
  return true;
}

bool StagedOperation::MakeNext() {
  if (made_ == written_ || !MayMake(made_)) return false;
  FRD_FAILPOINT("native.make");
  Make(made_);
  ++made_;
  if (!is_exchanged_) TakeExchanged();
  return true;
}

bool StagedOperation::TakeExchanged() {
  if (combined_ == made_ || (is_exchanged_ && exchange_->rounds_done() <= combined_)) return false;
  Exchanged(combined_);
  FRD_FAILPOINT("native.combine");
  staging_->Combined(number(combined_) + 1);
  ++combined_;
  return true;
}

bool StagedOperation::FinishNext() {
  if (finished_ == combined_ || !Finish(finished_)) return false;
  FRD_FAILPOINT("native.finish");
  ++finished_;
  return true;
}

Status StartNothing(const OperationStart&, std::unique_ptr<StagedOperation>*) { return Status::Ok(); }

Status StartOperation(const OperationStart& start, std::unique_ptr<StagedOperation>* staged) {
  switch (start.task->kind) {
#define FRD_OP_KIND(enumerator, number, name, traits, moved, ...) \
  case OpKind::enumerator:                                        \
    return Start##moved(start, staged);
#include "common/types.def"
  }
  return Status::Ok();
}

// ---- flat operations

Status FindPlace(const OperationStart& start, size_t size_bytes, std::byte** place) {
  const std::vector<IoBuffer>& buffers = start.task->buffers;
  const bool one_piece = buffers.size() == 1 && buffers[0].output != nullptr;
  *place = one_piece ? static_cast<std::byte*>(buffers[0].output) : start.scratch->Get(size_bytes);
  *start.result = *place;
  if (*place != nullptr) return Status::Ok();
  return Internal("no memory: ", size_bytes, " bytes for tensors that are exchanged together");
}

bool ScalesFirst(const Task& task) { return ScalesBeforeExchange(task) && !task.scale.IsIdentity(); }

void ScaleInto(const Task& task, const void* source, size_t size_bytes, std::byte* place) {
  Reduce(task.dtype, task.reduce, &source, 1, size_bytes / SizeOf(task.dtype), task.scale, place);
}

}  // namespace farandole
