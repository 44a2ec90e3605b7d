#include "support/failing_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace farandole {
namespace {

// Allocations until one fails; 0: none does.
thread_local int t_left = 0;
thread_local bool t_has_failed = false;
thread_local bool t_is_the_tests = false;
std::atomic<int> g_left{0};

bool Fails() {
  if (t_left > 0 && --t_left == 0) return t_has_failed = true;
  return !t_is_the_tests && g_left.load() > 0 && g_left.fetch_sub(1) == 1;
}

}  // namespace

FailingAllocation::FailingAllocation(int nth) { t_left = nth; }
FailingAllocation::~FailingAllocation() { t_left = 0; }
bool FailingAllocation::has_failed() { return t_has_failed; }

void FailAllocationOfOthers(int nth) { g_left = nth; }
void IsTheTests() { t_is_the_tests = true; }

void* AllocateOrFail(size_t size) {
  void* const memory = Fails() ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace farandole

void* operator new(size_t size) { return farandole::AllocateOrFail(size); }
// The address sanitizer has one of its own, whose memory std::free must not get.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return farandole::AllocateOrFail(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
