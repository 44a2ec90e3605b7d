#include "operation/flight_recorder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

namespace farandole {
namespace {

constexpr size_t kRecords = FlightRecorder::kRecords;

FlightRecord* Begin(FlightRecorder* recorder, FlightLabel* label, const std::string& name, const char* site = "",
                    int64_t number = -1) {
  FlightFacts facts;
  facts.bytes = 4;
  facts.tensors = 1;
  return recorder->Begin(label, facts, site, number,
                         [&name] { return std::make_pair(std::string_view(name), std::string("(1)")); });
}

std::string TextOf(const FlightRecorder& recorder, uint32_t number) {
  const FlightText& text = recorder.texts()[number % FlightRecorder::kTexts];
  return text.number == number ? std::string(text.text.data(), text.first_bytes) : "forgotten";
}

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/flight-test-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }

 private:
  std::string path_;
};

TEST(FlightRecorder, TheLinksThatHaveSentMostAreNoted) {
  FlightRecorder recorder;
  std::vector<LinkFacts> links(FlightRecorder::kLinks + 10);
  for (size_t i = 0; i < links.size(); ++i) {
    links[i].peer = static_cast<int>(i);
    links[i].sent_bytes = 1000 + i;
  }
  recorder.NoteLinks(links);
  EXPECT_EQ(recorder.links()[0].peer, static_cast<int>(links.size()) - 1);
  EXPECT_EQ(recorder.links()[0].sent_bytes, 1000 + links.size() - 1);
  EXPECT_EQ(recorder.links()[FlightRecorder::kLinks - 1].peer, 10);
  links.resize(1);
  recorder.NoteLinks(links);
  EXPECT_EQ(recorder.links()[0].peer, 0);
  EXPECT_EQ(recorder.links()[1].peer, -1) << "the others have ended";
  recorder.NoteLinks({});
  EXPECT_EQ(recorder.links()[0].peer, 0) << "an epoch that ends has none any more";
}

TEST(FlightRecorder, ARecordHasWhatTheOperationWas) {
  FlightRecorder recorder;
  FlightLabel label;
  Begin(&recorder, &label, "gradient", "train.py:9")->End(Ticks());
  FlightRecord* const record = Begin(&recorder, &label, "gradient", "train.py:9");
  EXPECT_EQ(record->sequence, 2 * 2 + 1u);
  EXPECT_EQ(record->ended, 0u);
  EXPECT_EQ(record->count, 2u);
  EXPECT_EQ(TextOf(recorder, record->name), "gradient");
  EXPECT_EQ(TextOf(recorder, record->site), "train.py:9");
  record->Agree(Ticks());
  record->Start(Ticks());
  record->End(Ticks(), /*failed=*/true);
  EXPECT_GE(record->agreed, 1u);
  EXPECT_GE(record->started, record->agreed);
  EXPECT_GT(record->ended, record->submitted);
  EXPECT_EQ(record->flags, FlightRecord::kFailed);
}

TEST(FlightRecorder, AnUnnamedOperationHasItsNumber) {
  FlightRecorder recorder;
  FlightLabel label;
  EXPECT_EQ(Begin(&recorder, &label, "", "", 17)->count, 17u);
  EXPECT_EQ(label.count, 0u);
}

TEST(FlightRecorder, TheRingPassesOverOperationsInFlight) {
  FlightRecorder recorder;
  FlightLabel slow_label, label;
  FlightRecord* const slow = Begin(&recorder, &slow_label, "slow");
  for (size_t i = 0; i < 3 * kRecords; ++i) {
    FlightRecord* const record = Begin(&recorder, &label, "fast");
    ASSERT_NE(record, slow);
    record->End(Ticks());
  }
  EXPECT_EQ(slow->sequence, 3u);
  EXPECT_EQ(TextOf(recorder, slow->name), "slow");
  EXPECT_EQ(recorder.header().lost, 0u);
}

TEST(FlightRecorder, OperationsThatFindNoFreeRecordAreCounted) {
  FlightRecorder recorder;
  FlightLabel label;
  FlightRecord* first = Begin(&recorder, &label, "a");
  for (size_t i = 1; i < kRecords; ++i) ASSERT_NE(Begin(&recorder, &label, "a"), nullptr);
  EXPECT_EQ(Begin(&recorder, &label, "a"), nullptr);
  EXPECT_EQ(recorder.header().lost, 1u);
  EXPECT_EQ(recorder.header().begun, kRecords + 1);
  first->End(Ticks());
  EXPECT_EQ(Begin(&recorder, &label, "a"), first);
}

TEST(FlightRecorder, ANameInUseOutlivesManyOthers) {
  FlightRecorder recorder;
  FlightLabel stays;
  Begin(&recorder, &stays, "stays")->End(Ticks());
  for (size_t i = 0; i < 2 * FlightRecorder::kTexts; ++i) {
    FlightLabel once;
    Begin(&recorder, &once, "once." + std::to_string(i))->End(Ticks());
  }
  FlightRecord* const record = Begin(&recorder, &stays, "stays");
  EXPECT_EQ(TextOf(recorder, record->name), "stays");
  EXPECT_EQ(record->count, 2u);
}

TEST(FlightRecorder, ALongNameKeepsItsEndAndWholeCharacters) {
  FlightRecorder recorder;
  FlightLabel label;
  std::string name;
  for (int i = 0; i < 100; ++i) name += "\u00e9";
  const std::string text = TextOf(recorder, Begin(&recorder, &label, name + "!")->name);
  EXPECT_EQ(static_cast<unsigned char>(text[0]), 0xC3);
  EXPECT_EQ(text.back(), '!');
  EXPECT_LE(text.size(), FlightText::kBytes);
}

TEST(FlightRecorder, TheFileIsTheUsersAlone) {
  const Folder folder;
  const std::string path = folder.path() + "/abc.1.flight";
  ASSERT_NE(FlightRecorder::Make({0, 2, "abc", path}), nullptr);
  struct stat found{};
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  EXPECT_EQ(found.st_size, 4096 + 4096 * 64 + 2048 * 128 + 64 * 64);
  EXPECT_NE(FlightRecorder::Make({0, 2, "abc", path, 1}), nullptr) << "of a later epoch";
  EXPECT_EQ(FlightRecorder::Make({0, 2, "abc", "/proc/none/abc.1.flight"}), nullptr);
}

TEST(FlightRecorder, TheFirstReasonCounts) {
  FlightRecorder recorder;
  recorder.NoteEnd(FlightHeader::kEnded, 1, "rank 1 is lost");
  recorder.NoteEnd(FlightHeader::kLeft, -1, "this rank called shutdown");
  EXPECT_EQ(recorder.header().culprit, 1);
  EXPECT_EQ(std::string(recorder.header().reason.data(), recorder.header().reason_bytes), "rank 1 is lost");
}

// A killed process writes nothing more, and what it had written is there.
TEST(FlightRecorder, RecordsOutliveSigkill) {
  const Folder folder;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto recorder = FlightRecorder::Make({3, 4, "abc", folder.path() + "/abc.flight"});
    FlightLabel label;
    Begin(recorder.get(), &label, "last", "train.py:5");
    [[maybe_unused]] const ssize_t told = write(ready[1], "!", 1);
    pause();
    _exit(0);
  }
  char letter;
  ASSERT_EQ(read(ready[0], &letter, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const std::string path = folder.path() + "/abc.flight";
  FILE* const file = fopen(path.c_str(), "rb");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(fseek(file, 4096, SEEK_SET), 0);
  FlightRecord record;
  ASSERT_EQ(fread(static_cast<void*>(&record), sizeof record, 1, file), 1u);
  fclose(file);
  close(ready[0]);
  close(ready[1]);
  EXPECT_EQ(record.sequence, 3u);
  EXPECT_EQ(record.ended, 0u);
  EXPECT_EQ(record.bytes, 4u);
}

// A reader in another thread, as another process is, never takes a mixture of two operations for one.
TEST(FlightRecorder, AReaderRecognisesTornRecords) {
  FlightRecorder recorder;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    FlightLabel label;
    label.name = 0;
    for (uint64_t i = 1; !stop; ++i) {
      FlightFacts facts;
      facts.bytes = i;
      facts.tensors = static_cast<uint32_t>(i);
      recorder
          .Begin(&label, facts, "", static_cast<int64_t>(i),
                 [] { return std::make_pair(std::string_view("n"), std::string()); })
          ->End(i);
    }
  });
  size_t whole = 0;
  for (size_t look = 0; whole < 20'000 && look < 20'000'000; ++look) {
    const FlightRecord& record = recorder.records()[look % 8];
    const uint64_t before = record.sequence.load(std::memory_order_acquire);
    const uint64_t bytes = record.bytes.load(std::memory_order_relaxed);
    const uint32_t count = record.count.load(std::memory_order_relaxed);
    const uint32_t tensors = record.tensors.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 || record.sequence.load(std::memory_order_relaxed) != before) continue;
    ++whole;
    ASSERT_EQ(bytes, before / 2);
    ASSERT_EQ(count, static_cast<uint32_t>(bytes));
    ASSERT_EQ(tensors, static_cast<uint32_t>(bytes));
  }
  stop = true;
  writer.join();
  EXPECT_EQ(whole, 20'000u);
}

}  // namespace
}  // namespace farandole
