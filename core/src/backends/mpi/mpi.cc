// The MPI backend: a library that is found at run time, and whose own launcher started the ranks.
#include <memory>
#include <string>
#include <vector>

#include "backends/blocking.h"
#include "backends/mpi/collectives.h"
#include "backends/mpi/process.h"
#include "backends/packing.h"
#include "backends/table.h"

namespace farandole {
namespace {

bool MpiSupports(const OperationFacts& facts) {
  return LibrariesPerform(facts) && (!Reduces(facts.kind) || MpiKnows(facts.dtype));
}

// A wheel puts its MPI into the Python environment, where the system does not look for libraries.
Status FindLibrary(const Settings& settings, const MpiLibrary** library) {
  MpiPlaces places;
  if (const auto wanted = settings.libraries.find(kMpi.name); wanted != settings.libraries.end())
    places.wanted = wanted->second;
  places.launcher = settings.launcher;
  if (std::string folder = OwnLibraryFolder(); !folder.empty()) places.folders.push_back(std::move(folder));
  return OpenMpiLibrary(places, library);
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
    FRD_RETURN_IF_ERROR(FindPlaceInMpi(*library_, world_size_, &place_));
    communicators_ = std::make_unique<MpiCommunicators>(library_);
    return Status::Ok();
  }

  Status Greet(const ProcessSet&, std::string* peer_address) override {
    peer_address->assign(reinterpret_cast<const char*>(&place_), sizeof(place_));
    return Status::Ok();
  }

  Status Meet(const ProcessSet& set, const std::vector<std::string>& peer_addresses) override {
    std::vector<int> places(peer_addresses.size());
    for (size_t i = 0; i < peer_addresses.size(); ++i)
      peer_addresses[i].copy(reinterpret_cast<char*>(&places[i]), sizeof(int));
    return communicators_->Make(set.id, places);
  }

  Status Perform(const Task& task) override {
    FRD_RETURN_IF_ERROR(packing_.Pack(task));
    FRD_RETURN_IF_ERROR(Call(task, communicators_->Of(task.set->id)));
    packing_.Unpack();
    return Status::Ok();
  }

  void Forget(int set_id) override { communicators_->Forget(set_id); }

  // MPI cannot interrupt its thread. Where MPI's launcher sees that a rank has died, it ends the others.
  void Interrupt() override { LeaveMpiUnfinished(); }

 private:
  Status Call(const Task& task, MpiHandle communicator) const {
    const MpiCollectives collectives(library_);
    const int position = task.set->position;
    const void* const input = packing_.input();
    void* const output = packing_.output();
    switch (task.kind) {
      case OpKind::kAllreduce:
        return collectives.Allreduce(communicator, task.dtype, task.reduce, input, output,
                                     packing_.input_bytes() / SizeOf(task.dtype));
      case OpKind::kBroadcast:
        return collectives.Broadcast(communicator, task.root, output, packing_.output_bytes());
      case OpKind::kAllgather:
        return collectives.Allgather(communicator, position, input, output, task.rank_bytes);
      case OpKind::kAlltoall:
        return collectives.Alltoall(communicator, position, input, task.send_bytes, output, task.recv_bytes);
      case OpKind::kReducescatter:
        return collectives.Reducescatter(communicator, position, task.dtype, task.reduce, input, output,
                                         task.rank_bytes);
      default:
        return Internal(kMpi.name, " does not perform ", NameOf(task.kind));
    }
  }

  const int world_size_;
  const Settings settings_;
  const MpiLibrary* library_ = nullptr;
  int place_ = 0;
  std::unique_ptr<MpiCommunicators> communicators_;
  Packing packing_;
};

Status Exchange(const Settings& settings, int rank, int size, const std::string& mine, std::vector<std::string>* all) {
  const WithinMpi within;
  const MpiLibrary* library = nullptr;
  FRD_RETURN_IF_ERROR(FindLibrary(settings, &library));
  FRD_RETURN_IF_ERROR(StartMpi(*library, settings.launcher));
  return ExchangeByMpi(*library, rank, size, mine, all);
}

std::unique_ptr<Backend> Make(World* world, const Settings& settings, Backend* host_backend) {
  return MakeBlocking(kMpi, world, host_backend, std::make_shared<BlockingMpi>(world->size, settings),
                      std::chrono::milliseconds(settings.abort_patience_ms));
}

}  // namespace

const BackendKind kMpi = {"mpi", &MpiSupports, false, &FindVersion, &Make, &Exchange};

}  // namespace farandole
