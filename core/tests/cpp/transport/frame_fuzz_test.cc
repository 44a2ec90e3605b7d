// Frames with some bytes changed, cut off or made up: a transport refuses the peer or takes them, and never crashes,
// while this rank posts, cancels and drops at random. Worth most under the address and undefined-behaviour sanitizers.
//
// FARANDOLE_SEEDS is the number of connections. Each reads some hundred frames, until one of them is refused.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "support/seeds.h"
#include "transport/raw_peers.h"

namespace farandole::tests {
namespace {

constexpr size_t kBytesPerConnection = 64 << 10;
constexpr size_t kBytesPerWrite = 2 << 10;
constexpr uint32_t kSerials = 4, kParts = 3;

// Both ends mean the same size unless a byte of the header is changed.
size_t SizeOfMessage(const MessageTag& tag, uint32_t part) {
  const uint64_t key = tag.operation * 7 + tag.serial * 3 + part;
  return key % 50 == 0 ? 3000 : 1 + key % 60;
}

class FuzzedConnection {
 public:
  // Changes one header in `mutated_one_in` anyhow, and more of them where they stay readable. 0: none.
  FuzzedConnection(uint64_t seed, uint32_t mutated_one_in)
      : random_(static_cast<uint32_t>(seed)), mutated_one_in_(mutated_one_in) {
    peer_.sink().wants = [this](const MessageTag&) { return Chance(2); };
  }

  // Returns the number of frames that were read, or a little less.
  uint64_t Run() {
    for (size_t sent = 0; sent < kBytesPerConnection && !(early_over() && ordered_over()); sent += kBytesPerWrite) {
      for (Lane lane : {Lane::kEarly, Lane::kOrdered}) {
        if (!is_over(lane)) Send(lane);
      }
      for (uint32_t i = random_() % 8; i > 0; --i) Act();
      Poll();
      for (auto& [lane, count] : unread_frames_) {
        frames_ += is_over(lane) ? std::min<uint64_t>(count, 1) : count;
        count = 0;
      }
    }
    return frames_;
  }
  bool early_over() const { return !peer_.sink().ends.empty(); }
  bool ordered_over() const { return ordered_over_; }

 private:
  bool is_over(Lane lane) const { return lane == Lane::kEarly ? early_over() : ordered_over(); }
  bool Chance(uint32_t of) { return random_() % of == 0; }

  // ---- the peer

  FrameHeader NextHeader(Lane lane) {
    using Kind = FrameKind;
    constexpr Kind kKinds[] = {Kind::kData,  Kind::kData,    Kind::kData,   Kind::kAnnounced,
                               Kind::kGrant, Kind::kGranted, Kind::kCredit, Kind::kGoodbye};
    if (lane == Lane::kOrdered) {
      MessageTag tag = EarlyTag(0, ordered_sent_++);
      tag.lane = lane;
      return MakeHeader(Kind::kData, tag, 0, SizeOfMessage(tag, 0));
    }
    const uint64_t number = messages_++;  // each has another key
    const MessageTag tag = EarlyTag(1 + number % kSerials, number / (kSerials * kParts));
    const auto part = static_cast<uint32_t>(number / kSerials % kParts);
    FrameHeader header = MakeHeader(kKinds[random_() % 8], tag, part, SizeOfMessage(tag, part));
    if (Chance(16)) taken_bytes_ = posted_bytes_;
    header.taken_bytes = taken_bytes_;
    return header;
  }

  void AppendFrame(Lane lane) {
    const FrameHeader header = NextHeader(lane);
    const size_t begin = bytes_.size(), payload_bytes = header.has_payload() ? header.size_bytes : 0;
    bytes_.resize(begin + sizeof header + payload_bytes, std::byte{7});
    std::memcpy(&bytes_[begin], &header, sizeof header);
    ++unread_frames_[lane];
    if (mutated_one_in_ == 0) return;
    if (Chance(4)) bytes_[begin + OfTag()] ^= static_cast<std::byte>(1u << random_() % 8);
    if (!Chance(mutated_one_in_)) return;
    for (uint32_t i = random_() % 4; i > 0; --i) bytes_[begin + random_() % sizeof header] = AnyByte();
    if (Chance(16)) bytes_.resize(begin + random_() % (bytes_.size() - begin));
    if (Chance(16))
      std::generate(bytes_.begin() + static_cast<std::ptrdiff_t>(begin), bytes_.end(), [this] { return AnyByte(); });
  }
  std::byte AnyByte() {
    constexpr std::byte kEdges[] = {std::byte{0}, std::byte{1}, std::byte{0x7f}, std::byte{0x80}, std::byte{0xff}};
    return Chance(2) ? kEdges[random_() % 5] : static_cast<std::byte>(random_());
  }
  // A byte of a header that may change without making it unreadable.
  size_t OfTag() {
    constexpr size_t kTag = offsetof(FrameHeader, tag);
    constexpr size_t kFields[] = {offsetof(FrameHeader, part), kTag + offsetof(MessageTag, id),
                                  kTag + offsetof(MessageTag, serial), kTag + offsetof(MessageTag, operation),
                                  kTag + offsetof(MessageTag, channel)};
    return kFields[random_() % 5];
  }

  // What the rank does not read yet waits for the next call.
  void Send(Lane lane) {
    std::vector<std::byte>& waiting = waiting_[lane];
    if (waiting.empty()) {
      while (bytes_.size() < kBytesPerWrite) AppendFrame(lane);
      waiting.swap(bytes_);
    }
    const int to = peer_.SocketOf(1, lane);
    const ssize_t sent = send(to, waiting.data(), waiting.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) waiting.erase(waiting.begin(), waiting.begin() + sent);
    while (recv(to, unread_, sizeof unread_, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof unread_)) continue;
  }

  // ---- this rank

  std::byte* Memory(size_t size_bytes) {
    return (memory_[++context_] = std::make_unique<std::byte[]>(size_bytes)).get();
  }

  void Act() {
    const uint64_t operation = messages_ / (kSerials * kParts) + random_() % 6;
    const MessageTag tag = EarlyTag(1 + random_() % kSerials, operation - std::min<uint64_t>(operation, 2));
    const auto part = static_cast<uint32_t>(random_() % kParts);
    const size_t size_bytes = SizeOfMessage(tag, part);
    switch (random_() % 10) {
      case 0:
      case 1:
        return PostEarly(true, tag, part, size_bytes);
      case 2:
        return Cancel(tag);
      case 3:
        return peer_->DropEarly(tag.serial);
      case 4:
        return PostOrdered();
      case 5:
        return peer_->PostGoodbye(1, 0);
      case 6:
        return static_cast<void>(peer_->HasHeader(1, tag));
      default:
        return PostEarly(false, tag, part, size_bytes);
    }
  }

  // No part is used twice.
  void PostEarly(bool sends, const MessageTag& tag, uint32_t part, size_t size_bytes) {
    if (!posted_.emplace(sends, tag.serial, tag.operation, part).second) return;
    std::byte* const memory = Memory(size_bytes);
    of_early_[context_] = tag;
    if (!sends) return peer_->PostReceive(1, tag, part, memory, size_bytes, context_);
    posted_bytes_ += size_bytes;
    peer_->PostSend(1, tag, part, memory, size_bytes, context_);
  }

  // The memory of its posts is freed, as a user would.
  void Cancel(const MessageTag& tag) {
    peer_->Cancel(tag);
    for (auto each = of_early_.begin(); each != of_early_.end();) {
      const bool is_of = each->second.serial == tag.serial && each->second.operation == tag.operation;
      if (is_of) memory_.erase(each->first);
      each = is_of ? of_early_.erase(each) : std::next(each);
    }
  }

  void PostOrdered() {
    for (uint64_t more = random_() % 20; ordered_posted_ < ordered_sent_ + more;) {
      MessageTag tag = EarlyTag(0, ordered_posted_++);
      tag.lane = Lane::kOrdered;
      const size_t size_bytes = SizeOfMessage(tag, 0);
      peer_->Begin(tag);
      std::byte* const memory = Memory(size_bytes);
      peer_->PostReceive(1, tag, 0, memory, size_bytes, context_);
    }
  }

  void Poll() {
    peer_.rank->Poll();
    for (const auto& each : peer_.rank->completions) {
      memory_.erase(each.context);
      of_early_.erase(each.context);
      ordered_over_ = ordered_over_ || !each.status.ok();
    }
    for (const Mismatch& each : peer_.sink().mismatches)  // then no post completes
      ordered_over_ = ordered_over_ || each.theirs.tag.lane == Lane::kOrdered;
    peer_.rank->completions.clear();
    peer_.sink().arrivals.clear();
    peer_.sink().goodbyes.clear();
    peer_.sink().mismatches.clear();
  }

  std::mt19937 random_;
  const uint32_t mutated_one_in_;
  std::map<uint64_t, std::unique_ptr<std::byte[]>> memory_;  // by context, of posts that are not over
  std::map<uint64_t, MessageTag> of_early_;
  std::set<std::tuple<bool, uint32_t, uint64_t, uint32_t>> posted_;
  std::vector<std::byte> bytes_;  // of frames that are being made
  std::map<Lane, std::vector<std::byte>> waiting_;
  std::map<Lane, uint64_t> unread_frames_;
  char unread_[16 << 10];
  uint64_t frames_ = 0, messages_ = 0, ordered_sent_ = 0, ordered_posted_ = 0, context_ = 0;
  uint64_t posted_bytes_ = 0, taken_bytes_ = 0;
  bool ordered_over_ = false;
  RankAmongRawPeers peer_;  // the first to go: it uses the memory
};

// Else the other test would not get far into the connections.
TEST(FrameFuzz, AFaultlessPeerIsNotRefused) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    FuzzedConnection connection(seed, 0);
    connection.Run();
    EXPECT_FALSE(connection.early_over() || connection.ordered_over()) << "seed " << seed;
  }
}

TEST(FrameFuzz, ATransportSurvivesAnyFrames) {
  const Seeds seeds = SeedsFromEnvironment(2000);
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  uint64_t frames = 0;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed)
    frames += FuzzedConnection(seed, 16u << seed % 5).Run();
  getrusage(RUSAGE_SELF, &after);
  RecordProperty("frames", std::to_string(frames));
  EXPECT_GT(frames, 30 * seeds.count) << "the frames are refused too early";
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 512 << 10) << "KiB; a peer may not make this rank allocate at will";
}

}  // namespace
}  // namespace farandole::tests
