// Ranks with both lanes to each other, and sinks that note what they are told. One thread drives them all.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/transports.h"
#include "transport/poll.h"

namespace farandole::tests {

template <typename MakePair>
Transports BothLanes(int participants, MakePair make) {
  std::vector<std::vector<PeerConnection>> connections(static_cast<size_t>(participants));
  const auto add = [&connections](int at, int peer, Lane lane, Descriptor socket) {
    connections[static_cast<size_t>(at)].push_back({peer, lane, std::move(socket), "rank " + std::to_string(peer)});
  };
  for (int i = 0; i < participants; ++i) {
    for (int j = i + 1; j < participants; ++j) {
      for (Lane lane : {Lane::kOrdered, Lane::kEarly}) {
        auto [first, second] = make();
        add(i, j, lane, std::move(first));
        add(j, i, lane, std::move(second));
      }
    }
  }
  Transports transports;
  for (auto& each : connections) transports.push_back(MakeTransport(std::move(each)));
  return transports;
}

inline const TransportKind kBothLanes[] = {
    {"loopback", [](int participants) { return LoopbackTransports(participants); }},
    {"unix", [](int participants) { return BothLanes(participants, UnixPair); }},
    {"tcp", [](int participants) { return BothLanes(participants, TcpPair); }},
};

inline MessageTag EarlyTag(uint32_t serial, uint64_t operation = 1) {
  MessageTag tag;
  tag.id = static_cast<int32_t>(serial) + 10;
  tag.serial = serial;
  tag.operation = operation;
  tag.plan = 77;
  tag.lane = Lane::kEarly;
  return tag;
}

class NotingSink final : public MessageSink {
 public:
  struct Arrival {
    int peer;
    MessageTag tag;
  };

  Status OnArrival(int peer, const MessageTag& tag, bool* wanted) override {
    arrivals.push_back({peer, tag});
    *wanted = wants(tag);
    return Status::Ok();
  }
  void OnGoodbye(int peer, int left) override {
    goodbyes.emplace_back(peer, left);
    at_goodbye();
  }
  void OnMismatch(int, const Mismatch& mismatch) override { mismatches.push_back(mismatch); }
  void OnEnd(int peer, const Status& status) override {
    ends.emplace_back(peer, status);
    at_end();
  }

  std::function<bool(const MessageTag&)> wants = [](const MessageTag&) { return true; };
  std::function<void()> at_goodbye = [] {}, at_end = [] {};
  std::vector<Arrival> arrivals;
  std::vector<std::pair<int, int>> goodbyes;  // peer, who leaves
  std::vector<Mismatch> mismatches;
  std::vector<std::pair<int, Status>> ends;
};

// The poller is asked first, as the progress loop does: it finds messages for which no receive is posted.
class DrivenRank {
 public:
  explicit DrivenRank(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {
    transport_->Listen(&sink);
    Require(poller_.Open().ok() && transport_->Watch(&poller_, 0).ok(), "Watch");
  }

  bool Poll() {
    if (!transport_) return false;
    std::vector<uint64_t> ready;
    poller_.Wait(0, &ready);
    for (uint64_t each : ready) transport_->OnReady(static_cast<uint32_t>(each));
    return transport_->Poll(&completions) || !ready.empty();
  }
  void Leave() { transport_.reset(); }
  Transport* operator->() const { return transport_.get(); }

  bool HasCompleted(uint64_t context) const {
    for (const auto& each : completions) {
      if (each.context == context && each.status.ok()) return true;
    }
    return false;
  }

  NotingSink sink;
  std::vector<Transport::Completion> completions;

 private:
  Poller poller_;
  std::unique_ptr<Transport> transport_;
};

class DrivenRanks {
 public:
  explicit DrivenRanks(Transports transports) {
    for (auto& each : transports) ranks_.push_back(std::make_unique<DrivenRank>(std::move(each)));
  }
  DrivenRank& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(ranks_.size()); }

  bool Poll() {
    bool moved = false;
    for (const auto& each : ranks_) moved |= each->Poll();
    return moved;
  }
  template <typename Done>
  bool PollUntil(Done done) {
    const TimeLimit limit(kLimit);
    while (!done() && !limit.passed()) Poll();
    return done();
  }
  // Proves that nothing more comes from `from`: everything before has arrived when this has, both ways.
  bool ExchangeLast(int from, int to, uint32_t serial) {
    char there = 'a', back = 'b', into[2] = {};
    const MessageTag tag = EarlyTag(serial);
    constexpr uint64_t kContext = uint64_t{1} << 60;
    const uint64_t context = kContext + serial;
    (*this)[to]->PostReceive(from, tag, 0, &into[0], 1, context);
    (*this)[from]->PostSend(to, tag, 0, &there, 1, kContext - 1);
    if (!PollUntil([&] { return (*this)[to].HasCompleted(context); })) return false;
    (*this)[from]->PostReceive(to, tag, 0, &into[1], 1, context);
    (*this)[to]->PostSend(from, tag, 0, &back, 1, kContext - 1);
    return PollUntil([&] { return (*this)[from].HasCompleted(context); }) && into[0] == 'a' && into[1] == 'b';
  }

 private:
  std::vector<std::unique_ptr<DrivenRank>> ranks_;
};

inline std::vector<uint8_t> BytesOfMessage(size_t number, size_t size_bytes) {
  std::vector<uint8_t> bytes(size_bytes);
  for (size_t i = 0; i < size_bytes; ++i) bytes[i] = static_cast<uint8_t>((i * 2654435761u >> 13) + number * 31 + i);
  return bytes;
}

}  // namespace farandole::tests
