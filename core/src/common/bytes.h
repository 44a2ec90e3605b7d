// Little-endian encoding of control messages, and decoding that survives any input.
//
// A ByteReader never reads past its end. After the first shortage every further read yields zero and ok() stays false,
// so a decoder reads all its fields first and then checks ok() once. Readers and writers are local values of one
// function. A ByteReader does not own the bytes that it reads.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace farandole {

using Bytes = std::vector<uint8_t>;

class ByteWriter {
 public:
  explicit ByteWriter(size_t expected_bytes = 0) { bytes_.reserve(expected_bytes); }

  template <typename T>
  void Put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  void PutString(const std::string& text) {
    Put<uint32_t>(static_cast<uint32_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  Bytes Take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

class ByteReader {
 public:
  ByteReader(const uint8_t* data, size_t size_bytes) : data_(data), left_(size_bytes) {}
  explicit ByteReader(const Bytes& bytes) : ByteReader(bytes.data(), bytes.size()) {}

  template <typename T>
  T Get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (!Take(sizeof(T))) return value;
    std::memcpy(&value, data_ - sizeof(T), sizeof(T));
    return value;
  }
  std::string GetString() {
    const uint32_t size = Get<uint32_t>();
    if (!Take(size)) return {};
    return {reinterpret_cast<const char*>(data_ - size), size};
  }
  // Called by a decoder that has read an impossible value.
  void Fail() { ok_ = false; }
  size_t left() const { return left_; }
  bool ok() const { return ok_; }
  bool AtEnd() const { return ok_ && left_ == 0; }  // no read failed, and no byte is left

 private:
  bool Take(size_t size_bytes) {
    if (!ok_ || size_bytes > left_) return ok_ = false;
    data_ += size_bytes;
    left_ -= size_bytes;
    return true;
  }

  const uint8_t* data_;
  size_t left_;
  bool ok_ = true;
};

}  // namespace farandole
