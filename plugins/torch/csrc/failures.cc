#include "failures.h"

#include <cstring>
#include <deque>
#include <mutex>
#include <stdexcept>

namespace farandole_torch {
namespace {

struct Failure {
  int32_t code;
  std::string message;
};

struct Failures {
  std::mutex mutex;
  std::deque<Failure> latest;  // guarded by `mutex`; newest first
};

constexpr size_t kRemembered = 64;  // more than there are threads that fail before any error is read

Failures& TheFailures() {
  static auto* const failures = new Failures;  // threads may outlive static objects
  return *failures;
}

void Remember(int32_t code, const std::string& message) {
  Failures& failures = TheFailures();
  const std::lock_guard<std::mutex> lock(failures.mutex);
  failures.latest.push_front({code, message});
  if (failures.latest.size() > kRemembered) failures.latest.pop_back();
}

}  // namespace

void Fail(int32_t code, const std::string& message) {
  Remember(code, message);
  throw std::runtime_error(message);
}

int32_t CodeOf(const char* text, std::string* message) {
  Failures& failures = TheFailures();
  const std::lock_guard<std::mutex> lock(failures.mutex);
  for (const Failure& each : failures.latest) {
    if (std::strstr(text, each.message.c_str()) == nullptr) continue;
    *message = each.message;
    return each.code;
  }
  return 0;
}

}  // namespace farandole_torch
