// The members of a process set tell each other some bytes, all of the same size, before their library has met: the
// addresses where it listens, say. Performed by a back end that needs no such thing, in the order of the log.
//
// The driver alone uses it.
#pragma once

#include <string>
#include <vector>

#include "backends/backend.h"

namespace farandole {

class Introduction {
 public:
  explicit Introduction(Backend* carrier) : carrier_(carrier) {}
  Introduction(const Introduction&) = delete;
  Introduction& operator=(const Introduction&) = delete;

  // `set` stays valid until the introduction is done or aborted.
  Status Start(const ProcessSet& set, std::string greeting);
  Status Poll(bool* moved, bool* done) { return carrier_->Poll(moved, done); }
  void Abort() { carrier_->Abort(); }
  std::vector<int> Laggards() const { return carrier_->Laggards(); }
  // By position. REQUIRES: done.
  std::vector<std::string> greetings() const;

 private:
  Backend* const carrier_;
  std::string greeting_, all_;
  Work work_;
};

}  // namespace farandole
