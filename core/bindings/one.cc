#include "bindings/one.h"

#include <optional>

#include "bindings/arguments.h"
#include "bindings/errors.h"
#include "bindings/handle.h"
#include "bindings/memory.h"
#include "bindings/sites.h"
#include "engine/process.h"

namespace farandole {
namespace {

// Larger tensors take long to copy where the core does so at once: in a world of one rank, and in cells.
constexpr size_t kMostWithGil = 64 << 10;

constexpr int kTwoFrames = 2;  // a Submitter's method, and the public function that calls it

// An operation that has begun; null: it is over.
struct Begun {
  std::shared_ptr<Engine> engine;
  OperationPtr operation;
};

bool AreFive(Py_ssize_t count) {
  if (count != 5) PyErr_Format(PyExc_TypeError, "expected 5 arguments, not %zd", count);
  return count == 5;
}

// arguments: op, source, target, call, parameters. our_frames: see CallSite.
Look Begin(PyObject* const* arguments, int our_frames, bool will_wait, Begun* begun) {
  PyObject* const source = arguments[1];
  PyObject* const target = arguments[2];
  PyObject* const call = arguments[3];
  ReleaseOrphans();
  Dimensions dimensions;
  TensorView tensor;
  if (call != Py_None) {
    if (!ReadTensor(call, &dimensions, &tensor)) return Look::kError;
  } else if (const Look look = LookAtArrays(source, target, &dimensions, &tensor); look != Look::kFine) {
    return look;
  }
  RequestView request;
  request.tensors = {&tensor, 1};
  if (!ReadParameters(arguments[0], arguments[4], &request)) return Look::kError;
  std::string site;
  if (!CallSite(our_frames, &site)) return Look::kError;
  request.site = site;
  Status status;
  begun->engine = CurrentEngine(&status);
  if (begun->engine) status = SubmitTo(begun->engine.get(), request, &begun->operation, will_wait);
  if (status.ok()) return Look::kFine;
  SetCallError(status);
  return Look::kError;
}

PyObject* HandleOf(Begun begun, PyObject* const* arguments) {
  return NewHandle(std::move(begun.engine), std::move(begun.operation), arguments[1], arguments[2]);
}

PyObject* SubmitOne(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return WithoutCppExceptions([&]() -> PyObject* {
    if (!AreFive(count)) return nullptr;
    Begun begun;
    const Look look = Begin(arguments, kTwoFrames, /*will_wait=*/false, &begun);
    if (look == Look::kUnusable) Py_RETURN_NONE;
    return look == Look::kFine ? HandleOf(std::move(begun), arguments) : nullptr;
  });
}

PyObject* RunOne(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return WithoutCppExceptions([&]() -> PyObject* {
    if (!AreFive(count)) return nullptr;
    const Look look = RunNow(arguments, kTwoFrames);
    return look == Look::kError ? nullptr : PyBool_FromLong(look == Look::kFine);
  });
}

template <typename Function>
PyCFunction AsMethod(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef g_functions[] = {{"submit_one", AsMethod(&SubmitOne), METH_FASTCALL, nullptr},
                             {"run_one", AsMethod(&RunOne), METH_FASTCALL, nullptr},
                             {nullptr, nullptr, 0, nullptr}};

}  // namespace

Status SubmitTo(Engine* engine, const RequestView& view, OperationPtr* operation, bool will_wait) {
  std::optional<WithoutGil> scope;
  const TensorView& tensor = view.tensors[0];
  if (UncheckedCount(tensor.shape) * SizeOf(tensor.dtype) > kMostWithGil) scope.emplace();
  if (will_wait && engine->RunOrBegin(view, operation)) return Status::Ok();
  return engine->Submit(view, operation, will_wait);
}

Look RunNow(PyObject* const* arguments, int our_frames) {
  Begun begun;
  const Look look = Begin(arguments, our_frames, /*will_wait=*/true, &begun);
  if (look != Look::kFine || !begun.operation) return look;
  PyObject* const handle = HandleOf(std::move(begun), arguments);  // keeps both objects if Ctrl-C ends the wait
  if (handle == nullptr) return Look::kError;
  const bool fine = WaitFor(handle);
  Py_DECREF(handle);
  return fine ? Look::kFine : Look::kError;
}

bool AddOneTensorFunctions(PyObject* module) { return PyModule_AddFunctions(module, g_functions) == 0; }

}  // namespace farandole
