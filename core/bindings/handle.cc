// Python's handle of an operation, and of memory that the core has allocated for its results: the types `Handle` and
// `Output` of _core.pyi.
//
// Handle is written against Python's C interface: with pybind11, making a handle and waiting with it take longer than
// the core needs for a small operation (figures in calls.cc).
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <memory>
#include <new>
#include <optional>

#include "bindings/bindings.h"
#include "engine/process.h"

namespace py = pybind11;

namespace farandole {
namespace {

struct PyOutput {
  Output output;
};

PyTypeObject* g_handle_type = nullptr;
PyObject* g_map_function = nullptr;

// The objects that stay alive while the core reads and writes their memory.
struct Kept {
  OperationPtr operation;
  PyObject* source = nullptr;
  PyObject* result = nullptr;

  // The objects' destructors run Python, which may call this file again.
  void Release() {
    Py_CLEAR(source);
    Py_CLEAR(result);
  }
};

struct PyHandle {
  PyObject_HEAD Kept kept;
  std::shared_ptr<Engine> engine;  // null once a thread has waited for it
};

// The limit of a wait, in milliseconds; 0: none. limit_ms: 0 for that of the process set, which may change meanwhile.
int64_t LimitOf(Engine* engine, const Operation& operation, int64_t limit_ms) {
  if (limit_ms <= 0) return engine->WaitLimitOf(operation.set());
  engine->ExpectLimit(limit_ms);
  return limit_ms;
}

int64_t ToMilliseconds(double seconds) { return seconds <= 0 ? 0 : static_cast<int64_t>(std::ceil(seconds * 1000)); }

PyHandle* From(PyObject* self) { return reinterpret_cast<PyHandle*>(self); }

PyHandle* Make(std::shared_ptr<Engine> engine, Kept kept) {
  PyHandle* const self = PyObject_New(PyHandle, g_handle_type);
  if (self == nullptr) return nullptr;
  Py_XINCREF(kept.source);
  Py_XINCREF(kept.result);
  new (&self->kept) Kept(std::move(kept));
  new (&self->engine) std::shared_ptr<Engine>(std::move(engine));
  return self;
}

// Kept by handles that were dropped before their operation was done. Each submission looks through some of them.
std::deque<Kept>& Orphans() {
  static auto* const orphans = new std::deque<Kept>();
  return *orphans;
}

// Without memory for the list, the objects stay for good: the core may still write to their memory.
void KeepUntilDone(Kept kept) noexcept {
  try {
    Orphans().push_back(std::move(kept));
  } catch (const std::bad_alloc&) {
  }
}

void Destroy(PyObject* object) {
  PyHandle* const self = From(object);
  PyTypeObject* const type = Py_TYPE(object);
  if (self->kept.source != nullptr && !self->kept.operation->done()) {
    KeepUntilDone(std::move(self->kept));
  } else {
    self->kept.Release();
  }
  self->kept.~Kept();
  self->engine.~shared_ptr();
  PyObject_Free(object);
  Py_DECREF(type);
}

PyObject* Done(PyObject* object, PyObject*) try {
  const PyHandle* const self = From(object);
  const bool polls = self->engine && CheckNotForked().ok();
  return PyBool_FromLong(polls ? self->engine->Poll(self->kept.operation) : self->kept.operation->done());
} catch (const std::exception&) {
  return SetCaughtError();
}

// arguments: the limit in seconds, or nothing.
PyObject* Wait(PyObject* object, PyObject* const* arguments, Py_ssize_t count) try {
  const double limit_s = count > 0 ? PyFloat_AsDouble(arguments[0]) : 0;
  if (limit_s == -1 && PyErr_Occurred()) return nullptr;
  return WaitFor(object, ToMilliseconds(limit_s)) ? Py_NewRef(From(object)->kept.result) : nullptr;
} catch (const std::exception&) {
  return SetCaughtError();
}

PyObject* Map(PyObject* object, PyObject* function) {
  return PyObject_CallFunctionObjArgs(g_map_function, object, function, nullptr);
}

PyObject* Outputs(PyObject* self, PyObject*) try {
  py::list list;
  for (const Output& output : From(self)->kept.operation->outputs) list.append(py::cast(PyOutput{output}));
  return list.release().ptr();
} catch (const std::exception&) {
  return SetCaughtError();
}

PyMethodDef g_methods[] = {{"done", &Done, METH_NOARGS, nullptr},
                           {"wait", AsMethod(&Wait), METH_FASTCALL, nullptr},
                           {"map", &Map, METH_O, nullptr},
                           {"outputs", &Outputs, METH_NOARGS, nullptr},
                           {nullptr, nullptr, 0, nullptr}};

PyType_Slot g_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(&Destroy)}, {Py_tp_methods, g_methods}, {0, nullptr}};

PyType_Spec g_spec = {"farandole._core.Handle", sizeof(PyHandle), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, g_slots};

}  // namespace

void AddOutputType(py::module_* module) {
  py::class_<PyOutput>(*module, "Output", py::buffer_protocol())
      .def_property_readonly("shape", [](const PyOutput& self) { return py::tuple(py::cast(self.output.shape)); })
      .def_property_readonly("dtype", [](const PyOutput& self) { return static_cast<int>(self.output.dtype); })
      .def_property_readonly("address",
                             [](const PyOutput& self) { return reinterpret_cast<uintptr_t>(self.output.memory.get()); })
      .def_property_readonly("on_device", [](const PyOutput& self) { return self.output.device != nullptr; })
      .def_property_readonly("nbytes", [](const PyOutput& self) { return self.output.size_bytes; })
      .def_buffer([](PyOutput& self) {
        if (self.output.device != nullptr) throw py::buffer_error("the result lies on a device");
        return py::buffer_info(reinterpret_cast<uint8_t*>(self.output.memory.get()),
                               static_cast<py::ssize_t>(self.output.size_bytes));
      });
}

void SetMapFunction(pybind11::object map) { g_map_function = map.release().ptr(); }

bool AddHandleType(PyObject* module) {
  g_handle_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&g_spec));
  return g_handle_type != nullptr &&
         PyModule_AddObjectRef(module, "Handle", reinterpret_cast<PyObject*>(g_handle_type)) == 0;
}

PyObject* NewHandle(std::shared_ptr<Engine> engine, OperationPtr operation, PyObject* source, PyObject* result) {
  PyHandle* const self = Make(std::move(engine), {operation, source, result});
  if (self == nullptr) {
    // The core uses the memory until the operation is done, and the other ranks know of the call.
    PyErr_Clear();
    KeepUntilDone({std::move(operation), Py_XNewRef(source), Py_XNewRef(result)});
    SetCallError(Internal("out of memory"));
  }
  return reinterpret_cast<PyObject*>(self);
}

bool WaitFor(PyObject* handle, int64_t limit_ms) {
  PyHandle* const self = From(handle);
  const Operation& operation = *self->kept.operation;
  if (const std::shared_ptr<Engine> engine = self->engine) {  // another thread may wait for the same handle
    if (const Status usable = CheckNotForked(); !usable.ok() && !operation.done()) {
      SetPythonError(usable);
      return false;
    }
    std::optional<TimePoint> begun;  // since when the limit counts
    for (bool takes_long = false; !engine->Poll(self->kept.operation); takes_long = true) {
      int64_t sleep_ms = kSignalIntervalMs;
      // That of the process set takes a lock, which a wait that is short need not pay for.
      const bool asks = takes_long || limit_ms > 0;
      if (const int64_t limit = asks ? LimitOf(engine.get(), operation, limit_ms) : 0; limit > 0) {
        if (!begun) begun = Now() - std::chrono::milliseconds(takes_long ? kSignalIntervalMs : 0);
        const int64_t left_ms = limit - MillisecondsBetween(*begun, Now());
        if (left_ms <= 0) {
          SetCallError(engine->Overdue(self->kept.operation, limit));
          return false;
        }
        sleep_ms = std::min(sleep_ms, left_ms);
      }
      {
        const WithoutGil scope;
        std::optional<Engine::BlockedScope> waiting;  // not while signal handlers run, below
        if (takes_long) waiting.emplace(engine.get(), self->kept.operation);
        engine->Wait(self->kept.operation, sleep_ms);
      }
      if (!operation.done() && PyErr_CheckSignals() != 0) return false;
    }
    self->engine.reset();
    Py_CLEAR(self->kept.source);
  }
  if (operation.status().ok()) return true;
  // Ctrl-C goes to all ranks. A rank that has got it, too, does not blame a rank that left because of it.
  if (PyErr_CheckSignals() == 0) SetCallError(operation.status());
  return false;
}

// Looks at some orphans at a time, in turn, so that one whose operation hangs keeps no other from being released.
void ReleaseOrphans(size_t most) {
  auto& orphans = Orphans();
  for (size_t looks = std::min(most, orphans.size()); looks > 0 && !orphans.empty(); --looks) {
    Kept orphan = std::move(orphans.front());
    orphans.pop_front();
    if (orphan.operation->done()) {
      orphan.Release();  // which may run Python, and so call this again
    } else {
      orphans.push_back(std::move(orphan));
    }
  }
}

}  // namespace farandole
