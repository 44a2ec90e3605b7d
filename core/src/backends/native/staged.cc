#include "backends/native/staged.h"

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

}  // namespace farandole
