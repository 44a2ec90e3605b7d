// The channel between the core and the diagnosis of its process. The diagnosis is written in Python: it decides what is
// late, stuck or deadlocked, and writes the messages. The core knows who waits for whom, carries questions and answers
// between ranks as opaque text, and ends the epoch.
//
//   core    Publish, OnAsked, OnAnswered  ---->  Await               diagnosis
//           TakeRequests, TakeDecision    <----  Ask, Reply, Decide
//
// C programs have no diagnosis, and it does not respond while a thread keeps the GIL. Then the core writes a simpler
// warning itself, and answers other ranks with stacks written by a signal handler.
#pragma once

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "controller/messages.h"
#include "operation/operation.h"

namespace farandole {

// A group of operations that wait for the same ranks in the same way, described by the one that has waited longest. An
// operation that a thread is blocked on is a group of its own.
struct WaitFacts {
  std::string title, call;  // see Operation
  bool is_named = false;    // by the user
  int set_size = 0;         // of its process set
  int64_t waited_ms = 0;
  size_t operations = 0;             // size of the group
  std::vector<int> missing;          // ranks, or the constants that replace them (stalls.h)
  std::string who;                   // the missing ranks as text
  bool is_reported_by_peer = false;  // see Wait (stalls.h)
  bool ends_by_itself = false;       // whatever the programs do
};

struct WaitReport {
  uint64_t entered = 0;  // Operations::entered
  int64_t warn_after_ms = 0;
  bool is_overdue = false;          // a wait is beyond the limit: the epoch must end
  std::vector<WaitFacts> waits;     // empty: there are no long waits any more
  std::vector<Absence> needed;      // operations at which other ranks have arrived and this rank has not
  bool knows_who_needs_us = false;  // `needed` is complete as of `entered`
};

// Another rank's answer, and Operations::entered when it arrived.
struct RankAnswer {
  int rank = 0;
  uint64_t entered = 0;
  std::string text;
};

// Why the epoch should end. A deadlock holds only while Operations::entered is unchanged, a deadline only while a wait
// is beyond the limit.
struct Decision {
  Status status;
  int culprit = -1;  // -1: no rank is to blame
  uint64_t entered = 0;
};

// Thread safety: any thread; Await in one thread only. No lock of Operations is taken under this one.
class DiagnosisChannel {
 public:
  static constexpr std::chrono::milliseconds kPatience{2000};       // for the diagnosis, before the core warns itself
  static constexpr std::chrono::milliseconds kReplyPatience{1000};  // likewise, before the core answers itself

  struct News {
    std::optional<WaitReport> report;  // only the latest
    std::vector<int> askers;           // ranks that want a Reply, once for each question
    std::vector<RankAnswer> answers;
  };
  struct Requests {
    std::vector<std::vector<int>> asks;                // ranks to ask
    std::vector<std::pair<int, std::string>> replies;  // by asker
  };

  // ---- the diagnosis, in one thread
  // Blocks until there is news. Returns false once the channel is closed.
  bool Await(News* news);
  void Ask(std::vector<int> ranks);
  void Reply(int asker, std::string text);
  void Decide(Decision decision);

  // ---- the core
  void Publish(WaitReport report);
  void OnAsked(int asker);
  void OnAnswered(RankAnswer answer);
  // Adds the core's own replies to questions that the diagnosis has not answered in time.
  Requests TakeRequests(TimePoint now);
  std::optional<Decision> TakeDecision();
  // False if there is no diagnosis, or if it has been busy for kPatience.
  bool Responds(TimePoint now) const;
  void Close();

 private:
  void Wake(std::unique_lock<std::mutex> lock);
  bool HasNews() const { return news_.report || !news_.askers.empty() || !news_.answers.empty(); }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_attached_ = false;  // Await has been called
  bool is_closed_ = false;
  TimePoint busy_since_{};  // since when the diagnosis has had news; TimePoint(): it waits for some
  News news_;
  Requests requests_;
  std::vector<std::pair<int, TimePoint>> owed_;  // asker and time of each unanswered question
  std::optional<Decision> decision_;
};

// Sets the signal for StacksBySignal. Its present handler writes the stacks of all threads to this file descriptor, as
// Python's faulthandler does.
void SetStackSignal(int signal, int descriptor);
// Raises that signal in the calling thread, so that it interrupts no system call of the program's threads, and returns
// the stacks. Returns "" if there is no such signal, or if its handler has changed.
std::string StacksBySignal();

// The threads of the program that do nothing but wait for an operation.
class BlockedThreads {
 public:
  using Threads = std::map<uint64_t, OperationPtr>;  // by pthread_self

  // The calling thread waits for the operation until it calls Remove.
  void Add(const OperationPtr& operation) {
    std::lock_guard<std::mutex> lock(mutex_);
    operations_[Self()] = operation;
  }
  void Remove() {
    std::lock_guard<std::mutex> lock(mutex_);
    operations_.erase(Self());
  }
  Threads operations() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return operations_;
  }

 private:
  static uint64_t Self() { return static_cast<uint64_t>(pthread_self()); }

  mutable std::mutex mutex_;  // no other lock is taken while it is held
  Threads operations_;
};

}  // namespace farandole
