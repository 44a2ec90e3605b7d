// Requests that tests submit to an engine, and values whose sums are known.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace farandole {

template <typename T>
constexpr DType DTypeFor() {
  if (std::is_same_v<T, float>) return DType::kFloat32;
  if (std::is_same_v<T, double>) return DType::kFloat64;
  if (std::is_same_v<T, int32_t>) return DType::kInt32;
  return DType::kInt64;
}

template <typename T>
Tensor TensorOf(const std::vector<T>& input, std::vector<T>* output) {
  Tensor tensor;
  tensor.input = input.data();
  tensor.output = output != nullptr ? output->data() : nullptr;
  tensor.dtype = DTypeFor<T>();
  tensor.shape = {static_cast<int64_t>(input.size())};
  return tensor;
}

inline Request Make(OpKind kind, std::vector<Tensor> tensors, std::string name = "") {
  Request request;
  request.kind = kind;
  request.tensors = std::move(tensors);
  request.name = std::move(name);
  return request;
}

// A request in the form that an engine takes; points at the request.
class ViewOf {
 public:
  explicit ViewOf(const Request& request) : view_{request, {}, {}, {}, {}, {}} {
    for (const Tensor& tensor : request.tensors)
      tensors_.push_back({tensor, {tensor.shape.data(), tensor.shape.size()}});
    view_.tensors = {tensors_.data(), tensors_.size()};
    view_.name = request.name;
    view_.splits = {request.splits.data(), request.splits.size()};
    view_.ranks = {request.ranks.data(), request.ranks.size()};
    view_.site = request.site;
  }
  ViewOf(const ViewOf&) = delete;
  ViewOf& operator=(const ViewOf&) = delete;

  const RequestView& get() const { return view_; }

 private:
  std::vector<TensorView> tensors_;
  RequestView view_;
};

inline Status SubmitTo(Engine& engine, const Request& request, OperationPtr* operation, bool will_wait = false) {
  return engine.Submit(ViewOf(request).get(), operation, will_wait);
}

// A little less than the time after which ctest ends a test.
inline constexpr int64_t kWaitMs = (FARANDOLE_TEST_SECONDS - 10) * 1000;

// A blocking call whose request need not be copied. Returns false, and does nothing, for other calls.
inline bool RunBorrowed(Engine& engine, const RequestView& request, Status* status) {
  OperationPtr operation;
  if (!engine.RunOrBegin(request, &operation)) return false;
  if (!operation) {
    *status = Status::Ok();
    return true;
  }
  EXPECT_TRUE(engine.Wait(operation, kWaitMs)) << "timed out: " << operation->Title();
  *status = operation->status();
  return true;
}

inline Status SubmitAndWait(Engine& engine, const Request& request, OperationPtr* result = nullptr) {
  OperationPtr operation;
  FRD_RETURN_IF_ERROR(SubmitTo(engine, request, &operation));
  EXPECT_TRUE(engine.Wait(operation, kWaitMs)) << "timed out: " << operation->Title();
  if (result != nullptr) *result = operation;
  return operation->status();
}

// Small integers, so that sums are exact whatever their order.
inline double ValueOf(int rank, size_t i, int salt = 0) {
  return static_cast<double>((rank + 1) * (static_cast<int>(i % 61) + 1) + salt);
}
inline double SumOf(int size, size_t i, int salt = 0) {
  double sum = 0;
  for (int r = 0; r < size; ++r) sum += ValueOf(r, i, salt);
  return sum;
}

template <typename T>
std::vector<T> Values(int rank, size_t count, int salt = 0) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<T>(ValueOf(rank, i, salt));
  return values;
}

template <typename T>
void ExpectSum(const std::vector<T>& values, int size, int salt = 0) {
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], static_cast<T>(SumOf(size, i, salt))) << "element " << i;
}

}  // namespace farandole
