// Calls of one tensor: `submit_one`, `run_one`, `prepare` and `carry` of _core.pyi.
//
//   submit_one, run_one   called for every gradient
//   prepare               reads once from Python's objects what run_one reads in each call; returns a Persistent
//   carry                 run_one for a library that Farandole carries, such as torch.distributed: takes the place of a
//                         method of a process group. The frames of a function in Python would take longer than the
//                         operation
//
// pybind11 takes several times as long as a small operation to convert a call's twelve arguments and to make the
// handle. So these functions are written against Python's C interface.
#include "bindings/bindings.h"

#include <structmember.h>

#include <cstddef>
#include <memory>
#include <new>
#include <optional>

#include "engine/process.h"

namespace farandole {
namespace {

// Larger tensors take long to copy where the core does so at once: in a world of one rank, and in slots.
constexpr size_t kMaxWithGil = 64 << 10;

// How many frames of Farandole's have called, see CallSite.
constexpr int kTwoFrames = 2;  // a Submitter's method, and the public function that calls it
constexpr int kNoFrames = 0;   // the user's own code calls, or a library's

// A call of one tensor. `request` points at the other members and into Python's objects.
struct Call {
  Dimensions dimensions;
  TensorView tensor;
  RequestView request;
  std::string site;
};

bool CheckFiveArguments(Py_ssize_t count) {
  if (count != 5) PyErr_Format(PyExc_TypeError, "expected 5 arguments, not %zd", count);
  return count == 5;
}

// arguments: op, source, target, the tensor of ReadTensor or None, parameters.
Look ReadCall(PyObject* const* arguments, int our_frames, Call* call) {
  if (arguments[3] != Py_None) {
    if (!ReadTensor(arguments[3], &call->dimensions, &call->tensor)) return Look::kError;
  } else if (const Look look = LookAtArrays(arguments[1], arguments[2], &call->dimensions, &call->tensor);
             look != Look::kFine) {
    return look;
  }
  call->request.tensors = {&call->tensor, 1};
  if (!ReadParameters(arguments[0], arguments[4], &call->request)) return Look::kError;
  if (!CallSite(our_frames, &call->site)) return Look::kError;
  call->request.site = call->site;
  return Look::kFine;
}

// Releases the GIL for a scope, if the tensor is large. Nothing that holds the core's locks needs the GIL.
std::optional<WithoutGil> WithoutGilIfLarge(const TensorView& tensor) {
  if (UncheckedCount(tensor.shape) * SizeOf(tensor.dtype) <= kMaxWithGil) return std::nullopt;
  return std::optional<WithoutGil>(std::in_place);
}

// Begins the operation, and returns a handle, or null with a Python error set. Never waits for other ranks.
PyObject* Start(const RequestView& request, PyObject* source, PyObject* result) {
  OperationPtr operation;
  Status status;
  std::shared_ptr<Engine> engine = CurrentEngine(&status);
  if (engine) {
    const auto scope = WithoutGilIfLarge(request.tensors[0]);
    status = engine->Submit(request, &operation);
  }
  if (status.ok()) return NewHandle(std::move(engine), std::move(operation), source, result);
  SetCallError(status);
  return nullptr;
}

// Performs the operation. Returns false with a Python error set.
bool Run(const RequestView& request, PyObject* source, PyObject* result) {
  OperationPtr operation;  // stays null where the other ranks come within the first looks
  Status status;
  std::shared_ptr<Engine> engine = CurrentEngine(&status);
  if (engine) {
    const auto scope = WithoutGilIfLarge(request.tensors[0]);
    if (!engine->RunOrBegin(request, &operation)) status = engine->Submit(request, &operation, /*will_wait=*/true);
  }
  if (!status.ok()) SetCallError(status);
  if (!operation) return status.ok();
  // A handle, since it keeps both objects if Ctrl-C ends the wait.
  PyObject* const handle = NewHandle(std::move(engine), std::move(operation), source, result);
  if (handle == nullptr) return false;
  const bool fine = WaitFor(handle);
  Py_DECREF(handle);
  return fine;
}

PyObject* SubmitOne(PyObject*, PyObject* const* arguments, Py_ssize_t count) try {
  if (!CheckFiveArguments(count)) return nullptr;
  ReleaseOrphans();
  Call call;
  const Look look = ReadCall(arguments, kTwoFrames, &call);
  if (look == Look::kUnusable) Py_RETURN_NONE;
  return look == Look::kFine ? Start(call.request, arguments[1], arguments[2]) : nullptr;
} catch (const std::exception&) {
  return SetCaughtError();
}

template <int kOurFrames>
PyObject* RunOne(PyObject*, PyObject* const* arguments, Py_ssize_t count) try {
  if (!CheckFiveArguments(count)) return nullptr;
  ReleaseOrphans();
  Call call;
  const Look look = ReadCall(arguments, kOurFrames, &call);
  if (look == Look::kUnusable) Py_RETURN_FALSE;
  if (look == Look::kError || !Run(call.request, arguments[1], arguments[2])) return nullptr;
  Py_RETURN_TRUE;
} catch (const std::exception&) {
  return SetCaughtError();
}

// ---- prepared calls

struct PyPersistent {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* tensor;            // what a call returns
  PyObject* keep;              // keeps the memory where it is
  PyObject* parameters;        // has the name
  std::unique_ptr<Call> call;  // without a site
};

PyTypeObject* g_persistent_type = nullptr;

PyPersistent* PersistentOf(PyObject* self) { return reinterpret_cast<PyPersistent*>(self); }

// Fills in the place of this call. Returns false with a Python error set.
bool Prepare(const PyPersistent& self, RequestView* request, std::string* site) {
  ReleaseOrphans();
  *request = self.call->request;
  if (!CallSite(kNoFrames, site)) return false;
  request->site = *site;
  return true;
}

PyObject* StartPersistent(PyObject* object, PyObject*) try {
  const PyPersistent& self = *PersistentOf(object);
  RequestView request;
  std::string site;
  return Prepare(self, &request, &site) ? Start(request, self.keep, self.tensor) : nullptr;
} catch (const std::exception&) {
  return SetCaughtError();
}

PyObject* RunPersistent(PyObject* object, PyObject* const*, size_t count, PyObject* names) try {
  if (PyVectorcall_NARGS(count) != 0 || (names != nullptr && PyTuple_GET_SIZE(names) != 0)) {
    PyErr_SetString(PyExc_TypeError, "a persistent operation takes no arguments: they were given when it was made");
    return nullptr;
  }
  const PyPersistent& self = *PersistentOf(object);
  RequestView request;
  std::string site;
  return Prepare(self, &request, &site) && Run(request, self.keep, self.tensor) ? Py_NewRef(self.tensor) : nullptr;
} catch (const std::exception&) {
  return SetCaughtError();
}

void DestroyPersistent(PyObject* object) {
  PyPersistent* const self = PersistentOf(object);
  PyTypeObject* const type = Py_TYPE(object);
  Py_CLEAR(self->tensor);
  Py_CLEAR(self->keep);
  Py_CLEAR(self->parameters);
  self->call.~unique_ptr();
  PyObject_Free(object);
  Py_DECREF(type);
}

// arguments: op, tensor, keep, the tensor of ReadTensor, parameters.
PyObject* PrepareOne(PyObject*, PyObject* const* arguments, Py_ssize_t count) try {
  if (!CheckFiveArguments(count)) return nullptr;
  auto made = std::make_unique<Call>();
  PyPersistent* const self = PyObject_New(PyPersistent, g_persistent_type);
  if (self == nullptr) return nullptr;
  new (&self->call) std::unique_ptr<Call>(std::move(made));
  const auto object = pybind11::reinterpret_steal<pybind11::object>(reinterpret_cast<PyObject*>(self));
  self->vectorcall = &RunPersistent;
  self->tensor = Py_NewRef(arguments[1]);
  self->keep = Py_NewRef(arguments[2]);
  self->parameters = Py_NewRef(arguments[4]);
  Call& call = *self->call;
  call.request.tensors = {&call.tensor, 1};
  const bool read = ReadTensor(arguments[3], &call.dimensions, &call.tensor) &&
                    ReadParameters(arguments[0], arguments[4], &call.request);
  return read ? Py_NewRef(object.ptr()) : nullptr;
} catch (const std::exception&) {
  return SetCaughtError();
}

PyMethodDef g_persistent_methods[] = {{"start", &StartPersistent, METH_NOARGS, nullptr},
                                      {nullptr, nullptr, 0, nullptr}};

PyMemberDef g_persistent_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(PyPersistent, vectorcall), READONLY, nullptr},
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

// ---- calls of a library that Farandole carries

// A reference that ends with the block.
using Owned = pybind11::object;

Owned Steal(PyObject* object) { return pybind11::reinterpret_steal<Owned>(object); }
Owned Borrow(PyObject* object) { return pybind11::reinterpret_borrow<Owned>(object); }

// The tuple that `carry` gets first.
struct Terms {
  enum Place { kKind, kArrayType, kIsProfiled, kWaits, kParameters, kWanted, kImage, kOtherwise, kCount };

  PyObject* at(Place place) const { return PyTuple_GET_ITEM(tuple, place); }

  PyObject* tuple;
};

// Answers to a question to Python; kRaised: a Python error is set.
enum class Answer { kNo, kYes, kRaised };

Answer ToAnswer(int truth) { return truth < 0 ? Answer::kRaised : truth > 0 ? Answer::kYes : Answer::kNo; }

Answer Not(Answer answer) {
  if (answer == Answer::kRaised) return answer;
  return answer == Answer::kNo ? Answer::kYes : Answer::kNo;
}

Answer TruthOf(PyObject* returned) {
  const Owned answer = Steal(returned);
  return answer ? ToAnswer(PyObject_IsTrue(answer.ptr())) : Answer::kRaised;
}

// What lies in objects of one class that have every wanted value; a tuple.
struct Image {
  enum Place { kType, kPointerAt, kOffsets, kBytes, kCount };

  bool fits(PyObject* object) const {
    return tuple != Py_None && reinterpret_cast<PyObject*>(Py_TYPE(object)) == PyTuple_GET_ITEM(tuple, kType);
  }
  // REQUIRES: fits.
  bool is_in(PyObject* object) const {
    const char* const address = reinterpret_cast<const char*>(object) + PyLong_AsSsize_t(at(kPointerAt));
    const char* const memory = *reinterpret_cast<const char* const*>(address);
    if (memory == nullptr) return false;
    const char* const bytes = PyBytes_AS_STRING(at(kBytes));
    for (Py_ssize_t i = 0; i < PyBytes_GET_SIZE(at(kBytes)); ++i) {
      if (memory[static_cast<unsigned char>(PyBytes_AS_STRING(at(kOffsets))[i])] != bytes[i]) return false;
    }
    return true;
  }
  PyObject* at(Place place) const { return PyTuple_GET_ITEM(tuple, place); }

  PyObject* tuple;
};

// Returns whether the options have every wanted value. Options without such an attribute do not. To read and compare
// two attributes of a class of pybind11's takes three times as long as a small operation, hence the image.
Answer AreWanted(PyObject* options, PyObject* wanted, const Image& image) {
  if (image.fits(options)) return image.is_in(options) ? Answer::kYes : Answer::kNo;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(wanted); ++i) {
    PyObject* const pair = PyTuple_GET_ITEM(wanted, i);
    const Owned value = Steal(PyObject_GetAttr(options, PyTuple_GET_ITEM(pair, 0)));
    if (!value) {
      if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return Answer::kRaised;
      PyErr_Clear();
      return Answer::kNo;
    }
    const Answer equal = ToAnswer(PyObject_RichCompareBool(value.ptr(), PyTuple_GET_ITEM(pair, 1), Py_EQ));
    if (equal != Answer::kYes) return equal;
  }
  return Answer::kYes;
}

// Returns whether a call of this one tensor goes the short way, if its memory can be used.
Answer IsShort(const Terms& terms, PyObject* tensor, PyObject* options) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(tensor)) != terms.at(Terms::kArrayType)) return Answer::kNo;
  if (PyList_GET_SIZE(terms.at(Terms::kWaits)) != 0) return Answer::kNo;
  if (const Answer wanted = AreWanted(options, terms.at(Terms::kWanted), {terms.at(Terms::kImage)});
      wanted != Answer::kYes)
    return wanted;
  return Not(TruthOf(PyObject_CallNoArgs(terms.at(Terms::kIsProfiled))));
}

// Performs the call if it goes the short way. kUnusable if it does not.
Look TryShort(const Terms& terms, PyObject* tensors, PyObject* options) {
  if (!PyList_CheckExact(tensors) || PyList_GET_SIZE(tensors) != 1) return Look::kUnusable;
  const Owned tensor = Borrow(PyList_GET_ITEM(tensors, 0));  // Python, which is asked, may change the list
  const Answer answer = IsShort(terms, tensor.ptr(), options);
  if (answer != Answer::kYes) return answer == Answer::kNo ? Look::kUnusable : Look::kError;
  PyObject* const given = terms.at(Terms::kParameters);
  const Owned parameters = PyTuple_Check(given) ? Borrow(given) : Steal(PyObject_CallNoArgs(given));
  if (!parameters) return Look::kError;
  PyObject* const arguments[] = {terms.at(Terms::kKind), tensor.ptr(), tensor.ptr(), Py_None, parameters.ptr()};
  const Owned done = Steal(RunOne<kNoFrames>(nullptr, arguments, 5));
  if (!done) return Look::kError;
  return done.ptr() == Py_True ? Look::kFine : Look::kUnusable;
}

// arguments: the terms, and what the library gives: the tensors and the options, if it is a call for the short way.
PyObject* Carry(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* names) try {
  if (count < 1 || !PyTuple_Check(arguments[0]) || PyTuple_GET_SIZE(arguments[0]) != Terms::kCount)
    return PyErr_Format(PyExc_TypeError, "expected the terms first");
  const Terms terms{arguments[0]};
  const bool has_two = count == 3 && names == nullptr;
  const Look look = has_two ? TryShort(terms, arguments[1], arguments[2]) : Look::kUnusable;
  if (look == Look::kError) return nullptr;
  if (look == Look::kFine) Py_RETURN_NONE;
  return PyObject_Vectorcall(terms.at(Terms::kOtherwise), arguments + 1, static_cast<size_t>(count - 1), names);
} catch (const std::exception&) {
  return SetCaughtError();
}

// ---- the module

PyMethodDef g_functions[] = {{"submit_one", AsMethod(&SubmitOne), METH_FASTCALL, nullptr},
                             {"run_one", AsMethod(&RunOne<kTwoFrames>), METH_FASTCALL, nullptr},
                             {"prepare", AsMethod(&PrepareOne), METH_FASTCALL, nullptr},
                             {"carry", AsMethod(&Carry), METH_FASTCALL | METH_KEYWORDS, nullptr},
                             {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool AddCalls(PyObject* module) {
  g_persistent_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&g_persistent_spec));
  return g_persistent_type != nullptr &&
         PyModule_AddObjectRef(module, "Persistent", reinterpret_cast<PyObject*>(g_persistent_type)) == 0 &&
         PyModule_AddFunctions(module, g_functions) == 0;
}

}  // namespace farandole
