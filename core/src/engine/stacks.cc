#include "engine/stacks.h"

#include <algorithm>
#include <atomic>
#include <iterator>

namespace farandole {
namespace {

constexpr size_t kMostBytes = 16 << 10;  // of a message that is for people

std::atomic<StackFunction> g_function{nullptr};

// A line of our packages, installed or from the source tree. A directory of the user's may have our name, too.
bool IsOurs(const std::string& line) {
  static constexpr const char* kPackages[] = {"/site-packages/farandole", "/dist-packages/farandole",
                                              "/python/farandole/", "/src/farandole_"};
  return std::any_of(std::begin(kPackages), std::end(kPackages),
                     [&](const char* package) { return line.find(package) != std::string::npos; });
}

bool IsInstalled(const std::string& line) {
  return line.find("/site-packages/") != std::string::npos || line.find("/dist-packages/") != std::string::npos;
}

// The innermost frame that is not skipped of the last thread that has one; "" when none has.
template <typename IsSkipped>
std::string LastFrame(const std::string& stacks, IsSkipped is_skipped) {
  std::string frame;
  bool sought = true;  // in this thread
  for (size_t begin = 0; begin < stacks.size();) {
    const size_t end = std::min(stacks.find('\n', begin), stacks.size());
    const std::string line = stacks.substr(begin, end - begin);
    begin = end + 1;
    const size_t file = line.find("File \"");
    if (file == std::string::npos) {
      sought = true;
    } else if (sought && !is_skipped(line)) {
      frame = line.substr(file);
      sought = false;
    }
  }
  return frame;
}

}  // namespace

void SetStackFunction(StackFunction function) { g_function = function; }

std::string StacksOfThisProcess() {
  const StackFunction function = g_function.load();
  if (function == nullptr) return "";
  std::string stacks = function();
  if (stacks.size() > kMostBytes) stacks.erase(0, stacks.size() - kMostBytes);  // the main thread stands last
  return stacks;
}

// Frames of frameworks come next, for the user's own program may be installed, too; frames of ours last.
std::string UsersFrame(const std::string& stacks) {
  std::string frame = LastFrame(stacks, [](const std::string& line) { return IsOurs(line) || IsInstalled(line); });
  if (frame.empty()) frame = LastFrame(stacks, IsOurs);
  if (frame.empty()) frame = LastFrame(stacks, [](const std::string&) { return false; });
  return frame.empty() ? "an unknown place" : frame;
}

}  // namespace farandole
