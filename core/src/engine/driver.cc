#include "engine/driver.h"

namespace farandole {

Driver::Driver(Operations* operations, const Settings& settings, const BackendList& backend_list)
    : world_(operations->world),
      operations_(operations),
      progress_lock_(&operations->waiting),
      progress_(operations, settings, backend_list) {
  operations->pauses = world_->shares_cores() ? 0 : Waiter::kPauses;
}

Status Driver::Start() {
  if (const Status opened = progress_.Open(); !opened.ok()) {
    progress_.GiveUp(opened);
    return opened;
  }
  Arm(world_->node->doorbell());
  thread_ = std::thread(&Driver::Run, this);
  return Status::Ok();
}

// The loop thread must have ended before the last messages are sent, since the ProgressLock is not released afterwards.
void Driver::Leave() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  SignalEvent(world_->node->event());
  thread_.join();
  while (!progress_lock_.TryTake())
    operations_->waiting.SleepUntil([this] { return progress_lock_.is_free(); }, std::chrono::milliseconds(1));
  progress_.Leave();
  progress_.Close();
  // The ProgressLock stays taken, so no thread drives any more.
}

bool Driver::BecomesDone(const OperationPtr& operation) const {
  const bool is_small = !operation->deferred() && operation->admission.slots.has_value();
  return is_small && operations_->in_flight == 1 &&
         Waiter::OfCaller(operations_->pauses).Until([&] { return operations_->Poll(operation); });
}

// A thread that polls holds the ProgressLock if it can: its doorbell is disarmed, so no rank wakes the loop thread for
// what this thread is about to see. A thread that times out leaves its operation to the loop thread, which sleeps, so
// this one asks for doorbells. While another thread leaves, it takes no ProgressLock: the leaving ends all operations.
bool Driver::Wait(const OperationPtr& operation, int64_t limit_ms) {
  constexpr int kSleepMs = 20;
  const TimePoint limit = Now() + std::chrono::milliseconds(limit_ms);
  while (!operation->done() && Now() < limit) {
    if (stopping_ || !progress_lock_.TryTake()) {
      if (BecomesDone(operation)) return true;
      operations_->RequestDoorbells();
      world_->node->RingSelf();  // the thread that drives polls once more
      const auto left = std::chrono::milliseconds(MillisecondsBetween(Now(), limit) + 1);
      const auto may_go_on = [&] { return operation->done() || (progress_lock_.is_free() && !stopping_); };
      operations_->waiting.SleepUntil(may_go_on, left);
      continue;
    }
    const DriveScope drives(this);
    if (BecomesDone(operation)) return true;
    Waiter waiter = Waiter::OfCaller(operations_->pauses);
    while (!operation->done()) {
      if (progress_.Drive()) {
        waiter.Reset();
      } else if (!waiter.Again()) {
        if (Now() >= limit || stopping_) break;
        PrepareToSleep();
        if (!progress_.Drive()) progress_.SleepAndLook(kSleepMs);
        Disarm(world_->node->doorbell());
        waiter.Reset();
      }
    }
  }
  if (!operation->done()) operations_->RequestDoorbells();
  return operation->done();
}

// The caller then drives once more before it sleeps (see the invariant).
void Driver::PrepareToSleep() {
  operations_->RequestDoorbells();
  Arm(world_->node->doorbell());
}

// Drives once more if there is work, and wakes the loop thread if that pass did something.
void Driver::ReleaseProgressLock() {
  PrepareToSleep();
  const bool left_over = progress_.HasWork() && progress_.Drive();
  progress_lock_.Release();
  if (left_over) SignalEvent(world_->node->event());
  if (operations_->in_flight > 0 && parked_) {
    std::lock_guard<std::mutex> lock(park_mutex_);
    unpark_.notify_all();
  }
}

// The loop thread. No caller waits for it, so it sleeps while nothing happens, and leaves the work to a caller that
// already drives.
void Driver::Run() {
  while (!stopping_) {
    constexpr int kSleepMs = 50;
    progress_.Sleep(kSleepMs);
    if (stopping_) return;
    if (const ProgressLock::Hold hold(&progress_lock_); hold) {
      DriveWhileBusy();
    } else {
      Park();
    }
  }
}

// Leaves the doorbell armed.
void Driver::DriveWhileBusy() {
  Disarm(world_->node->doorbell());
  progress_.LookAtDescriptors();
  for (Waiter waiter = Waiter::OfEngineThread();;) {
    if (progress_.Drive()) {
      waiter.Reset();
    } else if (!waiter.Again()) {
      PrepareToSleep();
      if (!progress_.Drive()) return;
      Disarm(world_->node->doorbell());
      waiter.Reset();
    }
  }
}

// A caller drives, and wakes this thread when it leaves work behind. Polling meanwhile would only compete for its core.
void Driver::Park() {
  std::unique_lock<std::mutex> lock(park_mutex_);
  parked_ = true;
  // The caller may have released the lock before it could see parked_.
  if (!progress_lock_.is_free()) unpark_.wait_for(lock, std::chrono::milliseconds(2));
  parked_ = false;
}

}  // namespace farandole
