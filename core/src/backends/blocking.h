// Backends whose library may block share four things: a thread that makes the library's calls, an allgather before the
// ranks have connected in the library, tasks in the form that libraries take, and a whole backend over blocking
// collectives.
//
//   CallThread             makes calls one after the other; abandoned if one does not return
//   OutOfBandAllgather     addresses or ids of a set's members, by the host backend
//   PackedTask             one input and one output without holes, and no scale
//   BlockingLibrary        the calls of one library; MakeBlocking makes a backend of it
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "collectives/runner.h"
#include "collectives/task.h"
#include "common/clock.h"

namespace farandole {

// A thread that makes calls of a library in the order in which they were submitted. Its owner, which is one thread at a
// time, asks later whether they have been made, so a call that blocks does not block the owner.
//
// A call that does not return keeps the thread and everything that the calls use, even after the CallThread is
// destroyed, since each call owns what it uses. If it does return, the thread makes the calls behind it.
class CallThread {
 public:
  using Call = std::function<Status()>;

  // The thread calls `wake`, if there is one, whenever it has made all calls, until the CallThread is destroyed.
  explicit CallThread(std::function<void()> wake = nullptr);
  // Ends the thread if it is idle, else abandons it.
  ~CallThread();
  CallThread(const CallThread&) = delete;
  CallThread& operator=(const CallThread&) = delete;

  void Submit(Call call);
  // True when all calls have been made; *status is then the first error since the last TakeResult.
  bool TakeResult(Status* status);
  // True when all calls have been made.
  bool IsIdle() const;
  // Waits until all calls have been made. Returns false if they have not been by `end`.
  bool AwaitIdle(TimePoint end);

 private:
  struct Shared;  // shared with the thread, which may outlive this

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

// Members of a process set send each other some bytes, all of the same size, before their library has connected: the
// addresses where it listens, for example. The host backend performs this at its place in the log, and needs no
// addresses itself. Only the holder of the ProgressLock uses it.
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

// A task as libraries of collectives take it: one operation of one dtype, from `input` to `output`, unscaled.
//
//   allreduce        the same vector each
//   broadcast        one vector, the same pointer twice
//   allgather        this rank's part, and all parts
//   alltoall         the parts for all positions, and those of all
//   reducescatter    the whole vector, and this rank's part
//
// They are equal where the operation is performed in place; an allgather's input may lie at its place in the output.
struct PackedTask {
  const Task* task;
  const void* input;
  void* output;
  size_t input_bytes, output_bytes;
};

// A library of collectives whose calls block. A CallThread performs the tasks, in the order of the log.
//
//   progress loop     Start: the set's first task: addresses of all members, out of band     Poll until done
//   thread                                            Connect(set, addresses)  Run(task) ...  Forget(set)
//
// The progress loop calls Open, GetAddress and Interrupt; the thread calls the others.
class BlockingLibrary {
 public:
  virtual ~BlockingLibrary() = default;
  // As Backend::Open.
  virtual Status Open() { return Status::Ok(); }
  // Sets *peer_address to the bytes that the other members need from this rank before the first task of the set. All
  // members give equally many; none where the library needs none.
  virtual Status GetAddress(const ProcessSet& /*set*/, std::string* peer_address) {
    peer_address->clear();
    return Status::Ok();
  }
  // Connects the set before its first task. peer_addresses: by position, or none.
  virtual Status Connect(const ProcessSet& set, const std::vector<std::string>& peer_addresses) = 0;
  // Packs the task, performs it and unpacks the result. Packing copies together several buffers, gives memory to a rank
  // that has joined, and scales 16-bit floats before they are rounded; a single tensor is not copied. kInternal when
  // there is no memory.
  Status Run(const Task& task);
  virtual void Forget(int /*set_id*/) {}
  // Makes a Connect or Perform that runs return soon, where the library can do that. No other task follows.
  virtual void Interrupt() {}

 private:
  virtual Status Perform(const PackedTask& packed) = 0;
  Status Pack(PackedTask* packed);

  Scratch inputs_, outputs_;  // kept for the next task: what libraries read and write where tensors cannot be used
};

// patience: how long the library may take to react to Interrupt. Afterwards its thread is abandoned with everything
// that it uses, and a warning tells the user.
std::unique_ptr<Backend> MakeBlocking(const BackendKind& kind, World* world, Backend* host_backend,
                                      std::shared_ptr<BlockingLibrary> library, std::chrono::milliseconds patience);

}  // namespace farandole
