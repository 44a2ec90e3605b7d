// One execution of a kernel: a collective on tensors of TensorFlow.
//
//   Begin       a thread of TensorFlow: describes the inputs, takes what ends the kernel, enqueues in the core
//   OnDone      a thread of the core: the collective has ended
//   Complete    the second of the two calls it: takes the results, tells TensorFlow, and destroys the call
//
// Outputs with the shape of the input are allocated before, and may be the input's memory where TensorFlow has no other
// use for it. Where only the core knows the number of rows, the output is the core's memory, which Complete passes to
// TensorFlow.
//
// On a device, TensorFlow starts a kernel when the work before it has been enqueued, and goes on when the kernel has
// ended, without showing its stream to either side. So the core waits for all work enqueued on the device, and the
// plugin ends the kernel when the result is complete.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "farandole/farandole.h"
#include "tf_api.h"

namespace farandole_tensorflow {

// The attributes of an operation: a node of a graph, or a call in eager mode. Constant.
struct Wish {
  int32_t operation = 0;
  int32_t reduce = 0;
  int32_t root = 0;
  int32_t process_set = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  std::string name;
  bool is_node = false;  // of a graph, whose executions in the iterations of a loop may overlap
  std::string site;
  bool on_device = false;  // the tensors lie on a CUDA device
};

// The name of this execution of a node, in which the iterations of a loop that may overlap differ.
std::string NameOfExecution(const std::string& node, TfContext* context);

class Call {
 public:
  // Ends the kernel in any case, before it returns or later.
  static void Begin(const Wish& wish, TfContext* context, TfDone* done);

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  struct Outcome {
    int32_t code = FRD_OK;
    std::string message;
  };

  Call(const Wish& wish, TfContext* context);
  ~Call();

  static void OnDone(void* argument, int32_t code, const char* message, void* event) noexcept;

  Outcome Describe();
  Outcome AddTensor(int index);
  Outcome TakeSplits(int index);
  Outcome AllocateLike(int index);
  frd_request Request();
  void Enqueue();
  void RunHere();
  void Arrive();
  Outcome TakeResults();
  Outcome TakeResult(uint32_t index);
  void TellFailure();
  void Complete();

  const Wish& wish_;
  TfContext* const context_;
  const std::string name_;
  std::function<void()> end_;
  std::vector<TfTensor*> inputs_, outputs_;  // references that this call drops
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<frd_tensor> tensors_;
  std::vector<int64_t> splits_;
  frd_operation* operation_ = nullptr;
  std::atomic<int> arrivals_{0};
  Outcome outcome_;
};

// The core's functions; set before the first call.
extern const frd_api* core;

}  // namespace farandole_tensorflow
