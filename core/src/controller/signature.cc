#include "controller/signature.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>
#include <utility>

#include "transport/shm/slots.h"

namespace farandole {
namespace {

bool IsNegative(int64_t value) { return value < 0; }
bool AnyNegative(const std::vector<int64_t>& values) { return std::any_of(values.begin(), values.end(), IsNegative); }

// Returns false when the bytes of all tensors, or of a row of each, exceed 64 bits, so that TotalBytes is safe for any
// decoded signature.
bool ElementCountsFit(const std::vector<TensorSpec>& tensors) {
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
  if (ConcernsWholeWorld(signature.kind) && signature.set != 0) return false;
  if (description.counts.size() != signature.CountsPerRank(set_size)) return false;
  const std::vector<int64_t>& ranks = signature.ranks;
  if (signature.kind == OpKind::kRemoveProcessSet) return ranks.size() == 1 && ranks[0] <= kMaxSetId;
  if (signature.kind != OpKind::kAddProcessSet) return ranks.empty();
  const bool ascend = std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  return !ranks.empty() && ascend && ranks.back() < world_size;
}

size_t Signature::CountsPerRank(int set_size) const {
  if (!RowsDiffer(kind)) return 0;
  return TakesSplits(kind) ? tensors.size() * static_cast<size_t>(set_size) : tensors.size();
}

int64_t Signature::TotalBytes() const {
  int64_t total = 0;
  for (const TensorSpec& tensor : tensors)
    total += ElementCount(tensor.shape) * static_cast<int64_t>(SizeOf(tensor.dtype));
  return total;
}

OperationFacts FactsOf(const Signature& signature, const ProcessSet& set) {
  OperationFacts facts = FactsOf(signature.kind, signature.reduce, set.layout);
  facts.on_device = signature.device != DeviceKind::kHost;
  facts.backend = signature.backend;
  facts.size_bytes = signature.TotalBytes();
  for (const TensorSpec& tensor : signature.tensors) {
    facts.averages_integers |= AveragesIntegers(tensor.dtype, signature.reduce);
    facts.mixes_dtypes |= tensor.dtype != signature.tensors[0].dtype;
  }
  return facts;
}

// A barrier is what needs nothing else to be described.
Description RefusalOf(int set, std::string name, int64_t sequence_number, std::string site, std::string why) {
  Description refusal;
  refusal.name = std::move(name);
  refusal.sequence_number = sequence_number;
  refusal.signature.set = set;
  refusal.signature.kind = OpKind::kBarrier;
  refusal.site = std::move(site);
  refusal.refusal = std::move(why);
  return refusal;
}

bool Description::IsValid() const {
  for (const TensorSpec& tensor : signature.tensors) {
    if (AnyNegative(tensor.shape)) return false;
  }
  if (signature.set < 0 || signature.tensors.empty() == CarriesTensors(signature.kind)) return false;
  if (AnyNegative(counts) || AnyNegative(signature.ranks)) return false;
  return ElementCountsFit(signature.tensors);
}

namespace {

std::string OfSet(int set) { return set == 0 ? "" : " of process set " + std::to_string(set); }

}  // namespace

std::string TitleOf(OpKind kind, int set, const std::string& name, int64_t sequence_number) {
  const std::string of_set = OfSet(set);
  if (ConcernsWholeWorld(kind) && (name.empty() || sequence_number >= 0)) return NameOf(kind);
  if (sequence_number < 0) return std::string(NameOf(kind)) + " '" + name + "'" + of_set;
  return std::string("unnamed ") + NameOf(kind) + " number " + std::to_string(sequence_number) + of_set;
}

bool IsTitleOf(const std::string& title, int set, const std::string& prefix) {
  const size_t quote = title.find('\'');  // the name of a kind has none
  const std::string end = "'" + OfSet(set);
  if (quote == std::string::npos || title.size() < quote + 1 + end.size()) return false;
  if (title.compare(title.size() - end.size(), end.size(), end) != 0) return false;
  const std::string kind = title.substr(0, quote - 1) + ".";
  const std::string name = "/" + title.substr(quote + 1, title.size() - end.size() - quote - 1);
  for (const std::string& start : {"/" + prefix, "/" + kind + prefix}) {
    for (size_t at = name.find(start); at != std::string::npos; at = name.find(start, at + 1)) {
      const size_t next = at + start.size();
      if (next == name.size() || name[next] == '#' || (name[next] >= '0' && name[next] <= '9')) return true;
    }
  }
  return false;
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

// "rank 1 (train.py:12)"
std::string Caller(int rank, const Description& description) {
  return "rank " + std::to_string(rank) + (description.site.empty() ? "" : " (" + description.site + ")");
}

// "rank 1 (train.py:12) has float32"
std::string Side(int rank, const Description& description, const std::string& value) {
  return Caller(rank, description) + " has " + value;
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

// Compares in the order of Visit: the first difference is the one that explains the others.
Difference Compare(const Signature& a, const Signature& b) {
  FirstDifference differ(RowsDiffer(a.kind));
  Signature::Visit(differ, a, b);
  return differ.Take();
}

// The ranks that agree with each other, the lowest first.
struct AgreeingRanks {
  int rank;
  const Description* description;
  int ranks;
};

std::vector<AgreeingRanks> GroupByAgreement(const std::map<int, Description>& descriptions) {
  std::vector<AgreeingRanks> groups;
  for (const auto& [rank, description] : descriptions) {
    const Signature& signature = description.signature;
    const auto same = std::find_if(groups.begin(), groups.end(), [&signature](const AgreeingRanks& group) {
      return Compare(group.description->signature, signature).what.empty();
    });
    if (same == groups.end()) {
      groups.push_back({rank, &description, 1});
    } else {
      ++same->ranks;
    }
  }
  return groups;
}

// As in Status.
uint32_t DifferentKinds(const std::map<int, Description>& descriptions) {
  uint32_t kinds = 0;
  for (const auto& [rank, description] : descriptions) kinds |= 1U << static_cast<uint32_t>(description.signature.kind);
  const bool differ = (kinds & (kinds - 1)) != 0;
  return differ ? kinds : 0;
}

// Ok where no rank has refused the operation.
Status FindRefusal(const std::map<int, Description>& descriptions) {
  const auto is_refusal = [](const auto& each) { return !each.second.refusal.empty(); };
  const auto refused = std::find_if(descriptions.begin(), descriptions.end(), is_refusal);
  if (refused == descriptions.end()) return Status::Ok();
  const auto more = std::count_if(std::next(refused), descriptions.end(), is_refusal);
  const auto made = std::find_if_not(descriptions.begin(), descriptions.end(), is_refusal);
  return {Code::kMismatch,
          made->second.Title(),
          " fails on all ranks: ",
          Caller(refused->first, refused->second),
          (more > 0 ? Text(" and ", more, " more") : ""),
          " could not make its call: ",
          refused->second.refusal};
}

}  // namespace

Status FindMismatch(const std::map<int, Description>& descriptions) {
  FRD_RETURN_IF_ERROR(FindRefusal(descriptions));
  const std::vector<AgreeingRanks> groups = GroupByAgreement(descriptions);
  if (groups.size() == 1) return Status::Ok();
  const auto most = std::max_element(groups.begin(), groups.end(),
                                     [](const AgreeingRanks& a, const AgreeingRanks& b) { return a.ranks < b.ranks; });
  const AgreeingRanks& other = groups[most == groups.begin() ? 1 : 0];
  const Difference difference = Compare(most->description->signature, other.description->signature);
  const int all = static_cast<int>(descriptions.size());
  const std::string agree = 2 * most->ranks <= all || all == 2
                                ? ""
                                : Text("; ", most->ranks, " of ", all, " ranks agree with rank ", most->rank);
  const std::string text = Text(most->description->Title(), ": the ranks disagree about its ", difference.what, ": ",
                                Side(most->rank, *most->description, difference.left), ", ",
                                Side(other.rank, *other.description, difference.right), agree,
                                "; call it with the same arguments, in the same order, on every rank");
  return Status::OfKinds(Code::kMismatch, text, DifferentKinds(descriptions));
}

// ---- buffers

int64_t CountsBufferBytes(const Signature& signature, const ProcessSet& set) {
  const auto counts = static_cast<int64_t>(signature.CountsPerRank(set.size()));
  return 2 * static_cast<int64_t>(sizeof(int64_t)) * set.size() * counts;
}

int64_t BufferBytesOf(const Signature& signature, const ProcessSet& set, Protocol protocol) {
  const bool collects = CollectsInSlots(protocol, set.layout);
  if (protocol != Protocol::kSlots && !collects) return CountsBufferBytes(signature, set);
  const auto payload_bytes = static_cast<size_t>(signature.TotalBytes());
  const size_t buffer_bytes = collects ? SlotBuffer::BytesWithResult(set.layout.largest_node(), payload_bytes)
                                       : SlotBuffer::BytesFor(set.size(), payload_bytes);
  return 2 * static_cast<int64_t>(buffer_bytes);
}

}  // namespace farandole
