// Log lines for the user on stderr. Each line is one write, so lines of different ranks do not mix. Any thread may
// call.
#pragma once

#include <unistd.h>

#include <atomic>
#include <string>

#include "common/status.h"

namespace farandole {

enum class LogLevel : int { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// The process has one level and one rank for all its epochs.
struct LogState {
  std::atomic<int> level{static_cast<int>(LogLevel::kWarning)};
  std::atomic<int> rank{-1};  // none yet
};
inline LogState g_log;

// Called at init. Lines before it name no rank, and only errors and warnings are written.
inline void ConfigureLog(LogLevel level, int rank) {
  g_log.level = static_cast<int>(level);
  g_log.rank = rank;
}

// The text is its parts one after the other, see Text.
template <typename... Parts>
void Log(LogLevel level, const Parts&... text) {
  if (static_cast<int>(level) > g_log.level) return;
  static constexpr const char* kNames[] = {"error", "warning", "info", "debug"};
  const int rank = g_log.rank;
  const std::string who = rank < 0 ? "" : Text(" rank ", rank);
  const std::string line = Text("farandole", who, " ", kNames[static_cast<int>(level)], ": ", text..., "\n");
  // A full or closed stderr must not stop training.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace farandole
