// Wire structs described once: a struct lists its fields in one function, and encoding, decoding, equality and every
// other function over the fields use that list.
//
//   struct Abort {
//     int32_t rank = 0;
//     std::string text;
//     FRD_FIELDS(rank, text)
//   };
//
// A struct that is compared, too, with differences that users read, has instead
//
//     template <typename Visitor, typename... Self>
//     static void Visit(Visitor&& visit, Self&... self) {
//       visit("rank", self.rank...);
//       visit("text", self.text...);
//     }
//
// which calls the visitor for each field, in order, with the field's name and the field of each given struct: one
// struct to encode, two to compare. A struct may have `bool IsValid() const`, which the decoder calls after its last
// field. Each enumeration has a function IsKnown. Values; no thread rule.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/bytes.h"

namespace farandole {

#define FRD_FIELDS(...)                           \
  auto Fields() { return std::tie(__VA_ARGS__); } \
  auto Fields() const { return std::tie(__VA_ARGS__); }

// Instead of a name: a field that is sent but not compared, because it follows from the others.
inline constexpr const char* kNotCompared = nullptr;

namespace wire {

template <typename T, typename = void>
struct HasIsValid : std::false_type {};
template <typename T>
struct HasIsValid<T, std::void_t<decltype(std::declval<const T&>().IsValid())>> : std::true_type {};

template <typename T, typename = void>
struct HasFields : std::false_type {};
template <typename T>
struct HasFields<T, std::void_t<decltype(std::declval<T&>().Fields())>> : std::true_type {};

}  // namespace wire

// Calls visit(name, field) for each field of `value`, with an empty name where the struct has no names.
template <typename Visitor, typename T>
void VisitFields(Visitor& visit, T& value) {
  if constexpr (wire::HasFields<T>::value) {
    std::apply([&visit](auto&... fields) { (visit("", fields), ...); }, value.Fields());
  } else {
    T::Visit(visit, value);
  }
}

class Encoder {
 public:
  explicit Encoder(ByteWriter* writer) : writer_(writer) {}

  template <typename T>
  void operator()(const char*, const T& field) {
    Put(field);
  }

  template <typename T>
  void Put(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      writer_->Put(value);
    } else {
      VisitFields(*this, value);
    }
  }
  void Put(const std::string& text) { writer_->PutString(text); }
  template <typename T>
  void Put(const std::vector<T>& values) {
    PutAll(values);
  }
  template <typename Key, typename T>
  void Put(const std::map<Key, T>& values) {
    PutAll(values);
  }
  template <typename First, typename Second>
  void Put(const std::pair<First, Second>& both) {
    Put(both.first);
    Put(both.second);
  }

 private:
  template <typename Values>
  void PutAll(const Values& values) {
    writer_->Put(static_cast<uint32_t>(values.size()));
    for (const auto& value : values) Put(value);
  }

  ByteWriter* const writer_;
};

// After the first impossible value the reader has failed, and the values read so far must not be used.
class Decoder {
 public:
  explicit Decoder(ByteReader* reader) : reader_(reader) {}

  template <typename T>
  void operator()(const char*, T& field) {
    Get(&field);
  }

  template <typename T>
  void Get(T* value) {
    if constexpr (std::is_same_v<T, bool>) {
      *value = reader_->Get<uint8_t>() != 0;
    } else if constexpr (std::is_arithmetic_v<T>) {
      *value = reader_->Get<T>();
    } else if constexpr (std::is_enum_v<T>) {
      *value = reader_->Get<T>();
      if (!IsKnown(*value)) reader_->Fail();
    } else {
      VisitFields(*this, *value);
      if constexpr (wire::HasIsValid<T>::value) {
        if (reader_->ok() && !value->IsValid()) reader_->Fail();
      }
    }
  }
  void Get(std::string* text) { *text = reader_->GetString(); }
  template <typename T>
  void Get(std::vector<T>* values) {
    values->clear();
    for (uint32_t left = Count(); left > 0 && reader_->ok(); --left) {
      values->emplace_back();
      Get(&values->back());
    }
  }
  template <typename Key, typename T>
  void Get(std::map<Key, T>* values) {
    values->clear();
    for (uint32_t left = Count(); left > 0 && reader_->ok(); --left) {
      Key key{};
      Get(&key);
      Get(&(*values)[key]);
    }
  }
  template <typename First, typename Second>
  void Get(std::pair<First, Second>* both) {
    Get(&both->first);
    Get(&both->second);
  }

 private:
  // Each element takes at least one byte, so a false count cannot request much more memory than the message has.
  uint32_t Count() {
    const auto count = reader_->Get<uint32_t>();
    if (count > reader_->left()) reader_->Fail();
    return reader_->ok() ? count : 0;
  }

  ByteReader* const reader_;
};

// Returns whether all fields that are compared are the same in both structs.
class Comparer {
 public:
  template <typename Left, typename Right>
  void operator()(const char* name, const Left& left, const Right& right) {
    if (name != kNotCompared) equal_ = equal_ && left == right;
  }
  bool equal() const { return equal_; }

 private:
  bool equal_ = true;
};

template <typename T>
void Encode(ByteWriter* writer, const T& value) {
  Encoder(writer).Put(value);
}

// reader->ok() says afterwards whether the message was well formed.
template <typename T>
T Decode(ByteReader* reader) {
  T value{};
  Decoder(reader).Get(&value);
  return value;
}

// Implements the operator == of a struct.
template <typename T>
bool AllEqual(const T& left, const T& right) {
  Comparer compare;
  T::Visit(compare, left, right);
  return compare.equal();
}

}  // namespace farandole
