// Finds where the user's program made the call that is being submitted, for messages: "train.py:12".
//
// Every submission needs a site, and hardly any message shows it. So Python (call_sites.py) finds each site once, and
// then it is known by its code object and position.
#include <functional>
#include <optional>
#include <unordered_map>

#include "bindings/bindings.h"

namespace farandole {
namespace {

constexpr size_t kMaxSites = 4096;  // a limit, since programs may keep generating code

struct Position {
  PyCodeObject* code;  // a reference, so that no other code object gets its address
  int instruction;
  PyCodeObject* callee;  // likewise; null where it is not known

  bool operator==(const Position& other) const {
    return code == other.code && instruction == other.instruction && callee == other.callee;
  }
};

struct HashPosition {
  size_t operator()(const Position& position) const {
    return std::hash<void*>()(position.code) * 31 + static_cast<size_t>(position.instruction);
  }
};

using Site = std::optional<std::string>;  // nothing: not the user's

PyObject* g_site_function = nullptr;

std::unordered_map<Position, Site, HashPosition>& Sites() {
  static auto* const sites = new std::unordered_map<Position, Site, HashPosition>();
  return *sites;
}

int InstructionOf(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030b0000
  return PyFrame_GetLasti(frame);
#else
  return frame->f_lasti;
#endif
}

// Returns a new reference, or null.
PyFrameObject* FrameAt(int above) {
  if (above == 0) return PyThreadState_GetFrame(PyThreadState_Get());
  static PyObject* const get_frame = PySys_GetObject("_getframe");  // borrowed from sys, which lives longer
  PyObject* number = PyLong_FromLong(above);                        // a small number, which exists already
  PyObject* const frame = number != nullptr ? PyObject_Vectorcall(get_frame, &number, 1, nullptr) : nullptr;
  Py_XDECREF(number);
  if (frame == nullptr) PyErr_Clear();
  return reinterpret_cast<PyFrameObject*>(frame);
}

// Returns false with a Python error set. The function itself raises nothing, but Python may run signal handlers in it.
bool Ask(PyFrameObject* frame, PyFrameObject* callee, Site* site) {
  if (g_site_function == nullptr) return true;
  PyObject* const called = callee != nullptr ? reinterpret_cast<PyObject*>(callee) : Py_None;
  PyObject* const answer = PyObject_CallFunctionObjArgs(g_site_function, frame, called, nullptr);
  if (answer == nullptr) return false;
  if (PyUnicode_Check(answer)) {
    const char* const text = PyUnicode_AsUTF8(answer);
    if (text == nullptr) PyErr_Clear();  // a file name that is not valid UTF-8
    *site = text != nullptr ? text : "";
  }
  Py_DECREF(answer);
  return true;
}

void ForgetAll() {
  std::unordered_map<Position, Site, HashPosition> sites;
  sites.swap(Sites());
  for (const auto& [position, site] : sites) {
    Py_DECREF(position.code);
    Py_XDECREF(position.callee);
  }
}

// Like Ask, but asks only once for each site.
bool FindSite(PyFrameObject* frame, PyFrameObject* callee, Site* site) {
  const Position position{PyFrame_GetCode(frame), InstructionOf(frame),
                          callee != nullptr ? PyFrame_GetCode(callee) : nullptr};
  const auto known = Sites().find(position);
  bool found = true, kept = false;
  if (known != Sites().end()) {
    *site = known->second;
  } else {
    if (Sites().size() >= kMaxSites) ForgetAll();
    found = Ask(frame, callee, site);  // runs Python, which may call this again
    kept = found && Sites().emplace(position, *site).second;
  }
  if (kept) return true;
  Py_DECREF(position.code);
  Py_XDECREF(position.callee);
  return found;
}

}  // namespace

void SetSiteFunction(pybind11::object site) { g_site_function = site.release().ptr(); }

bool CallSite(int above, std::string* site) {
  Site found_site;
  bool found = true;
  PyFrameObject* callee = nullptr;
  for (PyFrameObject* frame = FrameAt(above); frame != nullptr;) {
    found = FindSite(frame, callee, &found_site);
    PyFrameObject* const caller = found && !found_site ? PyFrame_GetBack(frame) : nullptr;
    Py_XDECREF(callee);
    callee = frame;
    frame = caller;
  }
  Py_XDECREF(callee);
  *site = found_site ? *std::move(found_site) : "";
  return found;
}

}  // namespace farandole
