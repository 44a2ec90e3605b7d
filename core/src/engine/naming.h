// Names for operations to which the user gave none. Any thread.
//
// They are paired with the other ranks' by their sequence numbers, counted for each process set; changes of process
// sets are, too, among those of set 0. The name is made of the signature and the sequence number modulo a window, so
// that a program that repeats its calls finds all of them known, whatever the mix. With more in flight than a window
// has names, the next waits for the one that has its name: with a name of its own it would miss ranks whose former
// operation is done already, until time has passed.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "engine/operation.h"

namespace farandole {

class Naming {
 public:
  // Null, or the operation in flight that has the name: this one must not begin before it is done.
  OperationPtr Name(const OperationPtr& operation);

  SequenceNumbers sequence_numbers() const;
  // After a join: as if this rank had submitted all that it missed.
  void CatchUp(const SequenceNumbers& sequence_numbers);
  void Forget(int set);

 private:
  // Unnamed operations of one signature that took a name of the window last.
  using Window = std::vector<std::weak_ptr<Operation>>;
  void ForgetIdleWindows();

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Window> windows_;
  SequenceNumbers next_sequence_number_;
};

}  // namespace farandole
