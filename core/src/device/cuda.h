// NVIDIA's devices, through the CUDA driver (cuda_driver.h).
#pragma once

#include <string>

#include "common/status.h"
#include "device/device.h"

namespace farandole {

// The device on which `address` lies, by the driver library at `driver_path`. Any thread.
Status FindCudaDevice(const std::string& driver_path, const void* address, Device** device);

}  // namespace farandole
