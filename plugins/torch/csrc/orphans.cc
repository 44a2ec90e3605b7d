#include "orphans.h"

#include <algorithm>
#include <mutex>

#include "operators.h"

namespace farandole_torch {
namespace {

struct Orphan {
  frd_operation* operation;
  std::vector<TorchTensor*> tensors;
};

struct Orphans {
  std::mutex mutex;
  std::vector<Orphan> list;  // guarded by `mutex`
};

Orphans& TheOrphans() {
  static auto* const orphans = new Orphans;  // threads may outlive static objects
  return *orphans;
}

bool HasEnded(const Orphan& orphan) {
  if (core->poll(orphan.operation) == FRD_IN_PROGRESS) return false;
  core->release(orphan.operation);
  for (TorchTensor* const tensor : orphan.tensors) torch_api.delete_tensor_object(tensor);
  return true;
}

}  // namespace

void KeepUntilEnded(frd_operation* operation, std::vector<TorchTensor*> tensors) {
  Orphans& orphans = TheOrphans();
  const std::lock_guard<std::mutex> lock(orphans.mutex);
  std::vector<Orphan>& list = orphans.list;
  list.erase(std::remove_if(list.begin(), list.end(), &HasEnded), list.end());
  list.push_back({operation, std::move(tensors)});
}

}  // namespace farandole_torch
