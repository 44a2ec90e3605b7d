#include "engine/process.h"

#include <pthread.h>
#include <unistd.h>

#include "common/failpoint.h"

namespace farandole {
namespace {

std::mutex g_mutex;
std::atomic<bool> g_forked{false};

std::shared_ptr<Engine>& Slot() {
  // Never destroyed: at exit other threads may still hold it, and shutdown has been called or does not matter any more.
  static auto* const slot = new std::shared_ptr<Engine>();
  return *slot;
}

// Runs in the child alone, right after fork: only plain system calls.
void ForgetInChild() {
  const std::shared_ptr<Engine>& engine = Slot();
  if (!engine) return;
  g_forked = true;
  const World* const world = engine->world();
  if (world == nullptr) return;
  for (const MessageStream& stream : world->control) {
    if (stream.open()) close(stream.descriptor());
  }
  for (const auto& link : world->links) {
    if (link && link->descriptor() >= 0) close(link->descriptor());
  }
  // Out of reach for good: its destructors would close numbers that the child may have given to something else.
  new std::shared_ptr<Engine>(engine);
}

void InstallForkHandler() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, &ForgetInChild); });
}

}  // namespace

Status InitProcess(const WorldSpec& spec) {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (g_forked) {
    return {Code::kNotInitialized,
            "this process was forked from one that had called init; start it with spawn instead of fork"};
  }
  if (Slot()) return Status::Ok();
  InstallForkHandler();
  Settings settings;
  FRD_RETURN_IF_ERROR(ReadSettings(&settings));
  FRD_RETURN_IF_ERROR(SetFailpoints(settings.failpoints));
  std::unique_ptr<Engine> engine;
  FRD_RETURN_IF_ERROR(Engine::Start(spec, settings, &engine));
  Slot() = std::move(engine);
  return Status::Ok();
}

void CancelInit(bool cancel) { CancelWaits(cancel); }

void ShutdownProcess() {
  std::shared_ptr<Engine> engine;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    if (g_forked) return;
    engine = std::move(Slot());
  }
  if (engine) engine->Shutdown();  // handles may keep the object for longer
}

std::shared_ptr<Engine> CurrentEngine(Status* status) {
  if (g_forked) {
    *status = {Code::kNotInitialized,
               "this is a forked child of a rank; only the rank itself can take part in collectives"};
    return nullptr;
  }
  std::lock_guard<std::mutex> lock(g_mutex);
  if (!Slot()) *status = {Code::kNotInitialized, "farandole is not initialized; call init() first"};
  return Slot();
}

}  // namespace farandole
