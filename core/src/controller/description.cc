#include "controller/description.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace farandole {
namespace {

// No operation of ours has more; a decoder must have a limit.
constexpr uint32_t kTensorLimit = 1u << 20;

bool IsNegative(int64_t value) { return value < 0; }

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

bool IsValid(const Description& description) {
  const Signature& signature = description.signature;
  if (static_cast<int>(signature.kind) >= kOpKindCount || static_cast<int>(signature.reduce) >= kReduceOpCount) {
    return false;
  }
  for (const TensorSpec& tensor : signature.tensors) {
    if (static_cast<int>(tensor.dtype) >= kDTypeCount) return false;
    if (std::any_of(tensor.shape.begin(), tensor.shape.end(), IsNegative)) return false;
  }
  if (signature.set < 0 || signature.tensors.empty() == CarriesTensors(signature.kind)) return false;
  if (std::any_of(description.extents.begin(), description.extents.end(), IsNegative)) return false;
  if (std::any_of(signature.ranks.begin(), signature.ranks.end(), IsNegative)) return false;
  return RowsDiffer(signature.kind) || CanBeCounted(signature.tensors);
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

bool Signature::operator==(const Signature& other) const {
  return set == other.set && kind == other.kind && reduce == other.reduce && root == other.root &&
         prescale == other.prescale && postscale == other.postscale && device == other.device &&
         tensors == other.tensors && ranks == other.ranks;
}

int64_t Signature::TotalBytes() const {
  int64_t total = 0;
  for (const TensorSpec& tensor : tensors)
    total += ElementCount(tensor.shape) * static_cast<int64_t>(SizeOf(tensor.dtype));
  return total;
}

std::string Description::Title() const {
  const std::string of_set = signature.set == 0 ? "" : " of process set " + std::to_string(signature.set);
  if (ConcernsWholeWorld(signature.kind)) return NameOf(signature.kind);
  if (named()) return std::string(NameOf(signature.kind)) + " '" + name + "'" + of_set;
  return std::string("unnamed ") + NameOf(signature.kind) + " number " + std::to_string(turn) + of_set;
}

void Description::Encode(ByteWriter* writer) const {
  writer->PutString(name);
  writer->Put(turn);
  writer->Put(signature.set);
  writer->Put(signature.kind);
  writer->Put(signature.reduce);
  writer->Put(signature.root);
  writer->Put(signature.prescale);
  writer->Put(signature.postscale);
  writer->Put(signature.device);
  writer->Put(signature.backend);
  writer->Put<uint32_t>(static_cast<uint32_t>(signature.tensors.size()));
  for (const TensorSpec& tensor : signature.tensors) {
    writer->Put(tensor.dtype);
    writer->PutList(tensor.shape);
  }
  writer->PutList(signature.ranks);
  writer->PutList(extents);
  writer->PutString(site);
}

Description Description::Decode(ByteReader* reader) {
  Description description;
  description.name = reader->GetString();
  description.turn = reader->Get<int64_t>();
  Signature& signature = description.signature;
  signature.set = reader->Get<int32_t>();
  signature.kind = reader->Get<OpKind>();
  signature.reduce = reader->Get<ReduceOp>();
  signature.root = reader->Get<int32_t>();
  signature.prescale = reader->Get<double>();
  signature.postscale = reader->Get<double>();
  signature.device = reader->Get<int32_t>();
  signature.backend = reader->Get<int32_t>();
  const uint32_t count = reader->Get<uint32_t>();
  if (count > kTensorLimit) reader->Fail();
  for (uint32_t i = 0; i < count && reader->ok(); ++i) {
    TensorSpec tensor;
    tensor.dtype = reader->Get<DType>();
    tensor.shape = reader->GetList();
    signature.tensors.push_back(std::move(tensor));
  }
  signature.ranks = reader->GetList();
  description.extents = reader->GetList();
  description.site = reader->GetString();
  if (reader->ok() && !IsValid(description)) reader->Fail();
  return description;
}

uint64_t Fingerprint(const Signature& signature) {
  uint64_t hash = 14695981039346656037ull;  // FNV-1a over words
  const auto mix = [&hash](uint64_t word) { hash = (hash ^ word) * 1099511628211ull; };
  const auto mix_double = [&mix](double value) {
    uint64_t word = 0;
    std::memcpy(&word, &value, sizeof(word));
    mix(word);
  };
  mix(static_cast<uint64_t>(signature.kind) << 8 | static_cast<uint64_t>(signature.reduce));
  mix(static_cast<uint64_t>(signature.root) << 32 | static_cast<uint32_t>(signature.set));
  mix_double(signature.prescale);
  mix_double(signature.postscale);
  mix(static_cast<uint64_t>(signature.device));
  for (const TensorSpec& tensor : signature.tensors) {
    mix(static_cast<uint64_t>(tensor.dtype) << 32 | tensor.shape.size());
    for (int64_t dimension : tensor.shape) mix(static_cast<uint64_t>(dimension));
  }
  return hash;
}

}  // namespace farandole
