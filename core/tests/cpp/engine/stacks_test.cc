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

TEST(StacksTest, IdleThreadsOfThePythonLibraryCallNothing) {
  const std::string head = "Thread 0x7f (most recent call first):\n", library = "  File \"/usr/lib/python3.11/";
  const std::string begin = library + "threading.py\", line 982 in run\n" + library + "threading.py\", line 1 in x\n\n";
  const std::string pool = library + "concurrent/futures/thread.py\", line 81 in _worker\n";
  const std::string queue =
      library + "threading.py\", line 3 in wait\n" + library + "multiprocessing/queues.py\", line 2 in _feed\n";
  const std::string user = "  File \"/home/u/train.py\", line 3 in main\n";
  const std::string installed = "  File \"/usr/lib/python3.11/site-packages/lightning/x.py\", line 3 in y\n";
  const std::string bar = "  File \"/usr/lib/python3.11/site-packages/tqdm/_monitor.py\", line 3 in run\n";
  const std::string main = head + user;
  EXPECT_EQ(ThreadsThatMayCall(main), 1u);
  EXPECT_EQ(ThreadsThatMayCall(head + pool + begin + main), 1u);
  EXPECT_EQ(ThreadsThatMayCall(head + queue + begin + head + library + "threading.py\", line 3 in wait\n" + bar +
                               begin + main),
            1u);
  EXPECT_EQ(ThreadsThatMayCall(head + user + pool + begin + main), 2u) << "a pool's thread that has work";
  EXPECT_EQ(ThreadsThatMayCall(head + installed + pool + begin + main), 2u);
  EXPECT_EQ(ThreadsThatMayCall(head + begin + main), 2u) << "a timer";
  EXPECT_EQ(ThreadsThatMayCall(head + library + "asyncio/base_events.py\", line 3 in run\n" + begin + main), 2u);
  EXPECT_GT(ThreadsThatMayCall(user + main), 100u) << "cut at the front";
  EXPECT_GT(ThreadsThatMayCall(main + "...\n"), 100u) << "cut at the end";
  EXPECT_GT(ThreadsThatMayCall(""), 100u);
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
