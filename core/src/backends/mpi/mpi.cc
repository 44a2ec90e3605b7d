// The MPI backend: a library that is found at run time, and whose own launcher started the ranks.
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backends/blocking.h"
#include "backends/mpi/communicator.h"
#include "backends/table.h"

namespace farandole {
namespace {

bool MpiSupports(const OperationFacts& facts) {
  return LibrariesPerform(facts) && (!Reduces(facts.kind) || MpiKnows(facts.dtype));
}

// A wheel puts its MPI into the Python environment, where the system does not look for libraries.
Status FindLibrary(const Settings& settings, const MpiLibrary** library) {
  return OpenMpiLibrary({PathOfLibrary(settings, kMpi.name), settings.launcher, OwnLibraryFolder()}, library);
}

Status FindVersion(const Settings& settings, std::string* version) {
  const MpiLibrary* library = nullptr;
  FRD_RETURN_IF_ERROR(FindLibrary(settings, &library));
  *version = library->version;
  return Status::Ok();
}

// A rank's address is its number in MPI_COMM_WORLD. The job's ranks may be some of MPI's, and in another order.
class BlockingMpi final : public BlockingLibrary {
 public:
  BlockingMpi(int world_size, const Settings& settings) : world_size_(world_size), settings_(settings) {}

  Status Open() override {
    FRD_RETURN_IF_ERROR(FindLibrary(settings_, &library_));
    FRD_RETURN_IF_ERROR(StartMpi(*library_, settings_.launcher));
    return FindRankInMpi(*library_, world_size_, &place_);
  }

  Status GetAddress(const ProcessSet&, std::string* peer_address) override {
    peer_address->assign(reinterpret_cast<const char*>(&place_), sizeof(place_));
    return Status::Ok();
  }

  Status Connect(const ProcessSet& set, const std::vector<std::string>& peer_addresses) override {
    std::vector<int> places(peer_addresses.size());
    for (size_t i = 0; i < peer_addresses.size(); ++i)
      peer_addresses[i].copy(reinterpret_cast<char*>(&places[i]), sizeof(int));
    const auto made = communicators_.try_emplace(set.id, *library_).first;
    return made->second.Make(set.id, places, set.position);
  }

  void Forget(int set_id) override { communicators_.erase(set_id); }

  // MPI cannot interrupt its thread. Where MPI's launcher sees that a rank has died, it ends the others.
  void Interrupt() override { EnterMpiForLong(); }

 private:
  Status Perform(const PackedTask& packed) override {
    const Task& task = *packed.task;
    const MpiCommunicator& communicator = communicators_.at(task.set->id);
    switch (task.kind) {
      case OpKind::kAllreduce:
        return communicator.Allreduce(task.dtype, task.reduce, packed.input, packed.output,
                                      packed.input_bytes / SizeOf(task.dtype));
      case OpKind::kBroadcast:
        return communicator.Broadcast(task.root, packed.output, packed.output_bytes);
      case OpKind::kAllgather:
        return communicator.Allgather(packed.input, packed.output, task.rank_bytes);
      case OpKind::kAlltoall:
        return communicator.Alltoall(packed.input, task.send_bytes, packed.output, task.recv_bytes);
      default:
        return communicator.Reducescatter(task.dtype, task.reduce, packed.input, packed.output, task.rank_bytes);
    }
  }

  const int world_size_;
  const Settings settings_;
  const MpiLibrary* library_ = nullptr;
  int place_ = 0;
  std::map<int, MpiCommunicator> communicators_;  // by the set's id
};

// In a communicator of its own. kInvalid where this process has another rank in MPI than its launcher's variables said.
Status Gather(const MpiLibrary& library, int rank, int size, const std::string& mine, std::vector<std::string>* all) {
  int place = -1;
  FRD_RETURN_IF_ERROR(FindRankInMpi(library, size, &place));
  if (place != rank)
    return Invalid("this process is rank ", rank, " by its launcher's variables, but rank ", place, " in MPI (",
                   library.Title(), "): start all ranks with one mpirun");
  std::vector<int> everybody(static_cast<size_t>(size));
  std::iota(everybody.begin(), everybody.end(), 0);
  MpiCommunicator communicator(library);
  FRD_RETURN_IF_ERROR(communicator.Make(0, everybody, rank));
  const std::vector<size_t> numbers(everybody.size(), sizeof(uint64_t));
  std::vector<uint64_t> sizes(everybody.size());
  const uint64_t own = mine.size();
  FRD_RETURN_IF_ERROR(communicator.Allgather(&own, sizes.data(), numbers));
  const std::vector<size_t> rank_bytes(sizes.begin(), sizes.end());
  std::string joined(std::accumulate(rank_bytes.begin(), rank_bytes.end(), size_t{0}), '\0');
  FRD_RETURN_IF_ERROR(communicator.Allgather(mine.data(), joined.data(), rank_bytes));
  all->clear();
  for (size_t at = 0, r = 0; r < rank_bytes.size(); at += rank_bytes[r++])
    all->push_back(joined.substr(at, rank_bytes[r]));
  return Status::Ok();
}

Status Exchange(const Settings& settings, int rank, int size, const std::string& mine, std::vector<std::string>* all) {
  const MpiLibrary* library = nullptr;
  FRD_RETURN_IF_ERROR(FindLibrary(settings, &library));
  EnterMpiForLong();
  Status status = StartMpi(*library, settings.launcher);
  if (status.ok()) status = Gather(*library, rank, size, mine, all);
  LeaveMpi();
  return status;
}

std::unique_ptr<Backend> Make(World* world, const Settings& settings, Backend* host_backend) {
  return MakeBlocking(kMpi, world, host_backend, std::make_shared<BlockingMpi>(world->size, settings),
                      std::chrono::milliseconds(settings.abort_patience_ms));
}

}  // namespace

const BackendKind kMpi = {"mpi", &MpiSupports, false, &FindVersion, &Make, &Exchange};

}  // namespace farandole
