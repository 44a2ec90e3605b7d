// Text, read without C++'s streams. Those ask the process for its locale's facets, and call a wrong function where this
// library has been linked with a libstdc++ of its own and a framework has loaded another one. Functions without state.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "common/descriptor.h"

namespace farandole {

inline bool StartsWith(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

// The parts between separators; nothing follows a separator at the end, and an empty text has no parts.
inline std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// The first 4,096 bytes of a file of the kernel's, such as one below /proc; "" where it cannot be read.
inline std::string ContentsOf(const char* path) {
  const Descriptor file(open(path, O_RDONLY | O_CLOEXEC));
  char contents[4096];
  const ssize_t size = file.valid() ? read(file.get(), contents, sizeof(contents)) : -1;
  return {contents, static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

}  // namespace farandole
