#include "operation/flight_recorder.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
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
constexpr char kSuffix[] = ".flight";
constexpr size_t kHeaderBytes = 4096;
constexpr size_t kFileBytes = kHeaderBytes + FlightRecorder::kRecords * sizeof(FlightRecord) +
                              FlightRecorder::kTexts * sizeof(FlightText) + FlightRecorder::kLinks * sizeof(FlightLink);
// Of processes that are dead: so long, and so many files.
constexpr int64_t kKeptNs = 3600LL * 1'000'000'000;
constexpr size_t kKeptFiles = 64;
static_assert(sizeof(FlightHeader) <= kHeaderBytes);

int64_t NowNs() { return std::chrono::duration_cast<std::chrono::nanoseconds>(Now().time_since_epoch()).count(); }

// When the process began, in clock ticks since the machine's start; field 22, after a name that may hold anything.
uint64_t StartOfThisProcess() {
  constexpr size_t kAfterName = 3, kStart = 22;  // "pid (name) state ..."
  const std::string text = ContentsOf("/proc/self/stat");
  const std::vector<std::string> fields = Split(text.substr(std::min(text.rfind(')') + 2, text.size())), ' ');
  return fields.size() > kStart - kAfterName ? std::strtoull(fields[kStart - kAfterName].c_str(), nullptr, 10) : 0;
}

// Another user could have made the folder first, and would read what is written there.
bool MakeFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat found{};
  if (lstat(folder.c_str(), &found) != 0) return false;
  const bool is_ours = S_ISDIR(found.st_mode) && found.st_uid == getuid() && (found.st_mode & 077) == 0;
  if (!is_ours) errno = EPERM;
  return is_ours;
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

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> paths;
  DIR* const opened = opendir(folder.c_str());
  if (opened == nullptr) return paths;
  while (const dirent* const entry = readdir(opened)) {
    const std::string name = entry->d_name;
    const size_t suffix = sizeof kSuffix - 1;
    if (name.size() > suffix && name.compare(name.size() - suffix, suffix, kSuffix) == 0)
      paths.push_back(folder + "/" + name);
  }
  closedir(opened);
  return paths;
}

// The part of a header that those who tidy up need. Read returns false for a file that is no recorder's.
struct Found {
  std::string run;
  uint32_t epoch = 0;
  int32_t pid = 0;
  uint32_t state = 0;
  int64_t late_ns = 0;
};
bool Read(const std::string& path, Found* found) {
  alignas(FlightHeader) std::array<std::byte, sizeof(FlightHeader)> room;
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid() || pread(file.get(), room.data(), room.size(), 0) != static_cast<ssize_t>(room.size()))
    return false;
  const auto& header = *reinterpret_cast<const FlightHeader*>(room.data());
  if (std::memcmp(header.magic.data(), kMagic, header.magic.size()) != 0) return false;
  found->run.assign(header.run.data(), strnlen(header.run.data(), header.run.size()));
  found->epoch = header.epoch;
  found->pid = header.pid;
  found->state = header.state;
  found->late_ns = header.late_ns;
  return true;
}

bool IsDead(int32_t pid) { return pid > 0 && kill(pid, 0) != 0 && errno == ESRCH; }

// Removes the files of processes that died long ago, and of the others that are dead the oldest, so that jobs which end
// badly one after the other do not fill the file system. A time in the future is of before the machine's last start.
void Sweep(const std::string& folder) {
  const int64_t now_ns = NowNs();
  std::vector<std::pair<int64_t, std::string>> dead;  // with its age, the latest first
  for (const std::string& path : FilesIn(folder)) {
    Found found;
    if (!Read(path, &found) || !IsDead(found.pid)) continue;
    dead.emplace_back(found.late_ns > now_ns ? INT64_MAX : now_ns - found.late_ns, path);
  }
  std::sort(dead.begin(), dead.end());
  for (size_t i = 0; i < dead.size(); ++i) {
    if (i >= kKeptFiles || dead[i].first > kKeptNs) unlink(dead[i].second.c_str());
  }
}

std::string PathOf(const FlightRecorder::Place& place) {
  return place.folder + "/" + place.run + "." + std::to_string(getpid()) + kSuffix;
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

std::string FlightRecorder::FolderOf(const std::string& given) {
  if (given == "0") return "";
  if (!given.empty()) return given;
  const std::string name = "/farandole-" + std::to_string(getuid());
  return (access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + name;
}

// A process that begins another epoch has one file: that of the epoch before says nothing that matters any more.
std::unique_ptr<FlightRecorder> FlightRecorder::Make(const Place& place) {
  const std::string path = PathOf(place);
  void* memory = nullptr;
  if (MakeFolder(place.folder)) {
    Sweep(place.folder);
    memory = MapNewFile(path);
  }
  if (memory == nullptr) {
    Log(LogLevel::kWarning, "operations are not recorded for farandole inspect, since ", path,
        " cannot be made in a folder of this user alone (mode 0700): ", std::strerror(errno),
        "; name another folder in FARANDOLE_FLIGHT_RECORDER, or set it to 0");
    return nullptr;
  }
  std::unique_ptr<FlightRecorder> recorder(new FlightRecorder(memory, path));
  recorder->Describe(place);
  return recorder;
}

void FlightRecorder::RemoveEarlier(const Place& place) {
  for (const std::string& path : FilesIn(place.folder)) {
    Found found;
    if (Read(path, &found) && found.run == place.run && found.epoch < place.epoch) unlink(path.c_str());
  }
}

FlightRecorder::FlightRecorder() : FlightRecorder(PrivateMemory(), "") { Describe({}); }

FlightRecorder::FlightRecorder(void* memory, std::string path) : path_(std::move(path)) {
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

void FlightRecorder::NoteEnd(FlightHeader::State state, int blamed, const std::string& reason) {
  NoteTime();
  std::lock_guard<std::mutex> lock(mutex_);
  if (header_->state != FlightHeader::kRunning) return;
  const size_t size = std::min(reason.size(), FlightHeader::kReasonBytes);
  std::memcpy(header_->reason.data(), reason.data(), size);
  header_->reason_bytes.store(static_cast<uint32_t>(size), std::memory_order_release);
  header_->blamed.store(blamed, std::memory_order_relaxed);
  header_->state.store(state, std::memory_order_release);
}

// Each rank has noted its own end before it looks, so at least the last one sees all.
void FlightRecorder::RemoveIfAllHaveLeft() const {
  if (path_.empty()) return;
  const std::string mine(header_->run.data(), strnlen(header_->run.data(), header_->run.size()));
  std::vector<std::string> ours;
  for (const std::string& path : FilesIn(path_.substr(0, path_.rfind('/')))) {
    Found found;
    if (!Read(path, &found) || found.run != mine) continue;
    if (found.epoch > header_->epoch) {
      if (IsDead(found.pid)) continue;  // of a job that had the same key before
      return;
    }
    if (found.epoch == header_->epoch && found.state != FlightHeader::kLeft) return;
    ours.push_back(path);
  }
  for (const std::string& path : ours) unlink(path.c_str());
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
  constexpr size_t kMostSecond = 40;
  const size_t first_bytes = CopyEnd(first, FlightText::kBytes - std::min(second.size(), kMostSecond), &text.text[0]);
  text.first_bytes = static_cast<uint16_t>(first_bytes);
  text.second_bytes = static_cast<uint16_t>(std::min(second.size(), FlightText::kBytes - first_bytes));
  second.copy(&text.text[first_bytes], text.second_bytes);
  text.number.store(last_text_, std::memory_order_release);
  former = key;
  numbers_[std::move(key)] = last_text_;
  return last_text_;
}

// A few operations that last for long leave most records free.
FlightRecord* FlightRecorder::LookFurther() {
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
