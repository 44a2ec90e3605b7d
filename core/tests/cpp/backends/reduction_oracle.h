// A reduction over nodes of ranks by its definition (reduce/reduce.h and docs/design/data-plane.md), one element at a
// time.
#pragma once

#include <cmath>
#include <limits>

#include "reduce/reduce_oracle.h"
#include "world/layout.h"

namespace farandole::tests {

struct ReductionCase {
  DType dtype;
  ReduceOp reduce;
  Scale scale;
};

template <class Type>
class ReductionOracle {
 public:
  using Value = typename Type::Value;

  explicit ReductionOracle(const ReductionCase& c) : case_(c), narrow_(IsHalf(c.dtype)) {}

  // inputs by position.
  std::string Of(const Layout& layout, const std::vector<const char*>& inputs, size_t element_count) const {
    std::string output(element_count * Type::kBytes, '\0');
    for (size_t i = 0; i < element_count; ++i) {
      std::vector<Value> of_nodes;
      for (const auto& node : layout.nodes) of_nodes.push_back(OfNode(layout, node, inputs, i));
      const bool crossed = of_nodes.size() > 1;
      const Value value = crossed ? Across(of_nodes, !ScalesInNode(layout)) : of_nodes[0];
      Type::Write(value, &output[i * Type::kBytes]);
    }
    return output;
  }

 private:
  bool ScalesInNode(const Layout& layout) const {
    return layout.node_count() == 1 || (narrow_ && case_.reduce == ReduceOp::kSum);
  }

  Value OfNode(const Layout& layout, const std::vector<int>& node, const std::vector<const char*>& inputs,
               size_t i) const {
    std::vector<Value> values;
    for (int position : node) values.push_back(Type::Read(inputs[static_cast<size_t>(position)] + i * Type::kBytes));
    const Value reduced = OracleTree<Value>(case_.reduce, values);
    return Rounded(ScalesInNode(layout) ? Scaled(reduced) : reduced);
  }

  // The tree over the nodes, with a rounding after each reduction.
  Value Across(const std::vector<Value>& values, bool scales) const {
    if (values.size() == 1) return values[0];
    size_t first = 1;
    while (first * 2 < values.size()) first *= 2;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(first);
    const Value reduced =
        OraclePair<Value>(case_.reduce, Across({values.begin(), middle}, false), Across({middle, values.end()}, false));
    return Rounded(scales ? Scaled(reduced) : reduced);
  }

  Value Rounded(Value value) const {
    char memory[Type::kBytes];
    Type::Write(value, memory);
    return Type::Read(memory);
  }

  Value Scaled(Value value) const {
    if (case_.scale.IsIdentity()) return value;
    if constexpr (std::is_same<Value, bool>::value) {
      return value;
    } else if constexpr (IsComplexValue<Value>::value) {
      return value * static_cast<typename Value::value_type>(case_.scale.multiplier / case_.scale.divisor);
    } else if constexpr (std::is_floating_point<Value>::value) {
      return value * static_cast<Value>(case_.scale.multiplier / case_.scale.divisor);
    } else {
      const double real = std::trunc(static_cast<double>(value) * case_.scale.multiplier / case_.scale.divisor);
      if (real >= static_cast<double>(std::numeric_limits<Value>::max())) return std::numeric_limits<Value>::max();
      if (real <= static_cast<double>(std::numeric_limits<Value>::min())) return std::numeric_limits<Value>::min();
      return static_cast<Value>(real);
    }
  }

  ReductionCase case_;
  bool narrow_;
};

inline std::string Reduced(const ReductionCase& c, const Layout& layout, const std::vector<const char*>& inputs,
                           size_t element_count) {
  const auto of = [&](auto oracle) { return oracle.Of(layout, inputs, element_count); };
  switch (c.dtype) {
    case DType::kUint8:
      return of(ReductionOracle<PlainOracle<uint8_t>>(c));
    case DType::kInt8:
      return of(ReductionOracle<PlainOracle<int8_t>>(c));
    case DType::kUint16:
      return of(ReductionOracle<PlainOracle<uint16_t>>(c));
    case DType::kInt16:
      return of(ReductionOracle<PlainOracle<int16_t>>(c));
    case DType::kInt32:
      return of(ReductionOracle<PlainOracle<int32_t>>(c));
    case DType::kInt64:
      return of(ReductionOracle<PlainOracle<int64_t>>(c));
    case DType::kFloat16:
      return of(ReductionOracle<NarrowOracle<Float16Oracle>>(c));
    case DType::kBfloat16:
      return of(ReductionOracle<NarrowOracle<Bfloat16Oracle>>(c));
    case DType::kFloat32:
      return of(ReductionOracle<PlainOracle<float>>(c));
    case DType::kFloat64:
      return of(ReductionOracle<PlainOracle<double>>(c));
    case DType::kBool:
      return of(ReductionOracle<BoolOracle>(c));
    case DType::kUint32:
      return of(ReductionOracle<PlainOracle<uint32_t>>(c));
    case DType::kUint64:
      return of(ReductionOracle<PlainOracle<uint64_t>>(c));
    case DType::kComplex64:
      return of(ReductionOracle<ComplexOracle<float>>(c));
    case DType::kComplex128:
      return of(ReductionOracle<ComplexOracle<double>>(c));
  }
  return {};
}

}  // namespace farandole::tests
