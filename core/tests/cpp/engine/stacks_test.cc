// Which frame of a rank's stacks an error names.
#include "engine/stacks.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

TEST(StacksTest, FramesOfOurPackagesAreSkipped) {
  for (const char* ours :
       {"/venv/lib/python3.11/site-packages/farandole/_runtime/submit.py",
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

TEST(StacksTest, NobodyMayCallWhereAllThreadsWaitOrAreIdle) {
  const std::string library = "  File \"/usr/lib/python3.11/", site = library + "site-packages/";
  const std::string main = "Thread 0x7f01 (most recent call first):\n  File \"/home/u/train.py\", line 3 in main\n";
  const std::string other = "Thread 0x7f02 (most recent call first):\n";
  const std::string wait = library + "threading.py\", line 327 in wait\n";
  const std::string begin = library + "threading.py\", line 982 in run\n" + library + "threading.py\", line 1 in x\n\n";
  const std::string worker = library + "concurrent/futures/thread.py\", line 81 in _worker\n";
  const auto may_call = [](const std::string& stacks, const std::set<uint64_t>& threads = {0x7f01}) {
    return !NoOthersMayCall(stacks, threads);
  };
  EXPECT_FALSE(may_call(main));
  EXPECT_TRUE(may_call(main, {0x7f03})) << "as many threads, but others";
  EXPECT_FALSE(may_call(other + worker + begin + main));
  EXPECT_FALSE(may_call(other + wait + library + "multiprocessing/queues.py\", line 2 in _feed\n" + begin + main));
  EXPECT_FALSE(may_call(other + wait + wait + site + "tqdm/_monitor.py\", line 3 in run\n" + begin + main));
  const std::string task = library + "concurrent/futures/thread.py\", line 58 in run\n" + worker;
  EXPECT_TRUE(may_call(other + task + begin + main)) << "a pool's thread that has work";
  EXPECT_FALSE(may_call(other + task + begin + main, {0x7f01, 0x7f02})) << "which is to wait";
  EXPECT_TRUE(may_call(other + wait + wait + begin + main)) << "a timer";
  EXPECT_TRUE(may_call(other + library + "asyncio/base_events.py\", line 3 in run\n" + begin + main));
  EXPECT_TRUE(may_call("  File \"/home/u/train.py\", line 3 in main\n" + main)) << "cut at the front";
  EXPECT_TRUE(may_call(main + "...\n")) << "cut at the end";
  EXPECT_TRUE(may_call(""));
}

TEST(StacksTest, TheMainThreadStandsLast) {
  EXPECT_EQ(UsersFrame("Thread 0x2 (most recent call first):\n  File \"queue.py\", line 3 in get\n\n"
                       "Thread 0x1 (most recent call first):\n  File \"train.py\", line 12 in main\n"),
            "File \"train.py\", line 12 in main");
}

TEST(StacksTest, WithoutAFrameOfTheUsersTheInnermostIsBetterThanNone) {
  EXPECT_EQ(UsersFrame("  File \"/x/site-packages/farandole/_runtime/submit.py\", line 35 in run\n"),
            "File \"/x/site-packages/farandole/_runtime/submit.py\", line 35 in run");
  EXPECT_EQ(UsersFrame(""), "an unknown place");
}

}  // namespace
}  // namespace farandole
