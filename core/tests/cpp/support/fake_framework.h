// The work of a framework on tensors on (fake) CUDA devices, and the requests of its plugin.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "support/fake_cuda.h"
#include "support/requests.h"

namespace farandole {

// A framework on one rank: a device, a stream, tensors.
class Framework {
 public:
  Framework(FakeCuda& fake, int ordinal) : fake_(fake), ordinal_(ordinal), stream_(fake.MakeStream(ordinal)) {}
  ~Framework() {
    fake_.Synchronize(stream_);
    for (void* memory : memories_) fake_.Free(memory);
  }

  float* Empty(size_t count) {
    memories_.push_back(fake_.Allocate(ordinal_, std::max<size_t>(count, 1) * sizeof(float)));
    return static_cast<float*>(memories_.back());
  }
  // The stream computes the values later.
  float* Compute(size_t count, int rank) {
    float* const memory = Empty(count);
    auto* const contents = static_cast<float*>(fake_.Contents(memory));
    fake_.Launch(stream_, [=] {
      for (size_t i = 0; i < count; ++i) contents[i] = static_cast<float>(ValueOf(rank, i));
    });
    return memory;
  }
  // Reads in the stream, after everything that the stream waits for.
  std::vector<float> Read(const float* memory, size_t count) {
    std::vector<float> values(count);
    const void* const contents = fake_.Contents(memory);
    if (count > 0) fake_.Launch(stream_, [&] { std::memcpy(values.data(), contents, count * sizeof(float)); });
    fake_.Synchronize(stream_);
    return values;
  }
  Tensor TensorOf(const float* input, float* output, size_t count) {
    Tensor tensor;
    tensor.input = input;
    tensor.output = output;
    tensor.shape = {static_cast<int64_t>(count)};
    tensor.device = 1;
    tensor.ready_event = fake_.RecordNewEvent(stream_);
    return tensor;
  }
  void Launch(std::function<void()> kernel) { fake_.Launch(stream_, std::move(kernel)); }
  void Wait(Event event) { fake_.Wait(stream_, event); }

 private:
  FakeCuda& fake_;
  const int ordinal_;
  void* const stream_;
  std::vector<void*> memories_;
};

// The done function of a plugin, which lets the framework's stream wait for the results.
struct OnDone {
  explicit OnDone(Framework* of) : framework(of) {}

  Framework* framework;
  std::atomic<int> calls{0};
  Event event = nullptr;

  void Attach(Request* request) {
    request->done_argument = this;
    request->done = [](void* argument, const Status&, Event event) {
      auto* const self = static_cast<OnDone*>(argument);
      self->event = event;
      self->framework->Wait(event);
      self->calls.fetch_add(1);
    };
  }
};

}  // namespace farandole
