#include "engine/process.h"

#include <pthread.h>

#include <algorithm>

#include "backends/table.h"
#include "common/descriptor.h"
#include "common/failpoint.h"
#include "operation/timeline.h"
#include "transport/socket.h"
#include "transport/socket_io.h"

namespace farandole {
namespace {

std::mutex g_init_mutex;  // one InitProcess at a time; held while it waits for the other ranks
std::mutex g_mutex;       // guards Slot() and g_starting; a fork waits for it
int g_starting = 0;       // threads in InitProcess
std::atomic<bool> g_forked{false};

// Lasts from before g_init_mutex is taken until an engine, if any, is in Slot(). So a child that is forked meanwhile,
// whose copy of g_init_mutex may stay locked for ever, is refused.
class Starting {
 public:
  Starting() { Add(1); }
  ~Starting() { Add(-1); }
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;

 private:
  static void Add(int threads) {
    std::lock_guard<std::mutex> lock(g_mutex);
    g_starting += threads;
  }
};

Status ForkedStatus() {
  return {
      Code::kNotInitialized,
      "this is a forked child of a rank; only the rank itself can take part in collectives (to start a process that "
      "calls init, spawn it instead of forking)"};
}

std::shared_ptr<Engine>& Slot() {
  // Never destroyed: at exit other threads may still hold it, and shutdown has been called or does not matter any more.
  static auto* const slot = new std::shared_ptr<Engine>();
  return *slot;
}

// Runs in the child alone, right after fork.
void ForgetInChild() {
  const std::shared_ptr<Engine>& engine = Slot();
  if (engine || g_starting > 0) g_forked = true;
  Timeline::ForgetInChild();
  Descriptor::CloseInChild();
  if (engine) new std::shared_ptr<Engine>(engine);  // never destroyed: its threads do not exist here
  g_mutex.unlock();
}

void InstallForkHandler() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork([] { g_mutex.lock(); }, [] { g_mutex.unlock(); }, &ForgetInChild); });
}

}  // namespace

// g_mutex is free while the ranks connect, so other threads learn that there is no engine yet and do not wait.
Status InitProcess(const WorldSpec& spec) {
  if (g_forked) return ForkedStatus();
  InstallForkHandler();
  const Starting starting;
  std::lock_guard<std::mutex> lock(g_init_mutex);
  if (CurrentEngine()) return Status::Ok();
  Settings settings;
  FRD_RETURN_IF_ERROR(ReadSettings(&settings));
  FRD_RETURN_IF_ERROR(SetFailpoints(settings.failpoints));
  SetSilenceTimeout(settings.silence_timeout_ms);
  Nvtx::Open(settings.nvtx);
  std::unique_ptr<Engine> engine;
  FRD_RETURN_IF_ERROR(Engine::Start(spec, settings, &engine));
  std::lock_guard<std::mutex> slot_lock(g_mutex);
  Slot() = std::move(engine);
  return Status::Ok();
}

Status CheckNotForked() { return g_forked ? ForkedStatus() : Status::Ok(); }

void CancelInit(bool cancel) { CancelWaits(cancel); }

// Ends the engine even if other threads still hold it: their calls then fail.
void ShutdownProcess() {
  if (g_forked) return;
  std::shared_ptr<Engine> engine;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    engine = std::move(Slot());
  }
  if (engine) engine->Shutdown();  // handles may keep the object for longer
}

// The result keeps the engine object alive over a shutdown, which only ends the engine.
std::shared_ptr<Engine> CurrentEngine(Status* status) {
  if (g_forked) {
    if (status != nullptr) *status = ForkedStatus();
    return nullptr;
  }
  std::lock_guard<std::mutex> lock(g_mutex);
  if (!Slot() && status != nullptr)
    *status = {Code::kNotInitialized, "farandole is not initialized; call init() first"};
  return Slot();
}

// Works without an engine: a library whose own launcher started the ranks exchanges their addresses.
Status ExchangeThroughLauncher(int rank, int size, const std::string& mine, std::vector<std::string>* all) {
  if (g_forked) return ForkedStatus();
  Settings settings;
  FRD_RETURN_IF_ERROR(ReadSettings(&settings));
  settings.libraries = ReadLibraries(BackendTable::Names());
  return BackendTable::Exchange(settings, rank, size, mine, all);
}

bool SettingsTakeDeviceMemory() {
  Settings settings;
  BackendList backend_list;
  return ReadSettings(&settings).ok() && BackendList::Read(settings.backends, &backend_list).ok() &&
         BackendTable::AnyTakesDeviceMemory(backend_list);
}

BackendFound FindBackend(const std::string& name) {
  const std::vector<std::string> names = BackendTable::Names();
  const auto number = static_cast<int>(std::find(names.begin(), names.end(), name) - names.begin());
  if (number == static_cast<int>(names.size())) return {"", "this build knows no backend " + name};
  Settings settings;
  settings.libraries = ReadLibraries(names);
  BackendFound found;
  found.missing = BackendTable::Find(number, settings, &found.library).message();
  return found;
}

}  // namespace farandole
