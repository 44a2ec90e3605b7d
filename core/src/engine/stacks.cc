#include "engine/stacks.h"

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <vector>

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

bool ContainsOneOf(const std::string& line, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return line.find(part) != std::string::npos; });
}

// Of Python's library or of those that run such threads; nothing there calls us.
bool IsHarmless(const std::string& line) {
  if (ContainsOneOf(line, {"/tqdm/", "/torch/utils/data/", "/torch/multiprocessing/"})) return true;
  return !IsInstalled(line) && ContainsOneOf(line, {"/lib/python3.", "/lib64/python3.", "\"<frozen "});
}

// What runs a thread that waits to be given work, or of which we know what it does.
bool RunsIdleThreads(const std::string& line) {
  return ContainsOneOf(line, {"/concurrent/futures/thread.py\"", "/multiprocessing/queues.py\"",
                              "/multiprocessing/pool.py\"", "/tqdm/_monitor.py\"", "/data/_utils/pin_memory.py\""});
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// The innermost frame that is not skipped of the last thread that has one; "" when none has.
template <typename IsSkipped>
std::string LastFrame(const std::string& stacks, IsSkipped is_skipped) {
  std::string frame;
  bool sought = true;  // in this thread
  for (const std::string& line : LinesOf(stacks)) {
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

size_t ThreadsThatMayCall(const std::string& stacks) {
  constexpr size_t kUnknown = std::numeric_limits<size_t>::max();
  const std::vector<std::string> lines = LinesOf(stacks);
  const bool is_whole = !lines.empty() && lines[0].find("hread 0x") != std::string::npos;  // the front may be cut off
  if (!is_whole || std::find(lines.begin(), lines.end(), "...") != lines.end()) return kUnknown;
  size_t count = 0;
  bool is_harmless = true, is_idle = false;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {  // a thread's head comes after its frames
    if (line->find("hread 0x") != std::string::npos) {
      count += is_harmless && is_idle ? 0 : 1;
      is_harmless = true;
      is_idle = false;
    } else if (!line->empty()) {
      is_harmless = is_harmless && IsHarmless(*line);
      is_idle = is_idle || RunsIdleThreads(*line);
    }
  }
  return count;
}

// Frames of frameworks come next, for the user's own program may be installed, too; frames of ours last.
std::string UsersFrame(const std::string& stacks) {
  std::string frame = LastFrame(stacks, [](const std::string& line) { return IsOurs(line) || IsInstalled(line); });
  if (frame.empty()) frame = LastFrame(stacks, IsOurs);
  if (frame.empty()) frame = LastFrame(stacks, [](const std::string&) { return false; });
  return frame.empty() ? "an unknown place" : frame;
}

}  // namespace farandole
