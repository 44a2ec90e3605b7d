// Where the ranks of one fake communicator meet, in one process or in several, and what their kernels do there.
//
// A room is a file that every rank maps: a slot for each rank with what it does now, and its inputs. For one group of
// calls all who are in it post theirs, read the others', and write their results; in sends and receives that are those
// who have something for each other. A waiting rank polls until its peer's part has come or the rank itself
// aborts; so a rank that has died leaves the others waiting, as NCCL does.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>

#include "reduction.h"

namespace {

enum Kind { kAllReduce, kBroadcast, kAllGather, kReduceScatter, kReduceToOne, kSend, kReceive };

// One call of one rank.
struct Call {
  int kind = kAllReduce, type = 0, reduce = 0;
  int peer = 0;  // the root, or with whom
  size_t count = 0;
  double factor = 1;  // of a scaled sum
  const char* from = nullptr;
  char* to = nullptr;
  size_t at = 0;  // of its input in the slot

  bool between_two() const { return kind == kSend || kind == kReceive; }
  size_t bytes() const { return count * SizeOf(type); }
  size_t input_bytes(size_t size) const {
    if (kind == kReceive) return 0;
    return kind == kReduceScatter ? size * bytes() : bytes();
  }
  size_t output_bytes(size_t size, int rank) const {
    if (kind == kSend || (kind == kReduceToOne && rank != peer)) return 0;
    return kind == kAllGather ? size * bytes() : bytes();
  }
  // A scaled sum is numbered by each rank for itself.
  bool Fits(const Call& other) const {
    const bool same_reduce = reduce == other.reduce || (reduce > kMin && other.reduce > kMin);
    return kind == other.kind && type == other.type && same_reduce && peer == other.peer && count == other.count &&
           factor == other.factor;
  }
};

constexpr size_t kMaxCalls = 1024, kMaxBytes = size_t{64} << 20, kMaxRanks = 16;

struct Slot {
  std::atomic<int> arrived;                                            // 1 when the rank is there
  char device[16];                                                     // which it has; written before
  std::atomic<int> left, aborted;                                      // 1 once it has
  std::atomic<unsigned long long> posted[kMaxRanks], read[kMaxRanks];  // how often, for each of the others
  size_t call_count;
  Call calls[kMaxCalls];
  char inputs[kMaxBytes];
};

class Room {
 public:
  Room(const std::string& name, int size) : size_(static_cast<size_t>(size)) {
    const char* const folder = std::getenv("TMPDIR");
    path_ = std::string(folder != nullptr ? folder : "/tmp") + "/" + name;
    const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || size_ > kMaxRanks || ftruncate(file, static_cast<off_t>(size_ * sizeof(Slot))) != 0) std::abort();
    void* const memory = mmap(nullptr, size_ * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) std::abort();
    close(file);
    slots_ = static_cast<Slot*>(memory);
  }
  // Until the last rank is there or one has given up, others look for the file.
  ~Room() {
    unlink(path_.c_str());
    munmap(slots_, size_ * sizeof(Slot));
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  size_t size() const { return size_; }

  void Arrive(int rank, const std::string& device) {
    std::copy_n(device.data(), std::min(device.size(), sizeof(Slot::device)), slot(rank).device);
    slot(rank).arrived = 1;
  }
  bool complete() const {
    const bool all = All([](const Slot& each) { return each.arrived == 1; });
    if (all) unlink(path_.c_str());
    return all;
  }
  bool shares_devices() const {
    std::set<std::string> different;
    size_t arrived = 0;
    for (size_t i = 0; i < size_; ++i) {
      if (slots_[i].arrived == 0) continue;
      ++arrived;
      different.emplace(slots_[i].device, sizeof(Slot::device));
    }
    return different.size() < arrived;
  }
  void Leave(int rank) { slot(rank).left = 1; }
  bool everybody_left() const {
    return All([](const Slot& each) { return each.left == 1; });
  }
  void Abort(int rank) {
    slot(rank).aborted = 1;
    unlink(path_.c_str());  // nobody is to come to it any more
  }

  // Performs a rank's kernel for one group of calls. Returns "" or a misuse. `hangs`: does nothing until the rank
  // aborts.
  std::string Perform(int rank, std::vector<Call> calls, bool hangs) {
    Slot& mine = slot(rank);
    if (hangs && !Await(mine, [] { return false; })) return "";
    std::set<size_t> others = Others(calls);
    if (others.empty()) return "calls of two and of all in one group";
    if (const std::string misuse = Post(&mine, &calls, others); !misuse.empty()) return misuse;
    const auto all_have = [&](std::atomic<unsigned long long>(Slot::* done)[kMaxRanks]) {
      return Await(mine, [&] {
        return std::all_of(others.begin(), others.end(),
                           [&](size_t other) { return (slots_[other].*done)[rank] >= (mine.*done)[other]; });
      });
    };
    if (!all_have(&Slot::posted)) return "";
    std::vector<std::string> results;
    for (size_t i = 0; i < calls.size(); ++i) {
      results.emplace_back();
      const std::string misuse =
          calls[i].between_two() ? Receive(rank, i, &results.back()) : Collect(rank, i, &results.back());
      if (!misuse.empty()) return misuse;
    }
    for (size_t other : others) ++mine.read[other];
    if (!all_have(&Slot::read)) return "";
    for (size_t i = 0; i < calls.size(); ++i) std::copy(results[i].begin(), results[i].end(), calls[i].to);
    return "";
  }

 private:
  Slot& slot(int rank) const { return slots_[rank]; }

  template <typename Condition>
  bool All(Condition condition) const {
    return std::all_of(slots_, slots_ + size_, condition);
  }
  // False when the rank has aborted.
  template <typename Condition>
  static bool Await(const Slot& mine, Condition condition) {
    while (mine.aborted == 0) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return false;
  }

  // With whom a rank is in these calls: all, itself among them, or those that it sends to and receives from.
  std::set<size_t> Others(const std::vector<Call>& calls) const {
    std::set<size_t> others;
    for (const Call& call : calls) {
      if (call.between_two() != calls[0].between_two()) return {};
      if (call.between_two()) others.insert(static_cast<size_t>(call.peer));
    }
    for (size_t i = 0; others.size() < size_ && !calls[0].between_two(); ++i) others.insert(i);
    return others;
  }

  std::string Post(Slot* mine, std::vector<Call>* calls, const std::set<size_t>& others) const {
    if (calls->size() > kMaxCalls) return "more calls in a group than this fake has room for";
    size_t at = 0;
    for (size_t i = 0; i < calls->size(); ++i) {
      Call& call = (*calls)[i];
      const size_t input_bytes = call.input_bytes(size_);
      if (at + input_bytes > kMaxBytes) return "larger inputs than this fake has room for";
      call.at = at;
      std::copy_n(call.from, input_bytes, mine->inputs + at);
      mine->calls[i] = call;
      at += input_bytes;
    }
    mine->call_count = calls->size();
    for (size_t other : others) ++mine->posted[other];
    return "";
  }

  // The result of a rank's call `index`, in which all take part.
  std::string Collect(int rank, size_t index, std::string* result) const {
    const Call& call = slot(rank).calls[index];
    std::vector<const char*> inputs;
    for (size_t i = 0; i < size_; ++i) {
      if (index >= slots_[i].call_count || !slots_[i].calls[index].Fits(call)) return "the ranks call different things";
      inputs.push_back(slots_[i].inputs + slots_[i].calls[index].at);
    }
    const int reduce = call.reduce > kMin ? kSum : call.reduce;
    switch (call.kind) {
      case kBroadcast:
        result->assign(inputs[static_cast<size_t>(call.peer)], call.bytes());
        return "";
      case kAllGather:
        for (const char* input : inputs) result->append(input, call.bytes());
        return "";
      case kReduceScatter:
        for (const char*& input : inputs) input += static_cast<size_t>(rank) * call.bytes();
        break;
      case kReduceToOne:
        if (rank != call.peer) return "";
        break;
      default:
        break;
    }
    const size_t scaled = size_ == 1 && call.factor != 1 ? ScaledAlone(call) : call.count;
    *result = Reduce(call.type, reduce, inputs, scaled, call.factor);
    const size_t at = scaled * (call.bytes() / std::max<size_t>(call.count, 1));
    result->append(inputs[0] + at, call.bytes() - at);
    return "";
  }

  // Of a communicator of one rank NCCL 2.28 leaves the last elements as they are: every block takes as many, rounded
  // up to 16 bytes.
  static size_t ScaledAlone(const Call& call) {
    const size_t blocks = std::clamp<size_t>((call.bytes() + (16 << 10) - 1) / (16 << 10), 1, 32);
    const size_t in_pack = 16 * call.count / std::max<size_t>(call.bytes(), 1);
    const size_t share = (call.count / blocks + in_pack - 1) / in_pack * in_pack;
    return std::min(call.count, blocks * share);
  }

  // Receives for a rank's call `index`, one of two: the k-th that it gets from a peer is the k-th that this one sends.
  std::string Receive(int rank, size_t index, std::string* result) const {
    const Slot& mine = slot(rank);
    const Call& call = mine.calls[index];
    const Slot& theirs = slot(call.peer);
    const int wanted = call.kind == kReceive ? kSend : kReceive;
    const Call* const counterpart = Find(theirs, wanted, rank, PlaceOf(mine, index));
    if (counterpart == nullptr || counterpart->bytes() != call.bytes()) return "a send and a receive do not fit";
    if (call.kind == kReceive) result->assign(theirs.inputs + counterpart->at, call.bytes());
    return "";
  }
  static size_t PlaceOf(const Slot& slot, size_t index) {
    const Call& call = slot.calls[index];
    return static_cast<size_t>(std::count_if(slot.calls, slot.calls + index, [&](const Call& each) {
      return each.kind == call.kind && each.peer == call.peer;
    }));
  }
  static const Call* Find(const Slot& slot, int kind, int peer, size_t place) {
    for (size_t i = 0; i < slot.call_count; ++i) {
      if (slot.calls[i].kind == kind && slot.calls[i].peer == peer && place-- == 0) return &slot.calls[i];
    }
    return nullptr;
  }

  const size_t size_;
  std::string path_;
  Slot* slots_ = nullptr;
};

}  // namespace
