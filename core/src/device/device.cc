#include "device/device.h"

#include "device/cuda.h"

namespace farandole {

const char* NameOf(DeviceKind kind) { return kind == DeviceKind::kCuda ? "CUDA device" : "host"; }

Status Devices::Find(DeviceKind kind, const void* address, Device** device) const {
  if (kind == DeviceKind::kCuda) return FindCudaDevice(cuda_driver_, address, device);
  return Internal("memory of the host has no device");
}

}  // namespace farandole
