#include <cstring>

#include "device/device.h"

namespace farandole {
namespace {

class Host final : public Device {
 public:
  Status Copy(void* to, const void* from, size_t size_bytes, Stream) override {
    if (size_bytes > 0) std::memmove(to, from, size_bytes);
    return Status::Ok();
  }
  bool HasHappened(Event) override { return true; }
};

}  // namespace

Device* FindDevice(int32_t kind) {
  static Host host;
  return kind == static_cast<int32_t>(DeviceKind::kHost) ? &host : nullptr;
}

}  // namespace farandole
