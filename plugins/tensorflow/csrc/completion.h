// How an asynchronous kernel tells TensorFlow that it has ended, after its compute function has returned.
//
// TensorFlow hands compute the address of a std::function<void()> that it destroys when compute returns, although the
// kernel is to call it later. So it is moved out while compute runs. That takes the layout of libstdc++'s
// std::function:
//
//   | 16 bytes: what was captured, or a pointer to it | manager | invoker |
//
// which is TensorFlow's, too, where the last two words point into its own libraries. That is looked at before anything
// is moved; where it does not hold, the kernel must end before compute returns.
#pragma once

#include <functional>

#include "tf_api.h"

namespace farandole_tensorflow {

// Moves out what ends the kernel; empty where it is not known how. Any thread; to be called within compute.
std::function<void()> TakeCompletion(TfDone* done);

// Whether it is known, as far as can be told: our own std::functions have the layout, and so had TensorFlow's until
// now.
bool CanTakeCompletions();

// From now on it is not known; for tests.
void TakeNoCompletions();

}  // namespace farandole_tensorflow
