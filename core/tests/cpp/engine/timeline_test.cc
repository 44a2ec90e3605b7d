#include "engine/timeline.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "engine/trace_file.h"

namespace farandole {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string PathFor(const std::string& name) { return testing::TempDir() + name + std::to_string(getpid()) + ".json"; }

TEST(TraceRing, FailsWhenItIsFullAndGoesOnWhenItIsRead) {
  TraceRing<int, 4> ring;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(ring.Push(i));
    EXPECT_FALSE(ring.Push(9));
    for (int i = 0; i < 4; ++i) {
      int found = -1;
      EXPECT_TRUE(ring.Pop(&found));
      EXPECT_EQ(found, i);
    }
    int none = 0;
    EXPECT_FALSE(ring.Pop(&none));
  }
}

TEST(TraceRing, LosesNothingAndKeepsTheOrderOfEachThread) {
  constexpr int kThreads = 3, kEach = 20000;
  TraceRing<std::pair<int, int>, 64> ring;
  std::atomic<int> refused{0}, running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        if (!ring.Push({t, i})) ++refused;
      }
      --running;
    });
  }
  std::vector<int> last(kThreads, -1);
  int popped = 0;
  for (bool ended = false; !ended;) {
    ended = running == 0;
    for (std::pair<int, int> found; ring.Pop(&found); ++popped) {
      EXPECT_GT(found.second, last[static_cast<size_t>(found.first)]);
      last[static_cast<size_t>(found.first)] = found.second;
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(popped + refused, kThreads * kEach);
}

TEST(TraceFile, IsCompleteAfterEveryAppend) {
  const std::string path = PathFor("complete");
  TraceFile file;
  ASSERT_TRUE(file.Open(path).ok());
  EXPECT_EQ(Read(path), "[\n]\n");
  ASSERT_TRUE(file.Append("{\"a\":1}").ok());
  EXPECT_EQ(Read(path), "[\n{\"a\":1}\n]\n");
  ASSERT_TRUE(file.Append("").ok());
  ASSERT_TRUE(file.Append("{\"b\":2},\n{\"c\":3}").ok());
  EXPECT_EQ(Read(path), "[\n{\"a\":1},\n{\"b\":2},\n{\"c\":3}\n]\n");
  unlink(path.c_str());
}

// At whatever page of a write a SIGKILL comes.
TEST(TraceFile, HasWholeEventsBeforeEveryPage) {
  const std::string path = PathFor("pages");
  TraceFile file;
  ASSERT_TRUE(file.Open(path).ok());
  std::string events;
  for (int i = 0; i < 400; ++i)
    events += (i == 0 ? "" : ",\n") + ("{\"name\":\"" + std::string(static_cast<size_t>(i % 90), 'x') + "\"}");
  for (int times = 0; times < 3; ++times) ASSERT_TRUE(file.Append(events).ok());
  const std::string text = Read(path);
  ASSERT_GT(text.size(), size_t{3} * 4096);
  for (size_t page = 4096; page < text.size(); page += 4096) {
    const size_t last = text.find_last_not_of(' ', page - 1);
    EXPECT_EQ(text[last], '}') << "before byte " << page;
    EXPECT_EQ(text.compare(page, 2, ",\n"), 0) << "at byte " << page;
  }
  EXPECT_EQ(std::count(text.begin(), text.end(), '{'), 1200);
  EXPECT_EQ(std::count(text.begin(), text.end(), ','), 1199);
  unlink(path.c_str());
}

TEST(TraceFile, TakesEventsThatAreLongerThanAPage) {
  const std::string path = PathFor("long");
  TraceFile file;
  ASSERT_TRUE(file.Open(path).ok());
  const std::string longer = "{\"a\":\"" + std::string(5000, 'x') + "\"}";
  ASSERT_TRUE(file.Append(longer + ",\n{\"b\":2}").ok());
  std::string text = Read(path);
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  EXPECT_EQ(text, "[\n" + longer + ",\n{\"b\":2}\n]\n");
  unlink(path.c_str());
}

TEST(TraceFile, SaysWhyItCannotBeMade) {
  TraceFile file;
  const Status opened = file.Open("/nowhere/trace.json");
  EXPECT_EQ(opened.code(), Code::kInvalid);
  EXPECT_NE(opened.message().find("'/nowhere/trace.json': No such file"), std::string::npos) << opened.message();
}

// As on a full disk: the write stops in the middle of an event.
TEST(TraceFile, StaysCompleteWhereNoMoreCanBeWritten) {
  const std::string path = PathFor("full");
  TraceFile file;
  ASSERT_TRUE(file.Open(path).ok());
  ASSERT_TRUE(file.Append("{\"a\":1}").ok());
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old = {};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small = {100, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const Status appended = file.Append("{\"b\":\"" + std::string(500, 'x') + "\"}");
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(appended.code(), Code::kInternal);
  EXPECT_NE(appended.message().find("File too large"), std::string::npos) << appended.message();
  EXPECT_EQ(Read(path), "[\n{\"a\":1}\n]\n");
  unlink(path.c_str());
}

TraceRecord SomeRecord(const std::string& name) {
  TraceRecord record;
  record.submitted = 1'000'500;
  record.agreed = 2'000'000;
  record.started = 3'000'000;
  record.done = 4'000'001;
  record.bytes = 64;
  record.tensors = 1;
  record.SetName(name);
  return record;
}

TEST(TraceEvents, AnOperationHasItsPhasesInside) {
  EXPECT_EQ(
      EventsOf(SomeRecord("grad"), 3, 500, 7),
      "{\"ph\":\"b\",\"name\":\"grad\",\"pid\":3,\"tid\":0,\"ts\":1000.000,\"cat\":\"allreduce\",\"id\":7,"
      "\"args\":{\"bytes\":64,\"tensors\":1,\"process_set\":0}},\n"
      "{\"ph\":\"b\",\"name\":\"NEGOTIATE\",\"pid\":3,\"tid\":0,\"ts\":1000.000,\"cat\":\"allreduce\",\"id\":7},\n"
      "{\"ph\":\"e\",\"name\":\"NEGOTIATE\",\"pid\":3,\"tid\":0,\"ts\":1999.500,\"cat\":\"allreduce\",\"id\":7},\n"
      "{\"ph\":\"b\",\"name\":\"QUEUE\",\"pid\":3,\"tid\":0,\"ts\":1999.500,\"cat\":\"allreduce\",\"id\":7},\n"
      "{\"ph\":\"e\",\"name\":\"QUEUE\",\"pid\":3,\"tid\":0,\"ts\":2999.500,\"cat\":\"allreduce\",\"id\":7},\n"
      "{\"ph\":\"b\",\"name\":\"ALLREDUCE\",\"pid\":3,\"tid\":0,\"ts\":2999.500,\"cat\":\"allreduce\",\"id\":7},\n"
      "{\"ph\":\"e\",\"name\":\"ALLREDUCE\",\"pid\":3,\"tid\":0,\"ts\":3999.501,\"cat\":\"allreduce\",\"id\":7},\n"
      "{\"ph\":\"e\",\"name\":\"grad\",\"pid\":3,\"tid\":0,\"ts\":3999.501,\"cat\":\"allreduce\",\"id\":7}");
}

TEST(TraceEvents, NamesAreQuotedAndLongOnesKeepTheirEnd) {
  TraceRecord record = SomeRecord("a\"b\\c\nd\xC3\xA9\xFF");
  EXPECT_NE(EventsOf(record, 0, 0, 1).find("\"name\":\"a\\\"b\\\\c\\u000ad\xC3\xA9?\""), std::string::npos);
  // The least and the greatest of each length, then overlong forms, a surrogate and what is beyond: a ? for each byte.
  for (const char* good :
       {"\xC2\x80", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_NE(EventsOf(SomeRecord(good), 0, 0, 1).find("\"name\":\"" + std::string(good) + "\""), std::string::npos);
  }
  for (const char* bad :
       {"\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xE0\xA0"}) {
    const std::string marks(std::strlen(bad), '?');
    EXPECT_NE(EventsOf(SomeRecord(bad), 0, 0, 1).find("\"name\":\"" + marks + "\""), std::string::npos);
  }
  record.SetName("layer\xC3\xA9" + std::string(TraceRecord::kNameBytes - 2, 'x'));  // cut within the character
  EXPECT_EQ(std::string(record.name.data()), std::string(TraceRecord::kNameBytes - 2, 'x'));
}

TEST(TraceEvents, WhatDidNotTakePlaceIsNotThere) {
  TraceRecord record = SomeRecord("small");
  record.agreed = record.started = 0;
  record.failed = true;
  const std::string events = EventsOf(record, 0, 0, 1);
  EXPECT_EQ(events.find("NEGOTIATE"), std::string::npos);
  EXPECT_NE(events.find("\"failed\":true"), std::string::npos);
}

TEST(Timeline, OneAtATimeAndAgain) {
  const std::string path = PathFor("again");
  EXPECT_FALSE(Timeline::Stop());
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_TRUE(Timeline::Start({path, "rank 0", 0, 0, false}).ok());
    EXPECT_TRUE(Timeline::on());
    const Status twice = Timeline::Start({path, "rank 0", 0, 0, false});
    EXPECT_NE(twice.message().find("call stop_timeline() first"), std::string::npos) << twice.message();
    Timeline::Record(SomeRecord("turn " + std::to_string(turn)));
    EXPECT_TRUE(Timeline::Stop());
    EXPECT_FALSE(Timeline::on());
    EXPECT_NE(Read(path).find("\"turn " + std::to_string(turn) + "\""), std::string::npos);
  }
  unlink(path.c_str());
}

TEST(Timeline, GoesOnInAnotherFile) {
  const std::string first = PathFor("part1"), second = PathFor("part2");
  EXPECT_FALSE(Timeline::Continue(second).ok());
  ASSERT_TRUE(Timeline::Start({first, "rank 0", 0, 0, false}).ok());
  Timeline::Record(SomeRecord("before"));
  const auto is_written = [&first] { return Read(first).find("\"before\"") != std::string::npos; };
  while (!is_written()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(Timeline::Continue("/nowhere/part2.json").ok());  // and goes on in the first
  ASSERT_TRUE(Timeline::Continue(second).ok());
  const std::string complete = Read(first);
  Timeline::Record(SomeRecord("after"));
  EXPECT_TRUE(Timeline::Stop());
  EXPECT_EQ(Read(first), complete);
  EXPECT_NE(Read(second).find("zero_unix_ns"), std::string::npos);
  EXPECT_NE(Read(second).find("\"after\""), std::string::npos);
  EXPECT_EQ(Read(second).find("\"before\""), std::string::npos);
  unlink(first.c_str());
  unlink(second.c_str());
}

TEST(Timeline, SaysHowManyItCouldNotTake) {
  const std::string path = PathFor("lost");
  ASSERT_TRUE(Timeline::Start({path, "rank 0", 0, 0, false}).ok());
  for (int i = 0; i < 200000; ++i) Timeline::Record(SomeRecord("x"));
  EXPECT_TRUE(Timeline::Stop());
  // Under a sanitizer on a busy machine the writer takes longer than Stop is patient, and goes on.
  const auto says_so = [&path] { return Read(path).find("operations were not recorded") != std::string::npos; };
  for (int tries = 0; !says_so() && tries < 600; ++tries) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(says_so());
  unlink(path.c_str());
}

}  // namespace
}  // namespace farandole
