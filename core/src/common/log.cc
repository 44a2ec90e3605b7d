#include "common/log.h"

#include <unistd.h>

#include <atomic>

namespace farandole {
namespace {

std::atomic<int> g_level{static_cast<int>(LogLevel::kWarning)};
std::atomic<int> g_rank{-1};

}  // namespace

void ConfigureLog(LogLevel level, int rank) {
  g_level = static_cast<int>(level);
  g_rank = rank;
}

void Log(LogLevel level, const std::string& text) {
  if (static_cast<int>(level) > g_level) return;
  static constexpr const char* kNames[] = {"error", "warning", "info", "debug"};
  const int rank = g_rank;
  const std::string who = rank < 0 ? "" : " rank " + std::to_string(rank);
  const std::string line = "farandole" + who + " " + kNames[static_cast<int>(level)] + ": " + text + "\n";
  // A full or closed stderr must not stop training.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace farandole
