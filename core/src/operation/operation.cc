#include "operation/operation.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
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

// Advice for a reduction that is not defined for the type.
const char* InsteadOf(DType dtype, ReduceOp reduce) {
  if (IsComplex(dtype)) return "complex tensors take sum and average";
  const bool asks_for_half = dtype == DType::kBool && reduce == ReduceOp::kAverage;
  return asks_for_half ? "convert the tensor to a floating-point type first, or take min (and) or max (or)"
                       : "convert the tensor to a floating-point type first";
}

// Checks the tensor itself first, then whether the operation supports it, then its memory.
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
    return Refuse(request, NameOf(request.reduce), " of ", NameOf(tensor.dtype), " is not defined; ",
                  InsteadOf(tensor.dtype, request.reduce));
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

// Without splits from the user, every position gets the same number of rows.
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

// Ranks must ascend, so that a set has only one description and the ranks can compare theirs.
Status CheckRanks(const Request& request, int rank, int world_size) {
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
  const bool is_member = std::find(request.ranks.begin(), request.ranks.end(), rank) != request.ranks.end();
  if (is_member || request.name.empty()) return Status::Ok();
  return Refuse(request, "its members alone add a process set under a name, and rank ", rank, " is not among ",
                ToString(request.ranks));
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

template <typename AnyTensor>
SlotTensor ToSlotTensor(const AnyTensor& tensor) {
  return {tensor.input, tensor.output, tensor.dtype, UncheckedCount(tensor.shape)};
}

// Returns memory aligned for frameworks, which use it as their own; null if there is none.
std::shared_ptr<std::byte> HostMemory(size_t size_bytes) {
  constexpr size_t kAlignment = 64;
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, std::max<size_t>(size_bytes, 1)) != 0) return nullptr;
  return {static_cast<std::byte*>(memory), &std::free};
}

// On the device of the pool, or on the host if there is no pool.
Status AllocateMemory(ResultPool* pool, Output* output) {
  if (pool != nullptr) return pool->Take(std::max<size_t>(output->size_bytes, 1), &output->memory);
  output->memory = HostMemory(output->size_bytes);
  return output->memory ? Status::Ok() : Internal("");
}

// Callers wait for the operation to end, so a lack of memory only costs its event in the timeline.
void RecordInTimeline(const Operation& operation) {
  try {
    RecordOperation(operation);
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

Reduction ReductionOf(const RequestFields& request, int set_size) {
  if (request.reduce != ReduceOp::kAverage) return {request.reduce, {request.postscale, 1.0}};
  return {ReduceOp::kSum, {request.postscale, static_cast<double>(set_size)}};
}

void Prescale(const Tensor& tensor, double factor, const void* from, void* to) {
  const FloatingPointScope scope;
  const auto elements = static_cast<size_t>(ElementCount(tensor.shape));
  Reduce(tensor.dtype, ReduceOp::kSum, &from, 1, elements, {factor, 1.0}, to);
}

// Scales into the memory of an allreduce's result unless that is also the input, which a failed call must not change.
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

OperationFacts FactsOf(const Request& request, const ProcessSet& set) {
  const Reduction reduction = ReductionOf(request, set.size());
  OperationFacts facts = FactsOf(request.kind, reduction.reduce, set.layout);
  facts.prescale = request.prescale;
  facts.scale = reduction.scale;
  facts.results_on_device = request.results_on_device;
  return facts;
}

// One backend performs all tensors of a grouped call, so that they complete together.
Status ChooseBackend(const BackendList& backend_list, const ProcessSet& set, Operation* operation) {
  const Request& request = operation->request;
  if (backend_list.only_ours() || !CarriesTensors(request.kind)) return Status::Ok();
  std::vector<OperationFacts> facts;
  for (const Tensor& tensor : request.tensors) {
    facts.push_back(FactsOf(request, set));
    facts.back().dtype = Reduces(request.kind) ? ReducedAs(tensor.dtype) : tensor.dtype;
    facts.back().on_device = tensor.device != 0;
  }
  operation->backend = backend_list.Choose(facts);
  if (operation->backend >= 0) return Status::Ok();
  const auto nobody = [&backend_list](const OperationFacts& facts) { return backend_list.Choose({facts}) < 0; };
  auto refused = std::find_if(facts.begin(), facts.end(), nobody);
  if (refused == facts.end()) refused = facts.begin();  // some backend supports each, none supports all
  const std::string what = Reduces(request.kind) ? std::string(NameOf(request.reduce)) + " of " : "";
  const char* const where = refused->on_device ? " on a device" : " in host memory";
  return Refuse(request, "no backend of FARANDOLE_BACKEND=", backend_list.ToString(), " performs ", what,
                NameOf(refused->dtype), where, "; add ", BackendTable::Names()[0], " to the list");
}

// Checks the request as a whole first: there may be many tensors.
Status CheckRequest(Request* request, const ProcessSet& set, int world_size) {
  if (request->tensors.empty() == CarriesTensors(request->kind)) {
    return Refuse(*request, request->tensors.empty() ? "no tensors were given" : "it takes no tensors");
  }
  if (!set.contains_me()) return Refuse(*request, "this rank is not in process set ", set.id);
  if (ConcernsWholeWorld(request->kind) && set.id != 0)
    return Refuse(*request, "it concerns all ranks, and takes no process set");
  if (ChangesSets(request->kind))
    FRD_RETURN_IF_ERROR(CheckRanks(*request, set.ranks[static_cast<size_t>(set.position)], world_size));
  if (const int most = NativeMaxRanks(request->kind); set.size() > most) {
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

// ---- borrowing, and the end

// Prescaled inputs need memory (PrescaleInputs). The shape needs no check: the name is known with the same one.
bool Operation::CanBorrow(const RequestView& asked) {
  if (asked.kind != OpKind::kAllreduce || asked.tensors.size() != 1 || asked.prescale != 1.0) return false;
  const TensorView& tensor = asked.tensors[0];
  const bool is_hosts = tensor.device == static_cast<int32_t>(DeviceKind::kHost);
  return is_hosts && tensor.input != nullptr && tensor.output != nullptr && asked.done == nullptr;
}

void Operation::Borrow(const RequestView& asked, std::string_view name, int64_t sequence_number) {
  static_cast<RequestFields&>(request) = asked;
  borrowed_ = &asked;
  borrowed_name_ = name;
  sequence_number_ = sequence_number;
  one_ = ToSlotTensor(asked.tensors[0]);
  awaited = true;
  record = nullptr;
  submitted = TimePoint();
  stuck_reported = false;
  state_.store(State::kMade, std::memory_order_relaxed);
}

void Operation::Own() {
  Request owned(*borrowed_);
  name_ = borrowed_name_;
  request = std::move(owned);
  borrowed_ = nullptr;
}

void Operation::SetSlotTensors() {
  if (request.tensors.size() == 1) {
    one_ = ToSlotTensor(request.tensors[0]);
  } else {
    std::transform(request.tensors.begin(), request.tensors.end(), std::back_inserter(several_), ToSlotTensor<Tensor>);
  }
}

bool Operation::ClaimEnd(State* was) {
  State state = state_.load();
  do {
    if (state >= State::kEnding) return false;
  } while (!state_.compare_exchange_weak(state, State::kEnding));
  *was = state;
  return true;
}

void Operation::Complete(Status status, bool announced) {
  status_ = std::move(status);
  if (announced && submitted_ns != 0) RecordInTimeline(*this);
  if (record != nullptr) record->End(Ticks(), !status_.ok());
  if (nvtx_range != 0) Nvtx::End(nvtx_range);
  state_.store(State::kDone);  // sequentially consistent, before WaitList::Notify (waiting.h)
  if (announced && request.done != nullptr) request.done(request.done_argument, status_, event);
}

// ---- for the flight recorder

FlightFacts Operation::Facts() const {
  FlightFacts facts{request.kind, DType::kFloat32, request.reduce, request.process_set, 0, 0};
  if (borrowed_ != nullptr) {
    facts.dtype = one_.dtype;
    facts.tensors = 1;
    facts.bytes = one_.size_bytes();
    return facts;
  }
  if (!request.tensors.empty()) facts.dtype = request.tensors[0].dtype;
  facts.tensors = static_cast<uint32_t>(request.tensors.size());
  for (const Tensor& tensor : request.tensors) facts.bytes += tensor.size_bytes();
  return facts;
}

// The generated names of unnamed operations mean nothing to readers, who see their sequence numbers instead.
std::pair<std::string_view, std::string> Operation::Texts() const {
  if (borrowed_ != nullptr) {
    const Span<const int64_t>& shape = borrowed_->tensors[0].shape;
    return {borrowed_->name, ToString({shape.begin(), shape.end()})};
  }
  std::string shapes = ChangesSets(request.kind) ? ToString(request.ranks) : "";
  for (const Tensor& tensor : request.tensors) {
    shapes += (shapes.empty() ? "" : ", ") + ToString(tensor.shape);
    if (shapes.size() >= FlightText::kBytes) break;
  }
  return {request.name, shapes};
}

// ---- for the negotiation

std::vector<int64_t> Operation::Counts() const {
  if (TakesSplits(request.kind)) return request.splits;
  std::vector<int64_t> rows;
  if (RowsDiffer(request.kind)) {
    for (const Tensor& tensor : request.tensors) rows.push_back(tensor.shape[0]);
  }
  return rows;
}

Description Operation::Describe() const {
  Description description{name_, sequence_number_, SignatureOf(request), Counts(), request.site, awaited, ""};
  description.signature.backend = backend;
  return description;
}

// A site names the public function where that is not what the core performs (call_sites.py).
std::string Operation::Call() const {
  if (request.site.empty()) return Title();
  return request.site.find(" at ") != std::string::npos ? request.site : Title() + " at " + request.site;
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

Status AllocateScratch(Operation* operation, size_t size_bytes, std::byte** memory) {
  std::shared_ptr<std::byte> allocated = HostMemory(size_bytes);
  if (!allocated) {
    return Internal(operation->Title(), ": no memory for ", size_bytes >> 20,
                    " MB in which the average of integers is computed");
  }
  *memory = allocated.get();
  operation->scratch.push_back(std::move(allocated));
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
