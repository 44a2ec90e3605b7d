#include "support/fake_nccl.h"

#include <chrono>
#include <climits>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "rooms.h"

#define NCCL_CALL extern "C" __attribute__((visibility("default")))

namespace {

using farandole::FakeCuda;
using farandole::FakeNccl;

enum Code { kSuccess = 0, kCudaError = 1, kInvalidArgument = 4, kInvalidUsage = 5, kInProgress = 7 };

constexpr int kPollsUntilDone = 2;
constexpr std::chrono::seconds kForEver{2};
constexpr int kFirstForAnyThread = 22700;

struct UniqueId {
  char bytes[128];
};

// As of 2.26, which takes it from 2.18 as well: both are 48 bytes.
struct Config {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_blocks, max_blocks;
  const char* network;
  int split_share, traffic_class;
};

struct Comm {
  int rank = 0, device = 0;
  std::shared_ptr<Room> room;
  enum State { kOpening, kReady, kLaunching, kFinishing, kGone } state = kOpening;
  int polls_left = kPollsUntilDone;
  std::vector<Call> calls;  // of the group that is being launched
  void* stream = nullptr;
  int kernels = 0;            // on their way
  bool is_under_way = false;  // what was called last
  std::map<int, double> scaled_sums;
};

struct CallGroup {
  int depth = 0;
  std::map<Comm*, std::vector<Call>> calls;
  std::map<Comm*, void*> streams;
};

class Library final : public FakeNccl {
 public:
  // ---- what the calls are made of

  int Enter(const char* name) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++calls_[name];
    if (hangs_in_next_ == name) {
      hangs_in_next_.clear();
      released_.wait(lock, [this, round = releases_] { return releases_ != round; });
    }
    released_.wait(lock, [&] { return hangs_in_ != name; });
    const auto failure = failures_.find(name);
    if (failure == failures_.end()) return kSuccess;
    const int code = failure->second;
    failures_.erase(failure);
    return code;
  }
  // For calls that a communicator must be ready for, on its device.
  int Enter(const char* name, Comm* comm) {
    if (const int code = Enter(name)) return code;
    std::lock_guard<std::mutex> lock(mutex_);
    if (comm->state == Comm::kGone) return Misused(name, "the communicator is gone");
    if (comm->state != Comm::kReady) return Misused(name, "another call is under way");
    return cuda_.CurrentDevice() == comm->device ? kSuccess : Misused(name, "its device is not current");
  }

  // A thread can have one call under way before 2.27, of whatever communicator.
  int BeginInThread(const char* name) {
    std::lock_guard<std::mutex> lock(mutex_);
    const Comm* const before = begun_[std::this_thread::get_id()];
    if (version_ >= kFirstForAnyThread || before == nullptr || !before->is_under_way) return kSuccess;
    return Misused(name, "another call of this thread is under way");
  }

  int Init(Comm** result, int size, const UniqueId& id, int rank, const Config& config) {
    if (const int code = Enter("ncclCommInitRankConfig")) return code;
    if (const int code = BeginInThread("ncclCommInitRankConfig")) return code;
    if (config.magic != 0xcafebeef || config.size < sizeof(Config) || config.version < 21400) return kInvalidArgument;
    std::lock_guard<std::mutex> lock(mutex_);
    if (config.traffic_class != INT_MIN) Misused("ncclCommInitRankConfig", "it would set a traffic class");
    if (config.blocking != 0) Misused("ncclCommInitRankConfig", "it would block");
    if (cuda_.CurrentDevice() < 0) return kCudaError;
    auto comm = std::make_shared<Comm>();
    comm->rank = rank;
    comm->device = cuda_.CurrentDevice();
    std::shared_ptr<Room>& room = rooms_[std::string(id.bytes, sizeof(id.bytes))];
    if (!room) room = std::make_shared<Room>(id.bytes, size);
    comm->room = room;
    room->Arrive(rank, cuda_.IdentityOf(comm->device));
    sizes_.push_back(size);
    *result = comm.get();
    PutUnderWay(comm.get());
    comms_.push_back(std::move(comm));
    return kInProgress;
  }

  int Poll(Comm* comm, int* error) {
    Enter("ncclCommGetAsyncError");
    std::lock_guard<std::mutex> lock(mutex_);
    if (comm->state == Comm::kGone) return Misused("ncclCommGetAsyncError", "the communicator is gone");
    *error = later_ != kSuccess ? later_ : Proceed(comm);
    comm->is_under_way = *error == kInProgress;
    return kSuccess;
  }

  int Collect(const char* name, Comm* comm, void* stream, Call call) {
    if (const int code = Enter(name, comm)) return code;
    std::lock_guard<std::mutex> lock(mutex_);
    const size_t input_bytes = call.input_bytes(comm->room->size());
    const size_t output_bytes = call.output_bytes(comm->room->size(), comm->rank);
    if (input_bytes > 0) call.from = Find(call.from, input_bytes, comm->device);
    if (output_bytes > 0) call.to = Find(call.to, output_bytes, comm->device);
    if ((input_bytes > 0 && call.from == nullptr) || (output_bytes > 0 && call.to == nullptr))
      return Misused(name, "the memory is not on its device");
    if (cuda_.DeviceOf(stream) != comm->device) return Misused(name, "the stream is not of its device");
    if (call.reduce > 3) {
      if (comm->scaled_sums.count(call.reduce) == 0) return Misused(name, "there is no such reduction");
      call.factor = comm->scaled_sums[call.reduce];
    }
    CallGroup& group = groups_[std::this_thread::get_id()];
    if (group.depth == 0) return Misused(name, "not in a group");
    group.calls[comm].push_back(call);
    group.streams[comm] = stream;
    return kSuccess;
  }

  int BeginGroup() {
    if (const int code = Enter("ncclGroupStart")) return code;
    if (const int code = BeginInThread("ncclGroupStart")) return code;
    std::lock_guard<std::mutex> lock(mutex_);
    CallGroup& group = groups_[std::this_thread::get_id()];
    if (group.depth++ > 0) Misused("ncclGroupStart", "the group before was not ended");
    return kSuccess;
  }
  int EndGroup() {
    const int code = Enter("ncclGroupEnd");
    std::lock_guard<std::mutex> lock(mutex_);
    CallGroup& group = groups_[std::this_thread::get_id()];
    if (group.depth-- == 0) Misused("ncclGroupEnd", "there is no group");
    const std::map<Comm*, std::vector<Call>> calls = std::move(group.calls);
    group.calls.clear();
    if (code != kSuccess) return code;
    for (const auto& [comm, of_comm] : calls) {
      comm->state = Comm::kLaunching;
      comm->polls_left = kPollsUntilDone;
      comm->calls = of_comm;
      comm->stream = group.streams[comm];
      PutUnderWay(comm);
    }
    return calls.empty() ? kSuccess : kInProgress;
  }

  int MakeScaledSum(int* reduce, const void* scalar, int type, Comm* comm) {
    if (const int code = Enter("ncclRedOpCreatePreMulSum", comm)) return code;
    std::lock_guard<std::mutex> lock(mutex_);
    *reduce = 5 + next_reduce_++;
    comm->scaled_sums[*reduce] = ValueOf(type, scalar);
    return kSuccess;
  }
  int DestroyReduce(int reduce, Comm* comm) {
    if (const int code = Enter("ncclRedOpDestroy", comm)) return code;
    std::lock_guard<std::mutex> lock(mutex_);
    return comm->scaled_sums.erase(reduce) == 1 ? kSuccess : Misused("ncclRedOpDestroy", "there is no such reduction");
  }

  int Finalize(Comm* comm) {
    if (const int code = Enter("ncclCommFinalize", comm)) return code;
    if (const int code = BeginInThread("ncclCommFinalize")) return code;
    std::lock_guard<std::mutex> lock(mutex_);
    PutUnderWay(comm);
    comm->state = Comm::kFinishing;
    comm->room->Leave(comm->rank);
    return kInProgress;
  }
  int Destroy(Comm* comm) {
    Enter("ncclCommDestroy");
    std::lock_guard<std::mutex> lock(mutex_);
    const bool finished = comm->state == Comm::kFinishing && comm->room->everybody_left();
    if (!finished) Misused("ncclCommDestroy", "the communicator is not finalized");
    comm->state = Comm::kGone;
    return kSuccess;
  }
  int Abort(Comm* comm) {
    Enter("ncclCommAbort");
    std::unique_lock<std::mutex> lock(mutex_);
    if (comm->state == Comm::kGone) return Misused("ncclCommAbort", "the communicator is gone");
    if (comm->is_under_way && version_ < kFirstForAnyThread && begun_[std::this_thread::get_id()] != comm)
      Misused("ncclCommAbort", "what is under way was called in another thread, and is not told");
    comm->state = Comm::kGone;
    comm->is_under_way = false;
    comm->room->Abort(comm->rank);
    return AwaitOthers(comm, &lock);
  }
  // Not by the process: a killed one leaves a file of its room, and a later one may have its identifier.
  static std::string UniqueName() {
    std::random_device device;
    return "farandole_fake_nccl_" + std::to_string(device()) + "_" + std::to_string(device());
  }
  int version() {
    std::lock_guard<std::mutex> lock(mutex_);
    return version_;
  }

  // ---- FakeNccl

  void Reset() override {
    std::lock_guard<std::mutex> lock(mutex_);
    failures_.clear();
    misuses_.clear();
    calls_.clear();
    sizes_.clear();
    later_ = kSuccess;
    version_ = VersionAtFirst();
    hangs_ = hangs_before_launch_ = refuses_shared_devices_ = false;
    hangs_in_.clear();
    hangs_in_next_.clear();
    ++releases_;
    released_.notify_all();
  }
  void SetVersion(int version) override {
    std::lock_guard<std::mutex> lock(mutex_);
    version_ = version;
  }
  void RefuseSharedDevices() override {
    std::lock_guard<std::mutex> lock(mutex_);
    refuses_shared_devices_ = true;
  }
  void Fail(const std::string& call, int code) override {
    std::lock_guard<std::mutex> lock(mutex_);
    failures_[call] = code;
  }
  void FailLater(int code) override {
    std::lock_guard<std::mutex> lock(mutex_);
    later_ = code;
  }
  void Hang() override {
    std::lock_guard<std::mutex> lock(mutex_);
    hangs_ = true;
  }
  void HangIn(const std::string& call) override {
    std::lock_guard<std::mutex> lock(mutex_);
    hangs_in_ = call;
  }
  void HangInNext(const std::string& call) override {
    std::lock_guard<std::mutex> lock(mutex_);
    hangs_in_next_ = call;
  }
  void Release() override {
    std::lock_guard<std::mutex> lock(mutex_);
    hangs_in_.clear();
    hangs_in_next_.clear();
    ++releases_;
    released_.notify_all();
  }
  void HangBeforeLaunch() override {
    std::lock_guard<std::mutex> lock(mutex_);
    hangs_before_launch_ = true;
  }
  std::vector<std::string> misuses() override {
    std::lock_guard<std::mutex> lock(mutex_);
    return misuses_;
  }
  int calls(const std::string& name) override {
    std::lock_guard<std::mutex> lock(mutex_);
    return calls_[name];
  }
  std::vector<int> sizes() override {
    std::lock_guard<std::mutex> lock(mutex_);
    return sizes_;
  }
  int live() override {
    std::lock_guard<std::mutex> lock(mutex_);
    int count = 0;
    for (const auto& comm : comms_) count += comm->state != Comm::kGone;
    return count;
  }

 private:
  // REQUIRES for all of these: the mutex.
  int Misused(const char* name, const char* why) {
    misuses_.push_back(std::string(name) + ": " + why);
    return kInvalidUsage;
  }
  void PutUnderWay(Comm* comm) {
    comm->is_under_way = true;
    begun_[std::this_thread::get_id()] = comm;
  }
  char* Find(const void* memory, size_t size_bytes, int device) {
    return static_cast<char*>(cuda_.Contents(memory, size_bytes, device));
  }
  int Proceed(Comm* comm) {
    switch (comm->state) {
      case Comm::kOpening:
        if (refuses_shared_devices_ && comm->room->shares_devices()) return kInvalidUsage;
        if (!comm->room->complete() || comm->polls_left-- > 0) return kInProgress;
        comm->state = Comm::kReady;
        return kSuccess;
      case Comm::kLaunching:
        if (hangs_before_launch_ || comm->polls_left-- > 0) return kInProgress;
        comm->state = Comm::kReady;
        LaunchKernel(comm);
        return kSuccess;
      case Comm::kFinishing:
        return comm->room->everybody_left() ? kSuccess : kInProgress;
      default:
        return kSuccess;
    }
  }
  void LaunchKernel(Comm* comm) {
    ++comm->kernels;
    cuda_.Launch(comm->stream, [this, comm, calls = std::move(comm->calls), hangs = hangs_] {
      const std::string misuse = comm->room->Perform(comm->rank, calls, hangs);
      std::lock_guard<std::mutex> lock(mutex_);
      --comm->kernels;
      if (!misuse.empty()) misuses_.push_back(misuse);
    });
  }
  // An abort frees memory of the device, which waits for all that the rank has there: for kernels of its other
  // communicators, too, which it has not told to end.
  int AwaitOthers(Comm* comm, std::unique_lock<std::mutex>* lock) {
    const auto is_in_the_way = [comm](const std::shared_ptr<Comm>& each) {
      return each.get() != comm && each->stream == comm->stream && each->kernels > 0;
    };
    const auto end = std::chrono::steady_clock::now() + kForEver;
    while (comm->stream != nullptr && std::any_of(comms_.begin(), comms_.end(), is_in_the_way)) {
      if (std::chrono::steady_clock::now() > end)
        return Misused("ncclCommAbort", "it waits for ever for the kernel of another communicator");
      lock->unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      lock->lock();
    }
    return kSuccess;
  }

  static int VersionAtFirst() {
    const char* const said = std::getenv("FAKE_NCCL_VERSION");
    return said != nullptr ? std::atoi(said) : 21803;
  }

  static FakeCuda& OpenCuda() {
    const char* const path = std::getenv("FARANDOLE_CUDA_DRIVER");
    return path != nullptr ? farandole::OpenFakeCuda(path) : farandole::OpenFakeCuda();
  }

  FakeCuda& cuda_ = OpenCuda();
  std::mutex mutex_;
  int version_ = VersionAtFirst(), later_ = kSuccess, next_reduce_ = 0;
  std::string hangs_in_, hangs_in_next_;
  int releases_ = 0;
  std::condition_variable released_;
  bool hangs_ = false, hangs_before_launch_ = false, refuses_shared_devices_ = false;
  std::map<std::string, int> failures_, calls_;
  std::vector<std::string> misuses_;
  std::vector<int> sizes_;
  std::map<std::string, std::shared_ptr<Room>> rooms_;
  std::vector<std::shared_ptr<Comm>> comms_;  // those that are gone, too, to notice their use
  std::map<std::thread::id, CallGroup> groups_;
  std::map<std::thread::id, Comm*> begun_;  // what a thread has called last
};

// Never destroyed: kernels may outlast main.
Library& TheLibrary() {
  static auto* const library = new Library();
  return *library;
}

Call CallOf(Kind kind, const void* from, void* to, size_t count, int type, int reduce = 0, int peer = 0) {
  Call call;
  call.kind = kind;
  call.type = type;
  call.reduce = reduce;
  call.peer = peer;
  call.count = count;
  call.from = static_cast<const char*>(from);
  call.to = static_cast<char*>(to);
  return call;
}

}  // namespace

NCCL_CALL farandole::FakeNccl* fake_nccl() { return &TheLibrary(); }

NCCL_CALL int ncclGetVersion(int* version) {
  *version = TheLibrary().version();
  return kSuccess;
}
NCCL_CALL const char* ncclGetErrorString(int code) {
  switch (code) {
    case 1:
      return "unhandled cuda error";
    case 2:
      return "unhandled system error";
    case 5:
      return "invalid usage";
    case 6:
      return "remote process exited or there was a network error";
    default:
      return "unknown result code";
  }
}
NCCL_CALL const char* ncclGetLastError(Comm*) { return "the last line of the log"; }
NCCL_CALL int ncclGetUniqueId(UniqueId* id) {
  if (const int code = TheLibrary().Enter("ncclGetUniqueId")) return code;
  const std::string name = TheLibrary().UniqueName();
  std::memset(id->bytes, 0, sizeof(id->bytes));
  std::memcpy(id->bytes, name.data(), name.size());
  return kSuccess;
}
NCCL_CALL int ncclCommInitRankConfig(Comm** comm, int size, UniqueId id, int rank, const Config* config) {
  return TheLibrary().Init(comm, size, id, rank, *config);
}
NCCL_CALL int ncclCommGetAsyncError(Comm* comm, int* error) { return TheLibrary().Poll(comm, error); }
NCCL_CALL int ncclCommFinalize(Comm* comm) { return TheLibrary().Finalize(comm); }
NCCL_CALL int ncclCommDestroy(Comm* comm) { return TheLibrary().Destroy(comm); }
NCCL_CALL int ncclCommAbort(Comm* comm) { return TheLibrary().Abort(comm); }
NCCL_CALL int ncclGroupStart() { return TheLibrary().BeginGroup(); }
NCCL_CALL int ncclGroupEnd() { return TheLibrary().EndGroup(); }
NCCL_CALL int ncclAllReduce(const void* from, void* to, size_t count, int type, int reduce, Comm* comm, void* stream) {
  return TheLibrary().Collect("ncclAllReduce", comm, stream, CallOf(kAllReduce, from, to, count, type, reduce));
}
NCCL_CALL int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Comm* comm, void* stream) {
  return TheLibrary().Collect("ncclBroadcast", comm, stream, CallOf(kBroadcast, from, to, count, type, 0, root));
}
NCCL_CALL int ncclAllGather(const void* from, void* to, size_t count, int type, Comm* comm, void* stream) {
  return TheLibrary().Collect("ncclAllGather", comm, stream, CallOf(kAllGather, from, to, count, type));
}
NCCL_CALL int ncclReduceScatter(const void* from, void* to, size_t count, int type, int reduce, Comm* comm,
                                void* stream) {
  return TheLibrary().Collect("ncclReduceScatter", comm, stream, CallOf(kReduceScatter, from, to, count, type, reduce));
}
NCCL_CALL int ncclReduce(const void* from, void* to, size_t count, int type, int reduce, int root, Comm* comm,
                         void* stream) {
  return TheLibrary().Collect("ncclReduce", comm, stream, CallOf(kReduceToOne, from, to, count, type, reduce, root));
}
NCCL_CALL int ncclSend(const void* from, size_t count, int type, int peer, Comm* comm, void* stream) {
  return TheLibrary().Collect("ncclSend", comm, stream, CallOf(kSend, from, nullptr, count, type, 0, peer));
}
NCCL_CALL int ncclRecv(void* to, size_t count, int type, int peer, Comm* comm, void* stream) {
  return TheLibrary().Collect("ncclRecv", comm, stream, CallOf(kReceive, nullptr, to, count, type, 0, peer));
}
NCCL_CALL int ncclRedOpCreatePreMulSum(int* reduce, void* scalar, int type, int, Comm* comm) {
  return TheLibrary().MakeScaledSum(reduce, scalar, type, comm);
}
NCCL_CALL int ncclRedOpDestroy(int reduce, Comm* comm) { return TheLibrary().DestroyReduce(reduce, comm); }

// ---- for tests in Python, by ctypes

NCCL_CALL void fake_nccl_hang() { TheLibrary().Hang(); }
NCCL_CALL void fake_nccl_refuse_shared_devices() { TheLibrary().RefuseSharedDevices(); }
NCCL_CALL void fake_nccl_fail(const char* call, int code) { TheLibrary().Fail(call, code); }
NCCL_CALL void fake_nccl_fail_later(int code) { TheLibrary().FailLater(code); }
NCCL_CALL int fake_nccl_calls(const char* name) { return TheLibrary().calls(name); }
NCCL_CALL int fake_nccl_largest() {
  const std::vector<int> sizes = TheLibrary().sizes();
  return sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
}
NCCL_CALL int fake_nccl_live() { return TheLibrary().live(); }
NCCL_CALL int fake_nccl_misuses() {
  for (const std::string& misuse : TheLibrary().misuses()) std::fprintf(stderr, "misuse of NCCL: %s\n", misuse.c_str());
  return static_cast<int>(TheLibrary().misuses().size());
}
