// The C door: conversions only. What the functions promise stands in farandole.h.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "engine/process.h"
#include "farandole/farandole.h"

struct frd_operation {
  std::shared_ptr<farandole::Engine> engine;
  farandole::OperationPtr operation;
};

struct frd_memory {
  std::shared_ptr<std::byte> memory;
};

namespace farandole {
namespace {

thread_local std::string t_last_error;

int32_t Report(const Status& status) {
  if (!status.ok()) t_last_error = status.message();
  return static_cast<int32_t>(status.code());
}

// Runs `body`, which returns a code, so that no exception (memory has run out) gets across.
template <typename Body>
int32_t Guard(Body body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    return Report(Internal(error.what()));
  }
}

// What is given to the core's C++ side when an operation is to call back through C.
struct DoneCall {
  void (*done)(void*, int32_t, const char*, void*);
  void* argument;
};

void CallDone(void* argument, const Status& status, Event event) {
  const std::unique_ptr<DoneCall> call(static_cast<DoneCall*>(argument));
  call->done(call->argument, static_cast<int32_t>(status.code()), status.message().c_str(), event);
}

bool InRange(int32_t value, int count) { return value >= 0 && value < count; }

// The sizes of the structs in the first release, which every caller knows at least.
constexpr size_t kFirstWorld = offsetof(frd_world, key) + sizeof(void*);
constexpr size_t kFirstTensor = offsetof(frd_tensor, ready_event) + sizeof(void*);
constexpr size_t kFirstRequest = offsetof(frd_request, process_set);
constexpr size_t kFirstOutput = offsetof(frd_output, dimension_count) + sizeof(int32_t);

Status TooSmall(const char* name) {
  return Invalid(std::string(name) + ".struct_size is too small for this core: set it to sizeof(" + name + ")");
}

// A caller that was compiled against an older header knows fewer fields; those are zero.
template <typename Struct>
Struct Widen(const Struct& given) {
  Struct whole = {};
  std::memcpy(&whole, &given, std::min<size_t>(given.struct_size, sizeof(Struct)));
  return whole;
}

// Tensors lie as far apart as their caller's header says.
const frd_tensor& TensorAt(const frd_request& request, uint32_t index) {
  const auto* const first = reinterpret_cast<const std::byte*>(request.tensors);
  return *reinterpret_cast<const frd_tensor*>(first + size_t{index} * request.tensors->struct_size);
}

Status ToRequest(const frd_request& from, Request* request) {
  if (!InRange(from.operation, kOpKindCount)) return Invalid("unknown operation " + std::to_string(from.operation));
  if (!InRange(from.reduce, kReduceOpCount)) return Invalid("unknown reduction " + std::to_string(from.reduce));
  if (!InRange(from.ready, kReadyCount)) return Invalid("unknown value of ready: " + std::to_string(from.ready));
  request->kind = static_cast<OpKind>(from.operation);
  request->reduce = static_cast<ReduceOp>(from.reduce);
  request->root = from.root;
  request->name = from.name != nullptr ? from.name : "";
  request->prescale = from.prescale;
  request->postscale = from.postscale;
  request->process_set = from.process_set;
  request->splits.assign(from.splits, from.splits + from.split_count);
  request->ranks.assign(from.ranks, from.ranks + from.rank_count);
  if (from.site != nullptr) request->site = from.site;
  request->ready = static_cast<Ready>(from.ready);
  request->done_when_readable = from.done_when_readable != 0;
  request->tensors.reserve(from.tensor_count);
  for (uint32_t i = 0; i < from.tensor_count; ++i) {
    const frd_tensor& given = TensorAt(from, i);
    if (given.struct_size < kFirstTensor) return TooSmall("frd_tensor");
    if (given.struct_size != from.tensors->struct_size)
      return Invalid("frd_tensor.struct_size is not the same for all tensors of a request");
    const frd_tensor tensor = Widen(given);
    if (!InRange(tensor.dtype, kDTypeCount)) return Invalid("unknown element type " + std::to_string(tensor.dtype));
    Tensor to;
    to.input = tensor.input;
    to.output = tensor.output;
    to.dtype = static_cast<DType>(tensor.dtype);
    to.shape.assign(tensor.shape, tensor.shape + std::max(tensor.dimension_count, 0));
    to.device = tensor.device;
    to.ready_event = tensor.ready_event;
    request->tensors.push_back(std::move(to));
  }
  return Status::Ok();
}

int32_t ApiInit(const frd_world* world) {
  return Guard([&] {
    if (world->struct_size < kFirstWorld) return Report(TooSmall("frd_world"));
    if (world->size < 1 || !InRange(world->rank, world->size)) {
      return Report(
          Invalid("rank " + std::to_string(world->rank) + " is not in a world of " + std::to_string(world->size)));
    }
    WorldSpec spec;
    spec.rank = world->rank;
    spec.size = world->size;
    if (world->size > 1) {
      if (world->store == nullptr || world->key == nullptr)
        return Report(Invalid("a world of several ranks needs a store and a key"));
      spec.store = world->store;
      std::copy(world->key, world->key + spec.key.size(), spec.key.begin());
    }
    return Report(InitProcess(spec));
  });
}

// Submits; on FRD_OK *result is set when it is asked for.
int32_t Begin(Engine* engine, const frd_request* given, bool will_wait, OperationPtr* operation) {
  if (given->struct_size < kFirstRequest) return Report(TooSmall("frd_request"));
  engine->NoteNativeCaller();
  const frd_request from = Widen(*given);
  Request request;
  Status status = ToRequest(from, &request);
  if (!status.ok()) return Report(status);
  std::unique_ptr<DoneCall> call;
  if (from.done != nullptr) {
    call = std::make_unique<DoneCall>(DoneCall{from.done, from.done_argument});
    request.done = &CallDone;
    request.done_argument = call.get();
  }
  if (status = engine->Submit(std::move(request), operation, will_wait); !status.ok()) return Report(status);
  call.release();  // CallDone has it, or had it already
  return FRD_OK;
}

int32_t ApiEnqueue(const frd_request* request, frd_operation** result) {
  return Guard([&] {
    Status status;
    std::shared_ptr<Engine> engine = CurrentEngine(&status);
    if (!engine) return Report(status);
    OperationPtr operation;
    const int32_t begun = Begin(engine.get(), request, false, &operation);
    if (begun == FRD_OK && result != nullptr) *result = new frd_operation{std::move(engine), std::move(operation)};
    return begun;
  });
}

// How many elements, if there is memory for them; dimensions that cannot be give a number that nobody knows.
uint64_t CountOf(const frd_tensor& tensor) {
  uint64_t count = 1;
  for (int32_t i = 0; i < tensor.dimension_count; ++i) count *= static_cast<uint64_t>(tensor.shape[i]);
  return count;
}

// Whether it has the form of a SmallRequest. What is wrong with it is not seen here.
bool LooksSmall(const frd_request& request) {
  if (request.struct_size < offsetof(frd_request, ready) || request.operation != FRD_ALLREDUCE) return false;
  if (request.tensor_count != 1 || request.name == nullptr || request.done != nullptr) return false;
  const frd_tensor& tensor = *request.tensors;
  if (tensor.struct_size < kFirstTensor || tensor.device != FRD_HOST || tensor.dimension_count < 0) return false;
  return InRange(request.reduce, kReduceOpCount) && InRange(tensor.dtype, kDTypeCount) && tensor.input != nullptr &&
         tensor.output != nullptr;
}

bool RunSmall(Engine* engine, const frd_request& from, Status* status) {
  if (!LooksSmall(from)) return false;
  thread_local std::string name, site;  // they keep their memory
  name = from.name;
  site = from.site != nullptr ? from.site : "";
  const frd_tensor& tensor = *from.tensors;
  const SmallRequest request{name,
                             site,
                             static_cast<ReduceOp>(from.reduce),
                             from.prescale,
                             from.postscale,
                             from.process_set,
                             {tensor.input, tensor.output, static_cast<DType>(tensor.dtype), CountOf(tensor)},
                             tensor.shape,
                             static_cast<size_t>(tensor.dimension_count)};
  return engine->Run(request, status);
}

int32_t ApiRun(const frd_request* request, frd_operation** result) {
  return Guard([&] {
    Status status;
    std::shared_ptr<Engine> engine = CurrentEngine(&status);
    if (!engine) return Report(status);
    if (result == nullptr && RunSmall(engine.get(), *request, &status)) return Report(status);
    OperationPtr operation;
    if (const int32_t begun = Begin(engine.get(), request, true, &operation); begun != FRD_OK) return begun;
    while (!engine->Wait(operation, Engine::kForGoodMs)) {
    }
    const int32_t ended = Report(operation->status());
    if (ended == FRD_OK && result != nullptr) *result = new frd_operation{std::move(engine), std::move(operation)};
    return ended;
  });
}

int32_t ApiPoll(frd_operation* operation) {
  return Guard([&] {
    const bool done = operation->engine->Poll(operation->operation);
    return done ? Report(operation->operation->status()) : FRD_IN_PROGRESS;
  });
}

int32_t ApiWait(frd_operation* operation, int64_t timeout_ms) {
  return Guard([&] {
    operation->engine->Wait(operation->operation, timeout_ms < 0 ? Engine::kForGoodMs : timeout_ms);
    return ApiPoll(operation);
  });
}

int32_t ApiOutput(frd_operation* operation, uint32_t index, frd_output* output) {
  return Guard([&] {
    if (!operation->operation->done() || index >= operation->operation->outputs.size()) {
      return Report(Invalid("the operation has no result number " + std::to_string(index)));
    }
    if (output->struct_size < kFirstOutput) return Report(TooSmall("frd_output"));
    const Output& from = operation->operation->outputs[index];
    const frd_output whole = {output->struct_size, static_cast<int32_t>(from.dtype),
                              from.memory.get(),   from.size_bytes,
                              from.shape.data(),   static_cast<int32_t>(from.shape.size())};
    std::memcpy(output, &whole, std::min<size_t>(output->struct_size, sizeof(frd_output)));
    return FRD_OK;
  });
}

frd_memory* ApiKeep(frd_operation* operation, uint32_t index) {
  const std::vector<Output>& outputs = operation->operation->outputs;
  if (!operation->operation->done() || index >= outputs.size()) return nullptr;
  return new (std::nothrow) frd_memory{outputs[index].memory};
}

int32_t WorldFact(int (Engine::*fact)() const) {
  Status status;
  const std::shared_ptr<Engine> engine = CurrentEngine(&status);
  return engine ? (engine.get()->*fact)() : -1;
}

const frd_api kApi = {
    sizeof(frd_api),
    FRD_ABI,
    [] { return t_last_error.c_str(); },
    &ApiInit,
    [] { ShutdownProcess(); },
    [] { return WorldFact(&Engine::size) > 0 ? 1 : 0; },
    [] { return WorldFact(&Engine::rank); },
    [] { return WorldFact(&Engine::size); },
    &ApiEnqueue,
    &ApiPoll,
    &ApiWait,
    &ApiOutput,
    [](frd_operation* operation) { delete operation; },
    &ApiRun,
    &ApiKeep,
    [](frd_memory* memory) { delete memory; },
};

}  // namespace
}  // namespace farandole

const frd_api* frd_get_api() { return &farandole::kApi; }
