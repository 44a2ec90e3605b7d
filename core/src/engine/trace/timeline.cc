#include "engine/trace/timeline.h"

#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "common/log.h"
#include "engine/trace/file.h"

namespace farandole {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(200);
constexpr auto kPatience = std::chrono::seconds(5);  // with a writer that is to end
constexpr size_t kCells = 1 << 15;
constexpr size_t kWriteBytes = 1 << 16;

// Never freed: who has looked at on() may push at any time.
struct Queue {
  TraceRing<TraceRecord, kCells> ring;
  std::atomic<uint64_t> lost{0};
  std::mutex reading;  // of the ring: a writer that was left alone may come back beside the next one
};

Queue& TheQueue() {
  static auto* const queue = new Queue();
  return *queue;
}

// Shared by the writer and who stops it.
struct Writer {
  explicit Writer(TimelineOptions given) : options(std::move(given)) {}

  const TimelineOptions options;
  const pid_t process = getpid();
  TraceFile file;
  uint64_t number = 0, lost_before = 0;

  std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false, ended = false, abandoned = false;

  Status WriteSome();
  void Run();
};

std::mutex g_mutex;  // guards g_writer
std::shared_ptr<Writer>& Current() {
  static auto* const writer = new std::shared_ptr<Writer>();
  return *writer;
}

// All that is in the ring.
Status Writer::WriteSome() {
  std::lock_guard<std::mutex> lock(TheQueue().reading);
  std::string events;
  const auto add = [&events](const std::string& more) { events += (events.empty() ? "" : ",\n") + more; };
  TraceRecord record;
  while (TheQueue().ring.Pop(&record)) {
    add(EventsOf(record, options.rank, options.offset_ns, number++));
    if (events.size() < kWriteBytes) continue;
    FRD_RETURN_IF_ERROR(file.Append(events));
    events.clear();
  }
  if (const uint64_t lost = TheQueue().lost; lost != lost_before) {
    add(EventOfLoss(lost - lost_before, options.rank, Timeline::NowNs() - options.offset_ns));
    lost_before = lost;
  }
  return file.Append(events);
}

void Writer::Run() {
  Status status;
  for (bool last = false; status.ok() && !last;) {
    {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait_for(lock, kInterval, [this] { return stopping; });
      last = stopping;
    }
    status = WriteSome();
    std::lock_guard<std::mutex> lock(mutex);
    if (abandoned) return;  // what is recorded now is another's
  }
  if (!status.ok()) {
    Timeline::Forget();
    Log(LogLevel::kWarning, status.message() + "; training goes on without it");
  }
  std::lock_guard<std::mutex> lock(mutex);
  ended = true;
  changed.notify_all();
}

}  // namespace

// The ring outlives each timeline, so what late threads pushed for the one before is dropped here.
Status Timeline::Start(const TimelineOptions& options) {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (Current()) {
    return Invalid("a timeline is being recorded to '" + Current()->options.path + "'; call stop_timeline() first");
  }
  const auto writer = std::make_shared<Writer>(options);
  std::unique_lock<std::mutex> reading(TheQueue().reading, std::try_to_lock);
  if (!reading) return Invalid("the end of the timeline before is still being written; try again later");
  FRD_RETURN_IF_ERROR(writer->file.Open(options.path));
  FRD_RETURN_IF_ERROR(writer->file.Append(DescribeRank(options.rank, options.title)));
  TraceRecord late;  // of the timeline before
  while (TheQueue().ring.Pop(&late)) continue;
  writer->lost_before = TheQueue().lost;
  Current() = writer;
  marks_batches_ = options.marks_batches;
  on_ = true;
  std::thread([writer] { writer->Run(); }).detach();
  return Status::Ok();
}

// Waits for the writer as long as a working file system needs, then leaves it alone.
bool Timeline::Stop() {
  std::shared_ptr<Writer> writer;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    on_ = false;
    writer = std::move(Current());
  }
  if (!writer || writer->process != getpid()) return false;  // a fork has no thread to wait for
  std::unique_lock<std::mutex> lock(writer->mutex);
  writer->stopping = true;
  writer->changed.notify_all();
  writer->abandoned = !writer->changed.wait_for(lock, kPatience, [&writer] { return writer->ended; });
  if (writer->abandoned) {
    Log(LogLevel::kWarning, "the end of the timeline '" + writer->options.path +
                                "' is still to be written: the file system does not answer; what is there is complete");
  }
  return true;
}

void Timeline::Forget() { on_ = false; }

void Timeline::Record(const TraceRecord& record) {
  if (!TheQueue().ring.Push(record)) TheQueue().lost.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace farandole
