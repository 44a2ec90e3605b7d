// How an asynchronous kernel tells TensorFlow that it has ended, after its compute function has returned.
//
// TensorFlow passes compute the address of a std::function<void()>, which it destroys when compute returns, although
// the kernel calls it later. So it is moved out while compute runs. That needs the layout of libstdc++'s std::function:
//
//   | 16 bytes: what was captured, or a pointer to it | manager | invoker |
//
// TensorFlow has the same layout where the last two words point into its own libraries. The code checks that before it
// moves anything; if it does not hold, the kernel must end before compute returns.
#pragma once

#include <functional>

#include "tf_api.h"

namespace farandole_tensorflow {

// Moves out the function that ends the kernel; returns an empty one where the layout is not known. Any thread, within
// compute.
std::function<void()> TakeCompletion(TfDone* done);

// True while the layout seems known: a std::function made here has it, and so had all of TensorFlow's until now.
bool CanTakeCompletions();

// Makes the layout unknown from now on; for tests.
void TakeNoCompletions();

}  // namespace farandole_tensorflow
