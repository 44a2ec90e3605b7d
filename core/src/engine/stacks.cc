#include "engine/stacks.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <utility>
#include <vector>

#include "common/text.h"

namespace farandole {
namespace {

constexpr size_t kMostBytes = 16 << 10;  // of stacks in a warning

std::atomic<StackFunction> g_function{nullptr};

// True for a line of Farandole's packages, installed or from the source tree. A directory of the user's may have that
// name, too.
bool IsOurs(const std::string& line) {
  static constexpr const char* kPackages[] = {"/site-packages/farandole", "/dist-packages/farandole",
                                              "/python/farandole/", "/src/farandole_"};
  return std::any_of(std::begin(kPackages), std::end(kPackages),
                     [&](const char* package) { return line.find(package) != std::string::npos; });
}

bool IsInstalled(const std::string& line) {
  return line.find("/site-packages/") != std::string::npos || line.find("/dist-packages/") != std::string::npos;
}

// "Thread 0x00007f0b82 (most recent call first):"
const char kHead[] = "hread 0x";
bool IsHead(const std::string& line) { return line.find(kHead) != std::string::npos; }
uint64_t IdOf(const std::string& head) {
  return std::strtoull(head.c_str() + head.find(kHead) + sizeof(kHead) - 1, nullptr, 16);
}

bool IsWait(const std::string& frame) {
  return frame.find("/threading.py\"") != std::string::npos && EndsWith(frame, " in wait");
}

// True for the frame of a thread that waits for work, or of tqdm's monitor, which calls nothing of Farandole.
bool IsIdle(const std::string& frame) {
  static const std::pair<const char*, const char*> kIdle[] = {{"/concurrent/futures/thread.py\"", " in _worker"},
                                                              {"/multiprocessing/queues.py\"", " in _feed"},
                                                              {"/tqdm/_monitor.py\"", " in run"}};
  return std::any_of(std::begin(kIdle), std::end(kIdle), [&](const auto& each) {
    return frame.find(each.first) != std::string::npos && EndsWith(frame, each.second);
  });
}

// The innermost frame that is not skipped of the last thread that has one; "" when none has.
template <typename IsSkipped>
std::string LastFrame(const std::string& stacks, IsSkipped is_skipped) {
  std::string frame;
  bool sought = true;  // in this thread
  for (const std::string& line : Split(stacks, '\n')) {
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
  if (stacks.size() > kMostBytes) stacks.erase(0, stacks.size() - kMostBytes);  // the main thread comes last
  return stacks;
}

// A thread that waits for one of `threads`' operations, or for work, cannot call anything; any other thread may.
bool NoOthersMayCall(const std::string& stacks, const std::set<uint64_t>& threads) {
  const std::vector<std::string> lines = Split(stacks, '\n');
  const bool is_whole = !lines.empty() && IsHead(lines[0]);  // the front may be cut off
  if (!is_whole || std::find(lines.begin(), lines.end(), "...") != lines.end()) return false;
  for (size_t head = 0; head < lines.size();) {
    size_t next = head + 1;
    while (next < lines.size() && !IsHead(lines[next])) ++next;
    size_t frame = head + 1;
    while (frame < next && IsWait(lines[frame])) ++frame;
    const bool is_idle = frame < next && IsIdle(lines[frame]);
    if (!is_idle && threads.count(IdOf(lines[head])) == 0) return false;
    head = next;
  }
  return true;
}

// Frames of installed packages come next, since the user's program may be installed, too; frames of Farandole come
// last.
std::string UsersFrame(const std::string& stacks) {
  std::string frame = LastFrame(stacks, [](const std::string& line) { return IsOurs(line) || IsInstalled(line); });
  if (frame.empty()) frame = LastFrame(stacks, IsOurs);
  if (frame.empty()) frame = LastFrame(stacks, [](const std::string&) { return false; });
  return frame.empty() ? "an unknown place" : frame;
}

}  // namespace farandole
