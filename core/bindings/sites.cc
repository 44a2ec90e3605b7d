// Finds where the user's program made the call that is being submitted, for messages: "train.py:12".
//
// Every submission needs a place, and hardly any message shows it. So Python (call_sites.py) finds each place once, and
// then it is known by its code object and position.
#include <functional>
#include <optional>
#include <unordered_map>

#include "bindings/bindings.h"

namespace farandole {
namespace {

constexpr size_t kMaxPlaces = 4096;  // a limit, since programs may keep generating code

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

using Place = std::optional<std::string>;  // nothing: not the user's

PyObject* g_place_function = nullptr;

std::unordered_map<Position, Place, HashPosition>& Places() {
  static auto* const places = new std::unordered_map<Position, Place, HashPosition>();
  return *places;
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
bool Ask(PyFrameObject* frame, PyFrameObject* callee, Place* place) {
  if (g_place_function == nullptr) return true;
  PyObject* const called = callee != nullptr ? reinterpret_cast<PyObject*>(callee) : Py_None;
  PyObject* const answer = PyObject_CallFunctionObjArgs(g_place_function, frame, called, nullptr);
  if (answer == nullptr) return false;
  if (PyUnicode_Check(answer)) {
    const char* const text = PyUnicode_AsUTF8(answer);
    if (text == nullptr) PyErr_Clear();  // a file name that is not valid UTF-8
    *place = text != nullptr ? text : "";
  }
  Py_DECREF(answer);
  return true;
}

void ForgetAll() {
  std::unordered_map<Position, Place, HashPosition> places;
  places.swap(Places());
  for (const auto& [position, place] : places) {
    Py_DECREF(position.code);
    Py_XDECREF(position.callee);
  }
}

// Like Ask, but asks only once for each place.
bool FindPlace(PyFrameObject* frame, PyFrameObject* callee, Place* place) {
  const Position position{PyFrame_GetCode(frame), InstructionOf(frame),
                          callee != nullptr ? PyFrame_GetCode(callee) : nullptr};
  const auto known = Places().find(position);
  bool found = true, kept = false;
  if (known != Places().end()) {
    *place = known->second;
  } else {
    if (Places().size() >= kMaxPlaces) ForgetAll();
    found = Ask(frame, callee, place);  // runs Python, which may call this again
    kept = found && Places().emplace(position, *place).second;
  }
  if (kept) return true;
  Py_DECREF(position.code);
  Py_XDECREF(position.callee);
  return found;
}

}  // namespace

void SetPlaceFunction(pybind11::object place) { g_place_function = place.release().ptr(); }

bool CallSite(int above, std::string* site) {
  Place place;
  bool found = true;
  PyFrameObject* callee = nullptr;
  for (PyFrameObject* frame = FrameAt(above); frame != nullptr;) {
    found = FindPlace(frame, callee, &place);
    PyFrameObject* const caller = found && !place ? PyFrame_GetBack(frame) : nullptr;
    Py_XDECREF(callee);
    callee = frame;
    frame = caller;
  }
  Py_XDECREF(callee);
  *site = place ? *std::move(place) : "";
  return found;
}

}  // namespace farandole
