#include "transport/handshake.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "common/bytes.h"
#include "common/sha256.h"

namespace farandole {
namespace {

constexpr char kMagic[4] = {'F', 'R', 'D', 'L'};
constexpr size_t kPurposeBytes = 16;
constexpr size_t kNonceBytes = 32;
// Magic and version: what every version there will ever be begins with.
constexpr size_t kPrefixBytes = sizeof(kMagic) + sizeof(uint32_t);
constexpr size_t kHelloBytes = kPrefixBytes + kPurposeBytes + sizeof(uint32_t) + sizeof(uint64_t) + kNonceBytes;

// Of equal length, so that what follows them begins at the same place.
constexpr char kClientLabel[] = "farandole client v1";
constexpr char kServerLabel[] = "farandole server v1";
static_assert(sizeof(kClientLabel) == sizeof(kServerLabel), "labels of equal length");

Status EncodeHello(const Hello& hello, Bytes* encoded) {
  if (hello.purpose.size() > kPurposeBytes) return Invalid("a purpose of more than 16 bytes: " + hello.purpose);
  uint8_t purpose[kPurposeBytes] = {};
  std::memcpy(purpose, hello.purpose.data(), hello.purpose.size());
  uint8_t nonce[kNonceBytes];
  FRD_RETURN_IF_ERROR(RandomBytes(nonce, sizeof(nonce)));
  ByteWriter writer;
  for (const char c : kMagic) writer.Put(c);
  writer.Put(kProtocolVersion);
  for (const uint8_t byte : purpose) writer.Put(byte);
  writer.Put(hello.rank);
  writer.Put(hello.epoch);
  for (const uint8_t byte : nonce) writer.Put(byte);
  *encoded = writer.Take();
  return Status::Ok();
}

// REQUIRES: kHelloBytes with magic and version checked.
Hello DecodeHello(const Bytes& encoded) {
  Hello hello;
  const char* const purpose = reinterpret_cast<const char*>(encoded.data()) + kPrefixBytes;
  hello.purpose.assign(purpose, strnlen(purpose, kPurposeBytes));
  ByteReader reader(encoded.data() + kPrefixBytes + kPurposeBytes, sizeof(uint32_t) + sizeof(uint64_t));
  hello.rank = reader.Get<uint32_t>();
  hello.epoch = reader.Get<uint64_t>();
  return hello;
}

Status CheckPrefix(int fd, const Bytes& encoded) {
  if (std::memcmp(encoded.data(), kMagic, sizeof(kMagic)) != 0) {
    return {Code::kMismatch, DescribePeer(fd) + " does not speak Farandole's protocol"};
  }
  const uint32_t version = ByteReader(encoded.data() + sizeof(kMagic), sizeof(uint32_t)).Get<uint32_t>();
  if (version == kProtocolVersion) return Status::Ok();
  return {Code::kMismatch, DescribePeer(fd) + " speaks version " + std::to_string(version) +
                               " of Farandole's protocol, this process version " + std::to_string(kProtocolVersion) +
                               ": install the same release of farandole on all hosts"};
}

Status RecvPrefix(int fd, Bytes* encoded, Deadline deadline) {
  encoded->resize(kHelloBytes);
  return RecvAll(fd, encoded->data(), kPrefixBytes, deadline);
}

Status RecvRest(int fd, Bytes* encoded, Deadline deadline) {
  return RecvAll(fd, encoded->data() + kPrefixBytes, kHelloBytes - kPrefixBytes, deadline);
}

Digest Proof(const Key& key, const char* label, const Bytes& client, const Bytes& server) {
  Bytes text(label, label + sizeof(kClientLabel));
  text.insert(text.end(), client.begin(), client.end());
  text.insert(text.end(), server.begin(), server.end());
  return HmacSha256(key.data(), key.size(), text.data(), text.size());
}

Status CheckProof(int fd, const Digest& expected, Deadline deadline) {
  Digest theirs;
  FRD_RETURN_IF_ERROR(RecvAll(fd, theirs.data(), theirs.size(), deadline));
  if (EqualConstantTime(theirs, expected)) return Status::Ok();
  return {Code::kMismatch, DescribePeer(fd) + " does not know this job's key (another job on this address?)"};
}

// Closing a socket with unread bytes resets the connection, and a reset overtakes what we sent last.
void DiscardUnread(int fd) {
  char ignored[512];
  while (recv(fd, ignored, sizeof(ignored), MSG_DONTWAIT) == static_cast<ssize_t>(sizeof(ignored))) continue;
}

Deadline Within(Deadline deadline) { return std::min(deadline, After(kHandshakeTimeout)); }

}  // namespace

Status HandshakeClient(int fd, const Key& key, const Hello& mine, Hello* theirs, Deadline deadline) {
  Bytes client, server;
  FRD_RETURN_IF_ERROR(EncodeHello(mine, &client));
  FRD_RETURN_IF_ERROR(SendAll(fd, client.data(), client.size(), deadline));
  // The server may be busy with a stranger that says nothing; only from its first word on it has to be quick.
  FRD_RETURN_IF_ERROR(RecvPrefix(fd, &server, deadline));
  FRD_RETURN_IF_ERROR(CheckPrefix(fd, server));
  const Deadline soon = Within(deadline);
  FRD_RETURN_IF_ERROR(RecvRest(fd, &server, soon));

  const std::string peer = DescribePeer(fd);
  const Digest proof = Proof(key, kClientLabel, client, server);
  FRD_RETURN_IF_ERROR(SendAll(fd, proof.data(), proof.size(), soon));
  const Status proved = CheckProof(fd, Proof(key, kServerLabel, client, server), soon);
  if (proved.code() == Code::kPeerLost) {
    // What a server does that our proof did not convince.
    return {Code::kMismatch,
            peer + " does not know this job's key (another job on this address?): it closed the connection " +
                "when we had proved that we do"};
  }
  FRD_RETURN_IF_ERROR(proved);
  *theirs = DecodeHello(server);
  return Status::Ok();
}

Status HandshakeServer(int fd, const Key& key, const Hello& mine, Hello* theirs, Deadline deadline) {
  const Deadline soon = Within(deadline);
  Bytes client, server;
  FRD_RETURN_IF_ERROR(EncodeHello(mine, &server));
  FRD_RETURN_IF_ERROR(RecvPrefix(fd, &client, soon));
  if (std::memcmp(client.data(), kMagic, sizeof(kMagic)) != 0) return CheckPrefix(fd, client);
  // Another version gets our hello too, so that its user reads both numbers as well.
  FRD_RETURN_IF_ERROR(SendAll(fd, server.data(), server.size(), soon));
  if (const Status same = CheckPrefix(fd, client); !same.ok()) {
    DiscardUnread(fd);
    return same;
  }
  FRD_RETURN_IF_ERROR(RecvRest(fd, &client, soon));

  FRD_RETURN_IF_ERROR(CheckProof(fd, Proof(key, kClientLabel, client, server), soon));
  const Digest proof = Proof(key, kServerLabel, client, server);
  FRD_RETURN_IF_ERROR(SendAll(fd, proof.data(), proof.size(), soon));
  *theirs = DecodeHello(client);
  return Status::Ok();
}

}  // namespace farandole
