// A request to the engine has two forms with the same fields: a RequestView points at the caller's data and copies
// nothing, a Request is what an operation keeps.
//
//   C interface ------.
//                     +--> RequestView --> Engine::RunOrBegin, Submit --> Request, in an Operation
//   Python bindings --'
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "common/types.h"
#include "controller/signature.h"
#include "device/device.h"

namespace farandole {

struct TensorFields {
  const void* input = nullptr;
  void* output = nullptr;  // may equal input; null where the core allocates the result (AllocatesOutput)
  DType dtype = DType::kFloat32;
  int32_t device = 0;           // DeviceKind
  Event ready_event = nullptr;  // after it the input is valid and the output may be written; see Ready
};

// Of a shape that was not checked: a product that does not fit wraps, which is defined for unsigned numbers only.
template <typename AnyShape>
size_t UncheckedCount(const AnyShape& shape) {
  size_t count = 1;
  for (const int64_t dimension : shape) count *= static_cast<size_t>(dimension);
  return count;
}

struct TensorView : TensorFields {
  Span<const int64_t> shape;
};

struct Tensor : TensorFields {
  Shape shape;

  size_t size_bytes() const { return static_cast<size_t>(ElementCount(shape)) * SizeOf(dtype); }
};

// When tensors on a device may be used: each after its ready event, or all after the work that the process has asked of
// their device before it submits them.
enum class Ready : int32_t { kByEvent = 0, kAfterAll = 1 };
inline constexpr int kReadyCount = 2;

// The thread that completes the operation calls it exactly once, holding no lock of the core. It may submit; it must
// not block, nor throw. Once `event` has happened, the device does not use the tensors any more.
using DoneFunction = void (*)(void* argument, const Status& status, Event event);

struct RequestFields {
  OpKind kind = OpKind::kAllreduce;
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;  // a rank of the world, in the set
  double prescale = 1.0;
  double postscale = 1.0;
  int process_set = 0;
  bool results_on_device = false;  // AllocatesOutput: results lie where inputs do, if the backend can do that
  Ready ready = Ready::kByEvent;
  DoneFunction done = nullptr;
  void* done_argument = nullptr;
  bool done_when_readable = false;  // `done` is called once the results are readable, without an event

  bool EndsWhenReadable() const { return done == nullptr || done_when_readable; }
};

struct RequestView : RequestFields {
  Span<const TensorView> tensors;  // several: a grouped call, completed together
  std::string_view name;           // empty: matched with the other ranks' unnamed operations by order
  Span<const int64_t> splits;      // TakesSplits: rows of each tensor for each position; empty: equal parts
  Span<const int64_t> ranks;       // add_process_set: its ranks; remove_process_set: its id
  std::string_view site;           // where the user's script called, for messages; may be empty
};

struct Request : RequestFields {
  Request() = default;
  explicit Request(const RequestView& view);

  std::vector<Tensor> tensors;
  std::string name;
  std::vector<int64_t> splits;
  std::vector<int64_t> ranks;
  std::string site;
  std::vector<std::shared_ptr<std::byte>> scaled_inputs;  // see PrescaleInputs
  std::shared_ptr<void> mark;                             // of Ready::kAfterAll: MarkReady's event
};

// True when the request has this signature. Nothing is copied, since most requests are known.
bool Matches(const RequestView& request, const Signature& signature);
bool Matches(const Request& request, const Signature& signature);
Signature SignatureOf(const RequestView& request);
Signature SignatureOf(const Request& request);

}  // namespace farandole
