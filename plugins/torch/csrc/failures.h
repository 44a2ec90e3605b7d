// Errors of operators. PyTorch raises a RuntimeError with the text of what a kernel throws; Python finds the class of
// farandole's that belongs to it by that text, since what was thrown may come out in another thread.
#pragma once

#include <cstdint>
#include <string>

namespace farandole_torch {

// Throws std::runtime_error. Remembers the code of farandole.h for CodeOf. Any thread.
[[noreturn]] void Fail(int32_t code, const std::string& message);

// The code of the latest failures' first whose message is in `text`, or 0. Any thread.
int32_t CodeOf(const char* text, std::string* message);

}  // namespace farandole_torch
