#include "engine/operation.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

namespace farandole {
namespace {

std::string Title(const Request& request) {
  return NameOf(request.kind) + (request.name.empty() ? std::string() : " '" + request.name + "'");
}

template <typename... Parts>
Status Refuse(const Request& request, const Parts&... why) {
  return Invalid(Title(request), ": ", why...);
}

// Limits the product of the dimensions that are not 0, so that the size of a row can be computed without any rows.
Status CountElements(const Request& request, const Tensor& tensor, int64_t* elements) {
  int64_t product = 1;
  bool empty = false;
  for (int64_t dimension : tensor.shape) {
    if (dimension < 0) return Refuse(request, "shape ", ToString(tensor.shape), " has a negative dimension");
    empty |= dimension == 0;
    if (dimension > std::numeric_limits<int64_t>::max() / 16 / product)
      return Refuse(request, "shape ", ToString(tensor.shape), " has too many elements");
    product *= std::max<int64_t>(dimension, 1);
  }
  *elements = empty ? 0 : product;
  return Status::Ok();
}

// Checks in the order in which a user would look: first whether it is a tensor at all, then what the operation cannot
// do with it, then memory.
Status CheckTensor(const Request& request, const Tensor& tensor) {
  int64_t elements = 0;
  FRD_RETURN_IF_ERROR(CountElements(request, tensor, &elements));
  if (tensor.device < 0 || tensor.device >= kDeviceKindCount)
    return Refuse(request, "this build knows no device of kind ", tensor.device);
  if (tensor.device != request.tensors[0].device)
    return Refuse(request, "its tensors lie on devices of different kinds; use one operation for each kind");
  if (Reduces(request.kind) && NeedsWholeTensors(request.reduce) && !Fuses(request.kind))
    return Refuse(request, NameOf(request.reduce), " looks at whole tensors; it is for allreduce");
  if (Reduces(request.kind) && !Supports(tensor.dtype, request.reduce))
    return Refuse(
        request, NameOf(request.reduce), " of ", NameOf(tensor.dtype),
        " is not defined; convert the tensor to a floating-point type first",
        (tensor.dtype == DType::kBool && request.reduce == ReduceOp::kAverage ? ", or take min (and) or max (or)"
                                                                              : ""));
  if (AllocatesOutput(request.kind) && tensor.shape.empty())
    return Refuse(request, "a scalar has no first dimension to work along; give it the shape (1,)");
  if (tensor.input == nullptr && elements > 0)
    return Refuse(request, "a tensor of ", elements, " elements has no memory");
  if (tensor.output != nullptr && AllocatesOutput(request.kind))
    return Refuse(request, "the core allocates its result; leave the output NULL, and take it from the operation");
  if (tensor.output == nullptr && elements > 0 && !AllocatesOutput(request.kind))
    return Refuse(request, "there is no memory for the result");
  return Status::Ok();
}

// Gives all positions equal parts, if the user gives no splits.
Status FillInSplits(Request* request, int64_t positions) {
  for (const Tensor& tensor : request->tensors) {
    const int64_t rows = tensor.shape[0];
    if (rows % positions != 0) {
      return Refuse(*request, "without splits, the first dimension, ", rows,
                    ", must be a multiple of the number of ranks, ", positions);
    }
    request->splits.insert(request->splits.end(), static_cast<size_t>(positions), rows / positions);
  }
  return Status::Ok();
}

// Every row goes to exactly one receiver.
Status CheckSplits(Request* request, int set_size) {
  const auto positions = static_cast<size_t>(set_size);
  if (request->splits.empty()) return FillInSplits(request, set_size);
  if (request->splits.size() != positions * request->tensors.size()) {
    return Refuse(*request, "there are ", request->splits.size(), " splits for ", request->tensors.size(),
                  " tensors and ", positions, " ranks; give one for each rank");
  }
  for (size_t i = 0; i < request->tensors.size(); ++i) {
    int64_t left = request->tensors[i].shape[0];
    for (size_t p = 0; p < positions; ++p) {
      const int64_t split = request->splits[i * positions + p];
      if (split < 0) return Refuse(*request, "split ", split, " is negative");
      if (split > left) {
        return Refuse(*request, "the splits add up to more than the first dimension, ", request->tensors[i].shape[0]);
      }
      left -= split;
    }
    if (left > 0) {
      return Refuse(*request, "the splits leave ", left, " of ", request->tensors[i].shape[0],
                    " rows without a receiver");
    }
  }
  return Status::Ok();
}

// Ascending ranks give a set one description, which the ranks can compare.
Status CheckRanks(const Request& request, int world_size) {
  if (request.kind == OpKind::kRemoveProcessSet) {
    const bool one = request.ranks.size() == 1 && request.ranks[0] > 0;
    return one ? Status::Ok() : Refuse(request, "process set 0, which has all ranks, cannot be removed");
  }
  if (request.ranks.empty()) return Refuse(request, "a process set needs at least one rank");
  for (size_t i = 0; i < request.ranks.size(); ++i) {
    const int64_t rank = request.ranks[i];
    if (rank < 0 || rank >= world_size) {
      return Refuse(request, "rank ", rank, " is out of range; this job has ranks 0 to ", world_size - 1);
    }
    if (i > 0 && rank <= request.ranks[i - 1])
      return Refuse(request, "the ranks must ascend and each be there once, not ", ToString(request.ranks));
  }
  return Status::Ok();
}

// A root is a rank of the world, whatever the set, as in `broadcast(root_rank=3)`.
Status CheckRoot(const Request& request, const ProcessSet& set, int world_size) {
  if (request.root < 0 || request.root >= world_size) {
    return Refuse(request, "root rank ", request.root, " is out of range; this job has ranks 0 to ", world_size - 1);
  }
  if (set.PositionOf(request.root) >= 0) return Status::Ok();
  return Refuse(request, "root rank ", request.root, " is not in process set ", set.id, ", which has the ranks ",
                ToString(Shape(set.ranks.begin(), set.ranks.end())));
}

// Returns memory that is aligned so that frameworks can use it as their own; null when there is none.
std::shared_ptr<std::byte> HostMemory(size_t size_bytes) {
  constexpr size_t kAlignment = 64;
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, std::max<size_t>(size_bytes, 1)) != 0) return nullptr;
  return {static_cast<std::byte*>(memory), &std::free};
}

// On a device where there is a pool, else on the host.
Status AllocateMemory(ResultPool* pool, Output* output) {
  if (pool != nullptr) return pool->Take(std::max<size_t>(output->size_bytes, 1), &output->memory);
  output->memory = HostMemory(output->size_bytes);
  return output->memory ? Status::Ok() : Internal("");
}

}  // namespace

Reduction ReductionOf(const RequestFields& request, int set_size) {
  if (request.reduce != ReduceOp::kAverage) return {request.reduce, {request.postscale, 1.0}};
  return {ReduceOp::kSum, {request.postscale, static_cast<double>(set_size)}};
}

void Prescale(const Tensor& tensor, double factor, const void* from, void* to) {
  const FloatingPointScope scope;
  const auto elements = static_cast<size_t>(ElementCount(tensor.shape));
  Fold(tensor.dtype, ReduceOp::kSum, &from, 1, elements, {factor, 1.0}, to);
}

// The memory of an allreduce's result serves, unless it is the input's: a call that fails must not change the input.
Status PrescaleInputs(Request* request) {
  if (request->prescale == 1.0 || !Reduces(request->kind)) return Status::Ok();
  for (Tensor& tensor : request->tensors) {
    if (tensor.device != 0 || tensor.size_bytes() == 0) continue;
    void* to = tensor.output;
    if (request->kind != OpKind::kAllreduce || to == nullptr || to == tensor.input) {
      std::shared_ptr<std::byte> memory = HostMemory(tensor.size_bytes());
      if (!memory) return Internal(Title(*request), ": there is no memory for a scaled copy of a tensor");
      to = memory.get();
      request->scaled_inputs.push_back(std::move(memory));
    }
    Prescale(tensor, request->prescale, tensor.input, to);
    tensor.input = to;
  }
  return Status::Ok();
}

PathFacts FactsOf(const Request& request, const ProcessSet& set) {
  const Reduction reduction = ReductionOf(request, set.size());
  PathFacts facts = FactsOf(request.kind, reduction.reduce, set.layout);
  facts.prescale = request.prescale;
  facts.scale = reduction.scale;
  facts.results_on_device = request.results_on_device;
  return facts;
}

// One backend performs all tensors of a grouped call, so that they end together.
Status ChooseBackend(const BackendList& backend_list, const ProcessSet& set, Operation* operation) {
  const Request& request = operation->request;
  if (backend_list.only_ours() || !CarriesTensors(request.kind)) return Status::Ok();
  std::vector<PathFacts> facts;
  for (const Tensor& tensor : request.tensors) {
    facts.push_back(FactsOf(request, set));
    facts.back().dtype = tensor.dtype;
    facts.back().on_device = tensor.device != 0;
  }
  operation->backend = backend_list.Choose(facts);
  if (operation->backend >= 0) return Status::Ok();
  const auto nobody = [&backend_list](const PathFacts& facts) { return backend_list.Choose({facts}) < 0; };
  auto refused = std::find_if(facts.begin(), facts.end(), nobody);
  if (refused == facts.end()) refused = facts.begin();  // some backend supports each, none supports all
  const std::string what = Reduces(request.kind) ? std::string(NameOf(request.reduce)) + " of " : "";
  const char* const where = refused->on_device ? " on a device" : " in host memory";
  return Refuse(request, "no backend of FARANDOLE_BACKEND=", backend_list.ToString(), " performs ", what,
                NameOf(refused->dtype), where, "; add ", BackendTable::Names()[0], " to the list");
}

// Checks the request as a whole before its tensors, which may be many.
Status CheckRequest(Request* request, const ProcessSet& set, int world_size) {
  if (request->tensors.empty() == CarriesTensors(request->kind)) {
    return Refuse(*request, request->tensors.empty() ? "no tensors were given" : "it takes no tensors");
  }
  if (!set.contains_me()) return Refuse(*request, "this rank is not in process set ", set.id);
  if (ConcernsWholeWorld(request->kind) && set.id != 0)
    return Refuse(*request, "it concerns all ranks, and takes no process set");
  if (ChangesSets(request->kind)) FRD_RETURN_IF_ERROR(CheckRanks(*request, world_size));
  if (const int most = NativeMostRanks(request->kind); set.size() > most) {
    return Refuse(*request, "it supports at most ", most, " ranks, not ", set.size(),
                  "; do it in smaller process sets first, and then among one rank of each");
  }
  if (HasRoot(request->kind)) FRD_RETURN_IF_ERROR(CheckRoot(*request, set, world_size));
  if (!std::isfinite(request->prescale) || !std::isfinite(request->postscale * request->prescale))
    return Refuse(*request, "the scale factors must be finite");
  for (const Tensor& tensor : request->tensors) FRD_RETURN_IF_ERROR(CheckTensor(*request, tensor));
  if (TakesSplits(request->kind)) FRD_RETURN_IF_ERROR(CheckSplits(request, set.size()));
  return Status::Ok();
}

// ---- as the negotiation sees it

std::vector<int64_t> Operation::Counts() const {
  if (TakesSplits(request.kind)) return request.splits;
  std::vector<int64_t> rows;
  if (RowsDiffer(request.kind)) {
    for (const Tensor& tensor : request.tensors) rows.push_back(tensor.shape[0]);
  }
  return rows;
}

Description Operation::Describe() const {
  Description description{name_, sequence_number_, SignatureOf(request), Counts(), request.site, awaited};
  description.signature.backend = backend;
  return description;
}

// ---- results

Status AllocateOutput(Operation* operation, size_t index, int64_t rows) {
  const Tensor& tensor = operation->request.tensors[index];
  Output output;
  output.dtype = tensor.dtype;
  output.shape = tensor.shape;
  output.shape[0] = rows;
  output.size_bytes = static_cast<size_t>(ElementCount(output.shape)) * SizeOf(output.dtype);
  output.device = operation->device;
  if (const Status allocated = AllocateMemory(operation->results.get(), &output); !allocated.ok()) {
    return Internal(operation->Title(), ": no memory for a result of ", output.size_bytes >> 20, " MB",
                    (allocated.message().empty() ? "" : ": " + allocated.message()));
  }
  if (operation->outputs.size() <= index) operation->outputs.resize(index + 1);
  operation->outputs[index] = std::move(output);
  return Status::Ok();
}

Output NumbersOutput(const std::vector<int64_t>& numbers, bool scalar) {
  Output output;
  output.dtype = DType::kInt64;
  if (!scalar) output.shape = {static_cast<int64_t>(numbers.size())};
  output.size_bytes = numbers.size() * sizeof(int64_t);
  output.memory = HostMemory(output.size_bytes);
  if (!output.memory) throw std::bad_alloc();
  std::memcpy(output.memory.get(), numbers.data(), output.size_bytes);
  return output;
}

Request Invitation(const Description& description) {
  Request request;
  const Signature& signature = description.signature;
  request.kind = signature.kind;
  request.name = description.name;
  request.process_set = signature.set;
  request.reduce = signature.reduce;
  request.root = signature.root;
  request.prescale = signature.prescale;
  request.postscale = signature.postscale;
  request.ranks = signature.ranks;
  for (const TensorSpec& spec : signature.tensors) {
    Tensor tensor;
    tensor.dtype = spec.dtype;
    tensor.device = static_cast<int32_t>(signature.device);
    tensor.shape = spec.shape;
    if (RowsDiffer(request.kind)) tensor.shape.insert(tensor.shape.begin(), 0);
    request.tensors.push_back(std::move(tensor));
  }
  if (TakesSplits(request.kind)) request.splits = description.counts;  // zeros: nothing for anybody
  return request;
}

}  // namespace farandole
