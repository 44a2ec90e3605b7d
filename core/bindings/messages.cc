// Messages between two ranks: the type `Transfer` of _core.pyi, and the functions that begin one.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "bindings/bindings.h"
#include "engine/process.h"

namespace py = pybind11;

namespace farandole {
namespace {

// What keeps the memory of transfers whose handles were dropped before they were done.
std::deque<std::pair<TransferPtr, py::object>>& OrphanTransfers() {
  static auto* const orphans = new std::deque<std::pair<TransferPtr, py::object>>();
  return *orphans;
}

// Looks at some of them at a time, in turn, so that one whose message never comes keeps no other from being released.
void ReleaseDone() {
  constexpr size_t kLooks = 4;
  auto& orphans = OrphanTransfers();
  for (size_t looks = std::min(kLooks, orphans.size()); looks > 0 && !orphans.empty(); --looks) {
    auto orphan = std::move(orphans.front());  // its destructor may run Python, and so call this again
    orphans.pop_front();
    if (!orphan.first->done) orphans.push_back(std::move(orphan));
  }
}

struct PyTransfer {
  PyTransfer(std::shared_ptr<Engine> its_engine, TransferPtr its_transfer, py::object its_memory)
      : engine(std::move(its_engine)), transfer(std::move(its_transfer)), memory(std::move(its_memory)) {}
  ~PyTransfer() {
    if (transfer->done) return;
    try {
      OrphanTransfers().emplace_back(transfer, memory);
    } catch (...) {  // no memory for the list: what the core still uses must not be freed
      memory.release();
    }
  }
  PyTransfer(const PyTransfer&) = delete;
  PyTransfer& operator=(const PyTransfer&) = delete;

  std::shared_ptr<Engine> engine;
  TransferPtr transfer;
  py::object memory;
};

bool IsDone(const PyTransfer& self) {
  return CheckNotForked().ok() ? self.engine->Poll(self.transfer) : self.transfer->done.load();
}

void AwaitTransfer(PyTransfer* self, std::optional<double> timeout_s) {
  const TimePoint begin = Now();
  constexpr double kLongest_s = 1e9;
  const int64_t limit_ms =
      timeout_s ? static_cast<int64_t>(std::clamp(*timeout_s, 0.0, kLongest_s) * 1e3) : Engine::kForeverMs;
  while (!IsDone(*self)) {
    RaiseIfError(CheckNotForked());
    const int64_t left_ms = limit_ms - MillisecondsBetween(begin, Now());
    {
      const WithoutGil scope;
      const bool done = self->engine->Wait(self->transfer, std::clamp<int64_t>(left_ms, 0, kSignalIntervalMs));
      if (!done && left_ms <= 0) self->engine->GiveUp(self->transfer);
    }
    if (!self->transfer->done && PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  self->memory = py::none();
  RaiseIfError(self->transfer->status);
}

// tensor: an array or tensor, or a Tensor of _core.pyi.
TransferPtr ReadTransfer(const py::object& tensor, int peer, int64_t tag, int context) {
  Dimensions dimensions;
  TensorView view;
  if (PyTuple_Check(tensor.ptr())) {
    if (!ReadTensor(tensor.ptr(), &dimensions, &view)) throw py::error_already_set();
  } else {
    const Look look = LookAtArrays(tensor.ptr(), tensor.ptr(), &dimensions, &view);
    const bool is_other = look == Look::kError && PyErr_ExceptionMatches(PyExc_AttributeError) != 0;
    if (look == Look::kError && !is_other) throw py::error_already_set();
    PyErr_Clear();
    if (look != Look::kFine) throw py::type_error("a message needs contiguous, writable memory of the host");
  }
  if (view.device != 0) throw py::type_error("a message needs memory of the host, not of a device");
  auto transfer = std::make_shared<Transfer>();
  transfer->peer = peer;
  transfer->key = {context, static_cast<uint64_t>(tag)};
  transfer->dtype = view.dtype;
  transfer->size_bytes = UncheckedCount(view.shape) * SizeOf(view.dtype);
  transfer->data = static_cast<std::byte*>(const_cast<void*>(view.input));
  return transfer;
}

std::unique_ptr<PyTransfer> BeginTransfer(py::object tensor, TransferPtr transfer) {
  ReleaseDone();
  Status status;
  std::shared_ptr<Engine> engine = CurrentEngine(&status);
  RaiseIfError(status);
  {
    const WithoutGil scope;
    status = engine->Begin(transfer);
  }
  RaiseIfError(status);
  return std::make_unique<PyTransfer>(std::move(engine), std::move(transfer), std::move(tensor));
}

std::unique_ptr<PyTransfer> Send(const py::object& tensor, int target, int64_t tag, int context,
                                 const py::object& owner) {
  TransferPtr transfer = ReadTransfer(tensor, target, tag, context);
  transfer->sends = true;
  return BeginTransfer(owner.is_none() ? tensor : owner, std::move(transfer));
}

std::unique_ptr<PyTransfer> Receive(const py::object& tensor, std::optional<int> source, int64_t tag, int context,
                                    const py::object& owner) {
  TransferPtr transfer = ReadTransfer(tensor, source.value_or(kAnySource), tag, context);
  return BeginTransfer(owner.is_none() ? tensor : owner, std::move(transfer));
}

}  // namespace

void AddMessages(py::module_* module) {
  using namespace py::literals;
  py::class_<PyTransfer>(*module, "Transfer")
      .def("done", &IsDone)
      .def("wait", &AwaitTransfer, "timeout"_a = py::none())
      .def_property_readonly("source", [](const PyTransfer& self) -> std::optional<int> {
        if (!self.transfer->done || self.transfer->source == kAnySource) return std::nullopt;
        return self.transfer->source;
      });
  module->def("send", &Send, "tensor"_a, "target"_a, "tag"_a, "process_set"_a, "owner"_a = py::none());
  module->def("receive", &Receive, "tensor"_a, "source"_a, "tag"_a, "process_set"_a, "owner"_a = py::none());
}

}  // namespace farandole
