// One collective on MXNet's arrays, as an asynchronous operation of MXNet's engine.
//
//   Push          any thread: describes the arrays, keeps them alive, pushes the call to MXNet
//   Execute       a thread of MXNet, when the arrays are ready: finds their memory
//   Begin         called by Order, in its turn: enqueues the call in the core
//   OnDone        a thread of the core: remembers a failure, tells MXNet
//
// A call lives as long as MXNet or the core refers to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "farandole/farandole.h"
#include "mxnet_api.h"
#include "order.h"

namespace farandole_mxnet {

// Only from Push: an array is on a GPU where the core cannot use it, and nothing was begun.
constexpr int32_t kOnDevice = -1;

// How a call ended, or why it could not begin; `code` is one of farandole.h.
struct Outcome {
  int32_t code = FRD_OK;
  std::string message;
};

// The parameters of a call; as in frd_request.
struct Wish {
  int32_t operation;
  int32_t reduce;
  int32_t root;
  int32_t process_set;
  double prescale;
  double postscale;
  std::string name;
  std::string site;
  int priority;
  bool is_gradient;          // training cannot go on when it fails, whatever the reason
  bool takes_device_memory;  // the core can: arrays on a GPU may stay there
};

class Call : public Ordered {
 public:
  // Begins `wish` on the arrays: reads `inputs` and writes `outputs`, which are the same arrays for a call in place.
  static Outcome Push(const Wish& wish, const NDArrayHandle* inputs, const NDArrayHandle* outputs, int count);

  explicit Call(const Wish& wish);
  ~Call() override;

  void Begin() override;

 private:
  static void Execute(void* run_context, void* completion, void* argument);
  static void Delete(void* argument);
  static void OnDone(void* argument, int32_t code, const char* message, void* event);

  Outcome Describe(const NDArrayHandle* inputs, const NDArrayHandle* outputs, int count);
  Outcome FindDevice(const NDArrayHandle* inputs, const NDArrayHandle* outputs, int count);
  bool FindMemory();
  bool FindOutput(size_t index);
  frd_request Request();
  Outcome Enqueue();
  void LookForOthers();
  bool IsSmall() const;
  void Arrive();
  Outcome TakeRows();
  void Complete();
  void FreeArrays();

  const Wish wish_;
  const int64_t generation_;
  const std::thread::id pusher_ = std::this_thread::get_id();
  std::vector<NDArrayHandle> inputs_, outputs_;  // this call frees them; the same ones for a call in place
  bool is_in_place_ = false;
  int32_t device_ = FRD_HOST;  // of all arrays
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<frd_tensor> tensors_;
  std::vector<void*> results_;  // where results that the core allocates are copied
  std::vector<size_t> result_bytes_;

  std::shared_ptr<Call> self_;  // while the core or Order refers to it
  MxCompletion completion_ = {};
  bool was_executed_ = false;
  std::atomic<bool> by_pusher_{false};  // Push reads it while another thread may be in Execute
  frd_operation* operation_ = nullptr;
  std::atomic<int> arrivals_{0};  // at the end of Begin and in OnDone: the second completes
  Outcome outcome_;               // how the call ended
};

// The core's functions and the order of all calls; set before the first Push.
extern const frd_api* core;
Order& CallOrder();

// Makes calls that were pushed before fail rather than begin, and forgets failures.
void CloseCalls();
// The failure that ended the training, if any. Cheap while there is none.
bool HasFailed();
bool HasLostGradient();  // true when a gradient has failed
Outcome Failure();

}  // namespace farandole_mxnet
