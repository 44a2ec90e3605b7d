// The state of the fake driver: contexts, memory, streams and events; and the parts of its calls.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "errors.h"
#include "streams.h"
#include "support/fake_cuda.h"

namespace {

using farandole::FakeCuda;

constexpr int kDevices = 8;
constexpr int kGarbage = 0xAB;
constexpr int kGreatestPriority = -5;  // as on NVIDIA's, less is more

struct DeviceMemory {
  int ordinal;
  size_t size_bytes;
  std::unique_ptr<char[]> contents;
};

struct Context {
  int ordinal;
};

struct Failure {
  int code;
  int successes;
  bool for_good;
};

// The driver's state of a thread. Not thread_local: sanitizers mistake that for a race where a library is loaded
// at run time.
struct ThreadState {
  std::vector<Context*> contexts;
  int capture_mode = 0;  // global
};

class Driver final : public FakeCuda {
 public:
  // ---- what the driver's calls are made of

  // The errors that every call can return. `context`: one must be current; `eager`: forbidden while another
  // thread captures.
  int Enter(const char* name, bool context = false, bool eager = false) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++calls_[name];
    if (const auto failure = failures_.find(name); failure != failures_.end() && failure->second.successes-- <= 0) {
      const int code = failure->second.code;
      if (!failure->second.for_good) failures_.erase(failure);
      return code;
    }
    if (!initialized_ && std::strcmp(name, "cuInit") != 0) return kNotInitialized;
    const ThreadState& thread = threads_[std::this_thread::get_id()];
    if (context && thread.contexts.empty()) return kInvalidContext;
    return eager && capturing_ && thread.capture_mode != 2 ? kCaptureUnsupported : kSuccess;
  }
  // Of calls that no capture mode of a thread allows while any stream of the context is captured.
  int SpoilCapture(const char* name) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!capturing_) return kSuccess;
    misuses_.push_back(std::string(name) + ": it ends the capture of a stream with an error");
    return kCaptureUnsupported;
  }
  void Initialize() {
    std::lock_guard<std::mutex> lock(mutex_);
    initialized_ = true;
  }
  Context* context(int ordinal) { return &contexts_[ordinal]; }
  void Push(Context* context) {
    std::lock_guard<std::mutex> lock(mutex_);
    threads_[std::this_thread::get_id()].contexts.push_back(context);
  }
  // REQUIRES: there is one, as for current_ordinal.
  Context* Pop() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Context*>& contexts = threads_[std::this_thread::get_id()].contexts;
    Context* const popped = contexts.back();
    contexts.pop_back();
    return popped;
  }
  int current_ordinal() {
    std::lock_guard<std::mutex> lock(mutex_);
    return threads_[std::this_thread::get_id()].contexts.back()->ordinal;
  }
  void ExchangeCaptureMode(int* mode) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::swap(*mode, threads_[std::this_thread::get_id()].capture_mode);
  }

  void* NewEvent() {
    std::lock_guard<std::mutex> lock(mutex_);
    auto event = std::make_shared<EventState>();
    void* const handle = event.get();
    events_[handle] = std::move(event);
    return handle;
  }
  std::shared_ptr<EventState> event(void* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = events_.find(handle);
    return found == events_.end() ? nullptr : found->second;
  }
  bool EraseEvent(void* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    return events_.erase(handle) == 1;
  }
  std::shared_ptr<StreamState> stream(void* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = streams_.find(handle);
    return found == streams_.end() ? nullptr : found->second;
  }
  bool EraseStream(void* handle) {
    const auto closing = stream(handle);
    if (!closing) return false;
    closing->Close();
    std::lock_guard<std::mutex> lock(mutex_);
    return streams_.erase(handle) == 1;
  }

  void* AllocatePinned(size_t size_bytes) {
    void* const memory = std::malloc(size_bytes);
    std::lock_guard<std::mutex> lock(mutex_);
    pinned_[static_cast<char*>(memory)] = size_bytes;
    return memory;
  }
  bool FreePinned(void* memory) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (pinned_.erase(static_cast<char*>(memory)) == 0) return false;
    std::free(memory);
    return true;
  }
  bool IsPinned(const void* memory, size_t size_bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    return At(pinned_, memory, size_bytes, [](size_t size) { return size; }) != pinned_.end();
  }
  // Null unless [memory, memory + size_bytes) lies on the device (any for -1).
  char* Resolve(const void* memory, size_t size_bytes, int ordinal = -1) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = At(memory_, memory, size_bytes, [](const DeviceMemory& each) { return each.size_bytes; });
    if (found == memory_.end() && owner_ >= 0 && (ordinal < 0 || ordinal == owner_))
      return static_cast<char*>(const_cast<void*>(memory));
    if (found == memory_.end() || (ordinal >= 0 && found->second.ordinal != ordinal)) return nullptr;
    return found->second.contents.get() + (static_cast<const char*>(memory) - found->first);
  }
  int OrdinalOf(const void* memory) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = At(memory_, memory, 1, [](const DeviceMemory& each) { return each.size_bytes; });
    return found == memory_.end() ? owner_ : found->second.ordinal;
  }

  void Misuse(const std::string& text) {
    std::lock_guard<std::mutex> lock(mutex_);
    misuses_.push_back(text);
  }
  void Enqueue(StreamState* stream, std::function<void()> task) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++pending_[stream->ordinal];
    stream->Push([this, ordinal = stream->ordinal, delay = delay_, task = std::move(task)] {
      std::this_thread::sleep_for(delay);
      task();
      std::lock_guard<std::mutex> end(mutex_);
      --pending_[ordinal];
    });
  }
  void Record(EventState* event_state, StreamState* stream) {
    uint64_t record = 0;
    {
      std::lock_guard<std::mutex> lock(event_state->mutex);
      record = ++event_state->recorded;
    }
    Enqueue(stream, [event = event(event_state), record] { event->Reach(record); });
  }
  // The event is reached when all streams of the device are.
  void RecordAll(EventState* event_state, int ordinal) {
    std::vector<std::shared_ptr<StreamState>> streams;
    uint64_t record = 0;
    {
      std::scoped_lock lock(mutex_, event_state->mutex);
      record = ++event_state->recorded;
      for (const auto& [handle, stream] : streams_) {
        if (stream->ordinal == ordinal) streams.push_back(stream);
      }
    }
    const auto event = this->event(event_state);
    const auto left = std::make_shared<std::atomic<size_t>>(streams.size() + 1);
    const auto arrive = [=] {
      if (left->fetch_sub(1) == 1) event->Reach(record);
    };
    for (const auto& stream : streams) Enqueue(stream.get(), arrive);
    arrive();
  }
  void AwaitInStream(StreamState* stream, EventState* event_state) {
    uint64_t record = 0;
    {
      std::lock_guard<std::mutex> lock(event_state->mutex);
      record = event_state->recorded;
    }
    Enqueue(stream, [event = event(event_state), record] { event->Await(record); });
  }

  // ---- FakeCuda

  void Reset() override {
    std::lock_guard<std::mutex> lock(mutex_);
    failures_.clear();
    misuses_.clear();
    calls_.clear();
    delay_ = std::chrono::microseconds(0);
    capturing_ = false;
    owner_ = -1;
  }
  void SetDelay(std::chrono::microseconds delay) override {
    std::lock_guard<std::mutex> lock(mutex_);
    delay_ = delay;
  }
  void Fail(const std::string& call, int code, int successes, bool for_good) override {
    std::lock_guard<std::mutex> lock(mutex_);
    failures_[call] = {code, successes, for_good};
  }
  void SetCapturing(bool capturing) override {
    std::lock_guard<std::mutex> lock(mutex_);
    capturing_ = capturing;
  }

  void OwnEverything(int ordinal) override {
    std::lock_guard<std::mutex> lock(mutex_);
    owner_ = ordinal;
  }
  std::string IdentityOf(int ordinal) override {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    const int first = visible != nullptr ? std::atoi(visible) : 0;  // "2,3,4": those in a row
    return std::string(16, static_cast<char>('a' + first + ordinal));
  }

  void* Allocate(int ordinal, size_t size_bytes) override {
    void* const memory = mmap(nullptr, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    std::lock_guard<std::mutex> lock(mutex_);
    memory_[static_cast<char*>(memory)] = {ordinal, size_bytes, std::make_unique<char[]>(size_bytes)};
    return memory;
  }
  // As cuMemFree does, after everything that the device has been told to do.
  void Free(void* memory) override {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto found = memory_.find(static_cast<char*>(memory));
    while (pending_[found->second.ordinal] > 0) {
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      lock.lock();
    }
    munmap(memory, found->second.size_bytes);
    memory_.erase(found);
  }
  void* MakeStream(int ordinal) override {
    auto stream = std::make_shared<StreamState>();
    stream->ordinal = ordinal;
    std::thread([stream] { stream->Run(); }).detach();
    std::lock_guard<std::mutex> lock(mutex_);
    streams_[stream.get()] = stream;
    return stream.get();
  }
  void Launch(void* handle, std::function<void()> kernel) override { Enqueue(stream(handle).get(), std::move(kernel)); }
  void* RecordNewEvent(void* handle) override {
    void* const event = NewEvent();
    Record(static_cast<EventState*>(event), stream(handle).get());
    return event;
  }
  void Wait(void* handle, void* event) override {
    if (event != nullptr) AwaitInStream(stream(handle).get(), static_cast<EventState*>(event));
  }
  void Synchronize(void* handle) override {
    void* const end = RecordNewEvent(handle);
    event(end)->Await(1);
    EraseEvent(end);
  }
  void* Contents(const void* memory) override { return Resolve(memory, 1); }
  void* Contents(const void* memory, size_t size_bytes, int ordinal) override {
    return Resolve(memory, size_bytes, ordinal);
  }
  int CurrentDevice() override {
    std::lock_guard<std::mutex> lock(mutex_);
    const std::vector<Context*>& contexts = threads_[std::this_thread::get_id()].contexts;
    return contexts.empty() ? -1 : contexts.back()->ordinal;
  }
  int DeviceOf(void* handle) override {
    const auto found = stream(handle);
    return found ? found->ordinal : -1;
  }

  std::vector<std::string> misuses() override {
    std::lock_guard<std::mutex> lock(mutex_);
    return misuses_;
  }
  int calls(const std::string& name) override {
    std::lock_guard<std::mutex> lock(mutex_);
    return calls_[name];
  }
  size_t pinned_bytes() override {
    std::lock_guard<std::mutex> lock(mutex_);
    size_t total = 0;
    for (const auto& [memory, size_bytes] : pinned_) total += size_bytes;
    return total;
  }

 private:
  // The entry of `map` (begin -> something with a size) that covers the range.
  template <typename Map, typename SizeOf>
  static typename Map::iterator At(Map& map, const void* memory, size_t size_bytes, SizeOf size_of) {
    auto* const begin = const_cast<char*>(static_cast<const char*>(memory));
    auto found = map.upper_bound(begin);
    if (found == map.begin()) return map.end();
    --found;
    return begin + size_bytes <= found->first + size_of(found->second) ? found : map.end();
  }

  std::mutex mutex_;
  Context contexts_[kDevices] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
  bool initialized_ = false, capturing_ = false;
  int owner_ = -1;  // of all memory that is not known; -1: nobody
  std::chrono::microseconds delay_{0};
  int pending_[kDevices] = {};
  std::map<std::thread::id, ThreadState> threads_;
  std::map<std::string, Failure> failures_;
  std::map<std::string, int> calls_;
  std::vector<std::string> misuses_;
  std::map<void*, std::shared_ptr<EventState>> events_;
  std::map<void*, std::shared_ptr<StreamState>> streams_;
  std::map<char*, size_t> pinned_;
  std::map<char*, DeviceMemory> memory_;
};

// Never destroyed: threads of streams may outlast main.
Driver& TheDriver() {
  static auto* const driver = new Driver();
  return *driver;
}

}  // namespace
