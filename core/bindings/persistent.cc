#include "bindings/persistent.h"

#include <structmember.h>

#include <cstddef>
#include <new>
#include <string>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/errors.h"
#include "bindings/handle.h"
#include "bindings/one.h"
#include "bindings/sites.h"
#include "engine/process.h"

namespace farandole {
namespace {

constexpr int kNoFrames = 0;  // the user's own code calls it

struct Prepared {
  RequestFields fields;
  TensorFields tensor;
  std::vector<int64_t> shape;
  std::string name;
};

struct PyPersistent {
  PyObject_HEAD vectorcallfunc call;
  PyObject* tensor;  // what a call returns
  PyObject* keep;    // keeps the memory where it is
  Prepared prepared;
};

PyPersistent* PersistentOf(PyObject* self) { return reinterpret_cast<PyPersistent*>(self); }

// Begins the operation once more. *operation is null where it is over already.
bool BeginAgain(PyPersistent* self, bool will_wait, std::shared_ptr<Engine>* engine, OperationPtr* operation) {
  ReleaseOrphans();
  TensorView tensor;
  static_cast<TensorFields&>(tensor) = self->prepared.tensor;
  tensor.shape = {self->prepared.shape.data(), self->prepared.shape.size()};
  RequestView request;
  static_cast<RequestFields&>(request) = self->prepared.fields;
  request.tensors = {&tensor, 1};
  request.name = self->prepared.name;
  std::string site;
  if (!CallSite(kNoFrames, &site)) return false;
  request.site = site;
  Status status;
  *engine = CurrentEngine(&status);
  if (*engine) status = SubmitTo(engine->get(), request, operation, will_wait);
  if (!status.ok()) SetCallError(status);
  return status.ok();
}

PyObject* StartAgain(PyObject* object, PyObject*) {
  return WithoutCppExceptions([object]() -> PyObject* {
    PyPersistent* const self = PersistentOf(object);
    std::shared_ptr<Engine> engine;
    OperationPtr operation;
    if (!BeginAgain(self, /*will_wait=*/false, &engine, &operation)) return nullptr;
    return NewHandle(std::move(engine), std::move(operation), self->keep, self->tensor);
  });
}

PyObject* CallAgain(PyObject* object, PyObject* const*, size_t count, PyObject* names) {
  return WithoutCppExceptions([&]() -> PyObject* {
    if (PyVectorcall_NARGS(count) != 0 || (names != nullptr && PyTuple_GET_SIZE(names) != 0)) {
      PyErr_SetString(PyExc_TypeError, "a persistent operation takes no arguments: they were given when it was made");
      return nullptr;
    }
    PyPersistent* const self = PersistentOf(object);
    std::shared_ptr<Engine> engine;
    OperationPtr operation;
    if (!BeginAgain(self, /*will_wait=*/true, &engine, &operation)) return nullptr;
    if (operation) {
      PyObject* const handle = NewHandle(std::move(engine), std::move(operation), self->keep, self->tensor);
      if (handle == nullptr) return nullptr;
      const bool fine = WaitFor(handle);
      Py_DECREF(handle);
      if (!fine) return nullptr;
    }
    return Py_NewRef(self->tensor);
  });
}

void DestroyPersistent(PyObject* object) {
  PyPersistent* const self = PersistentOf(object);
  PyTypeObject* const type = Py_TYPE(object);
  Py_CLEAR(self->tensor);
  Py_CLEAR(self->keep);
  self->prepared.~Prepared();
  PyObject_Free(object);
  Py_DECREF(type);
}

bool ReadAll(PyObject* const* arguments, Prepared* prepared) {
  Dimensions dimensions;
  TensorView tensor;
  RequestView request;
  if (!ReadTensor(arguments[3], &dimensions, &tensor)) return false;
  if (!ReadParameters(arguments[0], arguments[4], &request)) return false;
  prepared->fields = request;
  prepared->tensor = tensor;
  prepared->shape.assign(tensor.shape.begin(), tensor.shape.end());
  prepared->name = request.name;
  return true;
}

PyTypeObject* g_persistent_type = nullptr;

// arguments: op, tensor, keep, call, parameters.
PyObject* PrepareOne(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return WithoutCppExceptions([&]() -> PyObject* {
    if (count != 5) return PyErr_Format(PyExc_TypeError, "expected 5 arguments, not %zd", count);
    Prepared prepared;
    if (!ReadAll(arguments, &prepared)) return nullptr;
    PyPersistent* const self = PyObject_New(PyPersistent, g_persistent_type);
    if (self == nullptr) return nullptr;
    self->call = &CallAgain;
    self->tensor = Py_NewRef(arguments[1]);
    self->keep = Py_NewRef(arguments[2]);
    new (&self->prepared) Prepared(std::move(prepared));
    return reinterpret_cast<PyObject*>(self);
  });
}

PyMethodDef g_persistent_methods[] = {{"start", &StartAgain, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};

PyMemberDef g_persistent_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(PyPersistent, call), READONLY, nullptr},
    {"tensor", T_OBJECT_EX, offsetof(PyPersistent, tensor), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot g_persistent_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(&DestroyPersistent)},
                                    {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
                                    {Py_tp_methods, g_persistent_methods},
                                    {Py_tp_members, g_persistent_members},
                                    {0, nullptr}};

PyType_Spec g_persistent_spec = {"farandole._core.Persistent", sizeof(PyPersistent), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_VECTORCALL,
                                 g_persistent_slots};

PyMethodDef g_persistent_functions[] = {
    {"prepare", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&PrepareOne)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool AddPersistentType(PyObject* module) {
  g_persistent_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&g_persistent_spec));
  return g_persistent_type != nullptr &&
         PyModule_AddObjectRef(module, "Persistent", reinterpret_cast<PyObject*>(g_persistent_type)) == 0 &&
         PyModule_AddFunctions(module, g_persistent_functions) == 0;
}

}  // namespace farandole
