#include "engine/stacks.h"

#include <atomic>

namespace farandole {
namespace {

constexpr size_t kMostBytes = 16 << 10;  // of a message that is for people

std::atomic<StackFunction> g_function{nullptr};

}  // namespace

void SetStackFunction(StackFunction function) { g_function = function; }

std::string StacksOfThisProcess() {
  const StackFunction function = g_function.load();
  return function == nullptr ? "" : function().substr(0, kMostBytes);
}

std::string InnermostFrame(const std::string& stacks) {
  const size_t begin = stacks.find("File ");
  if (begin == std::string::npos) return "an unknown place";
  return stacks.substr(begin, stacks.find('\n', begin) - begin);
}

}  // namespace farandole
