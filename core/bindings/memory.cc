// Where the memory of Python's arrays and tensors is.
//
// Python's own ways take longer than a small operation: numpy's dictionary 3 us, torch's methods together 0.5 us. Two
// C interfaces take 40 to 50 ns: `__array_struct__`, of numpy's array interface, and `__dlpack_c_exchange_api__`, of
// DLPack 1.3.
#include <algorithm>
#include <deque>

#include "bindings/bindings.h"

namespace farandole {
namespace {

// ---- numpy's array interface

// The content of the capsule of `__array_struct__`: PyArrayInterface, version 3.
struct ArrayStruct {
  int two;
  int dimension_count;
  char kind;
  int item_size;
  int flags;
  Py_intptr_t* shape;
  Py_intptr_t* strides;
  void* data;
  PyObject* description;
};
enum ArrayFlags { kContiguous = 0x1, kAligned = 0x100, kNativeOrder = 0x200, kWritable = 0x400 };

// `kind`: as in types.def. Of two that are alike the first is found: float16, not bfloat16.
bool FindDType(char kind, size_t size_bytes, DType* dtype) {
  for (int number = 0; number < kDTypeCount; ++number) {
    if (kDTypes[number].kind != kind || kDTypes[number].size_bytes != size_bytes) continue;
    *dtype = static_cast<DType>(number);
    return true;
  }
  return false;
}

// ---- DLPack

// DLTensor.
struct SharedTensor {
  void* data;
  int32_t device_type;
  int32_t device;
  int32_t dimension_count;
  uint8_t type_code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // in elements; null: contiguous
  uint64_t offset_bytes;
};
constexpr int32_t kHostMemory = 1;

// DLPackExchangeAPI, of which one function serves here.
struct Exchange {
  uint32_t major;
  uint32_t minor;
  const Exchange* older;
  void (*others[3])();
  int (*look)(void* object, SharedTensor* tensor);  // may be null; 0, or -1 with a Python error set
};
constexpr uint32_t kExchangeVersion = 1;

bool IsContiguous(const SharedTensor& tensor) {
  int64_t stride = 1;
  for (int32_t i = tensor.dimension_count; tensor.strides != nullptr && i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != stride) return false;
    stride *= tensor.shape[i];
  }
  return true;
}

bool FindDTypeByCode(const SharedTensor& tensor, DType* dtype) {
  constexpr uint8_t kBfloat = 4;
  constexpr char kKinds[] = {'i', 'u', 'f', 0, 0, 'c', 'b'};  // by the code of the type
  if (tensor.lanes != 1 || tensor.type_code >= sizeof(kKinds)) return false;
  if (tensor.type_code != kBfloat) return FindDType(kKinds[tensor.type_code], tensor.bits / 8, dtype);
  *dtype = DType::kBfloat16;
  return tensor.bits == 16;
}

// ---- which of them a type has

struct KnownType {
  PyTypeObject* type;        // a reference, so that no other type gets its address
  const Exchange* exchange;  // null: objects have `__array_struct__`, which also says whether they may be written
  PyObject* is_negative;     // these are null where the type has no such views
  PyObject* is_conjugate;
};

PyObject* AttributeOf(PyTypeObject* type, const char* name) {
  PyObject* const found = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name);
  if (found == nullptr) PyErr_Clear();
  return found;
}

const Exchange* FindExchange(PyTypeObject* type) {
  PyObject* const capsule = AttributeOf(type, "__dlpack_c_exchange_api__");
  const auto* exchange =
      static_cast<const Exchange*>(capsule != nullptr ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : nullptr);
  PyErr_Clear();
  Py_XDECREF(capsule);  // the table lives as long as the process
  while (exchange != nullptr && exchange->major != kExchangeVersion) exchange = exchange->older;
  return exchange != nullptr && exchange->look != nullptr ? exchange : nullptr;
}

const KnownType& Known(PyTypeObject* type) {
  // One or two: those that plugins give here. A deque, since a look may run Python, which may add another.
  static auto* const known = new std::deque<KnownType>();
  for (const KnownType& each : *known)
    if (each.type == type) return each;
  const bool has_struct = PyObject_HasAttrString(reinterpret_cast<PyObject*>(type), "__array_struct__") != 0;
  Py_INCREF(type);
  known->push_back(
      {type, has_struct ? nullptr : FindExchange(type), AttributeOf(type, "is_neg"), AttributeOf(type, "is_conj")});
  return known->back();
}

// ---- looking

Look LookByArrayStruct(const KnownType&, PyObject* array, bool writes, Dimensions* dimensions, TensorView* tensor,
                       void** memory) {
  static PyObject* const attribute = PyUnicode_InternFromString("__array_struct__");
  PyObject* const capsule = PyObject_GetAttr(array, attribute);
  if (capsule == nullptr) return Look::kError;
  Look look = Look::kUnusable;
  const int needed = kContiguous | kAligned | kNativeOrder | (writes ? kWritable : 0);
  const auto* const found = static_cast<const ArrayStruct*>(PyCapsule_GetPointer(capsule, nullptr));
  if (found == nullptr) {
    look = Look::kError;
  } else if ((found->flags & needed) == needed &&
             FindDType(found->kind, static_cast<size_t>(found->item_size), &tensor->dtype)) {
    const Span<int64_t> shape = dimensions->Take(static_cast<size_t>(found->dimension_count));
    std::copy(found->shape, found->shape + found->dimension_count, shape.begin());
    tensor->shape = {shape.begin(), shape.size()};
    *memory = found->data;
    look = Look::kFine;
  }
  Py_DECREF(capsule);
  return look;
}

bool IsTrue(PyObject* question, PyObject* object) {
  if (question == nullptr) return false;
  PyObject* const answer = PyObject_CallOneArg(question, object);
  if (answer == nullptr) PyErr_Clear();
  Py_XDECREF(answer);
  return answer != Py_False;
}

// The memory of a view of torch's may hold other numbers, which DLPack does not tell: of a conjugate the numbers
// themselves, and of its imaginary part the opposite ones.
bool HoldsOthers(const KnownType& type, PyObject* object, DType dtype) {
  return IsTrue(type.is_negative, object) || (IsComplex(dtype) && IsTrue(type.is_conjugate, object));
}

Look LookByExchange(const KnownType& type, PyObject* object, bool, Dimensions* dimensions, TensorView* tensor,
                    void** memory) {
  SharedTensor found;
  if (type.exchange->look(object, &found) != 0) {
    PyErr_Clear();  // the plugin looks next, and has the words for it
    return Look::kUnusable;
  }
  // Without an address: no elements, or no memory yet.
  if (found.device_type != kHostMemory || found.data == nullptr || !IsContiguous(found)) return Look::kUnusable;
  if (!FindDTypeByCode(found, &tensor->dtype) || HoldsOthers(type, object, tensor->dtype)) return Look::kUnusable;
  const Span<int64_t> shape = dimensions->Take(static_cast<size_t>(found.dimension_count));
  std::copy(found.shape, found.shape + found.dimension_count, shape.begin());
  tensor->shape = {shape.begin(), shape.size()};
  *memory = static_cast<char*>(found.data) + found.offset_bytes;
  return Look::kFine;
}

bool AreAlike(const TensorView& left, const TensorView& right) {
  return left.dtype == right.dtype &&
         std::equal(left.shape.begin(), left.shape.end(), right.shape.begin(), right.shape.end());
}

}  // namespace

Look LookAtArrays(PyObject* source, PyObject* target, Dimensions* dimensions, TensorView* tensor) {
  if (Py_TYPE(source) != Py_TYPE(target)) return Look::kUnusable;
  const KnownType& type = Known(Py_TYPE(target));
  const auto look_at = type.exchange != nullptr ? &LookByExchange : &LookByArrayStruct;
  void* memory = nullptr;
  Look look = look_at(type, target, /*writes=*/true, dimensions, tensor, &memory);
  tensor->input = tensor->output = memory;
  if (source == target || look != Look::kFine) return look;
  TensorView read;
  Dimensions of_source;
  look = look_at(type, source, /*writes=*/false, &of_source, &read, &memory);
  tensor->input = memory;
  return look == Look::kFine && !AreAlike(read, *tensor) ? Look::kUnusable : look;
}

}  // namespace farandole
