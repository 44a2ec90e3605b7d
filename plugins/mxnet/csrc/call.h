// One collective on MXNet's arrays, as an asynchronous operation of MXNet's engine.
//
//   Push          any thread: describes the arrays, keeps them alive, hands the call to MXNet with all it reads, writes
//   Execute       a thread of MXNet, when the arrays are ready: finds their memory
//   Begin         by Order, when its turn has come: enqueues it in the core
//   OnDone        a thread of the core: what failed is remembered, MXNet is told
//
// A call lives as long as MXNet or the core has it.
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

// Of Push alone: an array is on a GPU, the core cannot have it as it lies, and nothing was begun.
constexpr int32_t kOnDevice = -1;

// How a call ended, or why it could not begin; `code` is one of farandole.h.
struct Outcome {
  int32_t code = FRD_OK;
  std::string message;
};

// What the caller of Push asks for; as in frd_request.
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
  bool takes_device_memory;  // of the core: arrays on a GPU may stay there
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
  void Arrive();
  Outcome TakeRows();
  void Complete();
  void FreeArrays();

  const Wish wish_;
  const int64_t generation_;
  const std::thread::id pusher_ = std::this_thread::get_id();
  std::vector<NDArrayHandle> inputs_, outputs_;  // ours to free; in place: the same ones
  bool is_in_place_ = false;
  int32_t device_ = FRD_HOST;  // of all arrays
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<frd_tensor> tensors_;
  std::vector<void*> results_;  // where what the core allocates is to go
  std::vector<size_t> result_bytes_;

  std::shared_ptr<Call> self_;  // while the core or Order has it
  MxCompletion completion_ = {};
  bool was_executed_ = false;
  std::atomic<bool> by_pusher_{false};  // Push looks while another thread may be in Execute
  frd_operation* operation_ = nullptr;
  std::atomic<int> arrivals_{0};  // of Begin's end and OnDone: the second completes
  Outcome outcome_;               // in the end
};

// The core's functions and the order of all calls; set before the first Push.
extern const frd_api* core;
Order& CallOrder();

// Calls that were pushed before are not begun any more, and their failures are forgotten.
void CloseCalls();
// The failure that ended the training, if any. Cheap while there is none.
bool HasFailed();
bool HasLostGradient();  // whether a gradient is among what has failed
Outcome Failure();

}  // namespace farandole_mxnet
