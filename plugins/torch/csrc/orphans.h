// Operations that go on although their caller waits no longer, with the tensors that the core may still read and write.
#pragma once

#include <vector>

#include "farandole/farandole.h"
#include "torch_api.h"

namespace farandole_torch {

// Takes them over until the operation has ended. Any thread.
void KeepUntilEnded(frd_operation* operation, std::vector<TorchTensor*> tensors);

}  // namespace farandole_torch
