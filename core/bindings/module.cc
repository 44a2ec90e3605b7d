// Python <-> engine: conversions only. What the functions promise stands in _core.pyi.
//
// The GIL is released wherever a call may wait, and taken every 100 ms of waiting to look for signals (Ctrl-C).
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <deque>
#include <future>

#include "common/copies.h"
#include "engine/process.h"
#include "engine/stacks.h"
#include "farandole/farandole.h"
#include "stacks.h"

namespace py = pybind11;

namespace farandole {
namespace {

constexpr int64_t kSignalIntervalMs = 100;

// ---- errors

std::array<PyObject*, 8> g_error_types{};

[[noreturn]] void Raise(const Status& status) {
  PyObject* const type = g_error_types[static_cast<size_t>(status.code())];
  PyErr_SetString(type != nullptr ? type : PyExc_RuntimeError, status.message().c_str());
  throw py::error_already_set();
}

void RaiseIfError(const Status& status) {
  if (!status.ok()) Raise(status);
}

void SetErrorTypes(const std::map<int, py::object>& types) {
  for (const auto& [kind, type] : types) {
    if (kind > 0 && kind < static_cast<int>(g_error_types.size()))
      g_error_types[static_cast<size_t>(kind)] = type.inc_ref().ptr();
  }
}

std::shared_ptr<Engine> Need() {
  Status status;
  std::shared_ptr<Engine> engine = CurrentEngine(&status);
  RaiseIfError(status);
  return engine;
}

// ---- what must stay alive while the core reads and writes its memory

// Objects whose handle was dropped before their operation was done. Looked through whenever something is submitted.
std::deque<std::pair<OperationPtr, py::object>>& Orphans() {
  static auto* const orphans = new std::deque<std::pair<OperationPtr, py::object>>();
  return *orphans;
}

void ReleaseOrphans() {
  auto& orphans = Orphans();
  while (!orphans.empty() && orphans.front().first->done()) {
    const auto released = std::move(orphans.front());  // its destructor runs Python, which may come back here
    orphans.pop_front();
  }
}

struct PyOutput {
  Output output;
};

class PyHandle {
 public:
  PyHandle(std::shared_ptr<Engine> engine, OperationPtr operation, py::object keep)
      : engine_(std::move(engine)), operation_(std::move(operation)), keep_(std::move(keep)) {}
  ~PyHandle() {
    if (operation_ && !operation_->done()) Orphans().emplace_back(std::move(operation_), std::move(keep_));
  }
  PyHandle(const PyHandle&) = delete;
  PyHandle& operator=(const PyHandle&) = delete;

  bool done() const { return operation_->done(); }

  void Wait() {
    const std::shared_ptr<Engine> engine = engine_;  // another thread may wait for the same handle
    while (!operation_->done()) {
      {
        py::gil_scoped_release release;
        engine->Wait(operation_, kSignalIntervalMs);
      }
      if (!operation_->done() && PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
    keep_ = py::object();
    engine_.reset();
    RaiseIfError(operation_->status());
  }

  std::vector<PyOutput> Outputs() const {
    std::vector<PyOutput> outputs;
    for (const Output& output : operation_->outputs) outputs.push_back({output});
    return outputs;
  }

 private:
  std::shared_ptr<Engine> engine_;
  OperationPtr operation_;
  py::object keep_;
};

// ---- submitting

using TensorTuple = std::tuple<uintptr_t, uintptr_t, int, Shape>;

template <typename Enumeration>
Enumeration ToEnumeration(int value, int count, const char* what) {
  if (value < 0 || value >= count) RaiseIfError(Invalid(std::string("unknown ") + what + " " + std::to_string(value)));
  return static_cast<Enumeration>(value);
}

Tensor ToTensor(uintptr_t input, uintptr_t output, int dtype, Shape shape) {
  Tensor tensor;
  tensor.input = reinterpret_cast<const void*>(input);
  tensor.output = reinterpret_cast<void*>(output);
  tensor.dtype = ToEnumeration<DType>(dtype, kDTypeCount, "dtype");
  tensor.shape = std::move(shape);
  return tensor;
}

// What an operation is, apart from its tensors: op, name, reduce, root, prescale, postscale, process_set, site.
Request ToRequest(int op, std::string name, int reduce, int root, double prescale, double postscale, int process_set,
                  std::string site) {
  Request request;
  request.kind = ToEnumeration<OpKind>(op, kOpKindCount, "operation");
  request.reduce = ToEnumeration<ReduceOp>(reduce, kReduceOpCount, "reduction");
  request.name = std::move(name);
  request.root = root;
  request.prescale = prescale;
  request.postscale = postscale;
  request.process_set = process_set;
  request.site = std::move(site);
  return request;
}

std::unique_ptr<PyHandle> Submit(int op, const std::vector<TensorTuple>& tensors, py::object keep, std::string name,
                                 int reduce, int root, double prescale, double postscale, int process_set,
                                 std::string site, std::vector<int64_t> splits, std::vector<int64_t> ranks) {
  ReleaseOrphans();
  std::shared_ptr<Engine> engine = Need();
  Request request = ToRequest(op, std::move(name), reduce, root, prescale, postscale, process_set, std::move(site));
  for (const auto& [input, output, dtype, shape] : tensors)
    request.tensors.push_back(ToTensor(input, output, dtype, shape));
  request.splits = std::move(splits);
  request.ranks = std::move(ranks);
  OperationPtr operation;
  Status status;
  {
    py::gil_scoped_release release;
    status = engine->Submit(std::move(request), &operation);
  }
  RaiseIfError(status);
  return std::make_unique<PyHandle>(std::move(engine), std::move(operation), std::move(keep));
}

void Run(int op, uintptr_t input, uintptr_t output, int dtype, Shape shape, py::object keep, std::string name,
         int reduce, int root, double prescale, double postscale, int process_set, std::string site) {
  ReleaseOrphans();
  std::shared_ptr<Engine> engine = Need();
  Request request = ToRequest(op, std::move(name), reduce, root, prescale, postscale, process_set, std::move(site));
  if (request.kind != OpKind::kBarrier) request.tensors.push_back(ToTensor(input, output, dtype, std::move(shape)));
  OperationPtr operation;
  Status status;
  {
    py::gil_scoped_release release;
    status = engine->Submit(std::move(request), &operation, /*will_wait=*/true);
    if (status.ok()) engine->Wait(operation, kSignalIntervalMs);
  }
  RaiseIfError(status);
  PyHandle(std::move(engine), std::move(operation), std::move(keep)).Wait();
}

// ---- the world

bool IsReady(const std::future<Status>& meeting) {
  py::gil_scoped_release release;
  return meeting.wait_for(std::chrono::milliseconds(kSignalIntervalMs)) == std::future_status::ready;
}

void CancelMeeting(std::future<Status>* meeting) {
  py::gil_scoped_release release;
  CancelInit(true);
  const bool met = meeting->get().ok();
  CancelInit(false);
  if (met) ShutdownProcess();
}

void Init(int rank, int size, const std::string& store, const py::bytes& key) {
  WorldSpec spec;
  spec.rank = rank;
  spec.size = size;
  spec.store = store;
  const std::string secret = key;
  if (size > 1 && secret.size() != spec.key.size())
    RaiseIfError(Invalid("the job key must have 32 bytes, not " + std::to_string(secret.size())));
  std::copy(secret.begin(), secret.end(), spec.key.begin());
  // In a thread of its own, so that this one can look for signals: a job whose other ranks never come must be interruptible.
  std::future<Status> meeting = std::async(std::launch::async, [spec] { return InitProcess(spec); });
  while (!IsReady(meeting)) {
    if (PyErr_CheckSignals() == 0) continue;
    py::error_already_set interrupted;
    CancelMeeting(&meeting);
    throw interrupted;
  }
  RaiseIfError(meeting.get());
}

void Shutdown() {
  {
    py::gil_scoped_release release;
    ShutdownProcess();
  }
  ReleaseOrphans();
}

bool IsInitialized() {
  Status status;
  return CurrentEngine(&status) != nullptr;
}

py::dict Info() {
  const std::shared_ptr<Engine> engine = Need();
  const World* const world = engine->world();
  py::dict info;
  info["isa"] = ActiveIsa() == Isa::kAvx512 ? "avx512" : ActiveIsa() == Isa::kAvx2 ? "avx2" : "portable";
  info["groups"] = world != nullptr ? world->layout.groups : std::vector<std::vector<int>>{{engine->rank()}};
  info["arena_bytes"] = world != nullptr ? world->group->arena_bytes() : 0;
  info["bytes_submitted"] = engine->bytes_submitted();
  info["negotiation_messages"] = engine->messages_sent();
  return info;
}

void RefuseSecondCopy() {
  const std::string other = PathOfOtherCopy("frd_get_api");
  if (other.empty()) return;
  throw py::import_error("farandole's core is in this process twice: " + other + " is loaded already, and now " +
                         PathOfThisCopy() +
                         " is to be. Keep one of the two installations; if one was just replaced by " +
                         "the other, start the process anew.");
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  using namespace pybind11::literals;

  RefuseSecondCopy();
  PrepareToLookAtStacks();
  SetStackFunction(&PythonStacks);
  module.def("set_error_types", &SetErrorTypes, "types"_a);
  module.def(
      "init",
      [](int rank, int size, int, int, int, int, const std::string& store, const py::bytes& key) {
        Init(rank, size, store, key);
      },
      "rank"_a, "size"_a, "local_rank"_a, "local_size"_a, "cross_rank"_a, "cross_size"_a, "store"_a, "key"_a);
  module.def("shutdown", &Shutdown);
  module.def("is_initialized", &IsInitialized);
  module.def("submit", &Submit, "op"_a, "tensors"_a, "keep"_a, "name"_a = "", "reduce"_a = 0, "root"_a = 0,
             "prescale"_a = 1.0, "postscale"_a = 1.0, "process_set"_a = 0, "site"_a = "",
             "splits"_a = std::vector<int64_t>(), "ranks"_a = std::vector<int64_t>());
  module.def("run", &Run, "op"_a, "input_address"_a, "output_address"_a, "dtype"_a, "shape"_a, "keep"_a, "name"_a = "",
             "reduce"_a = 0, "root"_a = 0, "prescale"_a = 1.0, "postscale"_a = 1.0, "process_set"_a = 0, "site"_a = "");
  module.def("info", &Info);
  // For plugins' native parts: the address of the function table of farandole.h.
  module.attr("api_address") = reinterpret_cast<uintptr_t>(frd_get_api());

  py::class_<PyHandle>(module, "Handle")
      .def("done", &PyHandle::done)
      .def("wait", &PyHandle::Wait)
      .def("outputs", &PyHandle::Outputs);
  py::class_<PyOutput>(module, "Output", py::buffer_protocol())
      .def_property_readonly("shape", [](const PyOutput& self) { return py::tuple(py::cast(self.output.shape)); })
      .def_property_readonly("dtype", [](const PyOutput& self) { return static_cast<int>(self.output.dtype); })
      .def_property_readonly("address",
                             [](const PyOutput& self) { return reinterpret_cast<uintptr_t>(self.output.memory.get()); })
      .def_property_readonly("nbytes", [](const PyOutput& self) { return self.output.size_bytes; })
      .def_buffer([](PyOutput& self) {
        return py::buffer_info(reinterpret_cast<uint8_t*>(self.output.memory.get()),
                               static_cast<py::ssize_t>(self.output.size_bytes));
      });
}

}  // namespace farandole
