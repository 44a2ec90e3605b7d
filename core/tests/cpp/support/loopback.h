// A Transport between threads of a test that takes every liberty that transport.h leaves: it moves parts of any size,
// lets channels and early messages overtake each other, and hands over completions late. Once it is quiesced, it writes
// to posted memory for a while, as a network card may. A seed decides.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "transport/shm/doorbell.h"
#include "transport/transport.h"

namespace farandole {

// All that the participants share. Any thread.
class LoopbackNet {
 public:
  LoopbackNet(int participants, uint32_t seed) : random_(seed), ends_(static_cast<size_t>(participants)) {}

  // From now on so many moves (parts of a post) succeed between the two; then their connection is lost. Negative: it is
  // never lost.
  void LoseAfter(int moves, int one, int other) {
    const std::lock_guard<std::mutex> lock(mutex_);
    lost_ = {std::min(one, other), std::max(one, other)};
    moves_left_ = moves;
  }
  bool has_lost() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return moves_left_ == 0;
  }

  // Writes once to all memory that is posted for receives where the transport is being quiesced.
  void Disturb() {
    const std::lock_guard<std::mutex> lock(mutex_);
    DisturbLocked();
  }

 private:
  friend class Loopback;
  static constexpr size_t kCapacityBytes = 50'000;  // under way on a channel; no power of two, and less than one chunk

  struct Post {
    std::byte* data;
    size_t left_bytes;
    uint64_t context;
  };
  struct Channel {
    MessageTag tag;
    std::deque<Post> sends, receives;
    std::string bytes;        // under way
    bool is_sent = false;     // something was posted to it
    bool is_known = false;    // early: the receiver has heard of it
    bool is_dropped = false;  // early: the receiver does not want it
    bool is_received = false;
    bool is_over() const {
      const bool is_taken = is_received || (is_dropped && is_sent);
      return tag.lane == Lane::kEarly && is_taken && sends.empty() && receives.empty();
    }
  };
  // From, to, and an ordered channel, or an early message: its serial number and part, and its operation.
  using Key = std::tuple<int, int, uint64_t, uint64_t>;
  static Key KeyOf(int from, int to, const MessageTag& tag, uint32_t part) {
    constexpr uint64_t kOrdered = ~uint64_t{0};
    if (tag.lane == Lane::kOrdered) return {from, to, tag.channel, kOrdered};
    return {from, to, uint64_t{tag.serial} << 32 | part, tag.operation};
  }
  struct Held {
    Transport::Completion completion;
    uint32_t serial;  // as in the tag
    uint64_t operation;
  };
  struct End {
    bool closed = false, watched = false;
    int quiet_in = -1;  // so many polls after it was quiesced; negative: it is not quiesced
    Descriptor event;
    std::vector<Held> held_back;
  };

  bool DisturbLocked() {
    for (size_t me = 0; me < ends_.size(); ++me) {
      if (ends_[me].quiet_in <= 0) continue;
      const bool is_last = --ends_[me].quiet_in == 0;
      for (auto& [key, channel] : channels_) {
        if (std::get<0>(key) == static_cast<int>(me) && is_last) channel.sends.clear();
        if (std::get<1>(key) != static_cast<int>(me)) continue;
        for (const Post& post : channel.receives) std::memset(post.data, 0xab, post.left_bytes);
        if (is_last) channel.receives.clear();
      }
    }
    return true;
  }
  bool IsLost(int one, int other) const {
    return moves_left_ == 0 && lost_ == std::make_pair(std::min(one, other), std::max(one, other));
  }
  bool Chance(uint32_t of) { return random_() % of == 0; }
  // Three of four moves are whole, since the tests move gigabytes.
  size_t PartOf(size_t size_bytes) { return size_bytes < 2 || !Chance(4) ? size_bytes : 1 + random_() % size_bytes; }

  mutable std::mutex mutex_;
  std::mt19937 random_;
  std::map<Key, Channel> channels_;
  std::map<std::pair<int, int>, std::deque<int>> goodbyes_;  // from, to: who leaves
  std::vector<End> ends_;                                    // by participant
  std::pair<int, int> lost_{-1, -1};
  int moves_left_ = -1;
};

class Loopback final : public Transport {
 public:
  Loopback(std::shared_ptr<LoopbackNet> net, int me) : net_(std::move(net)), me_(me), mine_(&net_->ends_[at(me)]) {
    static_cast<void>(MakeEvent(&mine_->event));
  }
  ~Loopback() override {
    const std::lock_guard<std::mutex> lock(net_->mutex_);
    mine_->closed = true;
    for (auto& [key, channel] : net_->channels_) {
      if (std::get<0>(key) == me_) channel.sends.clear();
      if (std::get<1>(key) == me_) channel.receives.clear();
    }
    for (size_t peer = 0; peer < net_->ends_.size(); ++peer) Wake(static_cast<int>(peer));
  }

  void Listen(MessageSink* sink) override { sink_ = sink; }
  void PostSend(int peer, const MessageTag& tag, uint32_t part, const void* data, size_t size_bytes,
                uint64_t context) override {
    Add(&Channel::sends, tag, LoopbackNet::KeyOf(me_, peer, tag, part), const_cast<void*>(data), size_bytes, context);
  }
  void PostReceive(int peer, const MessageTag& tag, uint32_t part, void* data, size_t size_bytes,
                   uint64_t context) override {
    Add(&Channel::receives, tag, LoopbackNet::KeyOf(peer, me_, tag, part), data, size_bytes, context);
  }
  bool polls_sockets() const override { return true; }
  void Begin(const MessageTag&) override {}

  bool CanSendEarly(int peer) const override { return peer != me_ && ended_.count(peer) == 0; }
  void Cancel(const MessageTag& tag) override {
    const std::lock_guard<std::mutex> lock(net_->mutex_);
    for (auto& [key, channel] : net_->channels_) {
      if (!IsEarly(channel) || channel.tag.serial != tag.serial || channel.tag.operation != tag.operation) continue;
      if (std::get<1>(key) == me_) channel.receives.clear();
      if (std::get<0>(key) != me_) continue;
      for (const LoopbackNet::Post& post : channel.sends)
        channel.bytes.append(reinterpret_cast<const char*>(post.data), post.left_bytes);
      channel.sends.clear();
    }
    std::vector<Held>& held = mine_->held_back;
    const auto is_of = [&tag](const Held& each) {
      return each.serial == tag.serial && each.operation == tag.operation;
    };
    held.erase(std::remove_if(held.begin(), held.end(), is_of), held.end());
  }
  void DropEarly(uint32_t serial) override {
    const std::lock_guard<std::mutex> lock(net_->mutex_);
    for (auto& [key, channel] : net_->channels_) {
      if (IsEarly(channel) && std::get<1>(key) == me_ && channel.tag.serial == serial) channel.is_dropped = true;
    }
  }
  bool HasHeader(int peer, const MessageTag& tag) const override {
    const std::lock_guard<std::mutex> lock(net_->mutex_);
    const auto found = net_->channels_.find(LoopbackNet::KeyOf(peer, me_, tag, 0));
    return found == net_->channels_.end() || found->second.is_sent;  // what is over is erased
  }
  void PostGoodbye(int peer, int left) override {
    const std::lock_guard<std::mutex> lock(net_->mutex_);
    net_->goodbyes_[{me_, peer}].push_back(left);
    Wake(peer);
  }

  bool Poll(std::vector<Completion>* completions) override {
    const bool heard = Hear();
    return MoveAll(completions) || heard;
  }

  Status Watch(Poller* poller, uint64_t tag) override {
    const std::lock_guard<std::mutex> lock(net_->mutex_);
    mine_->watched = true;
    return poller->Watch(mine_->event.get(), tag);
  }
  void OnReady(uint32_t) override { DrainEvent(mine_->event.get()); }
  bool IsBroken(int peer) const override {
    const std::lock_guard<std::mutex> lock(net_->mutex_);
    return peer != me_ && (net_->ends_[at(peer)].closed || net_->IsLost(me_, peer));
  }
  void BeginQuiesce() override {
    const std::lock_guard<std::mutex> lock(net_->mutex_);
    if (mine_->quiet_in < 0) mine_->quiet_in = 1 + static_cast<int>(net_->random_() % 200);
    mine_->held_back.clear();
  }
  bool is_quiet() const override {
    const std::lock_guard<std::mutex> lock(net_->mutex_);
    return mine_->quiet_in == 0;
  }

 private:
  using Channel = LoopbackNet::Channel;
  using Held = LoopbackNet::Held;
  using Posts = std::deque<LoopbackNet::Post>;
  static size_t at(int participant) { return static_cast<size_t>(participant); }

  static bool IsEarly(const Channel& channel) { return channel.tag.lane == Lane::kEarly; }

  void Add(Posts Channel::* posts, const MessageTag& tag, LoopbackNet::Key key, void* data, size_t size_bytes,
           uint64_t context) {
    const std::lock_guard<std::mutex> lock(net_->mutex_);
    if (mine_->quiet_in >= 0) return;
    Channel& channel = net_->channels_[key];
    channel.tag = tag;
    channel.is_sent = channel.is_sent || posts == &Channel::sends;
    channel.is_known = channel.is_known || posts == &Channel::receives;
    (channel.*posts).push_back({static_cast<std::byte*>(data), size_bytes, context});
  }

  // Tells the sink of early messages for which no receive is posted, and of goodbyes once all of them are known.
  bool Hear() {
    if (sink_ == nullptr) return false;
    std::vector<std::pair<int, MessageTag>> arrivals;
    std::vector<std::pair<int, int>> goodbyes;
    std::vector<int> ends;
    {
      const std::lock_guard<std::mutex> lock(net_->mutex_);
      std::map<int, bool> all_known;
      for (auto& [key, channel] : net_->channels_) {
        if (std::get<1>(key) != me_ || !IsEarly(channel) || channel.is_known) continue;
        if (channel.is_sent && !net_->Chance(4)) {
          arrivals.emplace_back(std::get<0>(key), channel.tag);
          channel.is_known = true;
        } else {
          all_known[std::get<0>(key)] = false;
        }
      }
      for (auto& [ends, left] : net_->goodbyes_) {
        if (ends.second != me_ || all_known.count(ends.first) > 0) continue;
        for (int rank : left) goodbyes.emplace_back(ends.first, rank);
        left.clear();
      }
      for (int peer = 0; peer < static_cast<int>(net_->ends_.size()); ++peer) {
        const bool is_lost = net_->ends_[at(peer)].closed || net_->IsLost(me_, peer);
        if (peer != me_ && is_lost && all_known.count(peer) == 0 && ended_.insert(peer).second) ends.push_back(peer);
      }
    }
    for (const auto& [from, tag] : arrivals) {
      bool wanted = false;
      const Status status = sink_->OnArrival(from, tag, &wanted);
      if (!status.ok()) sink_->OnEnd(from, status);
      if (!wanted) DropEarly(tag.serial);
    }
    for (const auto& [from, left] : goodbyes) sink_->OnGoodbye(from, left);
    for (int peer : ends) sink_->OnEnd(peer, {Code::kPeerLost, "rank " + std::to_string(peer) + " left"});
    return !arrivals.empty() || !goodbyes.empty() || !ends.empty();
  }

  bool MoveAll(std::vector<Completion>* completions) {
    const std::lock_guard<std::mutex> lock(net_->mutex_);
    if (mine_->quiet_in >= 0) return mine_->quiet_in > 0 && net_->DisturbLocked();
    std::vector<std::pair<const LoopbackNet::Key, Channel>*> channels;
    for (auto& each : net_->channels_) {
      if (std::get<0>(each.first) == me_ || std::get<1>(each.first) == me_) channels.push_back(&each);
    }
    std::shuffle(channels.begin(), channels.end(), net_->random_);
    bool moved = false;
    for (auto* each : channels) {
      if (net_->Chance(4)) continue;  // others overtake it
      const auto [from, to, number, operation] = each->first;
      moved |= from == me_ ? Send(to, &each->second) : Receive(from, &each->second);
      if (each->second.is_over()) net_->channels_.erase(LoopbackNet::Key(each->first));
    }
    std::vector<Held>& held = mine_->held_back;
    const auto count = static_cast<std::ptrdiff_t>(net_->Chance(3) ? net_->random_() % (held.size() + 1) : held.size());
    for (auto each = held.begin(); each != held.begin() + count; ++each) completions->push_back(each->completion);
    held.erase(held.begin(), held.begin() + count);
    if (!moved && count == 0 && (IsWaiting() || !held.empty())) Wake(me_);  // what chance left out is looked at again
    return moved || count > 0;
  }

  bool Send(int to, Channel* channel) {
    if (channel->is_dropped) channel->bytes.clear();
    return Move(channel, &channel->sends, to, LoopbackNet::kCapacityBytes - channel->bytes.size(), false,
                [channel](std::byte* data, size_t size_bytes) {
                  channel->bytes.append(reinterpret_cast<const char*>(data), size_bytes);
                });
  }
  bool Receive(int from, Channel* channel) {
    if (channel->is_dropped) channel->bytes.clear();
    return Move(channel, &channel->receives, from, channel->bytes.size(), true,
                [channel](std::byte* data, size_t size_bytes) {
                  std::memcpy(data, channel->bytes.data(), size_bytes);
                  channel->bytes.erase(0, size_bytes);
                });
  }

  // Moves a part of the first post, of which `possible_bytes` can be moved. Bytes that are under way still arrive after
  // the peer has closed.
  template <typename MovePart>
  bool Move(Channel* channel, Posts* posts, int peer, size_t possible_bytes, bool receives, MovePart move) {
    if (posts->empty()) return false;
    LoopbackNet::Post& post = posts->front();
    const bool may_still_come = receives && possible_bytes > 0;
    if (net_->IsLost(me_, peer) || (net_->ends_[at(peer)].closed && !may_still_come)) {
      if (IsEarly(*channel) && receives) return false;
      const Status lost(Code::kPeerLost, "rank ", peer, " left: it closed the connection to this rank");
      mine_->held_back.push_back(
          {{post.context, IsEarly(*channel) ? Status::Ok() : lost}, channel->tag.serial, channel->tag.operation});
      posts->clear();
      return true;
    }
    const size_t part_bytes = net_->PartOf(std::min(possible_bytes, post.left_bytes));
    if (part_bytes == 0 && post.left_bytes > 0) return false;
    move(post.data, part_bytes);
    post.data += part_bytes;
    post.left_bytes -= part_bytes;
    if (post.left_bytes == 0) {
      mine_->held_back.push_back({{post.context, Status::Ok()}, channel->tag.serial, channel->tag.operation});
      posts->pop_front();
      channel->is_received = channel->is_received || receives;
    }
    const bool counts = net_->lost_ == std::make_pair(std::min(me_, peer), std::max(me_, peer));
    if (counts && net_->moves_left_ > 0) --net_->moves_left_;
    Wake(peer);
    return true;
  }

  bool IsWaiting() const {
    return std::any_of(net_->channels_.begin(), net_->channels_.end(), [this](const auto& each) {
      const auto& [key, channel] = each;
      return (std::get<0>(key) == me_ && !channel.sends.empty()) ||
             (std::get<1>(key) == me_ && !channel.receives.empty());
    });
  }
  void Wake(int participant) const {
    const LoopbackNet::End& end = net_->ends_[at(participant)];
    if (end.watched && !end.closed) SignalEvent(end.event.get());
  }

  const std::shared_ptr<LoopbackNet> net_;
  const int me_;
  LoopbackNet::End* const mine_;
  MessageSink* sink_ = nullptr;
  std::set<int> ended_;
};

}  // namespace farandole
