// Where the ranks of one fake communicator meet, and what their kernels do there.
#pragma once

#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "common/half.h"
#include "common/reduce.h"

namespace {

using farandole::DType;
using farandole::ReduceOp;

// One collective of one rank.
struct Call {
  bool is_broadcast = false;
  int type = 0, reduce = 0, root = 0;
  size_t count = 0;
  double factor = 1;  // of a scaled sum
  const char* from = nullptr;
  char* to = nullptr;

  // A scaled sum is numbered by each rank for itself.
  bool Fits(const Call& other) const {
    const bool same_reduce = reduce == other.reduce || (reduce > 3 && other.reduce > 3);
    return is_broadcast == other.is_broadcast && type == other.type && same_reduce && root == other.root &&
           count == other.count && factor == other.factor;
  }
};

inline DType TypeOf(int nccl) {
  constexpr DType kTypes[] = {DType::kInt8,  DType::kUint8,   DType::kInt32,   DType::kInt32,   DType::kInt64,
                              DType::kInt64, DType::kFloat16, DType::kFloat32, DType::kFloat64, DType::kBfloat16};
  return kTypes[nccl];
}
inline ReduceOp ReduceOf(int nccl) {
  constexpr ReduceOp kReduces[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMax, ReduceOp::kMin};
  return nccl < 4 ? kReduces[nccl] : ReduceOp::kSum;
}
inline double ValueOf(int nccl_type, const void* scalar) {
  const auto read = [scalar](auto value) {
    std::memcpy(&value, scalar, sizeof(value));
    return value;
  };
  switch (TypeOf(nccl_type)) {
    case DType::kFloat16:
      return farandole::Float16ToFloat(read(uint16_t{}));
    case DType::kBfloat16:
      return farandole::Bfloat16ToFloat(read(uint16_t{}));
    case DType::kFloat32:
      return read(float{});
    default:
      return read(double{});
  }
}

inline std::string ResultOf(const std::vector<Call>& of_all) {
  const Call& first = of_all[0];
  const DType type = TypeOf(first.type);
  const size_t size_bytes = first.count * farandole::SizeOf(type);
  if (first.is_broadcast) return {of_all[static_cast<size_t>(first.root)].from, size_bytes};
  std::vector<std::string> scaled;
  std::vector<const void*> inputs;
  for (const Call& call : of_all) {
    scaled.emplace_back(call.from, size_bytes);
    const void* const input = scaled.back().data();
    if (call.factor != 1)
      farandole::Fold(type, ReduceOp::kSum, &input, 1, call.count, {call.factor, 1}, scaled.back().data());
  }
  for (const std::string& each : scaled) inputs.push_back(each.data());
  std::string result(size_bytes, '\0');
  farandole::Fold(type, ReduceOf(first.reduce), inputs.data(), inputs.size(), first.count, farandole::Scale(),
                  result.data());
  return result;
}

class Room {
 public:
  explicit Room(int size) : size_(static_cast<size_t>(size)) {}

  void Arrive(int rank, int device) {
    std::lock_guard<std::mutex> lock(mutex_);
    devices_[rank] = device;
  }
  bool complete() {
    std::lock_guard<std::mutex> lock(mutex_);
    return devices_.size() == size_;
  }
  bool shares_devices() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::set<int> different;
    for (const auto& [rank, device] : devices_) different.insert(device);
    return different.size() < devices_.size();
  }
  void Leave() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++left_;
  }
  bool everybody_left() {
    std::lock_guard<std::mutex> lock(mutex_);
    return left_ == size_;
  }
  void Abort(int rank) {
    std::lock_guard<std::mutex> lock(mutex_);
    aborted_.insert(rank);
    changed_.notify_all();
  }

  // What a rank's kernel does for its `round`-th group of calls. "" or a misuse.
  std::string Perform(int rank, uint64_t round, const std::vector<Call>& calls, bool hangs) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto await = [&](auto condition) {
      changed_.wait(lock, [&] { return aborted_.count(rank) > 0 || condition(); });
      return aborted_.count(rank) == 0;
    };
    if (hangs && !await([] { return false; })) return "";
    Meeting& meeting = meetings_[round];
    meeting.calls[rank] = calls;
    changed_.notify_all();
    if (!await([&] { return meeting.calls.size() == size_; })) return "";
    std::vector<std::string> results;
    for (size_t i = 0; i < calls.size(); ++i) {
      std::vector<Call> of_all;
      for (const auto& [other, theirs] : meeting.calls) {
        if (theirs.size() != calls.size() || !theirs[i].Fits(calls[i])) return "the ranks call different things";
        of_all.push_back(theirs[i]);
      }
      results.push_back(ResultOf(of_all));
    }
    ++meeting.read;
    changed_.notify_all();
    if (!await([&] { return meeting.read == size_; })) return "";  // inputs may be outputs
    for (size_t i = 0; i < calls.size(); ++i) std::memcpy(calls[i].to, results[i].data(), results[i].size());
    return "";
  }

 private:
  struct Meeting {
    std::map<int, std::vector<Call>> calls;  // by rank
    size_t read = 0;
  };

  const size_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, int> devices_;
  std::set<int> aborted_;
  size_t left_ = 0;
  std::map<uint64_t, Meeting> meetings_;
};

}  // namespace
