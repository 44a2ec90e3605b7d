#include "operation/request.h"

namespace farandole {
namespace {

// A request's tensors as a signature has them: each one's element type, and its shape without rows that may differ.
template <typename SomeRequest>
struct SpecsOf {
  const SomeRequest& request;

  size_t skipped() const { return RowsDiffer(request.kind) ? 1 : 0; }
  bool operator==(const std::vector<TensorSpec>& specs) const {
    if (request.tensors.size() != specs.size()) return false;
    for (size_t i = 0; i < specs.size(); ++i) {
      const auto& tensor = request.tensors[i];
      const Shape& shape = specs[i].shape;
      if (tensor.dtype != specs[i].dtype || tensor.shape.size() != shape.size() + skipped()) return false;
      for (size_t d = 0; d < shape.size(); ++d) {  // a loop, since a call costs more for few dimensions
        if (shape[d] != tensor.shape[d + skipped()]) return false;
      }
    }
    return true;
  }
  operator std::vector<TensorSpec>() const {
    std::vector<TensorSpec> specs;
    for (const auto& tensor : request.tensors)
      specs.push_back({tensor.dtype, Shape(tensor.shape.begin() + skipped(), tensor.shape.end())});
    return specs;
  }
};

// A request by the fields of its signature: fields that its kind does not use have their defaults.
template <typename SomeRequest>
struct RequestedSignature {
  explicit RequestedSignature(const SomeRequest& request)
      : set(request.process_set), kind(request.kind), tensors{request}, ranks(request.ranks) {
    if (Reduces(kind)) {
      reduce = request.reduce;
      prescale = request.prescale;
      postscale = request.postscale;
    }
    if (HasRoot(kind)) root = request.root;
    if (request.tensors.size() > 0) device = static_cast<DeviceKind>(request.tensors[0].device);
  }

  int32_t set;
  OpKind kind;
  ReduceOp reduce = ReduceOp::kSum;
  int32_t root = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  DeviceKind device = DeviceKind::kHost;
  int32_t backend = 0;
  SpecsOf<SomeRequest> tensors;
  const decltype(SomeRequest::ranks)& ranks;
};

struct Assign {
  template <typename To, typename From>
  void operator()(const char*, To& to, const From& from) {
    to = from;
  }
  void operator()(const char*, std::vector<int64_t>& to, const Span<const int64_t>& from) {
    to.assign(from.begin(), from.end());
  }
};

// Visit reads the fields of both by their names, so a RequestedSignature needs each that a Signature has.
template <typename SomeRequest>
bool AreAlike(const SomeRequest& request, const Signature& signature) {
  const RequestedSignature requested(request);
  Comparer compare;
  Signature::Visit(compare, requested, signature);
  return compare.equal();
}

template <typename SomeRequest>
Signature SignatureFrom(const SomeRequest& request) {
  const RequestedSignature requested(request);
  Signature signature;
  Signature::Visit(Assign(), signature, requested);
  return signature;
}

}  // namespace

Request::Request(const RequestView& view)
    : RequestFields(view),
      tensors(view.tensors.size()),
      name(view.name),
      splits(view.splits.begin(), view.splits.end()),
      ranks(view.ranks.begin(), view.ranks.end()),
      site(view.site) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& from = view.tensors[i];
    static_cast<TensorFields&>(tensors[i]) = from;
    tensors[i].shape.assign(from.shape.begin(), from.shape.end());
  }
}

bool Matches(const RequestView& request, const Signature& signature) { return AreAlike(request, signature); }
bool Matches(const Request& request, const Signature& signature) { return AreAlike(request, signature); }

Signature SignatureOf(const RequestView& request) { return SignatureFrom(request); }
Signature SignatureOf(const Request& request) { return SignatureFrom(request); }

}  // namespace farandole
