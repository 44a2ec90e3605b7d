// Lines for the user on stderr, one write each so that ranks do not tear each other's lines. Any thread.
#pragma once

#include <string>

namespace farandole {

enum class LogLevel : int { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// Called at init; lines before it go out as rank -1 at level warning.
void ConfigureLog(LogLevel level, int rank);
void Log(LogLevel level, const std::string& text);

}  // namespace farandole
