#include "engine/on_device.h"

namespace farandole {

Status FindDeviceOf(const Devices& devices, const Request& request, Device** result) {
  Device*& found = *result;
  found = nullptr;
  for (const Tensor& tensor : request.tensors) {
    if (tensor.device == static_cast<int32_t>(DeviceKind::kHost)) continue;
    for (const void* address : {tensor.input, static_cast<const void*>(tensor.output)}) {
      if (address == nullptr) continue;
      Device* device = nullptr;
      const Status looked_up = devices.Find(static_cast<DeviceKind>(tensor.device), address, &device);
      if (!looked_up.ok() && tensor.size_bytes() == 0) continue;  // it need not have memory
      FRD_RETURN_IF_ERROR(looked_up);
      if (found != nullptr && device != found) {
        return Invalid("its tensors lie on " + found->name() + " and on " + device->name() +
                       "; use one operation for each device");
      }
      found = device;
    }
  }
  return Status::Ok();
}

Status MarkReady(const Devices& devices, Request* request) {
  Device* device = nullptr;
  FRD_RETURN_IF_ERROR(FindDeviceOf(devices, *request, &device));
  if (device == nullptr) return Status::Ok();
  Event event = nullptr;
  FRD_RETURN_IF_ERROR(device->MarkAll(&event));
  if (event == nullptr) return Status::Ok();
  request->mark = std::shared_ptr<void>(event, [device](Event each) { device->DestroyEvent(each); });
  for (Tensor& tensor : request->tensors) tensor.ready_event = event;
  return Status::Ok();
}

}  // namespace farandole
