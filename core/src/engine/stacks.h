// Where the threads of this process are in the user's program, so that ranks that wait for this one can be told. What
// can look, the Python binding say, says so once; the core itself knows no interpreter. Any thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace farandole {

// Text, innermost call first, thread by thread, the main thread last. It is called by the engine's thread while the
// program may be stuck anywhere, so it must not wait for the program.
using StackFunction = std::string (*)();
void SetStackFunction(StackFunction function);

std::string StacksOfThisProcess();  // "" when nobody can look

// True when every thread of the stacks is in `threads` or known to be idle, such as one of a pool without work. False
// where the stacks are cut off.
bool NoOthersMayCall(const std::string& stacks, const std::set<uint64_t>& threads);

// The innermost frame that is not Farandole's, of the last thread with one, since the main thread stands last: `File
// "train.py", line 12 in main`.
std::string UsersFrame(const std::string& stacks);

}  // namespace farandole
