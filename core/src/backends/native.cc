// The native backend: it looks up a process set's Collectives, which do the work, and runs Adasum, which consists of
// several of them.
#include <limits>
#include <map>

#include "algorithms/partition.h"
#include "backends/table.h"
#include "collectives/adasum.h"
#include "collectives/collectives.h"

namespace farandole {
namespace {

class Native final : public Backend {
 public:
  Native(World* world, const Settings& settings) : world_(world), settings_(settings) {}

  Status Start(const Task* task) override {
    running_ = &CollectivesOf(*task->set);
    running_->Begin(*task);
    adasum_.reset();
    if (!Reduces(task->kind) || !NeedsWholeTensors(task->reduce)) return running_->Start(task);
    adasum_ = std::make_unique<Adasum>(running_, task);
    return adasum_->Start();
  }

  Status Poll(bool* moved, bool* done) override {
    if (!adasum_) return running_->Poll(moved, done);
    FRD_RETURN_IF_ERROR(adasum_->Poll(moved, done));
    if (*done) adasum_.reset();
    return Status::Ok();
  }

  std::vector<int> WaitingOn() const override { return running_ ? running_->WaitingOn() : std::vector<int>(); }

  // The operation's own memory stays, since posts may touch it until the transport is quiet.
  void Abort() override {
    if (running_ != nullptr) running_->Abort();
  }

  void Forget(int set_id) override {
    const auto found = sets_.find(set_id);
    if (found == sets_.end()) return;
    if (running_ == found->second.get()) running_ = nullptr;
    found->second->Leave();
    sets_.erase(found);
  }

 private:
  Collectives& CollectivesOf(const ProcessSet& set) {
    std::unique_ptr<Collectives>& collectives = sets_[set.id];
    if (!collectives) {
      const auto last = last_set_on_channel_.emplace(set.channel, -1).first;
      collectives = std::make_unique<Collectives>(world_, settings_, set, last->second);
      last->second = set.id;
    }
    return *collectives;
  }

  World* world_;
  const Settings settings_;
  std::map<int, std::unique_ptr<Collectives>> sets_;  // by the set's id; made with the set's first task
  std::map<int, int> last_set_on_channel_;            // by channel; only sets that this rank was in
  Collectives* running_ = nullptr;                    // of the current task, or of the last
  std::unique_ptr<Adasum> adasum_;                    // the current task, performed by running_; null for other tasks
};

// Tensors may lie anywhere: the engine copies those on a device to host memory first.
bool NativeSupports(const OperationFacts& facts) {
  if (facts.set_size > NativeMostRanks(facts.kind)) return false;
  if (!Reduces(facts.kind)) return true;
  return Supports(facts.dtype, facts.reduce) && (Fuses(facts.kind) || !NeedsWholeTensors(facts.reduce));
}

Status FindNothing(const Settings&, std::string*) { return Status::Ok(); }

std::unique_ptr<Backend> MakeNative(World* world, const Settings& settings, Backend*) {
  return std::make_unique<Native>(world, settings);
}

}  // namespace

// Allgather and reducescatter give every position a piece of each slot (Parts), and a slot has room for only so many.
int NativeMostRanks(OpKind kind) {
  const bool in_parts = AllocatesOutput(kind) && !TakesSplits(kind);
  return in_parts ? Parts::kMostPositions : std::numeric_limits<int>::max();
}

size_t NativeStagingBytesPerMember() { return Staging::BytesPerMember(); }

const BackendKind kNative{"native", NativeSupports, false, FindNothing, MakeNative};

}  // namespace farandole
