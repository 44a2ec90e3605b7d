// The NCCL back end: collectives of tensors that lie on CUDA devices, as they lie there, with results there.
//
//   introduction (NCCL's id, the device) -> communicator -> NCCL's calls in a stream of ours -> its event -> done
//
// Where NCCL has no network between hosts, a work that spans several has NCCL's calls before and after an exchange of
// ours (relay.h).
//
// Communicators are made in the order of the log (communicators.h); nothing here blocks but an abort, which gives
// NCCL and the device a few seconds each to let go of the tensors, and CUDA's driver, where memory is taken from it. A
// call of NCCL older than 2.27 that does not come back keeps a thread of ours (caller.h), not the driver. A work is
// done when the device is past it, so an error that comes up meanwhile is that work's. The driver alone uses it.
#pragma once

#include "backends/backend.h"

namespace farandole {

extern const BackendKind kNccl;

}  // namespace farandole
