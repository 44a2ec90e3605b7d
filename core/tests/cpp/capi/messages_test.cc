// send and receive of the C interface, in a world of one: what the ranks do with messages is tested in p2p.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "farandole/farandole.h"

namespace farandole {
namespace {

class CMessagesTest : public testing::Test {
 protected:
  void SetUp() override {
    const frd_world world = {sizeof(frd_world), 0, 1, nullptr, nullptr};
    ASSERT_EQ(api_->init(&world), FRD_OK) << api_->last_error();
  }
  void TearDown() override { api_->shutdown(); }

  static frd_message Of(void* data, size_t size_bytes, int32_t peer = 0) {
    return {sizeof(frd_message), FRD_INT32, data, size_bytes, peer, /*process_set=*/0, /*tag=*/5};
  }

  const frd_api* const api_ = frd_get_api();
};

TEST_F(CMessagesTest, AMessageIsReceivedWithItsSource) {
  int32_t sent[2] = {3, 4}, received[2] = {};
  frd_transfer *send = nullptr, *receive = nullptr;
  const frd_message from = Of(sent, sizeof(sent)), to = Of(received, sizeof(received), FRD_ANY_SOURCE);
  ASSERT_EQ(api_->receive(&to, &receive), FRD_OK) << api_->last_error();
  EXPECT_EQ(api_->poll_transfer(receive), FRD_IN_PROGRESS);
  EXPECT_EQ(api_->wait_transfer(receive, 5), FRD_IN_PROGRESS);
  ASSERT_EQ(api_->send(&from, &send), FRD_OK) << api_->last_error();
  EXPECT_EQ(api_->wait_transfer(send, -1), FRD_OK);
  EXPECT_EQ(api_->wait_transfer(receive, -1), FRD_OK);
  EXPECT_EQ(api_->source(receive), 0);
  EXPECT_EQ(std::memcmp(sent, received, sizeof(sent)), 0);
  api_->end_transfer(send);
  api_->end_transfer(receive);
}

TEST_F(CMessagesTest, AReceiveThatIsGivenUpTakesNoMessage) {
  int32_t sent = 3, first = 0, second = 0;
  frd_transfer *send = nullptr, *given_up = nullptr, *receive = nullptr;
  const frd_message from = Of(&sent, sizeof(sent)), to = Of(&first, sizeof(first)), then = Of(&second, sizeof(second));
  ASSERT_EQ(api_->receive(&to, &given_up), FRD_OK);
  api_->end_transfer(given_up);
  ASSERT_EQ(api_->send(&from, &send), FRD_OK);
  ASSERT_EQ(api_->receive(&then, &receive), FRD_OK);
  EXPECT_EQ(api_->wait_transfer(receive, -1), FRD_OK);
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 3);
  api_->end_transfer(send);
  api_->end_transfer(receive);
}

TEST_F(CMessagesTest, WrongCallsAndShutdownAreErrors) {
  int32_t data = 3;
  frd_transfer* transfer = nullptr;
  frd_message message = Of(&data, sizeof(data), 1);
  EXPECT_EQ(api_->send(&message, &transfer), FRD_INVALID);
  EXPECT_NE(std::strstr(api_->last_error(), "send to rank 1 with tag 5"), nullptr) << api_->last_error();
  message.dtype = 99;
  EXPECT_EQ(api_->send(&message, &transfer), FRD_INVALID);
  message.struct_size = 8;
  EXPECT_EQ(api_->receive(&message, &transfer), FRD_INVALID);
  EXPECT_EQ(transfer, nullptr);
  const frd_message from_self = Of(&data, sizeof(data));
  ASSERT_EQ(api_->receive(&from_self, &transfer), FRD_OK);
  api_->shutdown();
  EXPECT_EQ(api_->wait_transfer(transfer, -1), FRD_NOT_INITIALIZED);
  api_->end_transfer(transfer);
  EXPECT_EQ(api_->receive(&from_self, &transfer), FRD_NOT_INITIALIZED);
}

}  // namespace
}  // namespace farandole
