// Declares what the files of this folder share. _core.pyi documents what Python sees.
//
// Thread safety: all functions need the GIL, and release it while they wait.
#pragma once

#include <pybind11/pybind11.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/types.h"
#include "engine/engine.h"
#include "operation/request.h"

namespace farandole {

constexpr int64_t kSignalIntervalMs = 100;  // of waiting, between two checks for signals (Ctrl-C)

// Releases the GIL for a scope.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

// A function of any signature for a table of methods.
template <typename Function>
PyCFunction AsMethod(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// ---- errors (conversions.cc)

// Sets the exception class for each Code.
void SetErrorTypes(const std::map<int, pybind11::object>& types);

// Sets the exception, for a caller that returns null, as Python's own C functions do.
void SetPythonError(const Status& status);
// Does the same for a call that has reached the engine, so that Python need not refuse it (_api/refusals.py).
void SetCallError(const Status& status);
// Likewise of the C++ exception that is being handled. Python calls our functions from C, so each ends in
//
//   } catch (const std::exception&) {
//     return SetCaughtError();
//   }
//
// and lets everything else pass: when the interpreter ends, Python unwinds each thread that asks for the GIL.
PyObject* SetCaughtError();  // null
// Throws the exception, as pybind11 does.
[[noreturn]] void Raise(const Status& status);
inline void RaiseIfError(const Status& status) {
  if (!status.ok()) Raise(status);
}

// ---- arguments of calls (conversions.cc)

template <typename Enumeration>
Status ToEnumeration(int value, int count, const char* what, Enumeration* result) {
  if (value < 0 || value >= count) return Invalid("unknown ", what, " ", value);
  *result = static_cast<Enumeration>(value);
  return Status::Ok();
}

// The dimensions of a tensor, while its view points at them.
class Dimensions {
 public:
  Span<int64_t> Take(size_t count) {
    if (count > kFew) many_.resize(count);
    return {count > kFew ? many_.data() : few_, count};
  }

 private:
  static constexpr size_t kFew = 8;
  int64_t few_[kFew];
  std::vector<int64_t> many_;
};

// Reads one tensor of a call: (address to read, address to write, dtype, shape[, device, ready event]). Returns false
// with a Python error set on failure.
bool ReadTensor(PyObject* call, Dimensions* dimensions, TensorView* tensor);
// Reads the kind of an operation and its `parameters`, (name, reduce, root, prescale, postscale, process set), into the
// view, which points into them. Returns false with a Python error set.
bool ReadParameters(PyObject* op, PyObject* parameters, RequestView* request);

// How a look at Python's objects ended.
enum class Look { kFine, kUnusable, kError };  // kError: a Python error is set

// Describes an operation from `source` into `target` as a tensor (memory.cc). kUnusable where they are not of one type,
// element type and shape, or not contiguous memory of the host. The memory is that of the objects, and lives as long as
// they.
Look LookAtArrays(PyObject* source, PyObject* target, Dimensions* dimensions, TensorView* tensor);

// ---- places in the user's program (sites.cc)

// `place(frame, callee)`: "train.py:12", or "save_checkpoint at train.py:12"; None for a frame outside the user's
// program. `callee`: the frame that it has called; None where only an operation of that name can be.
void SetSiteFunction(pybind11::object place);
// map(handle, function): what `Handle.map` returns.
void SetMapFunction(pybind11::object map);
// Sets *site to the place of the nearest frame of the user's program; "" where there is none. `above`: how many frames
// to skip, which are Farandole's. Returns false with a Python error set, from a signal handler that ran meanwhile
// (Ctrl-C, for example).
bool CallSite(int above, std::string* site);

// ---- handles (handle.cc)

// Makes a handle. It keeps both objects alive until the operation is done, even if it is dropped before, and its wait()
// returns `result`.
PyObject* NewHandle(std::shared_ptr<Engine> engine, OperationPtr operation, PyObject* source, PyObject* result);
// Returns false with a Python error set, from a signal handler or the operation, or since the time is up. limit_ms: of
// this wait; 0: that of the operation's process set.
bool WaitFor(PyObject* handle, int64_t limit_ms = 0);
// Releases what handles kept that were dropped before their operation was done; looks at `most` of them.
void ReleaseOrphans(size_t most = 8);

// ---- parts of the module. The first two return false with a Python error set when there is no memory.

bool AddHandleType(PyObject* module);
bool AddCalls(PyObject* module);
void AddOutputType(pybind11::module_* module);
void AddMessages(pybind11::module_* module);
void AddDiagnosisFunctions(pybind11::module_* module);

}  // namespace farandole
