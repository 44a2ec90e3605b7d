#include "controller/validate.h"

#include <cstdio>
#include <utility>

namespace farandole {
namespace {

std::string TextOf(OpKind kind) { return NameOf(kind); }
std::string TextOf(ReduceOp reduce) { return NameOf(reduce); }
std::string TextOf(DType dtype) { return NameOf(dtype); }
std::string TextOf(DeviceKind device) { return device == DeviceKind::kHost ? "host" : "CUDA"; }
std::string TextOf(const std::vector<int64_t>& numbers) { return ToString(numbers); }
std::string TextOf(int32_t number) { return std::to_string(number); }
std::string TextOf(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

// The first thing in which two descriptions differ, with the value of each side; empty `what` when they agree.
struct Difference {
  std::string what, left, right;
};

// "rank 1 (train.py:12) has float32"
std::string Side(int rank, const Description& description, const std::string& value) {
  const std::string site = description.site.empty() ? "" : " (" + description.site + ")";
  return "rank " + std::to_string(rank) + site + " has " + value;
}

// Visits two signatures, or a tensor of each. The first dimension is no part of a tensor where rows differ.
class FirstDifference {
 public:
  explicit FirstDifference(bool rows_differ, std::string of = "") : rows_differ_(rows_differ), of_(std::move(of)) {}

  template <typename T>
  void operator()(const char* name, const T& left, const T& right) {
    if (name != kNotCompared && found_.what.empty() && !(left == right)) Describe(name, left, right);
  }
  Difference Take() { return std::move(found_); }

 private:
  template <typename T>
  void Describe(const char* name, const T& left, const T& right) {
    found_ = {name + of_, TextOf(left), TextOf(right)};
  }
  void Describe(const char* name, const Shape& left, const Shape& right) {
    found_ = {name + std::string(rows_differ_ ? " after the first dimension" : "") + of_, TextOf(left), TextOf(right)};
  }
  void Describe(const char*, const std::vector<TensorSpec>& left, const std::vector<TensorSpec>& right) {
    if (left.size() != right.size()) {
      found_ = {"number of tensors", std::to_string(left.size()), std::to_string(right.size())};
      return;
    }
    for (size_t i = 0; i < left.size() && found_.what.empty(); ++i) {
      FirstDifference differ(rows_differ_, left.size() == 1 ? "" : " of tensor " + std::to_string(i));
      TensorSpec::Visit(differ, left[i], right[i]);
      found_ = differ.Take();
    }
  }

  const bool rows_differ_;
  const std::string of_;
  Difference found_;
};

Difference Compare(const Signature& a, const Signature& b) {
  FirstDifference differ(RowsDiffer(a.kind));
  Signature::Visit(differ, a, b);
  return differ.Take();
}

// As in Status.
uint32_t DifferentKinds(const std::map<int, Description>& descriptions) {
  uint32_t kinds = 0;
  for (const auto& [rank, description] : descriptions) kinds |= 1U << static_cast<uint32_t>(description.signature.kind);
  const bool differ = (kinds & (kinds - 1)) != 0;
  return differ ? kinds : 0;
}

}  // namespace

Status FindMismatch(const std::map<int, Description>& descriptions) {
  const auto& [first_rank, first] = *descriptions.begin();
  for (const auto& [rank, description] : descriptions) {
    const Difference difference = Compare(first.signature, description.signature);
    if (difference.what.empty()) continue;
    std::string text = first.Title() + ": the ranks disagree about its " + difference.what + ": " +
                       Side(first_rank, first, difference.left) + ", " + Side(rank, description, difference.right) +
                       "; call it with the same arguments, in the same order, on every rank";
    return {Code::kMismatch, std::move(text), DifferentKinds(descriptions)};
  }
  return Status::Ok();
}

}  // namespace farandole
