// The loops of Reduce, written once for all instruction sets.
//
// Each <instruction set>.cc includes it once, after vectors.h and a codec named Float16.
//
// A reduction works element by element in the fixed tree order, so the bits depend neither on lanes nor on blocks. Up
// to four inputs are reduced in registers. More inputs are divided into subtrees with at most four leaves; the
// subtrees' results go through blocks of 4 KB that stay in the first-level cache.
//
// REQUIRES: the including file has included isa.h. Pure functions; any thread may call them.
#pragma once

#include "reduce/conversions.h"

namespace farandole {
namespace {

constexpr size_t kLeafInputs = 4;
constexpr size_t kBlockBytes = 4096;

// The reduction of at most four values. Like LeftSubtreeSize it splits 3 values into 2 and 1, and 4 into 2 and 2.
template <class Element, class Op, size_t kInputs>
FRD_INLINE Pair<Element> ReduceValues(const Pair<Element>* values) {
  if constexpr (kInputs == 1) {
    return values[0];
  } else {
    constexpr size_t kFirst = kInputs == 2 ? 1 : 2;
    return ApplyPair<Element, Op>(ReduceValues<Element, Op, kFirst>(values),
                                  ReduceValues<Element, Op, kInputs - kFirst>(values + kFirst));
  }
}

// One node of the tree with up to four children. Codec In reads the inputs, Out writes the output; the root applies
// Finish before it stores the result.
template <class In, class Out, class Op, size_t kInputs, bool kRoot>
struct Node {
  using Element = typename In::Element;
  static constexpr size_t kStep = kStepElements<Element>;

  // Not inlined, so that bodies and tails share one copy of the loop.
  static __attribute__((noinline)) void Steps(const char* const* inputs, size_t steps, Element factor, char* output) {
    const char* from[kInputs];
    for (size_t k = 0; k < kInputs; ++k) from[k] = inputs[k];
    for (size_t i = 0; i < steps; ++i) {
      Pair<Element> values[kInputs];
      for (size_t k = 0; k < kInputs; ++k) values[k] = In::Load(from[k] + i * In::kStepBytes);
      Pair<Element> value = ReduceValues<Element, Op, kInputs>(values);
      if constexpr (kRoot) value = {Finish<Element>(value.first, factor), Finish<Element>(value.second, factor)};
      Out::Store(value, output + i * Out::kStepBytes);
    }
  }

  // Reduces less than one step through buffers, so that it touches no byte outside the inputs and the output.
  static __attribute__((noinline)) void Tail(const char* const* inputs, size_t element_count, Element factor,
                                             char* output) {
    char padded[kInputs][In::kStepBytes] = {};
    const char* from[kInputs];
    for (size_t k = 0; k < kInputs; ++k) {
      from[k] = In::kPadded ? inputs[k] : padded[k];
      if (!In::kPadded) std::memcpy(padded[k], inputs[k], element_count * (In::kStepBytes / kStep));
    }
    char result[Out::kStepBytes];
    Steps(from, 1, factor, result);
    std::memcpy(output, result, Out::kPadded ? Out::kStepBytes : element_count * (Out::kStepBytes / kStep));
  }

  // As Steps, but also stores the result into the copy, whose lines are usually in another core's cache. So each line
  // is prefetched some steps before it is needed. The input that is not the copy may lie outside all caches, and is
  // prefetched, too.
  static __attribute__((noinline)) void StepsTwice(const char* const* inputs, size_t steps, Element factor,
                                                   char* output, char* copy) {
    static_assert(kInputs == 2 && kRoot);
    const char* const left = inputs[0];
    const char* const right = inputs[1];
    const char* const other = left == copy ? right : left;
    const size_t copy_bytes = steps * Out::kStepBytes;
    for (size_t at = 0; at < kCoreReadAheadBytes && at < copy_bytes; at += kLineBytes) PrefetchForRead(copy + at);
    for (size_t i = 0; i < steps; ++i) {
      const size_t ahead = i * Out::kStepBytes + kCoreReadAheadBytes;
      for (size_t at = 0; at < Out::kStepBytes; at += kLineBytes) {
        if (ahead + at < copy_bytes) PrefetchForRead(copy + ahead + at);
        PrefetchForRead(other + i * In::kStepBytes + kReadAheadBytes + at);
      }
      Pair<Element> value =
          ApplyPair<Element, Op>(In::Load(left + i * In::kStepBytes), In::Load(right + i * In::kStepBytes));
      value = {Finish<Element>(value.first, factor), Finish<Element>(value.second, factor)};
      Out::Store(value, output + i * Out::kStepBytes);
      Out::Store(value, copy + i * Out::kStepBytes);
    }
  }

  static void Run(const void* const* inputs, size_t offset, size_t element_count, Element factor, void* output,
                  void* copy = nullptr) {
    const char* from[kInputs];
    for (size_t k = 0; k < kInputs; ++k) from[k] = static_cast<const char*>(inputs[k]) + offset;
    char* const to = static_cast<char*>(output);
    char* const copy_to = static_cast<char*>(copy);
    const size_t steps = element_count / kStep;
    const size_t rest = element_count % kStep;
    const size_t done_bytes = steps * Out::kStepBytes;
    if constexpr (kInputs == 2 && kRoot) {
      copy_to != nullptr ? StepsTwice(from, steps, factor, to, copy_to) : Steps(from, steps, factor, to);
    } else {
      Steps(from, steps, factor, to);
    }
    if (rest == 0) return;
    for (size_t k = 0; k < kInputs; ++k) from[k] += steps * In::kStepBytes;
    Tail(from, rest, factor, to + done_bytes);
    if (copy_to == nullptr) return;
    std::memcpy(copy_to + done_bytes, to + done_bytes, rest * (Out::kStepBytes / kStep));
  }
};

// A reduction of any number of inputs. Codec reads inputs and writes the output; results in between are stored as
// Partial.
template <class Codec, class Op>
struct Tree {
  using Element = typename Codec::Element;
  using Between = Partial<Element>;
  static constexpr size_t kBlockElements = kBlockBytes / sizeof(Element);
  static constexpr size_t kMemoryBytes = Codec::kStepBytes / kStepElements<Element>;  // of one element
  static_assert(kBlockElements % kStepElements<Element> == 0, "a block is padded");

  template <class Out, bool kRoot>
  static void Leaves(const void* const* inputs, size_t input_count, size_t offset, size_t element_count, Element factor,
                     void* output, void* copy = nullptr) {
    switch (input_count) {
      case 1:
        return Node<Codec, Out, Op, 1, kRoot>::Run(inputs, offset, element_count, factor, output);
      case 2:
        return Node<Codec, Out, Op, 2, kRoot>::Run(inputs, offset, element_count, factor, output, copy);
      case 3:
        return Node<Codec, Out, Op, 3, kRoot>::Run(inputs, offset, element_count, factor, output);
      default:
        return Node<Codec, Out, Op, 4, kRoot>::Run(inputs, offset, element_count, factor, output);
    }
  }

  // The reduction of one block. REQUIRES: element_count <= kBlockElements; `partial` has room for whole steps.
  static void Subtree(const void* const* inputs, size_t input_count, size_t offset, size_t element_count,
                      Element* partial) {
    if (input_count <= kLeafInputs)
      return Leaves<Between, false>(inputs, input_count, offset, element_count, 1, partial);
    alignas(64) Element right[kBlockElements];
    const size_t first = LeftSubtreeSize(input_count);
    Subtree(inputs, first, offset, element_count, partial);
    Subtree(inputs + first, input_count - first, offset, element_count, right);
    const void* const both[] = {partial, right};
    Node<Between, Between, Op, 2, false>::Run(both, 0, element_count, 1, partial);
  }

  static void Block(const void* const* inputs, size_t input_count, size_t offset, size_t element_count, Element factor,
                    char* output) {
    alignas(64) Element left[kBlockElements];
    alignas(64) Element right[kBlockElements];
    const size_t first = LeftSubtreeSize(input_count);
    Subtree(inputs, first, offset, element_count, left);
    Subtree(inputs + first, input_count - first, offset, element_count, right);
    const void* const both[] = {left, right};
    Node<Between, Codec, Op, 2, true>::Run(both, 0, element_count, factor, output);
  }

  // Elements [begin, end) of the inputs into the same elements of the output and of the copy.
  static void Run(const void* const* inputs, size_t input_count, size_t begin, size_t end, Element factor, void* output,
                  void* copy) {
    char* const to = static_cast<char*>(output) + begin * kMemoryBytes;
    if (copy != nullptr) copy = static_cast<char*>(copy) + begin * kMemoryBytes;
    if (input_count <= kLeafInputs) {
      return Leaves<Codec, true>(inputs, input_count, begin * kMemoryBytes, end - begin, factor, to, copy);
    }
    for (size_t block = begin; block < end; block += kBlockElements) {
      const size_t count = end - block < kBlockElements ? end - block : kBlockElements;
      Block(inputs, input_count, block * kMemoryBytes, count, factor, to + (block - begin) * kMemoryBytes);
    }
  }
};

// ---- integers: reduced in their own type, scaled in double

template <class T>
__attribute__((noinline)) void ScaleIntegers(size_t element_count, Scale scale, char* values) {
  for (size_t i = 0; i < element_count; ++i) {
    T value;
    std::memcpy(&value, values + i * sizeof(T), sizeof(T));
    value = Truncate<T>(static_cast<double>(value) * scale.multiplier / scale.divisor);
    std::memcpy(values + i * sizeof(T), &value, sizeof(T));
  }
}

// Works in blocks, so that scaling finds the values still in the cache.
template <class T, class Codec, class Op>
void ReduceIntegers(const ReduceCall& call) {
  if (call.scale.IsIdentity()) {
    return Tree<Codec, Op>::Run(call.inputs, call.input_count, 0, call.element_count, 1, call.output, call.copy);
  }
  constexpr size_t kBlockElements = kBlockBytes / sizeof(T);
  for (size_t block = 0; block < call.element_count; block += kBlockElements) {
    const size_t end = call.element_count - block < kBlockElements ? call.element_count : block + kBlockElements;
    Tree<Codec, Op>::Run(call.inputs, call.input_count, block, end, 1, call.output, nullptr);
    char* const scaled = static_cast<char*>(call.output) + block * sizeof(T);
    ScaleIntegers<T>(end - block, call.scale, scaled);
    if (call.copy == nullptr) continue;
    std::memcpy(static_cast<char*>(call.copy) + block * sizeof(T), scaled, (end - block) * sizeof(T));
  }
}

// ---- dispatch

// One struct per kind of element type. The rows of types.def name the struct; Run takes an operation of vectors.h.

template <class Codec>
struct Reals {
  template <class Op>
  static void Run(const ReduceCall& call) {
    using Element = typename Codec::Element;
    const Scale& scale = call.scale;
    const Element factor = scale.IsIdentity() ? Element{1} : static_cast<Element>(scale.multiplier / scale.divisor);
    Tree<Codec, Op>::Run(call.inputs, call.input_count, 0, call.element_count, factor, call.output, call.copy);
  }
};

// A complex number is two reals. Only reductions that treat both alike are defined for it (types.def).
template <class Codec>
struct Complexes {
  template <class Op>
  static void Run(const ReduceCall& call) {
    ReduceCall reals = call;
    reals.element_count *= 2;
    Reals<Codec>::template Run<Op>(reals);
  }
};

// Operations that wrap are reduced as unsigned, since C++ defines wrapping for unsigned elements only. The bits are the
// same.
template <class T>
struct Integers {
  template <class Op>
  static void Run(const ReduceCall& call) {
    if constexpr (Op::kWraps) {
      ReduceIntegers<T, Plain<typename std::make_unsigned<T>::type>, Op>(call);
    } else {
      ReduceIntegers<T, Plain<T>, Op>(call);
    }
  }
};

struct Bools {
  template <class Op>
  static void Run(const ReduceCall& call) {
    Tree<Bool, typename Op::OfBools>::Run(call.inputs, call.input_count, 0, call.element_count, 1, call.output,
                                          call.copy);
  }
};

// REQUIRES: the reduction is defined for elements of this kind, and has an operation.
template <char kKind, class Kernels>
FRD_INLINE ReduceFunction Choose(ReduceOp reduce) {
  switch (reduce) {
#define FRD_REDUCE_OP(enumerator, number, name, kinds, traits, operation)             \
  case ReduceOp::enumerator:                                                          \
    if constexpr (!std::is_same<operation, NoKernel>::value && HasKind(kinds, kKind)) \
      return &Kernels::template Run<operation>;                                       \
    break;
#include "common/types.def"
  }
  return nullptr;
}

ReduceFunction Choose(DType dtype, ReduceOp reduce) {
  switch (dtype) {
#define FRD_DTYPE(enumerator, number, name, kind, size_bytes, kernel) \
  case DType::enumerator:                                             \
    return Choose<kind, kernel>(reduce);
#include "common/types.def"
  }
  return nullptr;
}

}  // namespace
}  // namespace farandole
