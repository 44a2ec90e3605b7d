// A back end over a library whose calls block: one thread of its own performs the works, in the order of the log.
//
//   driver   Start: the set's first work: greetings of all members, by the carrier      Poll: is it done?
//   thread                  Meet(set, greetings)  Perform(work) ...  Forget(set)
//
// A library that does not return keeps its thread: after an abort that it does not heed within a few seconds the thread
// is left alone with everything that it uses, and the user is told.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"

namespace farandole {

// What is done with the library. Greet, Interrupt and Open in threads of the engine; the rest in the thread.
class Performer {
 public:
  virtual ~Performer() = default;
  // As Backend::Open.
  virtual Status Open() { return Status::Ok(); }
  // What this rank tells the other members before the first work of the set, of the same size on every rank. Empty,
  // also on all: there is nothing to tell.
  virtual Status Greet(const ProcessSet& set, std::string* greeting) {
    static_cast<void>(set), greeting->clear();
    return Status::Ok();
  }
  // Before the first work of the set. greetings: by position, or none.
  virtual Status Meet(const ProcessSet& set, const std::vector<std::string>& greetings) = 0;
  virtual Status Perform(const Work& work) = 0;
  virtual void Forget(int set_id) { static_cast<void>(set_id); }
  // Makes Meet or Perform, which runs, return soon where the library can do that. Afterwards there is no other work.
  virtual void Interrupt() {}
};

std::unique_ptr<Backend> MakeBlocking(const BackendKind& kind, World* world, Backend* carrier,
                                      std::shared_ptr<Performer> performer);

}  // namespace farandole
