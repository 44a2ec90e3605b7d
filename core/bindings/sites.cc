#include "bindings/sites.h"

#include <functional>
#include <optional>
#include <unordered_map>

namespace farandole {
namespace {

constexpr size_t kMostPlaces = 4096;  // a limit, since programs may keep generating code

struct Position {
  PyCodeObject* code;  // a reference, so that no other code object gets its address
  int instruction;

  bool operator==(const Position& other) const { return code == other.code && instruction == other.instruction; }
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
bool Ask(PyFrameObject* frame, Place* place) {
  if (g_place_function == nullptr) return true;
  PyObject* const answer = PyObject_CallOneArg(g_place_function, reinterpret_cast<PyObject*>(frame));
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
  for (const auto& [position, place] : places) Py_DECREF(position.code);
}

// Like Ask, but asks only once for each place.
bool FindPlace(PyFrameObject* frame, Place* place) {
  PyCodeObject* const code = PyFrame_GetCode(frame);
  const Position position{code, InstructionOf(frame)};
  const auto known = Places().find(position);
  if (known != Places().end()) {
    Py_DECREF(code);
    *place = known->second;
    return true;
  }
  if (Places().size() >= kMostPlaces) ForgetAll();
  const bool found = Ask(frame, place);  // runs Python, which may call this again
  if (!found || !Places().emplace(position, *place).second) Py_DECREF(code);
  return found;
}

}  // namespace

void SetPlaceFunction(pybind11::object place) { g_place_function = place.release().ptr(); }

bool CallSite(int above, std::string* site) {
  Place place;
  bool found = true;
  for (PyFrameObject* frame = FrameAt(above); frame != nullptr;) {
    found = FindPlace(frame, &place);
    PyFrameObject* const caller = found && !place ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = caller;
  }
  *site = place ? *std::move(place) : "";
  return found;
}

}  // namespace farandole
