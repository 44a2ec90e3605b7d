// The Gloo backend: collectives over Gloo's own TCP connections, by libfarandole_gloo.so (bridge.h), which the package
// farandole-gloo has, or the user has built.
#include <dlfcn.h>

#include <cstring>
#include <map>
#include <mutex>
#include <numeric>

#include "backends/blocking.h"
#include "backends/gloo/bridge.h"
#include "backends/table.h"
#include "common/dynamic_library.h"

namespace farandole {
namespace {

// ---- the library

constexpr char kFileName[] = "libfarandole_gloo.so";

// The file beside the library or program that this code is part of, where the core's package has it.
std::string InstalledPath() {
  const std::string ours = PathOfThisCopy();
  const size_t slash = ours.rfind('/');
  return slash == std::string::npos ? kFileName : ours.substr(0, slash + 1) + kFileName;
}

std::string PathOf(const Settings& settings) {
  const std::string chosen = PathOfLibrary(settings, kGloo.name);
  return chosen.empty() ? InstalledPath() : chosen;
}

Status Open(const std::string& path, const FrdGlooTable** table) {
  // Local: torch brings a Gloo of its own with the same names, and the two must not mix.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Invalid(
        "the backend gloo needs ", kFileName, ", which cannot be opened (", dlerror(),
        "); install it (python -m pip install 'farandole[gloo]'), or set FARANDOLE_GLOO_LIB to the path of one that "
        "you have built from core/gloo of Farandole's sources; or take gloo out of FARANDOLE_BACKEND");
  }
  const auto function = reinterpret_cast<FrdGlooTableFunction>(dlsym(library, FRD_GLOO_TABLE));
  const FrdGlooTable* const found = function != nullptr ? function() : nullptr;
  const bool fits = found != nullptr && found->abi == FRD_GLOO_ABI && found->struct_size >= sizeof(FrdGlooTable);
  if (!fits) {
    dlclose(library);
    return Invalid(path, (found == nullptr ? " is no " : " is another version's "), kFileName,
                   "; install the one of this version (python -m pip install --upgrade 'farandole[gloo]')");
  }
  *table = found;
  return Status::Ok();
}

// Opens the library once per path and keeps it for the life of the process, since an abandoned thread may still use it.
// Any thread may call. kInvalid says what was looked for and how to get it.
Status OpenGloo(const Settings& settings, const FrdGlooTable** table) {
  const FrdGlooTable** known = nullptr;
  const std::string path = PathOf(settings);
  FRD_RETURN_IF_ERROR(OpenOnce(path, &known, [&](const FrdGlooTable** fresh) { return Open(path, fresh); }));
  *table = *known;
  return Status::Ok();
}

// ---- how it is used

// Gloo's own timeout fails an operation without saying whom it waited for. The engine knows that, and has a timeout of
// its own, so Gloo's must never be the shorter one.
constexpr int64_t kLongerThanAnyOperationMs = int64_t{24} * 3600 * 1000;

struct Kernel {
  DType dtype;
  ReduceOp reduce;
};

void ReduceTwo(void* kernel, void* output, const void* left, const void* right, size_t element_count) {
  const auto* const of = static_cast<const Kernel*>(kernel);
  const void* const inputs[] = {left, right};
  Reduce(of->dtype, of->reduce, inputs, 2, element_count, Scale(), output);
}

// Owns the contexts of the process sets. The progress loop may interrupt or greet while the library's thread performs,
// so what both use is under the mutex.
class BlockingGloo final : public BlockingLibrary {
 public:
  BlockingGloo(const World& world, const Settings& settings) : rank_(world.rank), settings_(settings) {}
  ~BlockingGloo() override {
    for (const auto& [set_id, context] : contexts_) table_->destroy(context);
  }

  Status Open() override { return OpenGloo(settings_, &table_); }

  Status GetAddress(const ProcessSet& set, std::string* peer_address) override {
    peer_address->assign(static_cast<size_t>(set.size()) * FRD_GLOO_ADDRESS_BYTES, '\0');
    char error[FRD_GLOO_ERROR_BYTES] = "";
    const char* const address = settings_.interface_address.c_str();
    void* const context =
        table_->listen(address, set.position, set.size(), kLongerThanAnyOperationMs, peer_address->data(), error);
    if (context == nullptr) return Failed("cannot listen on " + settings_.interface_address, error);
    const std::lock_guard<std::mutex> lock(mutex_);
    contexts_[set.id] = context;
    return Status::Ok();
  }

  Status Connect(const ProcessSet& set, const std::vector<std::string>& peer_addresses) override {
    void* const context = Enter(set.id);
    const std::string all = std::accumulate(peer_addresses.begin(), peer_addresses.end(), std::string());
    char error[FRD_GLOO_ERROR_BYTES] = "";
    if (table_->connect(context, all.data(), error) == 0) return Status::Ok();
    return Failed("cannot connect to the others of process set " + std::to_string(set.id), error);
  }

  // Every call in the context fails, now and later: the epoch is over.
  void Interrupt() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (running_ != nullptr) table_->close(running_);
  }

  void Forget(int set_id) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = contexts_.find(set_id);
    if (found == contexts_.end()) return;
    if (running_ == found->second) running_ = nullptr;
    table_->destroy(found->second);
    contexts_.erase(found);
  }

 private:
  Status Perform(const PackedTask& packed) override {
    char error[FRD_GLOO_ERROR_BYTES] = "";
    if (Call(Enter(packed.task->set->id), packed, error) == 0) return Status::Ok();
    return Failed(std::string(NameOf(packed.task->kind)) + " went wrong", error);
  }

  void* Enter(int set_id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_ = contexts_.at(set_id);
    return running_;
  }

  int Call(void* context, const PackedTask& packed, char* error) {
    const Task& task = *packed.task;
    if (task.kind == OpKind::kAlltoall) {
      return table_->alltoall(context, packed.input, task.send_bytes.data(), packed.output, task.recv_bytes.data(),
                              error);
    }
    const bool is_empty = (Reduces(task.kind) ? packed.input_bytes : packed.output_bytes) == 0;
    if (is_empty) return 0;
    switch (task.kind) {
      case OpKind::kAllreduce:
        return Reduce(context, packed, packed.output, error);
      case OpKind::kBroadcast:
        return table_->broadcast(context, packed.output, packed.output_bytes, task.root, error);
      case OpKind::kAllgather:
        return table_->allgather(context, packed.input, packed.output, task.rank_bytes.data(), error);
      default:
        return Reducescatter(context, packed, error);
    }
  }

  int Reduce(void* context, const PackedTask& packed, void* output, char* error) {
    Kernel kernel{packed.task->dtype, packed.task->reduce};
    const size_t width = SizeOf(kernel.dtype);
    return table_->allreduce(context, packed.input, output, packed.input_bytes / width, width, ReduceTwo, &kernel,
                             error);
  }

  // Gloo has no such function: the ranks reduce the whole vector, and each takes its part.
  int Reducescatter(void* context, const PackedTask& packed, char* error) {
    whole_.resize(packed.input_bytes);
    if (Reduce(context, packed, whole_.data(), error) != 0) return 1;
    const auto& parts = packed.task->rank_bytes;
    const size_t before = std::accumulate(parts.begin(), parts.begin() + packed.task->set->position, size_t{0});
    if (packed.output_bytes > 0) std::memcpy(packed.output, whole_.data() + before, packed.output_bytes);
    return 0;
  }

  Status Failed(const std::string& what, const char* why) const {
    return Internal("Gloo ", what, " on rank ", rank_, ": ", why);
  }

  const int rank_;
  const Settings settings_;
  const FrdGlooTable* table_ = nullptr;
  std::vector<std::byte> whole_;
  std::mutex mutex_;
  std::map<int, void*> contexts_;  // by the set's id; guarded by the mutex, as the next
  void* running_ = nullptr;        // of the current task, or of the last
};

Status FindGloo(const Settings& settings, std::string* library) {
  const FrdGlooTable* table = nullptr;
  FRD_RETURN_IF_ERROR(OpenGloo(settings, &table));
  *library = std::string("Gloo ") + table->version;
  return Status::Ok();
}

std::unique_ptr<Backend> MakeGloo(World* world, const Settings& settings, Backend* host_backend) {
  return MakeBlocking(kGloo, world, host_backend, std::make_shared<BlockingGloo>(*world, settings),
                      std::chrono::milliseconds(settings.abort_patience_ms));
}

}  // namespace

const BackendKind kGloo{"gloo", LibrariesPerform, false, FindGloo, MakeGloo};

}  // namespace farandole
