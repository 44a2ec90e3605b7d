#include "collectives/stages.h"

#include "common/failpoint.h"

namespace farandole {

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

}  // namespace farandole
