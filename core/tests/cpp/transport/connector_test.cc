// A call whose other end hangs up, step by step in one thread.
#include "transport/connections.h"

#include <gtest/gtest.h>

#include <functional>

#include "support/specs.h"
#include "transport/socket.h"

namespace farandole {
namespace {

class ConnectorTest : public testing::Test {
 protected:
  ConnectorTest() { EXPECT_TRUE(Listen(endpoint_, &listener_).ok()); }

  // Calls until somebody is there or the call is over.
  Status CallUntil(const std::function<bool()>& enough) {
    const TimePoint limit = Now() + std::chrono::seconds(5);
    Status status;
    while (status.ok() && !enough() && Now() < limit) status = connector_.Step(Now());
    EXPECT_LT(Now(), limit);
    return status;
  }

  // Takes the next call as a server that knows the key, and hangs up on the proof.
  Status HangUpOnProof() {
    Descriptor connection;
    FRD_RETURN_IF_ERROR(
        CallUntil([&] { return Accept(listener_.get(), Now(), &connection).code() != Code::kDeadline; }));
    Handshake server(Handshake::Side::kServer, KeyOf(7), {"control", 0, 0}, Now());
    FRD_RETURN_IF_ERROR(connector_.Step(Now()));             // its hello
    EXPECT_TRUE(server.Step(connection.get(), Now()).ok());  // ours
    FRD_RETURN_IF_ERROR(connector_.Step(Now()));             // its proof
    EXPECT_FALSE(server.done());
    connection.Reset();
    return connector_.Step(Now());
  }

  const std::string endpoint_ = FreshEndpoint();
  Descriptor listener_;
  Connector connector_{endpoint_, KeyOf(7), {"control", 1, 0}, Now()};
};

TEST_F(ConnectorTest, WhoHangsUpOnTheProofOnceMayHaveEndedAndIsCalledAgain) {
  ASSERT_TRUE(HangUpOnProof().ok());
  EXPECT_NE(connector_.last_refusal(), "");
  Descriptor connection;
  ASSERT_TRUE(CallUntil([&] { return Accept(listener_.get(), Now(), &connection).ok(); }).ok());
  Handshake server(Handshake::Side::kServer, KeyOf(7), {"control", 0, 0}, Now());
  ASSERT_TRUE(CallUntil([&] { return server.Step(connection.get(), Now()).ok() && connector_.done(); }).ok());
  EXPECT_EQ(server.theirs().rank, 1u);
}

TEST_F(ConnectorTest, WhoHangsUpOnTheProofTwiceDoesNotKnowTheKey) {
  ASSERT_TRUE(HangUpOnProof().ok());
  const Status status = HangUpOnProof();
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_NE(status.message().find("does not know this job's key"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace farandole
