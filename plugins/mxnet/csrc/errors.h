// How an operation of MXNet's engine fails.
//
// MXNet 1.9 adds every error to one std::vector, which WaitForAll looks through and empties, and has no lock for it.
// The end of a failed operation appends; a thread that deletes an array with an error, or that runs an operation which
// reads one, searches. Two appends at once, or a search while an append moves the vector to larger memory, damage the
// heap. The ends of Farandole's operations take turns here. MXNet's searches cannot be locked, so the vector gets its
// memory before anything fails: until it holds kErrorRoom errors, an append moves nothing, and a search finds the error
// that it looks for. The ends of MXNet's own operators that fail at the same moment take no turns.
#pragma once

#include <mutex>
#include <string>

#include "mxnet_api.h"

namespace farandole_mxnet {

// Locked around the end of a failed operation and of the arrays that carry its error. Recursive: the end may let
// another call begin in this thread, which fails at once.
std::recursive_mutex& ErrorsMutex();

// Ends the operation with an error. MXNet raises the Python class that is registered for the text's first word. Any
// thread that holds ErrorsMutex.
void Fail(const MxCompletion& completion, const std::string& text);

constexpr int kErrorRoom = 4096;

// Pushes operations that write `scratch` and fail, one after the other: after the next WaitForAll, which raises that
// error, MXNet's vector is empty and has memory for kErrorRoom errors. Returns MXNet's last error, or "".
std::string MakeRoomForErrors(NDArrayHandle scratch);

}  // namespace farandole_mxnet
