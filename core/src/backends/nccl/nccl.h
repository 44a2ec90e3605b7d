// The NCCL backend: collectives of tensors on CUDA devices, without copies to the host.
//
//   addresses (NCCL's id, the device) -> communicator -> NCCL's calls in the backend's own stream -> its event -> done
//
// Where NCCL has no network between hosts, a task that spans several hosts has NCCL's calls before and after an
// exchange over links (relay.h).
//
// Communicators are made in the order of the log (communicators.h). Nothing here blocks, with two exceptions: an abort
// gives NCCL and the device a few seconds each to release the tensors, and allocations wait for CUDA's driver. A call
// of NCCL that does not return keeps a thread of its communicator, not the progress loop (communicators.h). A task is
// done when the device has performed it, so an error until then is that task's.
//
// It owns its communicators and one stream for each device. The devices are the process's (device.h), and so is NCCL's
// library, which a framework may use as well. Only the holder of the ProgressLock uses a backend.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/nccl/communicators.h"

namespace farandole {

// Makes what the table's row makes, with a patience that tests shorten. It opens nothing, so it never fails;
// Backend::Open says whether there is a library.
std::unique_ptr<Backend> MakeNcclBackend(World* world, const Settings& settings, Backend* host_backend,
                                         const NcclPatience& patience = NcclPatience());

}  // namespace farandole
