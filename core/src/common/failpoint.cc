#include "common/failpoint.h"

#include <unistd.h>
#include <csignal>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "common/text.h"

namespace farandole {
namespace {

struct Action {
  enum What { kKill, kStop, kDelay, kHold, kError } what = kDelay;
  int milliseconds = 0;
  int64_t at_visit = 0;  // 0 = every visit
  uint64_t percent = 100;
  int64_t visits = 0;
};

std::atomic<bool> g_any{false};  // a visit takes the lock only while there are failpoints
std::mutex g_mutex;
std::condition_variable g_replaced;
int64_t g_replacements = 0;  // calls of SetFailpoints; a thread in `hold` waits for the next one
int g_held = 0;
std::map<std::string, Action>& Actions() {
  static std::map<std::string, Action> actions;
  return actions;
}

Status ParseAction(std::string text, Action* action) {
  if (const size_t at = text.find('@'); at != std::string::npos) {
    action->at_visit = std::atoll(text.c_str() + at + 1);
    text.resize(at);
  }
  if (const size_t share = text.find('%'); share != std::string::npos) {
    action->percent = std::strtoull(text.c_str() + share + 1, nullptr, 10);
    text.resize(share);
  }
  static const std::map<std::string, Action::What> kNames = {
      {"kill", Action::kKill}, {"stop", Action::kStop}, {"error", Action::kError}, {"hold", Action::kHold}};
  if (const auto named = kNames.find(text); named != kNames.end()) {
    action->what = named->second;
  } else if (text.rfind("delay:", 0) == 0) {
    action->milliseconds = std::atoi(text.c_str() + 6);
  } else {
    return Invalid("failpoint action '", text, "' is not one of kill, stop, hold, error, delay:<ms>");
  }
  return Status::Ok();
}

// Chooses the same visits in every run, spread like random ones.
bool IsChosen(const Action& action) {
  if (action.at_visit != 0) return action.visits == action.at_visit;
  const uint64_t mixed = static_cast<uint64_t>(action.visits) * 0x9E3779B97F4A7C15u;
  return (mixed >> 32) % 100 < action.percent;
}

void Hold() {
  std::unique_lock<std::mutex> lock(g_mutex);
  ++g_held;
  g_replaced.wait(lock, [began = g_replacements] { return g_replacements != began; });
  --g_held;
}

void Perform(const Action& action) {
  if (action.what == Action::kHold) return Hold();
  if (action.what == Action::kKill) kill(getpid(), SIGKILL);
  if (action.what == Action::kStop) kill(getpid(), SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(action.milliseconds));
}

}  // namespace

Status SetFailpoints(const std::string& text) {
  std::map<std::string, Action> actions;
  for (const std::string& item : Split(text, ';')) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos) return Invalid("failpoint '", item, "' has no '='");
    FRD_RETURN_IF_ERROR(ParseAction(item.substr(equals + 1), &actions[item.substr(0, equals)]));
  }
  std::lock_guard<std::mutex> lock(g_mutex);
  g_any = !actions.empty();
  Actions() = std::move(actions);
  ++g_replacements;
  g_replaced.notify_all();
  return Status::Ok();
}

Status VisitFailpoint(const char* name) {
  if (!g_any.load(std::memory_order_relaxed)) return Status::Ok();
  Action action;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    const auto found = Actions().find(name);
    if (found == Actions().end()) return Status::Ok();
    ++found->second.visits;
    if (!IsChosen(found->second)) return Status::Ok();
    action = found->second;
  }
  if (action.what == Action::kError) return Internal("failpoint ", name);
  Perform(action);
  return Status::Ok();
}

int HeldAtFailpoints() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return g_held;
}

}  // namespace farandole
