// Which device the tensors of a request lie on, and from when on they may be used. Any thread.
#pragma once

#include "device/device.h"
#include "engine/operation.h"

namespace farandole {

// *device is null when the tensors are the host's, or empty. kInvalid when they are not all on one device, or the
// device cannot be used.
Status FindDeviceOf(const Devices& devices, const Request& request, Device** device);

// Of a request that is ready after all that its device was asked for: gives its tensors the event that says so, which
// lives as long as the request. May wait for the device, see Device::MarkAll. Errors as FindDeviceOf.
Status MarkReady(const Devices& devices, Request* request);

}  // namespace farandole
