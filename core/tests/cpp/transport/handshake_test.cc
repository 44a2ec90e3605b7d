// Which peers pass the handshake, which do not, and what a stranger learns.
#include "transport/handshake.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "common/bytes.h"
#include "common/sha256.h"
#include "support/blocking_handshake.h"
#include "support/connect.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kHelloBytes = 68;
constexpr size_t kProofBytes = 32;

Key KeyOf(uint8_t byte) {
  Key key;
  key.fill(byte);
  return key;
}

const Key kKey = KeyOf(0x11);
const Key kOtherKey = KeyOf(0x22);
const Hello kClientHello = {"data", 3, 0x0102030405060708};
const Hello kServerHello = {"sixteen bytes...", 0, 9};

struct Ends {
  Descriptor client, server;
};

Ends MakeEnds() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

struct Outcome {
  Status client, server;
  Hello seen_by_client, seen_by_server;
};

// Runs both ends at once. Each closes its socket after an error, as callers do.
Outcome HandshakeOf(const Key& client_key, const Key& server_key) {
  Ends ends = MakeEnds();
  Outcome outcome;
  std::thread server([&] {
    outcome.server = HandshakeServer(ends.server.get(), server_key, kServerHello, &outcome.seen_by_server, Soon());
    if (!outcome.server.ok()) ends.server.Reset();
  });
  outcome.client = HandshakeClient(ends.client.get(), client_key, kClientHello, &outcome.seen_by_client, Soon());
  server.join();
  return outcome;
}

std::string HelloBytes(const std::string& magic, uint32_t version) {
  ByteWriter writer;
  for (const char c : magic) writer.Put(c);
  writer.Put(version);
  const Bytes begin = writer.Take();
  std::string text(begin.begin(), begin.end());
  text.resize(kHelloBytes, '\x33');
  return text;
}

std::string Receive(int fd, size_t size_bytes) {
  std::string text(size_bytes, '\0');
  const Status status = RecvAll(fd, text.data(), size_bytes, Soon());
  EXPECT_TRUE(status.ok()) << status.message();
  return text;
}

void Send(int fd, const std::string& text) {
  const Status status = SendAll(fd, text.data(), text.size(), Soon());
  EXPECT_TRUE(status.ok()) << status.message();
}

// True when the other end has closed and nothing is left to read.
bool IsClosedWithoutAnotherByte(int fd) {
  char byte;
  return RecvAll(fd, &byte, 1, Soon()).code() == Code::kPeerLost;
}

bool Says(const Status& status, const std::string& part) { return status.message().find(part) != std::string::npos; }

// ---- peers with the same key

TEST(Handshake, WithOneKeySucceedsAndTellsEachWhoTheOtherIs) {
  const Outcome outcome = HandshakeOf(kKey, kKey);
  ASSERT_TRUE(outcome.client.ok()) << outcome.client.message();
  ASSERT_TRUE(outcome.server.ok()) << outcome.server.message();
  EXPECT_EQ(outcome.seen_by_server.purpose, kClientHello.purpose);
  EXPECT_EQ(outcome.seen_by_server.rank, kClientHello.rank);
  EXPECT_EQ(outcome.seen_by_server.epoch, kClientHello.epoch);
  EXPECT_EQ(outcome.seen_by_client.purpose, kServerHello.purpose);
  EXPECT_EQ(outcome.seen_by_client.rank, kServerHello.rank);
  EXPECT_EQ(outcome.seen_by_client.epoch, kServerHello.epoch);
}

TEST(Handshake, LeavesTheBytesThatFollowInTheSocket) {
  Ends ends = MakeEnds();
  Hello theirs;
  std::thread server([&] {
    Hello seen;
    EXPECT_TRUE(HandshakeServer(ends.server.get(), kKey, kServerHello, &seen, Soon()).ok());
    Send(ends.server.get(), "after");
  });
  EXPECT_TRUE(HandshakeClient(ends.client.get(), kKey, kClientHello, &theirs, Soon()).ok());
  EXPECT_EQ(Receive(ends.client.get(), 5), "after");
  server.join();
}

TEST(Handshake, WithATooLongPurposeIsInvalid) {
  Ends ends = MakeEnds();
  Hello theirs;
  const Hello mine = {"seventeen bytes..", 0, 0};
  EXPECT_EQ(HandshakeClient(ends.client.get(), kKey, mine, &theirs, Soon()).code(), Code::kInvalid);
}

TEST(Handshake, NoNonceIsEverUsedTwice) {
  std::string last;
  for (int round = 0; round < 3; ++round) {
    Ends ends = MakeEnds();
    std::thread client([&] {
      Hello theirs;
      (void)HandshakeClient(ends.client.get(), kKey, kClientHello, &theirs, Soon());
    });
    const std::string hello = Receive(ends.server.get(), kHelloBytes);
    ends.server.Reset();
    client.join();
    EXPECT_NE(hello, last);
    last = hello;
  }
}

// ---- another key

TEST(Handshake, WithAnotherKeyFailsOnBothEndsAndNamesTheLikelyCause) {
  const Outcome outcome = HandshakeOf(kKey, kOtherKey);
  for (const Status& status : {outcome.client, outcome.server}) {
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_TRUE(Says(status, "does not know this job's key (another job on this address?)")) << status.message();
  }
}

TEST(Handshake, NamesTheEndpointThatDoesNotKnowTheKey) {
  Descriptor listener, client;
  std::string endpoint;
  ASSERT_TRUE(Listen("tcp:127.0.0.1:0", &listener).ok());
  ASSERT_TRUE(BoundEndpoint(listener.get(), &endpoint).ok());
  ASSERT_TRUE(ConnectOnce(endpoint, Soon(), &client).ok());
  std::thread server([&] {
    Descriptor connection;
    Hello theirs;
    EXPECT_TRUE(Accept(listener.get(), Soon(), &connection).ok());
    EXPECT_FALSE(HandshakeServer(connection.get(), kOtherKey, kServerHello, &theirs, Soon()).ok());
  });
  Hello theirs;
  const Status status = HandshakeClient(client.get(), kKey, kClientHello, &theirs, Soon());
  server.join();
  EXPECT_TRUE(Says(status, endpoint + " does not know this job's key")) << status.message();
}

TEST(Handshake, ADifferenceInTheLastBitOfTheKeyIsEnough) {
  Key close = kKey;
  close.back() ^= 1;
  EXPECT_FALSE(HandshakeOf(kKey, close).server.ok());
}

// ---- strangers at the server

struct AttackedServer {
  Ends ends = MakeEnds();
  Status status;
  Hello theirs;
  std::thread server;

  AttackedServer() {
    server = std::thread([this] {
      status = HandshakeServer(ends.server.get(), kKey, kServerHello, &theirs, Soon());
      ends.server.Reset();
    });
  }
  ~AttackedServer() {
    if (server.joinable()) server.join();
  }
};

TEST(HandshakeServer, SendsNothingToAStrangerWithAnotherMagic) {
  AttackedServer attacked;
  Send(attacked.ends.client.get(), "GET / HTTP/1.1\r\n\r\n");
  attacked.server.join();
  EXPECT_EQ(attacked.status.code(), Code::kMismatch);
  EXPECT_TRUE(Says(attacked.status, "does not speak Farandole's protocol")) << attacked.status.message();
  char byte;
  EXPECT_EQ(recv(attacked.ends.client.get(), &byte, 1, MSG_DONTWAIT) <= 0, true) << "not one byte";
}

TEST(HandshakeServer, GivesAStrangerItsHelloAndNothingThatDependsOnTheKey) {
  AttackedServer attacked;
  Send(attacked.ends.client.get(), HelloBytes("FRDL", kProtocolVersion));
  Send(attacked.ends.client.get(), std::string(kProofBytes, 'p'));
  EXPECT_EQ(Receive(attacked.ends.client.get(), kHelloBytes).substr(0, 4), "FRDL");
  EXPECT_TRUE(IsClosedWithoutAnotherByte(attacked.ends.client.get()));
  attacked.server.join();
  EXPECT_EQ(attacked.status.code(), Code::kMismatch);
}

TEST(HandshakeServer, NamesBothVersionsAndLetsTheClientNameThemToo) {
  AttackedServer attacked;
  Send(attacked.ends.client.get(), HelloBytes("FRDL", 77));
  EXPECT_EQ(Receive(attacked.ends.client.get(), kHelloBytes).substr(0, 4), "FRDL");
  attacked.server.join();
  EXPECT_EQ(attacked.status.code(), Code::kMismatch);
  EXPECT_TRUE(Says(attacked.status, "version 77")) << attacked.status.message();
  EXPECT_TRUE(Says(attacked.status, "version " + std::to_string(kProtocolVersion))) << attacked.status.message();
}

TEST(HandshakeServer, NoticesAHelloCutShort) {
  AttackedServer attacked;
  Send(attacked.ends.client.get(), HelloBytes("FRDL", kProtocolVersion).substr(0, 20));
  attacked.ends.client.Reset();
  attacked.server.join();
  EXPECT_EQ(attacked.status.code(), Code::kPeerLost);
}

TEST(HandshakeServer, GivesASilentStrangerTwoSeconds) {
  Ends ends = MakeEnds();
  Hello theirs;
  const auto start = steady_clock::now();
  const Status status = HandshakeServer(ends.server.get(), kKey, kServerHello, &theirs, After(milliseconds(60000)));
  const auto spent = steady_clock::now() - start;
  EXPECT_EQ(status.code(), Code::kDeadline);
  EXPECT_GE(spent, kHandshakeTimeout);
  EXPECT_LT(spent, milliseconds(30000)) << "that is not by the caller's deadline";
}

TEST(HandshakeServer, GoesByTheCallersDeadlineWhenThatIsEarlier) {
  Ends ends = MakeEnds();
  Hello theirs;
  const auto start = steady_clock::now();
  EXPECT_EQ(HandshakeServer(ends.server.get(), kKey, kServerHello, &theirs, After(milliseconds(30))).code(),
            Code::kDeadline);
  EXPECT_LT(steady_clock::now() - start, kHandshakeTimeout);
}

TEST(HandshakeServer, RefusesAProofMadeForAnotherConnection) {
  // The stranger replays a recorded handshake, but the server has a new nonce.
  std::string recorded;
  {
    Ends ends = MakeEnds(), wire = MakeEnds();
    Hello seen;
    std::thread client([&] {
      Hello theirs;
      (void)HandshakeClient(ends.client.get(), kKey, kClientHello, &theirs, Soon());
    });
    std::thread server(
        [&] { EXPECT_TRUE(HandshakeServer(wire.server.get(), kKey, kServerHello, &seen, Soon()).ok()); });
    recorded = Receive(ends.server.get(), kHelloBytes);
    Send(wire.client.get(), recorded);
    Send(ends.server.get(), Receive(wire.client.get(), kHelloBytes));
    recorded += Receive(ends.server.get(), kProofBytes);
    Send(wire.client.get(), recorded.substr(kHelloBytes));
    server.join();
    ends.server.Reset();
    client.join();
  }
  AttackedServer attacked;
  Send(attacked.ends.client.get(), recorded);
  attacked.server.join();
  EXPECT_EQ(attacked.status.code(), Code::kMismatch);
}

// ---- strangers at the client

struct Call {
  Ends ends = MakeEnds();
  Status status;
  Hello theirs;
  std::thread client;

  Call() {
    client = std::thread([this] { status = HandshakeClient(ends.client.get(), kKey, kClientHello, &theirs, Soon()); });
  }
  ~Call() {
    ends.server.Reset();
    if (client.joinable()) client.join();
  }
};

TEST(HandshakeClient, RefusesItsOwnProofSentBack) {
  Call call;
  Send(call.ends.server.get(), Receive(call.ends.server.get(), kHelloBytes));
  Send(call.ends.server.get(), Receive(call.ends.server.get(), kProofBytes));
  call.client.join();
  EXPECT_EQ(call.status.code(), Code::kMismatch);
  EXPECT_TRUE(Says(call.status, "does not know this job's key")) << call.status.message();
}

TEST(HandshakeClient, RefusesTheProofOfAnotherClient) {
  // Two clients connected to each other: each receives a valid proof, but of the wrong direction.
  Ends ends = MakeEnds();
  Status statuses[2];
  std::thread other([&] {
    Hello theirs;
    statuses[0] = HandshakeClient(ends.server.get(), kKey, kServerHello, &theirs, Soon());
  });
  Hello theirs;
  statuses[1] = HandshakeClient(ends.client.get(), kKey, kClientHello, &theirs, Soon());
  other.join();
  EXPECT_EQ(statuses[0].code(), Code::kMismatch);
  EXPECT_EQ(statuses[1].code(), Code::kMismatch);
}

TEST(HandshakeClient, RefusesAnotherMagicBeforeItProvesAnything) {
  Call call;
  Send(call.ends.server.get(), HelloBytes("SSH-", kProtocolVersion));
  call.client.join();
  EXPECT_EQ(call.status.code(), Code::kMismatch);
  Receive(call.ends.server.get(), kHelloBytes);
  char byte;
  EXPECT_LE(recv(call.ends.server.get(), &byte, 1, MSG_DONTWAIT), 0) << "no proof";
}

TEST(HandshakeClient, NamesBothVersions) {
  Call call;
  Send(call.ends.server.get(), HelloBytes("FRDL", 77));
  call.client.join();
  EXPECT_TRUE(Says(call.status, "version 77")) << call.status.message();
  EXPECT_TRUE(Says(call.status, "version " + std::to_string(kProtocolVersion))) << call.status.message();
}

TEST(HandshakeClient, ReportsPeerLostWhenTheServerEndsBeforeItsHello) {
  Call call;
  Receive(call.ends.server.get(), kHelloBytes);
  call.ends.server.Reset();
  call.client.join();
  EXPECT_EQ(call.status.code(), Code::kPeerLost);
}

TEST(HandshakeClient, WaitsForABusyServerLongerThanAServerWaitsForIt) {
  Ends ends = MakeEnds();
  Hello seen_by_client, seen_by_server;
  std::thread busy([&] {
    std::this_thread::sleep_for(kHandshakeTimeout + milliseconds(200));
    EXPECT_TRUE(HandshakeServer(ends.server.get(), kKey, kServerHello, &seen_by_server, Soon()).ok());
  });
  const Status status = HandshakeClient(ends.client.get(), kKey, kClientHello, &seen_by_client, Soon());
  busy.join();
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace farandole
