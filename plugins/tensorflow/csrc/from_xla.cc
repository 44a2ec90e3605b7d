#include "from_xla.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "types.h"

namespace farandole_tensorflow {
namespace {

constexpr char kTarget[] = "farandole";
constexpr char kGlobal[] = "_ZN3xla24CustomCallTargetRegistry6GlobalEv";
constexpr char kRegister[] =
    "_ZN3xla24CustomCallTargetRegistry8RegisterERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPvS8_";

// The whole numbers in a text, one after the other.
class Numbers {
 public:
  explicit Numbers(std::string text) : text_(std::move(text)), at_(text_.c_str()) {}

  bool more() const { return *at_ != '\0'; }
  int64_t Next() {
    char* end = nullptr;
    const int64_t number = std::strtoll(at_, &end, 10);
    at_ = end == at_ ? "" : end + std::strspn(end, " ");
    return number;
  }

 private:
  const std::string text_;
  const char* at_;
};

// The description of a call in the graph, written by _xla.py:
//
//   operation reduce root process_set prescale_bits postscale_bits, then of each tensor: type rank dimensions...
//   name
//   site
class Config {
 public:
  Config(const char* text, size_t size) {
    const std::string description(text, size);
    const size_t name = description.find('\n') + 1, site = description.find('\n', name) + 1;
    name_ = description.substr(name, site - name - 1);
    site_ = description.substr(site, description.find('\n', site) - site);
    Numbers numbers(description.substr(0, name - 1));
    request_.operation = static_cast<int32_t>(numbers.Next());
    request_.reduce = static_cast<int32_t>(numbers.Next());
    request_.root = static_cast<int32_t>(numbers.Next());
    request_.process_set = static_cast<int32_t>(numbers.Next());
    request_.prescale = Real(numbers.Next());
    request_.postscale = Real(numbers.Next());
    while (numbers.more()) {
      types_.push_back(static_cast<int>(numbers.Next()));
      shapes_.emplace_back(static_cast<size_t>(numbers.Next()));
      for (int64_t& dimension : shapes_.back()) dimension = numbers.Next();
    }
  }

  // The request for these inputs and outputs; valid as long as this object.
  frd_request Request(void* const* outputs, const void* const* inputs) {
    for (size_t i = 0; i < types_.size(); ++i) {
      frd_tensor tensor = {};
      tensor.struct_size = sizeof tensor;
      tensor.dtype = CoreTypeOf(types_[i]);
      tensor.input = inputs[i];
      tensor.output = outputs[i];
      tensor.shape = shapes_[i].data();
      tensor.dimension_count = static_cast<int32_t>(shapes_[i].size());
      tensor.device = FRD_HOST;
      tensors_.push_back(tensor);
    }
    frd_request request = request_;
    request.struct_size = sizeof request;
    request.tensors = tensors_.data();
    request.tensor_count = static_cast<uint32_t>(tensors_.size());
    request.name = name_.c_str();
    request.site = site_.c_str();
    return request;
  }

  size_t tensor_count() const { return types_.size(); }

 private:
  static double Real(int64_t bits) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  frd_request request_ = {};
  std::string name_, site_;
  std::vector<int> types_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<frd_tensor> tensors_;
};

// XLA calls this. Its place for the outcome is, in all versions, an optional text that is empty for success. The last
// output is a number that the next call takes as input: it puts the calls, each of which waits, into one order on all
// ranks.
void Run(void* const* outputs, const void** inputs, const char* text, size_t size,
         std::optional<std::string>* failure) noexcept {
  Config config(text, size);
  const frd_request request = config.Request(outputs, inputs);
  std::memset(outputs[config.tensor_count()], 0, sizeof(int32_t));
  frd_operation* operation = nullptr;
  if (core->run(&request, &operation) != FRD_OK) *failure = core->last_error();
  if (operation != nullptr) core->release(operation);
}

}  // namespace

std::string UseXla() {
  void* const library = dlopen("libtensorflow_cc.so.2", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return dlerror();
  const auto global = reinterpret_cast<void* (*)()>(dlsym(library, kGlobal));
  using Register = void (*)(void*, const std::string&, void*, const std::string&);
  const auto add = reinterpret_cast<Register>(dlsym(library, kRegister));
  if (global == nullptr || add == nullptr) return "this TensorFlow has no registry of XLA's custom calls";
  add(global(), kTarget, reinterpret_cast<void*>(&Run), "Host");
  return "";
}

}  // namespace farandole_tensorflow
