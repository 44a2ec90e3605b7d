// The NCCL back end: collectives of tensors that lie on CUDA devices, as they lie there, with results there.
//
//   addresses (NCCL's id, the device) -> communicator -> NCCL's calls in a stream of ours -> its event -> done
//
// Where NCCL has no network between hosts, a task that spans several has NCCL's calls before and after an exchange of
// ours (relay.h).
//
// Communicators are made in the order of the log (communicators.h). Nothing here blocks, with two exceptions: an abort,
// which gives NCCL and the device a few seconds each to let go of the tensors, and CUDA's driver, where memory is taken
// from it. A call of NCCL that does not come back keeps a thread of ours (communicators.h), not the progress loop. A
// task is done when the device is past it, so an error that comes up meanwhile is that task's.
//
// It owns its communicators and one stream for each device. The devices are the process's (device.h), and so is NCCL's
// library, which a framework may use as well. Only the holder of the ProgressLock uses a back end.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/nccl/communicators.h"

namespace farandole {

// What the table's row makes, with a patience that tests shorten. Opens nothing yet, so it never fails; Backend::Open
// says whether there is a library.
std::unique_ptr<Backend> MakeNcclBackend(World* world, const Settings& settings, Backend* host_backend,
                                         const NcclPatience& patience = NcclPatience());

}  // namespace farandole
