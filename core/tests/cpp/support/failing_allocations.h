// Allocations of the whole test program that fail when a test asks for it: operator new throws std::bad_alloc.
#pragma once

namespace farandole {

// While an object lives, the nth allocation of its thread fails, and no other one. 0: none does. Not nested.
class FailingAllocation {
 public:
  explicit FailingAllocation(int nth);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  static bool has_failed();  // of any object of this thread
};

// Likewise of all threads that have not called IsTheTests: those of the engines, which drive while nobody waits.
void FailAllocationOfOthers(int nth);
void IsTheTests();

}  // namespace farandole
