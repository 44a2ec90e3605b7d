// Where the threads of this process are in the user's program, so that ranks that wait for this one can be told. What
// can look, the Python binding say, says so once; the core itself knows no interpreter. Any thread.
#pragma once

#include <cstddef>
#include <string>

namespace farandole {

// Text, innermost call first, thread by thread, the main thread last. It is called by the engine's thread while the
// program may be stuck anywhere, so it must not wait for the program.
using StackFunction = std::string (*)();
void SetStackFunction(StackFunction function);

std::string StacksOfThisProcess();  // "" when nobody can look

// How many threads may call something without another one's doing: all but those that are known to be idle, such as
// those of a pool that has nothing to do. As many as can be where the stacks are not known to their end.
size_t ThreadsThatMayCall(const std::string& stacks);

// The innermost frame that is not Farandole's, of the last thread with one, since the main thread stands last: `File
// "train.py", line 12 in main`.
std::string UsersFrame(const std::string& stacks);

}  // namespace farandole
