#include "transport/handshake.h"

#include <poll.h>

#include <algorithm>
#include <cstring>

#include "common/failpoint.h"
#include "common/sha256.h"
#include "transport/socket.h"
#include "transport/socket_io.h"

namespace farandole {
namespace {

constexpr char kMagic[4] = {'F', 'R', 'D', 'L'};
constexpr size_t kPurposeBytes = 16;
constexpr size_t kNonceBytes = 32;
constexpr size_t kPrefixBytes = sizeof(kMagic) + sizeof(uint32_t);
constexpr size_t kHelloBytes = kPrefixBytes + kPurposeBytes + sizeof(uint32_t) + sizeof(uint64_t) + kNonceBytes;

// The labels have equal length, so that the hellos after them begin at the same offset.
constexpr char kClientLabel[] = "farandole client v1";
constexpr char kServerLabel[] = "farandole server v1";
static_assert(sizeof(kClientLabel) == sizeof(kServerLabel), "labels of equal length");

// REQUIRES: the magic and the version have been checked.
Hello DecodeHello(const Bytes& encoded) {
  Hello hello;
  const char* const purpose = reinterpret_cast<const char*>(encoded.data()) + kPrefixBytes;
  hello.purpose.assign(purpose, strnlen(purpose, kPurposeBytes));
  ByteReader reader(encoded.data() + kPrefixBytes + kPurposeBytes, sizeof(uint32_t) + sizeof(uint64_t));
  hello.rank = reader.Get<uint32_t>();
  hello.epoch = reader.Get<uint64_t>();
  return hello;
}

Status CheckVersion(int fd, const Bytes& encoded) {
  const uint32_t version = ByteReader(encoded.data() + sizeof(kMagic), sizeof(uint32_t)).Get<uint32_t>();
  if (version == kProtocolVersion) return Status::Ok();
  return Status(Code::kMismatch, DescribePeer(fd), " speaks version ", version,
                " of Farandole's protocol, this process version ", kProtocolVersion,
                ": install the same release of farandole on all hosts");
}

Digest Proof(const Key& key, const char* label, const Bytes& client, const Bytes& server) {
  Bytes text(label, label + sizeof(kClientLabel));
  text.insert(text.end(), client.begin(), client.end());
  text.insert(text.end(), server.begin(), server.end());
  return HmacSha256(key.data(), key.size(), text.data(), text.size());
}

}  // namespace

Handshake::Handshake(Side side, const Key& key, Hello mine, TimePoint now)
    : side_(side), key_(key), mine_(std::move(mine)), stage_(side == Side::kClient ? kSendHello : kReadHello) {
  limit_ = side == Side::kClient ? TimePoint::max() : now + kHandshakeTimeout;
}

bool Handshake::is_sending() const {
  const bool client = side_ == Side::kClient;
  return stage_ == kSendHello || stage_ == (client ? kClientProof : kServerProof);
}

short Handshake::events() const { return is_sending() ? POLLOUT : POLLIN; }

Status Handshake::EncodeOurs() {
  if (mine_.purpose.size() > kPurposeBytes) return Invalid("a purpose of more than 16 bytes: ", mine_.purpose);
  uint8_t purpose[kPurposeBytes] = {};
  std::memcpy(purpose, mine_.purpose.data(), mine_.purpose.size());
  uint8_t nonce[kNonceBytes];
  FRD_RETURN_IF_ERROR(RandomBytes(nonce, sizeof(nonce)));
  ByteWriter writer;
  for (const char c : kMagic) writer.Put(c);
  writer.Put(kProtocolVersion);
  for (const uint8_t byte : purpose) writer.Put(byte);
  writer.Put(mine_.rank);
  writer.Put(mine_.epoch);
  for (const uint8_t byte : nonce) writer.Put(byte);
  ours_ = writer.Take();
  return Status::Ok();
}

Status Handshake::Step(int fd, TimePoint now) {
  if (ours_.empty()) {
    FRD_RETURN_IF_ERROR(EncodeOurs());
    Enter(stage_);
  }
  while (!done()) {
    bool blocked = false;
    const std::string peer = stage_ == kServerProof ? DescribePeer(fd) : "";
    const Status moved = Move(fd, &blocked);
    if (stage_ == kReadHello && std::memcmp(moving_.data(), kMagic, std::min(moved_, sizeof(kMagic))) != 0)
      return {Code::kMismatch, DescribePeer(fd), " does not speak Farandole's protocol"};
    if (moved.code() == Code::kPeerLost && side_ == Side::kClient && stage_ == kServerProof) {
      // A server that rejects the proof closes the connection without an answer.
      closed_after_proof_ = true;
      return Status(Code::kMismatch, peer,
                    " does not know this job's key (another job on this address?): it closed the connection ",
                    "after this process had proved that it does");
    }
    FRD_RETURN_IF_ERROR(moved);
    if (blocked && now >= limit_) {
      return Status(Code::kDeadline, DescribePeer(fd), (is_sending() ? " took only " : " sent only "), moved_, " of ",
                    moving_.size(), " bytes of the handshake in time");
    }
    if (blocked) return Status::Ok();
    FRD_RETURN_IF_ERROR(Complete(fd, now));
  }
  return Status::Ok();
}

void Handshake::Enter(Stage stage) {
  stage_ = stage;
  moved_ = 0;
  const bool client = side_ == Side::kClient;
  const bool proves = is_sending() && (stage == kClientProof || stage == kServerProof);
  if (proves) {
    const char* const label = client ? kClientLabel : kServerLabel;
    const Digest proof = client ? Proof(key_, label, ours_, received_) : Proof(key_, label, received_, ours_);
    moving_.assign(proof.begin(), proof.end());
  } else if (is_sending()) {
    moving_ = ours_;
  } else {
    moving_.assign(stage == kReadHello ? kHelloBytes : sizeof(Digest), 0);
  }
}

Status Handshake::Move(int fd, bool* blocked) {
  while (moved_ < moving_.size()) {
    size_t moved = 0;
    uint8_t* const at = moving_.data() + moved_;
    const size_t left = moving_.size() - moved_;
    FRD_RETURN_IF_ERROR(is_sending() ? TrySend(fd, at, left, &moved) : TryRecv(fd, at, left, &moved));
    moved_ += moved;
    *blocked = moved == 0;
    if (*blocked) break;
  }
  return Status::Ok();
}

Status Handshake::CheckProof(int fd, const char* label) const {
  const bool client = side_ == Side::kClient;
  const Digest expected = client ? Proof(key_, label, ours_, received_) : Proof(key_, label, received_, ours_);
  Digest theirs;
  std::memcpy(theirs.data(), moving_.data(), theirs.size());
  if (EqualConstantTime(theirs, expected)) return Status::Ok();
  return {Code::kMismatch, DescribePeer(fd), " does not know this job's key (another job on this address?)"};
}

Status Handshake::Complete(int fd, TimePoint now) {
  FRD_RETURN_IF_ERROR(FRD_FAILPOINT_STATUS("handshake.step"));
  const bool client = side_ == Side::kClient;
  switch (stage_) {
    case kReadHello:
      received_ = moving_;
      if (!client) {
        Enter(kSendHello);
        return Status::Ok();
      }
      FRD_RETURN_IF_ERROR(CheckVersion(fd, received_));
      limit_ = now + kHandshakeTimeout;
      Enter(kClientProof);
      return Status::Ok();
    case kSendHello:
      // A server sends its hello before it rejects a wrong version, so that both ranks' errors name both versions.
      if (!client) FRD_RETURN_IF_ERROR(CheckVersion(fd, received_));
      Enter(client ? kReadHello : kClientProof);
      return Status::Ok();
    case kClientProof:
      if (!client) FRD_RETURN_IF_ERROR(CheckProof(fd, kClientLabel));
      Enter(kServerProof);
      return Status::Ok();
    default:
      if (client) FRD_RETURN_IF_ERROR(CheckProof(fd, kServerLabel));
      theirs_ = DecodeHello(received_);
      stage_ = kDone;
      return Status::Ok();
  }
}

}  // namespace farandole
