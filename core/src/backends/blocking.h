// A back end over a library whose calls block: one thread of its own performs the tasks, in the order of the log.
//
//   driver   Start: the set's first task: addresses of all members, by the host backend     Poll: is it done?
//   thread                  Meet(set, addresses)  Perform(task) ...  Forget(set)
//
// A library that does not return keeps its thread: after an abort that it does not heed within a few seconds the thread
// is left alone with everything that it uses, and the user is told.
//
// OutOfBandAllgather: the members of a process set tell each other some bytes, all of the same size, before their
// library has met: the addresses where it listens, say. The host backend performs it, which needs no such thing, in the
// order of the log. The driver alone uses it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"

namespace farandole {

class OutOfBandAllgather {
 public:
  explicit OutOfBandAllgather(Backend* host_backend) : host_backend_(host_backend) {}
  OutOfBandAllgather(const OutOfBandAllgather&) = delete;
  OutOfBandAllgather& operator=(const OutOfBandAllgather&) = delete;

  // `set` stays valid until it is done or aborted.
  Status Start(const ProcessSet& set, std::string peer_address);
  Status Poll(bool* moved, bool* done) { return host_backend_->Poll(moved, done); }
  void Abort() { host_backend_->Abort(); }
  std::vector<int> WaitingOn() const { return host_backend_->WaitingOn(); }
  // By position. REQUIRES: done.
  std::vector<std::string> peer_addresses() const;

 private:
  Backend* const host_backend_;
  std::string peer_address_, all_;
  Task task_;
};

// What is done with the library. Greet, Interrupt and Open in threads of the engine; the rest in the thread.
class BlockingLibrary {
 public:
  virtual ~BlockingLibrary() = default;
  // As Backend::Open.
  virtual Status Open() { return Status::Ok(); }
  // What this rank tells the other members before the first work of the set, of the same size on every rank. Empty,
  // also on all: there is nothing to tell.
  virtual Status Greet(const ProcessSet& set, std::string* peer_address) {
    static_cast<void>(set), peer_address->clear();
    return Status::Ok();
  }
  // Before the first work of the set. peer_addresses: by position, or none.
  virtual Status Meet(const ProcessSet& set, const std::vector<std::string>& peer_addresses) = 0;
  virtual Status Perform(const Task& task) = 0;
  virtual void Forget(int set_id) { static_cast<void>(set_id); }
  // Makes Meet or Perform, which runs, return soon where the library can do that. Afterwards there is no other work.
  virtual void Interrupt() {}
};

std::unique_ptr<Backend> MakeBlocking(const BackendKind& kind, World* world, Backend* host_backend,
                                      std::shared_ptr<BlockingLibrary> library);

}  // namespace farandole
