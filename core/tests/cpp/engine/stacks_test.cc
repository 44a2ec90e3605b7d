// Which frame of a rank's stacks an error names.
#include "engine/stacks.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

TEST(StacksTest, FramesOfOurPackagesAreSkipped) {
  for (const char* ours :
       {"/venv/lib/python3.11/site-packages/farandole/_submit.py",
        "/venv/lib/python3.11/site-packages/farandole_torch/_operations.py",
        "/home/u/repo/core/python/farandole/numpy.py", "/home/u/repo/plugins/torch/src/farandole_torch/__init__.py"}) {
    EXPECT_EQ(UsersFrame("Thread 0x1 (most recent call first):\n  File \"" + std::string(ours) +
                         "\", line 35 in run\n  File \"/home/u/farandole/train.py\", line 12 in step\n"
                         "  File \"/home/u/farandole/train.py\", line 20 in main\n"),
              "File \"/home/u/farandole/train.py\", line 12 in step");
  }
}

TEST(StacksTest, FramesOfFrameworksAreNotTheUsersWhereOthersAre) {
  const std::string torch = "  File \"/x/site-packages/torch/optim/optimizer.py\", line 520 in wrapper\n";
  EXPECT_EQ(UsersFrame(torch + "  File \"train.py\", line 12 in main\n"), "File \"train.py\", line 12 in main");
  EXPECT_EQ(UsersFrame(torch), "File \"/x/site-packages/torch/optim/optimizer.py\", line 520 in wrapper");
}

TEST(StacksTest, TheMainThreadStandsLast) {
  EXPECT_EQ(UsersFrame("Thread 0x2 (most recent call first):\n  File \"queue.py\", line 3 in get\n\n"
                       "Thread 0x1 (most recent call first):\n  File \"train.py\", line 12 in main\n"),
            "File \"train.py\", line 12 in main");
}

TEST(StacksTest, WithoutAFrameOfTheUsersTheInnermostIsBetterThanNone) {
  EXPECT_EQ(UsersFrame("  File \"/x/site-packages/farandole/_submit.py\", line 35 in run\n"),
            "File \"/x/site-packages/farandole/_submit.py\", line 35 in run");
  EXPECT_EQ(UsersFrame(""), "an unknown place");
}

}  // namespace
}  // namespace farandole
