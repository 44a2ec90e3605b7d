#include "transport/inproc.h"

#include <cstring>
#include <new>

#include "transport/arena_link.h"

namespace farandole {
namespace {

constexpr std::align_val_t kAlignment{128};

std::shared_ptr<void> ZeroedMemory(size_t size_bytes) {
  void* memory = ::operator new(size_bytes, kAlignment);
  std::memset(memory, 0, size_bytes);
  return {memory, [](void* p) { ::operator delete(p, kAlignment); }};
}

}  // namespace

InprocPair MakeInprocPair(size_t capacity_bytes, const std::string& first_name, const std::string& second_name) {
  const size_t size_bytes = ArenaLink::RequiredBytes(capacity_bytes);
  const std::shared_ptr<void> memory = ZeroedMemory(size_bytes);
  return {std::make_unique<ArenaLink>(memory, size_bytes, LinkSide::kFirst, second_name),
          std::make_unique<ArenaLink>(memory, size_bytes, LinkSide::kSecond, first_name)};
}

}  // namespace farandole
