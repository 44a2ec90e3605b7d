// Connection attempts whose server hangs up, step by step in one thread.
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

  // Steps the connector until `enough()` or an error.
  Status StepUntil(const std::function<bool()>& enough) {
    const TimePoint limit = Now() + std::chrono::seconds(5);
    Status status;
    while (status.ok() && !enough() && Now() < limit) status = connector_.Step(Now());
    EXPECT_LT(Now(), limit);
    return status;
  }

  // Accepts the next attempt as a server that knows the key, and closes the connection instead of reading the proof.
  Status HangUpOnProof() {
    Descriptor connection;
    FRD_RETURN_IF_ERROR(
        StepUntil([&] { return Accept(listener_.get(), Now(), &connection).code() != Code::kDeadline; }));
    Handshake server(Handshake::Side::kServer, KeyOf(7), {"control", 0, 0}, Now());
    FRD_RETURN_IF_ERROR(connector_.Step(Now()));             // the client's hello
    EXPECT_TRUE(server.Step(connection.get(), Now()).ok());  // the server's hello
    FRD_RETURN_IF_ERROR(connector_.Step(Now()));             // the client's proof
    EXPECT_FALSE(server.done());
    connection.Reset();
    return connector_.Step(Now());
  }

  const std::string endpoint_ = FreshEndpoint();
  Descriptor listener_;
  Connector connector_{endpoint_, KeyOf(7), {"control", 1, 0}, Now()};
};

TEST_F(ConnectorTest, AServerThatHangsUpOnceAfterTheProofIsTriedAgain) {
  ASSERT_TRUE(HangUpOnProof().ok());
  EXPECT_NE(connector_.last_refusal(), "");
  Descriptor connection;
  ASSERT_TRUE(StepUntil([&] { return Accept(listener_.get(), Now(), &connection).ok(); }).ok());
  Handshake server(Handshake::Side::kServer, KeyOf(7), {"control", 0, 0}, Now());
  ASSERT_TRUE(StepUntil([&] { return server.Step(connection.get(), Now()).ok() && connector_.done(); }).ok());
  EXPECT_EQ(server.theirs().rank, 1u);
}

TEST_F(ConnectorTest, AServerThatHangsUpTwiceAfterTheProofLacksTheKey) {
  ASSERT_TRUE(HangUpOnProof().ok());
  const Status status = HangUpOnProof();
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_NE(status.message().find("does not know this job's key"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace farandole
