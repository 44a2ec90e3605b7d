#include "operation/flight_recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#include "common/descriptor.h"
#include "common/log.h"
#include "common/text.h"

namespace farandole {
namespace {

constexpr char kMagic[] = "FRDFLT02";
constexpr size_t kHeaderBytes = 4096;
constexpr size_t kFileBytes = kHeaderBytes + FlightRecorder::kRecords * sizeof(FlightRecord) +
                              FlightRecorder::kTexts * sizeof(FlightText) + FlightRecorder::kLinks * sizeof(FlightLink);
static_assert(sizeof(FlightHeader) <= kHeaderBytes);

int64_t NowNs() { return std::chrono::duration_cast<std::chrono::nanoseconds>(Now().time_since_epoch()).count(); }

// When the process began, in clock ticks since the machine's start; field 22, after a name that may hold anything.
uint64_t StartOfThisProcess() {
  constexpr size_t kAfterName = 3, kStart = 22;  // "pid (name) state ..."
  const std::string text = ContentsOf("/proc/self/stat");
  const std::vector<std::string> fields = Split(text.substr(std::min(text.rfind(')') + 2, text.size())), ' ');
  return fields.size() > kStart - kAfterName ? std::strtoull(fields[kStart - kAfterName].c_str(), nullptr, 10) : 0;
}

// Makes the file in its whole length, so that no later store meets a full file system. Returns null with errno.
void* MapNewFile(const std::string& path) {
  unlink(path.c_str());  // of a former epoch, or of a dead process that had this number
  const Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return nullptr;
  int error = posix_fallocate(file.get(), 0, static_cast<off_t>(kFileBytes));
  if (error == 0) {
    void* const memory = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
    if (memory != MAP_FAILED) return memory;
    error = errno;
  }
  unlink(path.c_str());
  errno = error;
  return nullptr;
}

void* PrivateMemory() {
  void* const memory = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

// Keeps the end of a longer text, which tells more, and whole characters of UTF-8.
size_t CopyEnd(std::string_view text, size_t most, char* to) {
  if (text.size() > most) text.remove_prefix(text.size() - most);
  while (text.size() == most && !text.empty() && (static_cast<unsigned char>(text[0]) & 0xC0) == 0x80)
    text.remove_prefix(1);
  std::memcpy(to, text.data(), text.size());
  return text.size();
}

}  // namespace

std::unique_ptr<FlightRecorder> FlightRecorder::Make(const Place& place) {
  void* const memory = MapNewFile(place.path);
  if (memory == nullptr) {
    Log(LogLevel::kWarning, "operations are not recorded for farandole inspect, since ", place.path,
        " cannot be made: ", std::strerror(errno),
        "; name another folder in FARANDOLE_FLIGHT_RECORDER, or set it to 0");
    return nullptr;
  }
  std::unique_ptr<FlightRecorder> recorder(new FlightRecorder(memory));
  recorder->Describe(place);
  return recorder;
}

FlightRecorder::FlightRecorder() : FlightRecorder(PrivateMemory()) { Describe({}); }

FlightRecorder::FlightRecorder(void* memory) {
  auto* const bytes = static_cast<std::byte*>(memory);
  header_ = new (bytes) FlightHeader();
  records_ = reinterpret_cast<FlightRecord*>(bytes + kHeaderBytes);
  texts_ = reinterpret_cast<FlightText*>(bytes + kHeaderBytes + kRecords * sizeof(FlightRecord));
  links_ = reinterpret_cast<FlightLink*>(texts_ + kTexts);
  for (size_t i = 0; i < kRecords; ++i) new (&records_[i]) FlightRecord();
  for (size_t i = 0; i < kTexts; ++i) new (&texts_[i]) FlightText();
  for (size_t i = 0; i < kLinks; ++i) new (&links_[i]) FlightLink();
}

FlightRecorder::~FlightRecorder() { munmap(static_cast<void*>(header_), kFileBytes); }

// The magic comes last: a file without it is not read.
void FlightRecorder::Describe(const Place& place) {
  header_->record_count = kRecords;
  header_->text_count = kTexts;
  header_->link_count = kLinks;
  header_->pid = getpid();
  header_->rank = place.rank;
  header_->size = place.size;
  header_->epoch = place.epoch;
  header_->process_start = StartOfThisProcess();
  header_->first_ns = NowNs();
  header_->first_ticks = Ticks();
  std::memcpy(header_->run.data(), place.run.data(), std::min(place.run.size(), header_->run.size()));
  NoteTime();
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(header_->magic.data(), kMagic, header_->magic.size());
}

void FlightRecorder::NoteTime() { NoteLate(nullptr); }

void FlightRecorder::NoteLinks(std::vector<LinkFacts> links) {
  std::stable_sort(links.begin(), links.end(),
                   [](const LinkFacts& one, const LinkFacts& other) { return one.sent_bytes > other.sent_bytes; });
  links.resize(std::min(links.size(), kLinks));
  NoteLate(&links);
}

void FlightRecorder::NoteLate(const std::vector<LinkFacts>* links) {
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock) return;  // another thread is noting it
  const uint64_t before = header_->clock_sequence.load(std::memory_order_relaxed);
  header_->clock_sequence.store(before + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  header_->late_ns.store(NowNs(), std::memory_order_relaxed);
  header_->late_ticks.store(Ticks(), std::memory_order_relaxed);
  for (size_t i = 0; links != nullptr && !links->empty() && i < kLinks; ++i) {
    if (i >= links->size()) {
      links_[i].peer.store(-1, std::memory_order_relaxed);  // its connection has ended
      continue;
    }
    links_[i].peer.store((*links)[i].peer, std::memory_order_relaxed);
    links_[i].sent_bytes.store((*links)[i].sent_bytes, std::memory_order_relaxed);
    links_[i].received_bytes.store((*links)[i].received_bytes, std::memory_order_relaxed);
    links_[i].sending_us.store((*links)[i].sending_us, std::memory_order_relaxed);
    links_[i].retransmits.store((*links)[i].retransmits, std::memory_order_relaxed);
    links_[i].round_trip_us.store((*links)[i].round_trip_us, std::memory_order_relaxed);
  }
  header_->clock_sequence.store(before + 2, std::memory_order_release);
}

void FlightRecorder::NoteEnd(FlightHeader::State state, int culprit, const std::string& reason) {
  NoteTime();
  std::lock_guard<std::mutex> lock(mutex_);
  if (header_->state != FlightHeader::kRunning) return;
  const size_t size = std::min(reason.size(), FlightHeader::kReasonBytes);
  std::memcpy(header_->reason.data(), reason.data(), size);
  header_->reason_bytes.store(static_cast<uint32_t>(size), std::memory_order_release);
  header_->culprit.store(culprit, std::memory_order_relaxed);
  header_->state.store(state, std::memory_order_release);
}

// A text that is used again after others took its place gets a new number.
uint32_t FlightRecorder::NumberOf(std::string_view first, std::string_view second) {
  std::string key;
  key.reserve(first.size() + second.size() + 1);
  key.append(first).append(1, '\0').append(second);
  if (const auto found = numbers_.find(key); found != numbers_.end()) return found->second;
  if (++last_text_ == 0) ++last_text_;
  FlightText& text = texts_[last_text_ % kTexts];
  std::string& former = keys_[last_text_ % kTexts];
  if (text.number.load(std::memory_order_relaxed) != 0) numbers_.erase(former);
  text.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  constexpr size_t kMaxSecond = 40;
  const size_t first_bytes = CopyEnd(first, FlightText::kBytes - std::min(second.size(), kMaxSecond), &text.text[0]);
  text.first_bytes = static_cast<uint16_t>(first_bytes);
  text.second_bytes = static_cast<uint16_t>(std::min(second.size(), FlightText::kBytes - first_bytes));
  second.copy(&text.text[first_bytes], text.second_bytes);
  text.number.store(last_text_, std::memory_order_release);
  former = key;
  numbers_[std::move(key)] = last_text_;
  return last_text_;
}

// A few operations that last for long leave most records free.
FlightRecord* FlightRecorder::FindFreeRecord() {
  for (size_t i = 1; i < kRecords; ++i) {
    FlightRecord* const record = &records_[next_++ % kRecords];
    if (record->ended.load(std::memory_order_acquire) != 0 || record->sequence.load(std::memory_order_relaxed) == 0)
      return record;
  }
  return nullptr;
}

FlightRecord* FlightRecorder::Lose() {
  header_->lost.store(header_->lost.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return nullptr;
}

}  // namespace farandole
