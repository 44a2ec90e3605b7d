// The memory of a result through the C interface: whose it is, and how long it lives.
#include <gtest/gtest.h>

#include <cstdint>

#include "farandole/farandole.h"

namespace farandole {
namespace {

TEST(CInterfaceMemory, IsTheCallersUntilItIsDropped) {
  const frd_api* const api = frd_get_api();
  const frd_world world = {sizeof(frd_world), 0, 1, nullptr, nullptr};
  ASSERT_EQ(api->init(&world), FRD_OK) << api->last_error();
  const float input[] = {1, 2, 3};
  const int64_t shape[] = {3};
  frd_tensor tensor = {};
  tensor.struct_size = sizeof(tensor);
  tensor.dtype = FRD_FLOAT32;
  tensor.input = input;
  tensor.shape = shape;
  tensor.dimension_count = 1;
  frd_request request = {};
  request.struct_size = sizeof(request);
  request.operation = FRD_ALLGATHER;
  request.tensors = &tensor;
  request.tensor_count = 1;
  frd_operation* operation = nullptr;
  ASSERT_EQ(api->run(&request, &operation), FRD_OK) << api->last_error();
  frd_output output = {};
  output.struct_size = sizeof(output);
  ASSERT_EQ(api->output(operation, 0, &output), FRD_OK);
  frd_memory* const memory = api->keep(operation, 0);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(api->keep(operation, 1), nullptr) << "there is one result";
  api->release(operation);
  api->shutdown();
  auto* const values = static_cast<float*>(output.data);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(values) % 64, 0u);
  EXPECT_EQ(values[2], 3.0f);
  values[2] = 4.0f;
  api->drop(memory);
}

}  // namespace
}  // namespace farandole
