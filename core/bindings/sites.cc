#include "bindings/sites.h"

#include <functional>
#include <optional>
#include <unordered_map>

namespace farandole {
namespace {

constexpr size_t kMostPlaces = 4096;  // programs that make code as they go must not grow by it

struct Position {
  PyCodeObject* code;  // owned by Places(), or another one could get its address
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

// A new reference, or null.
PyFrameObject* FrameAt(int above) {
  static PyObject* const get_frame = PySys_GetObject("_getframe");  // borrowed from sys, which outlives us
  PyObject* number = PyLong_FromLong(above);                        // a small one, which is there already
  PyObject* const frame = number != nullptr ? PyObject_Vectorcall(get_frame, &number, 1, nullptr) : nullptr;
  Py_XDECREF(number);
  if (frame == nullptr) PyErr_Clear();
  return reinterpret_cast<PyFrameObject*>(frame);
}

Place Ask(PyFrameObject* frame) {
  Place place;
  PyObject* const answer =
      g_place_function != nullptr ? PyObject_CallOneArg(g_place_function, reinterpret_cast<PyObject*>(frame)) : nullptr;
  if (answer != nullptr && PyUnicode_Check(answer)) {
    const char* const text = PyUnicode_AsUTF8(answer);
    place = text != nullptr ? text : "";
  }
  Py_XDECREF(answer);
  PyErr_Clear();
  return place;
}

void ForgetAll() {
  std::unordered_map<Position, Place, HashPosition> places;
  places.swap(Places());
  for (const auto& [position, place] : places) Py_DECREF(position.code);
}

Place PlaceOf(PyFrameObject* frame) {
  PyCodeObject* const code = PyFrame_GetCode(frame);
  const Position position{code, InstructionOf(frame)};
  const auto known = Places().find(position);
  if (known != Places().end()) {
    Py_DECREF(code);
    return known->second;
  }
  if (Places().size() >= kMostPlaces) ForgetAll();
  Place place = Ask(frame);  // runs Python, which may come back here
  if (!Places().emplace(position, place).second) Py_DECREF(code);
  return place;
}

}  // namespace

void SetPlaceFunction(pybind11::object place) { g_place_function = place.release().ptr(); }

std::string CallSite(int above) {
  PyFrameObject* frame = FrameAt(above);
  while (frame != nullptr) {
    Place place = PlaceOf(frame);
    PyFrameObject* const caller = place ? nullptr : PyFrame_GetBack(frame);
    Py_DECREF(frame);
    if (place) return *std::move(place);
    frame = caller;
  }
  return "";
}

}  // namespace farandole
