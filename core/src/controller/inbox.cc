#include "controller/inbox.h"

namespace farandole {

int64_t EagerLimitBytes(int set_size) { return set_size == 2 ? Inbox::kMostBytes : (64 << 10) / (set_size - 1); }

bool IsEager(const Signature& signature, const ProcessSet& set, const Layout& world) {
  if (signature.kind != OpKind::kAllreduce || NeedsWholeTensors(signature.reduce)) return false;
  if (signature.backend != 0 || signature.device != DeviceKind::kHost) return false;
  const int64_t size_bytes = signature.TotalBytes();
  return set.size() > 1 && size_bytes > 0 && size_bytes <= EagerLimitBytes(set.size()) && HasPutStreams(world);
}

}  // namespace farandole
