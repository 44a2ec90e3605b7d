// The one engine of this process, shared by all plugins in it, and what a fork means for it.
//
// A forked child (a data loader's worker, say) has our memory but not our threads, and would keep our sockets open
// after our death. So the child closes its copies at once and every call there says that a child cannot take part. Any
// thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace farandole {

// An error in a forked child of a rank, whose operations are the parent's.
Status CheckNotForked();

// No-op when there is an engine already; local ranks and the like are the caller's to remember.
Status InitProcess(const WorldSpec& spec);
// While set, an InitProcess that waits for others in another thread gives up soon.
void CancelInit(bool cancel);
// Leaves the world. No-op when there is none. Calls that are under way in other threads end with an error.
void ShutdownProcess();
// Null, and *status says why, before init, after shutdown and in a forked child.
std::shared_ptr<Engine> CurrentEngine(Status* status);

// For ranks that only their launcher knows, before they call init. By which addresses other machines may reach this
// one: "10.0.0.7/24".
Status FindHostAddresses(std::vector<std::string>* addresses);
// Rank 0's end: listens at "tcp:<address>:0", say; *bound is where others come to.
Status ListenForRanks(const std::string& endpoint, Descriptor* listener, std::string* bound);
// What all ranks say, by rank, through the library of the launcher that started them. Blocks until all have called.
Status ExchangeThroughLauncher(int rank, int size, const std::string& mine, std::vector<std::string>* all);

// The back ends of this build; there need be no engine.
std::vector<std::string> BackendNames();
// What the back end at this place of BackendNames() declares. REQUIRES: there is one.
bool BackendSupports(int number, const PathFacts& facts);
bool BackendTakesDeviceMemory(int number);
// Whether one that the settings list takes tensors as they lie on a device. False where they cannot be read: init says
// what is wrong with them.
bool SettingsTakeDeviceMemory();
// Which of them could be used in this process, and by which library. Opens libraries, but begins nothing with them.
struct BackendFound {
  std::string name;
  std::string library;  // "Name 1.2.3"; "" where it needs none
  std::string missing;  // why it cannot be used, and what to install; "" when it can
};
std::vector<BackendFound> FindBackends();

}  // namespace farandole
