#include "controller/validate.h"

#include <cstdio>

namespace farandole {
namespace {

std::string FormatNumber(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

// The controller knows no device; the numbers are those of farandole.h.
std::string NameOfDevice(int32_t kind) { return kind == 0 ? "host" : kind == 1 ? "CUDA" : std::to_string(kind); }

// The first thing in which two descriptions differ, with the value of each side; empty `what` when they agree.
struct Difference {
  std::string what, left, right;
};

// "rank 1 (train.py:12) has float32"
std::string Side(int rank, const Description& description, const std::string& value) {
  const std::string site = description.site.empty() ? "" : " (" + description.site + ")";
  return "rank " + std::to_string(rank) + site + " has " + value;
}

Difference CompareTensors(const Signature& a, const Signature& b) {
  if (a.tensors.size() != b.tensors.size()) {
    return {"number of tensors", std::to_string(a.tensors.size()), std::to_string(b.tensors.size())};
  }
  const char* const shape = RowsDiffer(a.kind) ? "shape after the first dimension" : "shape";
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const std::string of = a.tensors.size() == 1 ? "" : " of tensor " + std::to_string(i);
    const TensorSpec &left = a.tensors[i], &right = b.tensors[i];
    if (left.dtype != right.dtype) return {"dtype" + of, NameOf(left.dtype), NameOf(right.dtype)};
    if (left.shape != right.shape) return {shape + of, ToString(left.shape), ToString(right.shape)};
  }
  return {};
}

Difference Compare(const Signature& a, const Signature& b) {
  if (a.kind != b.kind) return {"operation", NameOf(a.kind), NameOf(b.kind)};
  if (Difference tensors = CompareTensors(a, b); !tensors.what.empty()) return tensors;
  if (a.ranks != b.ranks) return {"ranks", ToString(a.ranks), ToString(b.ranks)};
  if (a.reduce != b.reduce) return {"reduction", NameOf(a.reduce), NameOf(b.reduce)};
  if (a.device != b.device) return {"device", NameOfDevice(a.device), NameOfDevice(b.device)};
  if (a.root != b.root) return {"root rank", std::to_string(a.root), std::to_string(b.root)};
  if (a.prescale != b.prescale) return {"prescale factor", FormatNumber(a.prescale), FormatNumber(b.prescale)};
  if (a.postscale != b.postscale) return {"postscale factor", FormatNumber(a.postscale), FormatNumber(b.postscale)};
  return {};
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
