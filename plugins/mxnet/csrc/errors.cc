#include "errors.h"

#include <cstring>
#include <stdexcept>

namespace farandole_mxnet {
namespace {

void FailAtOnce(void*, void* completion, void*) {
  MxCompletion copy;
  std::memcpy(&copy, completion, sizeof copy);
  const std::lock_guard<std::recursive_mutex> lock(ErrorsMutex());
  Fail(copy, "this error of farandole-mxnet gives MXNet's list of errors its memory; nobody is to read it");
}

}  // namespace

std::recursive_mutex& ErrorsMutex() {
  static auto* const mutex = new std::recursive_mutex;  // the core's threads may outlive static objects
  return *mutex;
}

void Fail(const MxCompletion& completion, const std::string& text) {
  const std::runtime_error error(text);
  completion.callback(completion.engine, completion.operation, &error);
}

std::string MakeRoomForErrors(NDArrayHandle scratch) {
  const MxContext host = {1, 0};
  const int property = kMxNoSkip;  // runs although the one before it has left its error in `scratch`
  for (int i = 0; i < kErrorRoom; ++i) {
    if (mx.EnginePushAsyncND(&FailAtOnce, nullptr, nullptr, &host, nullptr, 0, &scratch, 1, &property, 0, "farandole",
                             false) != 0) {
      return mx.GetLastError();
    }
  }
  return "";
}

}  // namespace farandole_mxnet
