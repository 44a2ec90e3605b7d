// Named places where a test can make the world go wrong. Compiled in only with FARANDOLE_FAILPOINTS (test builds).
//
// FARANDOLE_FAILPOINTS="native.reduce=kill@3;board.arrive=delay:5": at the third visit of native.reduce the process
// kills itself, every visit of board.arrive takes 5 ms longer. Actions: kill, stop, delay:<ms>.
#pragma once

#include <string>

#include "common/status.h"

namespace farandole {

// Replaces all failpoints. kInvalid when the text cannot be understood. Any thread, but before the visits it is meant
// for.
Status SetFailpoints(const std::string& text);
void VisitFailpoint(const char* name);

}  // namespace farandole

#ifdef FARANDOLE_FAILPOINTS
#define FRD_FAILPOINT(name) ::farandole::VisitFailpoint(name)
#else
#define FRD_FAILPOINT(name) static_cast<void>(0)
#endif
