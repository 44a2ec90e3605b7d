#include "backends/native/crossed.h"

#include "common/failpoint.h"

namespace farandole {

Status CrossedOperation::Combine(uint64_t t, bool* ready, bool* moved) {
  if (made_ == t) MakeNext(moved);
  if (made_ == t) return Status::Ok();
  FRD_RETURN_IF_ERROR(cross_->Advance(moved));
  if (cross_->jobs_done() < jobs_added_[t % 2]) {
    if (made_ == t + 1 && made_ < rounds()) MakeNext(moved);
    return Status::Ok();
  }
  Exchanged(t);
  *ready = true;
  return Status::Ok();
}

void CrossedOperation::MakeNext(bool* moved) {
  if (!staging_->AllPublished(number(made_) + 1)) return;
  FRD_FAILPOINT("native.make");
  Make(made_);
  jobs_added_[made_ % 2] = cross_->jobs_added();
  ++made_;
  *moved = true;
}

}  // namespace farandole
