// The C interface: conversions only. farandole.h says what the functions promise.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/process.h"
#include "farandole/farandole.h"

struct frd_operation {
  std::shared_ptr<farandole::Engine> engine;
  farandole::OperationPtr operation;
};

struct frd_transfer {
  std::shared_ptr<farandole::Engine> engine;
  farandole::TransferPtr transfer;
};

struct frd_memory {
  std::shared_ptr<std::byte> memory;
};

namespace farandole {
namespace {

thread_local std::string t_last_error;

// The codes of farandole.h, where a deadlock is one way not to come in time: its own code would be FRD_IN_PROGRESS.
int32_t CodeOf(const Status& status) {
  return status.code() == Code::kDeadlock ? FRD_DEADLINE : static_cast<int32_t>(status.code());
}

int32_t Report(const Status& status) {
  if (!status.ok()) t_last_error = status.message();
  return CodeOf(status);
}

// Runs `body`, which returns a code, so that no exception (for want of memory) reaches C.
template <typename Body>
int32_t Guard(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Report(Internal("out of memory"));  // short, so that it needs none
  } catch (const std::exception& error) {
    return Report(Internal(error.what()));
  }
}

// The argument of CallDone, for an operation that calls back through C.
struct DoneCall {
  void (*done)(void*, int32_t, const char*, void*);
  void* argument;
};

void CallDone(void* argument, const Status& status, Event event) {
  const std::unique_ptr<DoneCall> call(static_cast<DoneCall*>(argument));
  call->done(call->argument, CodeOf(status), status.message().c_str(), event);
}

bool InRange(int32_t value, int count) { return value >= 0 && value < count; }

// The sizes of the structs in the first release, which every caller knows at least.
constexpr size_t kFirstWorld = offsetof(frd_world, key) + sizeof(void*);
constexpr size_t kFirstTensor = offsetof(frd_tensor, ready_event) + sizeof(void*);
constexpr size_t kFirstRequest = offsetof(frd_request, process_set);
constexpr size_t kFirstMessage = offsetof(frd_message, tag) + sizeof(uint64_t);
constexpr size_t kFirstOutput = offsetof(frd_output, dimension_count) + sizeof(int32_t);

Status TooSmall(const char* name) {
  return Invalid(name, ".struct_size is too small for this core: set it to sizeof(", name, ")");
}

// Returns the caller's struct with all fields. A caller compiled against an older header has fewer; then the result is
// `room`, where the others are zero.
template <typename Struct>
const Struct& Whole(const Struct& given, Struct* room) {
  if (given.struct_size >= sizeof(Struct)) return given;
  *room = {};
  std::memcpy(room, &given, given.struct_size);
  return *room;
}

std::string_view ToView(const char* text) { return text != nullptr ? text : std::string_view(); }

// Tensors lie as far apart as their caller's header says.
const frd_tensor& TensorAt(const frd_request& request, uint32_t index) {
  const auto* const first = reinterpret_cast<const std::byte*>(request.tensors);
  return *reinterpret_cast<const frd_tensor*>(first + size_t{index} * request.tensors->struct_size);
}

bool Refuse(Status problem, Status* why) {
  *why = std::move(problem);
  return true;
}

// True when the request makes no sense; *why says why.
bool IsRefused(const frd_request& from, Status* why) {
  if (!InRange(from.operation, kOpKindCount)) return Refuse(Invalid("unknown operation ", from.operation), why);
  if (!InRange(from.reduce, kReduceOpCount)) return Refuse(Invalid("unknown reduction ", from.reduce), why);
  if (!InRange(from.ready, kReadyCount)) return Refuse(Invalid("unknown value of ready: ", from.ready), why);
  for (uint32_t i = 0; i < from.tensor_count; ++i) {
    const frd_tensor& tensor = TensorAt(from, i);
    if (tensor.struct_size < kFirstTensor) return Refuse(TooSmall("frd_tensor"), why);
    if (tensor.struct_size != from.tensors->struct_size)
      return Refuse(Invalid("frd_tensor.struct_size is not the same for all tensors of a request"), why);
    if (!InRange(tensor.dtype, kDTypeCount)) return Refuse(Invalid("unknown element type ", tensor.dtype), why);
  }
  return false;
}

TensorView ToView(const frd_tensor& given) {
  frd_tensor room;
  const frd_tensor& from = Whole(given, &room);
  return {{from.input, from.output, static_cast<DType>(from.dtype), from.device, from.ready_event},
          {from.shape, static_cast<size_t>(std::max(from.dimension_count, 0))}};
}

// Converts everything except tensors. Each field is written once, since a small call takes little longer than that.
RequestView ToView(const frd_request& from) {
  return {{static_cast<OpKind>(from.operation), static_cast<ReduceOp>(from.reduce), from.root, from.prescale,
           from.postscale, from.process_set, /*results_on_device=*/false, static_cast<Ready>(from.ready),
           /*done=*/nullptr, /*done_argument=*/nullptr, from.done_when_readable != 0},
          /*tensors=*/{},
          ToView(from.name),
          {from.splits, from.split_count},
          {from.ranks, from.rank_count},
          ToView(from.site)};
}

// A request as the engine takes it, and all else that a call needs, so that a call that has begun lacks nothing. `view`
// points at the caller's memory and at this object.
class Call {
 public:
  // REQUIRES: whole, and not refused.
  Call(const frd_request& from, bool returns_operation)
      : view(ToView(from)),
        done(from.done != nullptr ? std::make_unique<DoneCall>(DoneCall{from.done, from.done_argument}) : nullptr),
        operation(returns_operation ? std::make_unique<frd_operation>() : nullptr),
        first_(from.tensor_count > 0 ? ToView(*from.tensors) : TensorView()) {
    if (done) {
      view.done = &CallDone;
      view.done_argument = done.get();
    }
    view.tensors = {&first_, from.tensor_count};
    if (from.tensor_count < 2) return;
    for (uint32_t i = 0; i < from.tensor_count; ++i) several_.push_back(ToView(TensorAt(from, i)));
    view.tensors = {several_.data(), several_.size()};
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  RequestView view;
  std::unique_ptr<DoneCall> done;
  std::unique_ptr<frd_operation> operation;

 private:
  const TensorView first_;  // nearly always the only one
  std::vector<TensorView> several_;
};

// Calls run(engine, call), which returns a code. Where there is no memory for the call, it fails on all ranks.
template <typename Run>
int32_t WithCall(const frd_request& given, bool returns_operation, Run run) {
  return Guard([&] {
    Status status;
    std::shared_ptr<Engine> engine = CurrentEngine(&status);
    if (!engine) return Report(status);
    if (given.struct_size < kFirstRequest) return Report(TooSmall("frd_request"));
    frd_request room;
    const frd_request& from = Whole(given, &room);
    if (IsRefused(from, &status)) {
      engine->Refuse(from.process_set, ToView(from.name), ToView(from.site), status.message());
      return Report(status);
    }
    std::optional<Call> call;
    try {
      call.emplace(from, returns_operation);
    } catch (const std::bad_alloc&) {
      engine->Refuse(from.process_set, ToView(from.name), ToView(from.site), "out of memory");
      throw;
    }
    return run(std::move(engine), &*call);
  });
}

int32_t ApiInit(const frd_world* world) {
  return Guard([&] {
    if (world->struct_size < kFirstWorld) return Report(TooSmall("frd_world"));
    if (world->size < 1 || !InRange(world->rank, world->size)) {
      return Report(Invalid("rank ", world->rank, " is not in a world of ", world->size));
    }
    WorldSpec spec;
    spec.rank = world->rank;
    spec.size = world->size;
    if (world->size > 1) {
      if (world->store == nullptr || world->key == nullptr)
        return Report(Invalid("a world of several ranks needs a store and a key"));
      spec.rendezvous_endpoint = world->store;
      std::copy(world->key, world->key + spec.key.size(), spec.key.begin());
    }
    return Report(InitProcess(spec));
  });
}

int32_t Await(Engine* engine, const OperationPtr& operation) {
  while (!engine->Wait(operation, Engine::kForeverMs)) {
  }
  return Report(operation->status());
}

// Submits and, where `waits`, waits for the end.
int32_t Submit(std::shared_ptr<Engine> engine, Call* call, bool waits, frd_operation** result) {
  engine->NoteNativeCaller();
  OperationPtr operation;
  if (const Status begun = engine->Submit(call->view, &operation, waits); !begun.ok()) return Report(begun);
  call->done.release();  // CallDone frees it, or has done so
  const int32_t ended = waits ? Await(engine.get(), operation) : FRD_OK;
  if (ended == FRD_OK && result != nullptr) {
    *call->operation = {std::move(engine), std::move(operation)};
    *result = call->operation.release();
  }
  return ended;
}

int32_t ApiEnqueue(const frd_request* request, frd_operation** result) {
  return WithCall(*request, result != nullptr, [&](std::shared_ptr<Engine> engine, Call* call) {
    return Submit(std::move(engine), call, false, result);
  });
}

int32_t ApiRun(const frd_request* request, frd_operation** result) {
  return WithCall(*request, result != nullptr, [&](std::shared_ptr<Engine> engine, Call* call) {
    OperationPtr operation;
    const bool only_ends = result == nullptr && !call->done;
    if (only_ends && engine->RunOrBegin(call->view, &operation))
      return operation ? Await(engine.get(), operation) : FRD_OK;
    return Submit(std::move(engine), call, true, result);
  });
}

// As ApiRun, but a wait ends with the limit of the set.
int32_t ApiRunWithinLimit(const frd_request* request, frd_operation** result) {
  return WithCall(*request, /*returns_operation=*/false, [&](std::shared_ptr<Engine> engine, Call* call) {
    *result = nullptr;
    OperationPtr operation;
    if (!engine->RunOrBegin(call->view, &operation)) {
      engine->NoteNativeCaller();
      if (const Status begun = engine->Submit(call->view, &operation, /*will_wait=*/true); !begun.ok())
        return Report(begun);
    }
    if (!operation) return FRD_OK;
    auto handle = std::make_unique<frd_operation>(frd_operation{engine, operation});
    const int64_t limit_ms = engine->WaitLimitOf(operation->set());
    const bool is_over = engine->Wait(operation, limit_ms > 0 ? limit_ms : Engine::kForeverMs);
    const int32_t code = Report(is_over ? operation->status() : engine->Overdue(operation, limit_ms));
    if (!is_over || (code == FRD_OK && !operation->outputs.empty())) *result = handle.release();
    return code;
  });
}

// Asks has_ended(engine, operation) unless the operation has ended already. A forked child has neither the threads nor
// the shared memory of the engine, so there only an operation that ended before the fork can be asked for.
template <typename HasEnded>
int32_t EndOf(const frd_operation& handle, HasEnded has_ended) {
  return Guard([&] {
    const OperationPtr& operation = handle.operation;
    if (operation->done()) return Report(operation->status());
    if (const Status usable = CheckNotForked(); !usable.ok()) return Report(usable);
    return has_ended(*handle.engine, operation) ? Report(operation->status()) : FRD_IN_PROGRESS;
  });
}

int32_t ApiPoll(frd_operation* operation) {
  return EndOf(*operation, [](Engine& engine, const OperationPtr& asked) { return engine.Poll(asked); });
}

int32_t ApiWait(frd_operation* operation, int64_t timeout_ms) {
  const int64_t limit_ms = timeout_ms < 0 ? Engine::kForeverMs : std::min(timeout_ms, Engine::kForeverMs);
  return EndOf(*operation,
               [limit_ms](Engine& engine, const OperationPtr& asked) { return engine.Wait(asked, limit_ms); });
}

int32_t ApiOutput(frd_operation* operation, uint32_t index, frd_output* output) {
  return Guard([&] {
    if (!operation->operation->done() || index >= operation->operation->outputs.size()) {
      return Report(Invalid("the operation has no result number ", index));
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

int32_t ApiRefuse(int32_t process_set, const char* name, const char* site, const char* why) {
  return Guard([&] {
    Status status;
    const std::shared_ptr<Engine> engine = CurrentEngine(&status);
    if (!engine) return Report(status);
    engine->Refuse(process_set, ToView(name), ToView(site), why);
    return FRD_OK;
  });
}

// ---- single messages

int32_t BeginTransfer(const frd_message& message, bool sends, frd_transfer** result) {
  return Guard([&] {
    Status status;
    std::shared_ptr<Engine> engine = CurrentEngine(&status);
    if (!engine) return Report(status);
    if (message.struct_size < kFirstMessage) return Report(TooSmall("frd_message"));
    if (!InRange(message.dtype, kDTypeCount)) return Report(Invalid("unknown element type ", message.dtype));
    auto handle = std::make_unique<frd_transfer>(frd_transfer{engine, std::make_shared<Transfer>()});
    Transfer& transfer = *handle->transfer;
    transfer.sends = sends;
    transfer.peer = message.peer;
    transfer.key = {message.process_set, message.tag};
    transfer.dtype = static_cast<DType>(message.dtype);
    transfer.data = static_cast<std::byte*>(message.data);
    transfer.size_bytes = message.size_bytes;
    if (const Status begun = engine->Begin(handle->transfer); !begun.ok()) return Report(begun);
    *result = handle.release();
    return FRD_OK;
  });
}

int32_t EndOfTransfer(const frd_transfer& handle, int64_t limit_ms) {
  return Guard([&] {
    const TransferPtr& transfer = handle.transfer;
    if (const Status usable = CheckNotForked(); usable.ok()) {
      const bool done = limit_ms == 0 ? handle.engine->Poll(transfer) : handle.engine->Wait(transfer, limit_ms);
      if (!done) return FRD_IN_PROGRESS;
    } else if (!transfer->done) {
      return Report(usable);
    }
    return Report(transfer->status);
  });
}

int32_t ApiWaitTransfer(frd_transfer* handle, int64_t timeout_ms) {
  if (timeout_ms < 0) {
    timeout_ms = handle->engine->WaitLimitOf(handle->transfer->key.context);
    if (timeout_ms == 0) timeout_ms = Engine::kForeverMs;
  }
  return EndOfTransfer(*handle, std::min(timeout_ms, Engine::kForeverMs));
}

void ApiEndTransfer(frd_transfer* transfer) {
  const std::unique_ptr<frd_transfer> owned(transfer);
  if (!CheckNotForked().ok()) return;
  Guard([&owned] {
    owned->engine->GiveUp(owned->transfer);
    return FRD_OK;
  });
}

int32_t WorldFact(int (Engine::*fact)() const) {
  const std::shared_ptr<Engine> engine = CurrentEngine();
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
    &ApiRefuse,
    [](const frd_message* message, frd_transfer** transfer) { return BeginTransfer(*message, true, transfer); },
    [](const frd_message* message, frd_transfer** transfer) { return BeginTransfer(*message, false, transfer); },
    [](frd_transfer* transfer) { return EndOfTransfer(*transfer, 0); },
    &ApiWaitTransfer,
    [](frd_transfer* transfer) { return transfer->transfer->source; },
    &ApiEndTransfer,
    &ApiRunWithinLimit,
};

}  // namespace
}  // namespace farandole

const frd_api* frd_get_api() { return &farandole::kApi; }
