// Log lines for the user on stderr. Each line is one write, so that lines of different ranks do not mix.
//
// Any thread may call. No call blocks or raises a signal: a line is dropped where stderr is a full pipe, or its reader
// is gone.
#pragma once

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

// Writes a line as far as that is possible at once.
void WriteToStderr(const std::string& line);

// The text is its parts one after the other, see Text.
template <typename... Parts>
void Log(LogLevel level, const Parts&... text) {
  if (static_cast<int>(level) > g_log.level) return;
  static constexpr const char* kNames[] = {"error", "warning", "info", "debug"};
  const int rank = g_log.rank;
  const std::string who = rank < 0 ? "" : Text(" rank ", rank);
  WriteToStderr(Text("farandole", who, " ", kNames[static_cast<int>(level)], ": ", text..., "\n"));
}

}  // namespace farandole
