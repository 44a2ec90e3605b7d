// A plugin that was compiled against the header of the first release, farandole.h in this folder, which is never
// changed: it must go on working with every core whose frd_api.abi is the same.
#include <cstdint>
#include <cstring>
#include <string>

#include "farandole.h"

namespace {

const frd_api* api = nullptr;
int done_calls = 0;

void CountDone(void* argument, int32_t code, const char*, void*) {
  if (code == FRD_OK && argument == &done_calls) ++done_calls;
}

const int64_t kShape[] = {2, 3};
const float kInputs[2][6] = {{1, 2, 3, 4, 5, 6}, {-1, -2, -3, -4, -5, -6}};

frd_tensor TensorOf(const float* input, float* output) {
  frd_tensor tensor = {};
  tensor.struct_size = sizeof tensor;
  tensor.dtype = FRD_FLOAT32;
  tensor.input = input;
  tensor.output = output;
  tensor.shape = kShape;
  tensor.dimension_count = 2;
  return tensor;
}

frd_request RequestOf(int32_t operation, const frd_tensor* tensors, uint32_t count) {
  frd_request request = {};
  request.struct_size = sizeof request;
  request.operation = operation;
  request.tensors = tensors;
  request.tensor_count = count;
  request.name = "first release";
  request.prescale = 2;
  request.postscale = 1;
  return request;
}

std::string SumOfSeveral() {
  float outputs[2][6] = {};
  const frd_tensor tensors[2] = {TensorOf(kInputs[0], outputs[0]), TensorOf(kInputs[1], outputs[1])};
  frd_request request = RequestOf(FRD_ALLREDUCE, tensors, 2);
  request.done = &CountDone;
  request.done_argument = &done_calls;
  frd_operation* operation = nullptr;
  if (api->enqueue(&request, &operation) != FRD_OK) return api->last_error();
  const int32_t ended = api->wait(operation, -1);
  api->release(operation);
  if (ended != FRD_OK) return api->last_error();
  if (done_calls != 1) return "done was not called once";
  for (int t = 0; t < 2; ++t) {
    for (int i = 0; i < 6; ++i) {
      if (outputs[t][i] != 2 * kInputs[t][i]) return "a sum is wrong";
    }
  }
  return "";
}

std::string GatherSeveral() {
  const frd_tensor tensors[2] = {TensorOf(kInputs[0], nullptr), TensorOf(kInputs[1], nullptr)};
  const frd_request request = RequestOf(FRD_ALLGATHER, tensors, 2);
  frd_operation* operation = nullptr;
  if (api->run(&request, &operation) != FRD_OK) return api->last_error();
  for (uint32_t t = 0; t < 2; ++t) {
    struct {
      frd_output known;
      int64_t beyond;
    } result = {{}, -1};
    result.known.struct_size = sizeof result.known;
    if (api->output(operation, t, &result.known) != FRD_OK) return api->last_error();
    if (result.beyond != -1) return "more was written than this header knows";
    const frd_output& output = result.known;
    if (output.dimension_count != 2 || std::memcmp(output.shape, kShape, sizeof kShape) != 0) return "a shape is wrong";
    if (output.size_bytes != sizeof kInputs[t] || std::memcmp(output.data, kInputs[t], output.size_bytes) != 0)
      return "a result is wrong";
  }
  frd_memory* const memory = api->keep(operation, 0);
  api->release(operation);
  if (memory == nullptr) return "a result cannot be kept";
  api->drop(memory);
  return "";
}

std::string Exercise() {
  if (api->abi != FRD_ABI) return "another ABI";
  if (api->struct_size < sizeof(frd_api)) return "the table has become shorter";
  const frd_world world = {sizeof world, 0, 1, nullptr, nullptr};
  if (api->init(&world) != FRD_OK) return api->last_error();
  std::string error = api->rank() == 0 && api->size() == 1 ? "" : "another world";
  if (error.empty()) error = SumOfSeveral();
  if (error.empty()) error = GatherSeveral();
  api->shutdown();
  return error;
}

}  // namespace

// "" when all is well.
extern "C" __attribute__((visibility("default"))) const char* first_release_exercise(const void* table) {
  api = static_cast<const frd_api*>(table);
  static std::string error;
  error = Exercise();
  return error.c_str();
}
