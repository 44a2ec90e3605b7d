#include "engine/driver.h"

namespace farandole {
namespace {

// How often the engine's own thread pauses before it sleeps.
constexpr int kThreadPauses = 20;

}  // namespace

Driver::Driver(World* world, Operations* operations, const Settings& settings, const BackendList& backend_list)
    : world_(world), operations_(operations), progress_(world, operations, &progress_lock_, settings, backend_list) {
  operations->pauses = world->shares_cores() ? 0 : kCallerPauses;
}

Status Driver::Start() {
  if (const Status opened = progress_.Open(); !opened.ok()) {
    progress_.GiveUp(opened);
    return opened;
  }
  Arm(world_->group->bell());
  thread_ = std::thread(&Driver::Run, this);
  return Status::Ok();
}

// Joins the loop thread before the last messages, which need the ProgressLock for good.
void Driver::Leave() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  SignalEvent(world_->group->event());
  thread_.join();
  while (!progress_lock_.TryTake()) progress_lock_.WaitForChange([] { return false; }, std::chrono::milliseconds(1));
  progress_.Leave();
  progress_.Close();
  // The progress lock stays taken, so no thread drives any more.
}

// Drives while it has the ProgressLock, else sleeps until the holder releases it or the operation is done. A thread
// that gives up (limit_ms) leaves its operation to the loop thread, hence the bells.
bool Driver::Wait(const Operation& operation, int64_t limit_ms) {
  const TimePoint limit = Now() + std::chrono::milliseconds(limit_ms);
  while (!operation.done() && Now() < limit) {
    if (progress_lock_.TryTake()) {
      Disarm(world_->group->bell());
      DriveUntil(operation, limit);
      ReleaseProgressLock();
    } else {
      const auto left = std::chrono::milliseconds(MillisecondsBetween(Now(), limit) + 1);
      progress_lock_.WaitForChange([&operation] { return operation.done(); }, left);
    }
  }
  if (!operation.done()) AskForBells(operations_);
  return operation.done();
}

// Polling gains a few microseconds when the others are about to arrive, and slows their computation when it goes on for
// long. So there are a few pauses, some yields, and then sleep.
void Driver::DriveUntil(const Operation& operation, TimePoint limit) {
  constexpr int kSleepMs = 20;
  for (int idle = 0; !operation.done();) {
    if (progress_.Drive()) {
      idle = 0;
    } else if (++idle <= operations_->pauses) {
      CpuPause();
    } else if (idle <= operations_->pauses + kYields) {
      std::this_thread::yield();
    } else {
      if (Now() >= limit || stopping_) return;
      AskForBells(operations_);
      Arm(world_->group->bell());
      if (!progress_.Drive()) progress_.Sleep(kSleepMs);
      Disarm(world_->group->bell());
      progress_.LookAtDescriptors();
      idle = operations_->pauses;
    }
  }
}

// Arms the bell before it releases the progress lock, and then looks once more: events in between are left to the loop
// thread.
void Driver::ReleaseProgressLock() {
  AskForBells(operations_);
  Arm(world_->group->bell());
  const bool left_over = operations_->in_flight > 0 && progress_.Drive();
  progress_lock_.Release();
  if (left_over) SignalEvent(world_->group->event());
  if (operations_->in_flight > 0 && parked_) {
    std::lock_guard<std::mutex> lock(park_mutex_);
    unpark_.notify_all();
  }
}

// The loop thread: no operation waits for it, so it sleeps as long as nothing happens, and leaves the work to a caller
// that drives already.
void Driver::Run() {
  while (!stopping_) {
    constexpr int kSleepMs = 50;
    progress_.Sleep(kSleepMs);
    if (stopping_) return;
    if (progress_lock_.TryTake()) {
      DriveWhileBusy();
      progress_lock_.Release();
    } else {
      // Only one epoll_wait sees a link's data. This one has seen them, while the caller that drives may sleep in
      // another.
      world_->group->RingSelf();
      Park();
    }
  }
}

// The order of the last three steps before a sleep is the same here as in DriveUntil, and none may be left out: ask for
// bells, arm the own bell, look once more.
void Driver::DriveWhileBusy() {
  DoorbellWord& bell = world_->group->bell();
  Disarm(bell);
  progress_.LookAtDescriptors();
  for (int idle = 0;;) {
    if (progress_.Drive()) {
      idle = 0;
    } else if (++idle <= kThreadPauses) {
      CpuPause();
    } else {
      AskForBells(operations_);
      Arm(bell);
      if (!progress_.Drive()) return;
      Disarm(bell);
      idle = 0;
    }
  }
}

// A caller drives. To return at once would only take its processor, and the caller wakes this thread when it leaves
// work behind.
void Driver::Park() {
  std::unique_lock<std::mutex> lock(park_mutex_);
  parked_ = true;
  unpark_.wait_for(lock, std::chrono::milliseconds(2));
  parked_ = false;
}

}  // namespace farandole
