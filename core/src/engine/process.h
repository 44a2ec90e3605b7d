// The one engine of this process, shared by all plugins in it, and what a fork means for it.
//
// A forked child (a data loader's worker, for example) has the rank's memory but not its threads, and would keep its
// sockets open after its death. So the child closes its copies at once, and every call there says that a child cannot
// take part. Any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace farandole {

// Returns an error in a forked child of a rank.
Status CheckNotForked();

// No-op when there is an engine already. The caller keeps local ranks and the like.
Status InitProcess(const WorldSpec& spec);
// While set, an InitProcess that waits for other ranks in another thread gives up soon.
void CancelInit(bool cancel);
// Leaves the world. No-op when there is none. Calls that are under way in other threads end with an error.
void ShutdownProcess();
// Returns null, with the reason in *status if that is given, before init, after shutdown and in a forked child.
std::shared_ptr<Engine> CurrentEngine(Status* status = nullptr);

// Gathers `mine` of all ranks, by rank, through the library of the launcher that started them. Blocks until all have
// called.
Status ExchangeThroughLauncher(int rank, int size, const std::string& mine, std::vector<std::string>* all);

// True when a backend that the settings list takes tensors as they lie on a device. False where the settings cannot be
// read: init reports what is wrong with them.
bool SettingsTakeDeviceMemory();
// Finds whether a backend could be used in this process, and by which library. Opens the library as a job would, but
// starts nothing in it.
struct BackendFound {
  std::string library;  // "Name 1.2.3"; "" where it needs none
  std::string missing;  // why it cannot be used, and what to install; "" when it can
};
BackendFound FindBackend(const std::string& name);

}  // namespace farandole
