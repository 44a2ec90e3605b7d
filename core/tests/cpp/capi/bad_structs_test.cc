// The C interface refuses, in words, structs that a caller has filled wrongly, and never reads beyond the size that the
// caller gives.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "farandole/farandole.h"

namespace farandole {
namespace {

class CStructs : public testing::Test {
 protected:
  void SetUp() override {
    const frd_world world = {sizeof(frd_world), 0, 1, nullptr, nullptr};
    ASSERT_EQ(api_->init(&world), FRD_OK) << api_->last_error();
    tensor_.struct_size = sizeof(tensor_);
    tensor_.dtype = FRD_FLOAT32;
    tensor_.input = input_;
    tensor_.output = output_;
    tensor_.shape = shape_;
    tensor_.dimension_count = 1;
    request_.struct_size = sizeof(request_);
    request_.operation = FRD_ALLREDUCE;
    request_.tensors = &tensor_;
    request_.tensor_count = 1;
    request_.name = "sum";
    request_.prescale = request_.postscale = 1;
  }
  void TearDown() override { api_->shutdown(); }

  // Runs the request. Returns the error's message, "" without an error.
  std::string Run() {
    frd_operation* operation = nullptr;
    const bool ok = api_->run(&request_, &operation) == FRD_OK;
    const std::string message = ok ? "" : api_->last_error();
    if (operation != nullptr) api_->release(operation);
    return message;
  }

  const frd_api* const api_ = frd_get_api();
  const float input_[2] = {1, 2};
  float output_[2] = {};
  const int64_t shape_[1] = {2};
  frd_tensor tensor_ = {};
  frd_request request_ = {};
};

TEST_F(CStructs, ThatAreTooSmallAreRefused) {
  EXPECT_EQ(Run(), "");
  EXPECT_EQ(output_[1], 2.0f);
  tensor_.struct_size = sizeof(tensor_) - 1;
  EXPECT_EQ(Run(), "frd_tensor.struct_size is too small for this core: set it to sizeof(frd_tensor)");
  tensor_.struct_size = sizeof(tensor_);
  request_.struct_size = offsetof(frd_request, process_set) - 1;
  EXPECT_EQ(Run(), "frd_request.struct_size is too small for this core: set it to sizeof(frd_request)");
}

// As in a header that has more fields than this core knows.
struct LaterTensor {
  frd_tensor known;
  int64_t later[2];
};

TEST_F(CStructs, OfALaterHeaderLieAsFarApartAsTheySay) {
  LaterTensor tensors[2] = {{tensor_, {-1, -1}}, {tensor_, {-1, -1}}};
  float second[2] = {};
  for (LaterTensor& tensor : tensors) tensor.known.struct_size = sizeof(LaterTensor);
  tensors[1].known.output = second;
  request_.tensors = &tensors[0].known;
  request_.tensor_count = 2;
  EXPECT_EQ(Run(), "");
  EXPECT_EQ(second[1], 2.0f);
  tensors[1].known.struct_size = sizeof(frd_tensor);
  EXPECT_EQ(Run(), "frd_tensor.struct_size is not the same for all tensors of a request");
}

TEST_F(CStructs, OfResultsAreWrittenAsFarAsTheCallerKnowsThem) {
  request_.operation = FRD_ALLGATHER;
  tensor_.output = nullptr;
  frd_operation* operation = nullptr;
  ASSERT_EQ(api_->run(&request_, &operation), FRD_OK) << api_->last_error();
  frd_output output = {};
  EXPECT_EQ(api_->output(operation, 0, &output), FRD_INVALID) << "the caller has not said what it knows";
  output.struct_size = sizeof(output);
  ASSERT_EQ(api_->output(operation, 0, &output), FRD_OK);
  EXPECT_EQ(output.shape[0], 2);
  struct {
    frd_output known;
    int64_t later = -1;
  } wide = {};
  wide.known.struct_size = sizeof(wide);
  ASSERT_EQ(api_->output(operation, 0, &wide.known), FRD_OK);
  EXPECT_EQ(wide.known.struct_size, sizeof(wide));
  EXPECT_EQ(wide.later, -1);
  api_->release(operation);
}

TEST_F(CStructs, OfAnOlderHeaderHaveZeroInTheFieldsThatCameLater) {
  request_.process_set = 77;
  EXPECT_NE(Run(), "");
  request_.struct_size = offsetof(frd_request, process_set);
  EXPECT_EQ(Run(), "") << "the set is not looked at";
}

TEST_F(CStructs, WithUnknownNumbersAreRefused) {
  request_.operation = 99;
  EXPECT_EQ(Run(), "unknown operation 99");
  request_.operation = FRD_ALLREDUCE;
  request_.reduce = -1;
  EXPECT_EQ(Run(), "unknown reduction -1");
  request_.reduce = 0;
  tensor_.dtype = 99;
  EXPECT_EQ(Run(), "unknown element type 99");
}

TEST(CWorld, ThatIsTooSmallOrLacksItsRankIsRefused) {
  const frd_api* const api = frd_get_api();
  frd_world world = {sizeof(frd_world) - 1, 0, 1, nullptr, nullptr};
  EXPECT_NE(api->init(&world), FRD_OK);
  EXPECT_STREQ(api->last_error(), "frd_world.struct_size is too small for this core: set it to sizeof(frd_world)");
  world = {sizeof(frd_world), 3, 2, nullptr, nullptr};
  EXPECT_NE(api->init(&world), FRD_OK);
  EXPECT_STREQ(api->last_error(), "rank 3 is not in a world of 2");
}

}  // namespace
}  // namespace farandole
