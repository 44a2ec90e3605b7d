// Paths of libraries that are built for the tests. They lie beside the test program.
#pragma once

#include <limits.h>
#include <unistd.h>

#include <string>

namespace farandole {

inline std::string PathBesideTests(const std::string& name) {
  char program[PATH_MAX] = {};
  const ssize_t length = readlink("/proc/self/exe", program, sizeof(program));
  const std::string path(program, length > 0 ? static_cast<size_t>(length) : 0);
  return path.substr(0, path.rfind('/') + 1) + name;
}

}  // namespace farandole
