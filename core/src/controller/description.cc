#include "controller/description.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>

namespace farandole {
namespace {

bool IsNegative(int64_t value) { return value < 0; }
bool AnyNegative(const std::vector<int64_t>& values) { return std::any_of(values.begin(), values.end(), IsNegative); }

// False when the bytes of all tensors together are no number, so that TotalBytes may be asked of anything decoded.
bool CanBeCounted(const std::vector<TensorSpec>& tensors) {
  int64_t left_bytes = std::numeric_limits<int64_t>::max() / 2;
  for (const TensorSpec& tensor : tensors) {
    auto bytes = static_cast<int64_t>(SizeOf(tensor.dtype));
    for (int64_t dimension : tensor.shape) {
      if (dimension > 0 && bytes > left_bytes / dimension) return false;
      bytes *= dimension;
    }
    left_bytes -= bytes;
  }
  return true;
}

}  // namespace

bool FitsSet(const Description& description, int set_size, int world_size) {
  const Signature& signature = description.signature;
  if (description.extents.size() != signature.ExtentCount(set_size)) return false;
  const std::vector<int64_t>& ranks = signature.ranks;
  if (signature.kind == OpKind::kRemoveProcessSet) return ranks.size() == 1 && ranks[0] <= kMaxSetId;
  if (signature.kind != OpKind::kAddProcessSet) return ranks.empty();
  const bool ascend = std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  return !ranks.empty() && ascend && ranks.back() < world_size;
}

size_t Signature::ExtentCount(int set_size) const {
  if (!RowsDiffer(kind)) return 0;
  return TakesSplits(kind) ? tensors.size() * static_cast<size_t>(set_size) : tensors.size();
}

int64_t Signature::TotalBytes() const {
  int64_t total = 0;
  for (const TensorSpec& tensor : tensors)
    total += ElementCount(tensor.shape) * static_cast<int64_t>(SizeOf(tensor.dtype));
  return total;
}

bool Description::IsValid() const {
  for (const TensorSpec& tensor : signature.tensors) {
    if (AnyNegative(tensor.shape)) return false;
  }
  if (signature.set < 0 || signature.tensors.empty() == CarriesTensors(signature.kind)) return false;
  if (AnyNegative(extents) || AnyNegative(signature.ranks)) return false;
  return RowsDiffer(signature.kind) || CanBeCounted(signature.tensors);
}

std::string Description::Title() const {
  const std::string of_set = signature.set == 0 ? "" : " of process set " + std::to_string(signature.set);
  if (ConcernsWholeWorld(signature.kind)) return NameOf(signature.kind);
  if (named()) return std::string(NameOf(signature.kind)) + " '" + name + "'" + of_set;
  return std::string("unnamed ") + NameOf(signature.kind) + " number " + std::to_string(turn) + of_set;
}

namespace {

// FNV-1a over words.
class Hasher {
 public:
  template <typename T>
  void operator()(const char* name, const T& field) {
    if (name != kNotCompared) Mix(field);
  }
  uint64_t hash() const { return hash_; }

 private:
  template <typename T>
  void Mix(const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      uint64_t word = 0;
      std::memcpy(&word, &value, sizeof(value));
      MixWord(word);
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      MixWord(static_cast<uint64_t>(value));
    } else {
      T::Visit(*this, value);
    }
  }
  template <typename T>
  void Mix(const std::vector<T>& values) {
    MixWord(values.size());
    for (const T& value : values) Mix(value);
  }
  void MixWord(uint64_t word) { hash_ = (hash_ ^ word) * 1099511628211ull; }

  uint64_t hash_ = 14695981039346656037ull;
};

}  // namespace

uint64_t Fingerprint(const Signature& signature) {
  Hasher hasher;
  Signature::Visit(hasher, signature);
  return hasher.hash();
}

}  // namespace farandole
