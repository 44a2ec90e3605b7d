#include "backends/gloo/gloo.h"

#include <cstring>
#include <map>
#include <mutex>
#include <numeric>

#include "backends/blocking.h"
#include "backends/gloo/library.h"
#include "backends/packing.h"

namespace farandole {
namespace {

// Gloo's own limit for one operation is not ours: the engine knows for whom it waits, and for how long it may.
constexpr int64_t kLongerThanAnyOperationMs = int64_t{24} * 3600 * 1000;

struct Kernel {
  DType dtype;
  ReduceOp reduce;
};

void FoldTwo(void* kernel, void* output, const void* left, const void* right, size_t element_count) {
  const auto* const of = static_cast<const Kernel*>(kernel);
  const void* const inputs[] = {left, right};
  Fold(of->dtype, of->reduce, inputs, 2, element_count, Scale(), output);
}

class GlooPerformer final : public Performer {
 public:
  GlooPerformer(const World& world, const Settings& settings) : rank_(world.rank), settings_(settings) {}
  ~GlooPerformer() override {
    for (const auto& [set_id, context] : contexts_) table_->destroy(context);
  }

  Status Open() override { return OpenGloo(settings_, &table_); }

  Status Greet(const ProcessSet& set, std::string* greeting) override {
    greeting->assign(static_cast<size_t>(set.size()) * FRD_GLOO_ADDRESS_BYTES, '\0');
    char error[FRD_GLOO_ERROR_BYTES] = "";
    const char* const address = settings_.interface_address.c_str();
    void* const context =
        table_->listen(address, set.position, set.size(), kLongerThanAnyOperationMs, greeting->data(), error);
    if (context == nullptr) return Failed("cannot listen on " + settings_.interface_address, error);
    const std::lock_guard<std::mutex> lock(mutex_);
    contexts_[set.id] = context;
    return Status::Ok();
  }

  Status Meet(const ProcessSet& set, const std::vector<std::string>& greetings) override {
    void* const context = Enter(set.id);
    const std::string all = std::accumulate(greetings.begin(), greetings.end(), std::string());
    char error[FRD_GLOO_ERROR_BYTES] = "";
    if (table_->connect(context, all.data(), error) == 0) return Status::Ok();
    return Failed("cannot connect to the others of process set " + std::to_string(set.id), error);
  }

  Status Perform(const Work& work) override {
    void* const context = Enter(work.set->id);
    FRD_RETURN_IF_ERROR(packing_.Pack(work));
    char error[FRD_GLOO_ERROR_BYTES] = "";
    if (Call(context, work, error) != 0) return Failed(std::string(NameOf(work.kind)) + " went wrong", error);
    packing_.Unpack();
    return Status::Ok();
  }

  // Whatever runs in it fails; the epoch is over.
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
  void* Enter(int set_id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_ = contexts_.at(set_id);
    return running_;
  }

  int Call(void* context, const Work& work, char* error) {
    switch (work.kind) {
      case OpKind::kAllreduce:
        return Reduce(context, work, packing_.output(), error);
      case OpKind::kBroadcast:
        return packing_.output_bytes() == 0
                   ? 0
                   : table_->broadcast(context, packing_.output(), packing_.output_bytes(), work.root, error);
      case OpKind::kAllgather:
        return packing_.output_bytes() == 0
                   ? 0
                   : table_->allgather(context, packing_.input(), packing_.output(), work.rank_bytes.data(), error);
      case OpKind::kAlltoall:
        return table_->alltoall(context, packing_.input(), work.send_bytes.data(), packing_.output(),
                                work.recv_bytes.data(), error);
      default:
        return Reducescatter(context, work, error);
    }
  }

  int Reduce(void* context, const Work& work, void* output, char* error) {
    Kernel kernel{work.dtype, work.reduce};
    const size_t width = SizeOf(work.dtype), count = packing_.input_bytes() / width;
    if (count == 0) return 0;
    return table_->allreduce(context, packing_.input(), output, count, width, FoldTwo, &kernel, error);
  }

  // Gloo has no such function: the whole is reduced, and this rank's part taken.
  int Reducescatter(void* context, const Work& work, char* error) {
    whole_.resize(packing_.input_bytes());
    if (Reduce(context, work, whole_.data(), error) != 0) return 1;
    const auto mine = work.rank_bytes.begin() + work.set->position;
    const size_t before = std::accumulate(work.rank_bytes.begin(), mine, size_t{0});
    if (*mine > 0) std::memcpy(packing_.output(), whole_.data() + before, *mine);
    return 0;
  }

  Status Failed(const std::string& what, const char* why) const {
    return Internal("Gloo " + what + " on rank " + std::to_string(rank_) + ": " + why);
  }

  const int rank_;
  const Settings settings_;
  const FrdGlooTable* table_ = nullptr;
  Packing packing_;
  std::vector<std::byte> whole_;
  std::mutex mutex_;
  std::map<int, void*> contexts_;  // by the set's id
  void* running_ = nullptr;
};

constexpr auto kPerformed = ByNumber<kOpKindCount, bool>(false, {{OpKind::kAllreduce, true},
                                                                 {OpKind::kAllgather, true},
                                                                 {OpKind::kBroadcast, true},
                                                                 {OpKind::kAlltoall, true},
                                                                 {OpKind::kReducescatter, true}});

bool GlooSupports(const Demand& demand) {
  if (!kPerformed[static_cast<size_t>(demand.kind)]) return false;
  if (!Reduces(demand.kind)) return true;
  return Supports(demand.dtype, demand.reduce) && !NeedsWholeTensors(demand.reduce);
}

Status FindGloo(const Settings& settings, std::string* library) {
  const FrdGlooTable* table = nullptr;
  FRD_RETURN_IF_ERROR(OpenGloo(settings, &table));
  *library = std::string("Gloo ") + table->version;
  return Status::Ok();
}

std::unique_ptr<Backend> MakeGloo(World* world, const Settings& settings, Backend* carrier) {
  return MakeBlocking(kGloo, world, carrier, std::make_shared<GlooPerformer>(*world, settings));
}

}  // namespace

const BackendKind kGloo{"gloo", GlooSupports, false, false, FindGloo, MakeGloo};

}  // namespace farandole
