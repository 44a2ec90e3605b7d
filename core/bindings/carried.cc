#include "bindings/carried.h"

#include "bindings/errors.h"
#include "bindings/one.h"

namespace farandole {
namespace {

constexpr int kNoFrames = 0;  // the library's own code calls it

// A reference that ends with the block.
using Owned = pybind11::object;

Owned Steal(PyObject* object) { return pybind11::reinterpret_steal<Owned>(object); }
Owned Borrow(PyObject* object) { return pybind11::reinterpret_borrow<Owned>(object); }

// The tuple that `carry` gets first.
struct Terms {
  enum Place { kKind, kArrayType, kIsProfiled, kWaits, kParameters, kWanted, kOtherwise, kCount };

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

// Returns whether the options have every wanted value. Options without such an attribute do not.
Answer AreWanted(PyObject* options, PyObject* wanted) {
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
  if (const Answer wanted = AreWanted(options, terms.at(Terms::kWanted)); wanted != Answer::kYes) return wanted;
  return Not(TruthOf(PyObject_CallNoArgs(terms.at(Terms::kIsProfiled))));
}

Look Perform(const Terms& terms, PyObject* tensor) {
  PyObject* const given = terms.at(Terms::kParameters);
  const Owned parameters = PyTuple_Check(given) ? Borrow(given) : Steal(PyObject_CallNoArgs(given));
  if (!parameters) return Look::kError;
  PyObject* const arguments[] = {terms.at(Terms::kKind), tensor, tensor, Py_None, parameters.ptr()};
  return RunNow(arguments, kNoFrames);
}

Look TryShort(const Terms& terms, PyObject* tensors, PyObject* options) {
  if (!PyList_CheckExact(tensors) || PyList_GET_SIZE(tensors) != 1) return Look::kUnusable;
  const Owned tensor = Borrow(PyList_GET_ITEM(tensors, 0));  // Python, which is asked, may change the list
  const Answer answer = IsShort(terms, tensor.ptr(), options);
  if (answer == Answer::kRaised) return Look::kError;
  return answer == Answer::kYes ? Perform(terms, tensor.ptr()) : Look::kUnusable;
}

// arguments: the terms, and what the library gives: the tensors and the options, if it is a call for the short way.
PyObject* Carry(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  return WithoutCppExceptions([&]() -> PyObject* {
    if (count < 1 || !PyTuple_Check(arguments[0]) || PyTuple_GET_SIZE(arguments[0]) != Terms::kCount)
      return PyErr_Format(PyExc_TypeError, "expected the terms first");
    const Terms terms{arguments[0]};
    const bool has_two = count == 3 && names == nullptr;
    const Look look = has_two ? TryShort(terms, arguments[1], arguments[2]) : Look::kUnusable;
    if (look == Look::kError) return nullptr;
    if (look == Look::kFine) Py_RETURN_NONE;
    return PyObject_Vectorcall(terms.at(Terms::kOtherwise), arguments + 1, static_cast<size_t>(count - 1), names);
  });
}

PyMethodDef g_carry_functions[] = {{"carry", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&Carry)),
                                    METH_FASTCALL | METH_KEYWORDS, nullptr},
                                   {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool AddCarryFunction(PyObject* module) { return PyModule_AddFunctions(module, g_carry_functions) == 0; }

}  // namespace farandole
