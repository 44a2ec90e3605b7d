// A plugin that was compiled against the header of the first release (tests/first_release) works with this core.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "farandole/farandole.h"
#include "support/beside.h"

namespace farandole {
namespace {

TEST(FirstRelease, PluginsOfItWork) {
  const std::string path = PathBesideTests("libfirst_release_plugin.so");
  void* const plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(plugin, nullptr) << dlerror();
  auto* const exercise = reinterpret_cast<const char* (*)(const void*)>(dlsym(plugin, "first_release_exercise"));
  ASSERT_NE(exercise, nullptr);
  EXPECT_STREQ(exercise(frd_get_api()), "");
}

}  // namespace
}  // namespace farandole
