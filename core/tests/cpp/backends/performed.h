// One case on one rank: the memory of its task, and the comparison of the result with the expected one.
#pragma once

#include <numeric>

#include "backends/cases.h"

namespace farandole::tests {

inline size_t Sum(const std::vector<size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

class Performed {
 public:
  Performed(const Case& c, const ProcessSet& set) : case_(c), set_(set), me_(set.position) {
    task_.kind = c.kind;
    task_.set = &set_;
    task_.dtype = c.dtype;
    task_.reduce = c.reduce;
    task_.scale = c.scale;
    task_.root = c.root;
    input_ = InputOf(c, me_, InputCount(me_));
    output_ = std::string(OutputCount() * c.width(), '\x5a');
    const bool whole = c.kind == OpKind::kAllreduce || c.kind == OpKind::kBroadcast;
    in_place_ = c.in_place && whole;
    if (in_place_) output_ = input_;
    AddBuffers(whole);
    for (size_t count : c.parts) task_.rank_bytes.push_back(count * c.width());
    for (int p = 0; p < set.size(); ++p) {
      task_.send_bytes.push_back(Slot(me_, p) * c.width());
      task_.recv_bytes.push_back(Slot(p, me_) * c.width());
    }
  }
  Performed(const Performed&) = delete;

  const Task& task() const { return task_; }

  // Returns "" when the output is correct and nothing else was written.
  std::string Check() const {
    if (!in_place_ && input_ != InputOf(case_, me_, InputCount(me_))) return "the input was written";
    if (Joined(me_))
      return output_ == std::string(output_.size(), '\x5a') || in_place_ ? "" : "memory of nobody was written";
    return output_ == Expected() ? "" : "wrong values";
  }

  std::string Description() const {
    return std::string(NameOf(case_.kind)) + " " + NameOf(case_.reduce) + " of " + NameOf(case_.dtype) + ", set " +
           std::to_string(set_.id) + ", inputs of " + std::to_string(InputCount(me_)) + " elements";
  }

 private:
  bool Joined(int position) const { return case_.joined[static_cast<size_t>(position)]; }
  size_t Slot(int from, int to) const { return case_.matrix[static_cast<size_t>(from)][static_cast<size_t>(to)]; }

  size_t InputCount(int position) const {
    if (case_.kind == OpKind::kAllgather) return case_.parts[static_cast<size_t>(position)];
    if (case_.kind == OpKind::kReducescatter) return Sum(case_.parts);
    if (case_.kind == OpKind::kAlltoall) return Sum(case_.matrix[static_cast<size_t>(position)]);
    return Sum(case_.counts);
  }
  size_t OutputCount() const {
    if (case_.kind == OpKind::kAllgather) return Sum(case_.parts);
    if (case_.kind == OpKind::kReducescatter) return case_.parts[static_cast<size_t>(me_)];
    if (case_.kind != OpKind::kAlltoall) return Sum(case_.counts);
    size_t count = 0;
    for (int p = 0; p < set_.size(); ++p) count += Slot(p, me_);
    return count;
  }

  void AddBuffers(bool whole) {
    size_t at = 0;
    for (size_t count : whole ? case_.counts : std::vector<size_t>{InputCount(me_)}) {
      const size_t size_bytes = count * case_.width();
      IoBuffer buffer{(in_place_ ? output_ : input_).data() + at, output_.data() + at, size_bytes};
      if (Joined(me_)) buffer = {nullptr, nullptr, size_bytes};
      task_.buffers.push_back(buffer);
      at += size_bytes;
    }
  }

  // The input of a position: zeros where it has joined.
  std::string Contribution(int position) const {
    const std::string input = InputOf(case_, position, InputCount(position));
    return Joined(position) ? std::string(input.size(), '\0') : input;
  }

  std::string Expected() const {
    switch (case_.kind) {
      case OpKind::kBroadcast:
        return Contribution(case_.root);
      case OpKind::kAllgather:
      case OpKind::kAlltoall:
        return ExpectedRows();
      default:
        return ExpectedReduction();
    }
  }

  std::string ExpectedRows() const {
    std::string rows;
    for (int p = 0; p < set_.size(); ++p) {
      const std::string contribution = Contribution(p);
      if (case_.kind == OpKind::kAllgather) {
        rows += contribution;
      } else {
        const auto& row = case_.matrix[static_cast<size_t>(p)];
        const size_t before = std::accumulate(row.begin(), row.begin() + me_, size_t{0});
        rows += contribution.substr(before * case_.width(), Slot(p, me_) * case_.width());
      }
    }
    return rows;
  }

  // Checks every stride-th element only.
  std::string ExpectedReduction() const {
    const bool scatters = case_.kind == OpKind::kReducescatter;
    const size_t first = scatters ? std::accumulate(case_.parts.begin(), case_.parts.begin() + me_, size_t{0}) : 0;
    const size_t count = OutputCount(), width = case_.width(), stride = 1 + count / 3000;
    std::vector<std::string> sampled;
    std::vector<const char*> inputs;
    for (int p = 0; p < set_.size(); ++p) {
      const std::string all = Contribution(p);
      sampled.emplace_back();
      for (size_t i = 0; i < count; i += stride) sampled.back() += all.substr((first + i) * width, width);
    }
    for (const std::string& input : sampled) inputs.push_back(input.data());
    const std::string reduced =
        Reduced({case_.dtype, case_.reduce, case_.scale}, set_.layout, inputs, sampled[0].size() / width);
    std::string expected = output_;
    for (size_t i = 0; i < count; i += stride) expected.replace(i * width, width, reduced, i / stride * width, width);
    return expected;
  }

  const Case case_;
  const ProcessSet set_;
  const int me_;
  bool in_place_ = false;
  std::string input_, output_;
  Task task_;
};

}  // namespace farandole::tests
