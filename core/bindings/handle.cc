#include "bindings/handle.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <new>
#include <optional>

#include "bindings/errors.h"
#include "bindings/output.h"
#include "engine/process.h"

namespace farandole {
namespace {

PyTypeObject* g_handle_type = nullptr;

// What must stay alive while the core reads and writes its memory.
struct Kept {
  OperationPtr operation;
  PyObject* source = nullptr;
  PyObject* result = nullptr;

  // The objects' destructors run Python, which may come back here.
  void Release() {
    Py_CLEAR(source);
    Py_CLEAR(result);
  }
};

// Held by the thread that calls the function of a handle. Others wait without the GIL.
class Turn {
 public:
  Turn() : lock_(PyThread_allocate_lock()) {}
  ~Turn() {
    if (lock_ != nullptr) PyThread_free_lock(lock_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // False and a Python error.
  bool Take() {
    if (lock_ == nullptr) return PyErr_NoMemory() != nullptr;
    if (holder_ == PyThread_get_thread_ident()) {
      PyErr_SetString(PyExc_RuntimeError, "the function given to map() waits for the handle that map() has returned");
      return false;
    }
    while (!TryTake()) {
      if (PyErr_CheckSignals() != 0) return false;
    }
    holder_ = PyThread_get_thread_ident();
    return true;
  }
  void GiveBack() {
    holder_ = PYTHREAD_INVALID_THREAD_ID;
    PyThread_release_lock(lock_);
  }

 private:
  bool TryTake() {
    const WithoutGil scope;
    return PyThread_acquire_lock_timed(lock_, kSignalIntervalMs * 1000, 0) == PY_LOCK_ACQUIRED;
  }

  const PyThread_type_lock lock_;
  unsigned long holder_ = PYTHREAD_INVALID_THREAD_ID;
};

// One that `map` made has an origin, which keeps what must stay alive, and a function, and no result until that was
// called.
struct PyHandle {
  PyObject_HEAD Kept kept;
  std::shared_ptr<Engine> engine;  // null once somebody has waited for it, or for one that was made from it
  PyObject* origin;
  PyObject* function;
  std::unique_ptr<Turn> turn;  // to call the function
};

PyHandle* From(PyObject* self) { return reinterpret_cast<PyHandle*>(self); }

PyHandle* Make(std::shared_ptr<Engine> engine, Kept kept) {
  PyHandle* const self = PyObject_New(PyHandle, g_handle_type);
  if (self == nullptr) return nullptr;
  Py_XINCREF(kept.source);
  Py_XINCREF(kept.result);
  new (&self->kept) Kept(std::move(kept));
  new (&self->engine) std::shared_ptr<Engine>(std::move(engine));
  new (&self->turn) std::unique_ptr<Turn>();
  self->origin = self->function = nullptr;
  return self;
}

// Of handles that were dropped before their operation was done. Looked through whenever something is submitted.
std::deque<Kept>& Orphans() {
  static auto* const orphans = new std::deque<Kept>();
  return *orphans;
}

void Destroy(PyObject* object) {
  PyHandle* const self = From(object);
  PyTypeObject* const type = Py_TYPE(object);
  if (self->kept.source != nullptr && !self->kept.operation->done()) {
    Orphans().push_back(std::move(self->kept));
  } else {
    self->kept.Release();
  }
  Py_CLEAR(self->origin);
  Py_CLEAR(self->function);
  self->kept.~Kept();
  self->engine.~shared_ptr();
  self->turn.~unique_ptr();
  PyObject_Free(object);
  Py_DECREF(type);
}

PyObject* Done(PyObject* object, PyObject*) {
  const PyHandle* const self = From(object);
  const bool polls = self->engine && CheckNotForked().ok();
  return PyBool_FromLong(polls ? self->engine->Poll(self->kept.operation) : self->kept.operation->done());
}

PyObject* Wait(PyObject* object, PyObject*);

// Unless another thread has done so meanwhile. False and a Python error: the function's.
bool Apply(PyHandle* self) {
  if (!self->turn->Take()) return false;
  if (self->function != nullptr) {
    PyObject* const value = Wait(self->origin, nullptr);
    PyObject* const result = value != nullptr ? PyObject_CallOneArg(self->function, value) : nullptr;
    Py_XDECREF(value);
    if (result != nullptr) {
      Py_XSETREF(self->kept.result, result);
      Py_CLEAR(self->function);
      Py_CLEAR(self->origin);
    }
  }
  self->turn->GiveBack();
  return self->kept.result != nullptr;
}

PyObject* Wait(PyObject* object, PyObject*) {
  PyHandle* const self = From(object);
  if (!WaitFor(object) || (self->function != nullptr && !Apply(self))) return nullptr;
  return Py_NewRef(self->kept.result);
}

PyObject* Map(PyObject* object, PyObject* function) {
  const PyHandle* const origin = From(object);
  PyHandle* const self = Make(origin->engine, {origin->kept.operation, nullptr, nullptr});
  if (self == nullptr) return nullptr;
  self->turn = std::make_unique<Turn>();
  self->origin = Py_NewRef(object);
  self->function = Py_NewRef(function);
  return reinterpret_cast<PyObject*>(self);
}

PyObject* Outputs(PyObject* self, PyObject*) {
  try {
    return ToPython(From(self)->kept.operation->outputs).release().ptr();
  } catch (pybind11::error_already_set& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  }
  return nullptr;
}

PyMethodDef g_methods[] = {{"done", &Done, METH_NOARGS, nullptr},
                           {"wait", &Wait, METH_NOARGS, nullptr},
                           {"map", &Map, METH_O, nullptr},
                           {"outputs", &Outputs, METH_NOARGS, nullptr},
                           {nullptr, nullptr, 0, nullptr}};

PyType_Slot g_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(&Destroy)}, {Py_tp_methods, g_methods}, {0, nullptr}};

PyType_Spec g_spec = {"farandole._core.Handle", sizeof(PyHandle), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, g_slots};

// The operation is over, so neither this handle nor those that it was made from need the engine or the source.
void LetGo(PyHandle* handle) {
  handle->engine.reset();
  PyObject* const origin = Py_XNewRef(handle->origin);  // the end of the source may run Python, which may drop it
  Py_CLEAR(handle->kept.source);
  if (origin != nullptr) LetGo(From(origin));
  Py_XDECREF(origin);
}

}  // namespace

bool AddHandleType(PyObject* module) {
  g_handle_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&g_spec));
  return g_handle_type != nullptr &&
         PyModule_AddObjectRef(module, "Handle", reinterpret_cast<PyObject*>(g_handle_type)) == 0;
}

PyObject* NewHandle(std::shared_ptr<Engine> engine, OperationPtr operation, PyObject* source, PyObject* result) {
  return reinterpret_cast<PyObject*>(Make(std::move(engine), {std::move(operation), source, result}));
}

bool WaitFor(PyObject* handle) {
  PyHandle* const self = From(handle);
  const Operation& operation = *self->kept.operation;
  if (const std::shared_ptr<Engine> engine = self->engine) {  // another thread may wait for the same handle
    if (const Status usable = CheckNotForked(); !usable.ok() && !operation.done()) {
      SetPythonError(usable);
      return false;
    }
    for (bool takes_long = false; !engine->Poll(self->kept.operation); takes_long = true) {
      {
        const WithoutGil scope;
        std::optional<Engine::OnlyWaiting> waiting;  // not while handlers of signals run, below
        if (takes_long) waiting.emplace(engine.get(), self->kept.operation);
        engine->Wait(self->kept.operation, kSignalIntervalMs);
      }
      if (!operation.done() && PyErr_CheckSignals() != 0) return false;
    }
    LetGo(self);
  }
  if (operation.status().ok()) return true;
  // Ctrl-C goes to all ranks: who has heard of it, too, does not blame one that has left because of it.
  if (PyErr_CheckSignals() == 0) SetPythonError(operation.status());
  return false;
}

// Some at a time, going round: one that is stuck keeps no other from being released.
void ReleaseOrphans(size_t most) {
  auto& orphans = Orphans();
  for (size_t looks = std::min(most, orphans.size()); looks > 0 && !orphans.empty(); --looks) {
    Kept orphan = std::move(orphans.front());
    orphans.pop_front();
    if (orphan.operation->done()) {
      orphan.Release();  // which may run Python, and so come here again
    } else {
      orphans.push_back(std::move(orphan));
    }
  }
}

}  // namespace farandole
