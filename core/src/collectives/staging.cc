#include "collectives/staging.h"

#include "common/failpoint.h"

namespace farandole {

namespace {

constexpr uint64_t kDepth = 3;
constexpr size_t kCountersBytes = 4096;

uint64_t UserOf(int set_id) { return static_cast<uint64_t>(set_id) + 1; }

}  // namespace

struct Staging::Counters {
  std::atomic<uint64_t> user;  // 0: nobody, else the set's id + 1
  alignas(128) std::atomic<uint64_t> published;
  alignas(128) std::atomic<uint64_t> combined;
};

size_t Staging::BytesPerMember() { return kCountersBytes + 2 * kDepth * kSlotBytes; }

Staging::Staging(const ShmGroup* group, int channel, int set_id, std::vector<int> segment_members, int member)
    : group_(group),
      channel_(channel),
      user_(UserOf(set_id)),
      segment_members_(std::move(segment_members)),
      member_(member) {}

Staging::Counters* Staging::segment_counters(int segment_member) const {
  return reinterpret_cast<Counters*>(group_->staging(channel_, segment_member));
}

bool Staging::HasBeenLeft(int old_set_id) const {
  for (int m = 0; m < group_->count(); ++m) {
    if (segment_counters(m)->user.load(std::memory_order_acquire) == UserOf(old_set_id)) return false;
  }
  return true;
}

void Staging::Enter() const { counters(member_)->user.store(user_, std::memory_order_relaxed); }

void Staging::Leave() const {
  counters(member_)->user.store(0, std::memory_order_release);
  group_->RingOthers();
}

// A set of all the segment's members rings with one fence.
void Staging::RingOthers() const {
  if (count() == group_->count()) return group_->RingOthers();
  for (int m = 0; m < count(); ++m) {
    if (m != member_) group_->RingMember(segment_members_[static_cast<size_t>(m)]);
  }
}

std::byte* Staging::slot(int member, uint64_t round) const {
  return group_->staging(channel_, segment_members_[static_cast<size_t>(member)]) + kCountersBytes +
         (round % kDepth) * kSlotBytes;
}

std::byte* Staging::result(int member, uint64_t round) const { return slot(member, round) + kDepth * kSlotBytes; }

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

Status StagedOperation::Advance(bool* moved) {
  while (!done()) {
    // put runs one round ahead of combine, combine one ahead of finish.
    if (put_ < rounds_ && put_ <= combined_ + 1 && put_ <= finished_ + 2) {
      FRD_FAILPOINT("native.put");
      Put(put_);
      staging_->Publish(number(put_) + 1);
      ++put_;
    } else if (combined_ < put_ && combined_ <= finished_ + 1) {
      bool ready = false;
      FRD_RETURN_IF_ERROR(Combine(combined_, &ready, moved));
      if (!ready) return Status::Ok();
      FRD_FAILPOINT("native.combine");
      staging_->Combined(number(combined_) + 1);
      ++combined_;
    } else {
      if (!Finish(finished_)) return Status::Ok();
      FRD_FAILPOINT("native.finish");
      ++finished_;
    }
    *moved = true;
  }
  return Status::Ok();
}

Status CrossingOperation::Combine(uint64_t t, bool* ready, bool* moved) {
  if (made_ == t) MakeNext(moved);
  if (made_ == t) return Status::Ok();
  FRD_RETURN_IF_ERROR(exchange_->Advance(moved));
  if (exchange_->jobs_done() < jobs_added_[t % 2]) {
    if (made_ == t + 1 && made_ < rounds()) MakeNext(moved);
    return Status::Ok();
  }
  Exchanged(t);
  *ready = true;
  return Status::Ok();
}

void CrossingOperation::MakeNext(bool* moved) {
  if (!staging_->AllPublished(number(made_) + 1)) return;
  FRD_FAILPOINT("native.make");
  Make(made_);
  jobs_added_[made_ % 2] = exchange_->jobs_added();
  ++made_;
  *moved = true;
}

std::unique_ptr<StagedOperation> MakeStagedNothing(const StagedStart&) { return nullptr; }

std::unique_ptr<StagedOperation> MakeStaged(const StagedStart& start) {
  switch (start.task->kind) {
#define FRD_OP_KIND(enumerator, number, name, traits, moved) \
  case OpKind::enumerator:                                   \
    return MakeStaged##moved(start);
#include "common/types.def"
  }
  return nullptr;
}

}  // namespace farandole
