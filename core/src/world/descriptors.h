// The limit of open files of this process, beside what a world needs.
#pragma once

#include "common/status.h"

namespace farandole {

// Raises the limit of this process where it may. Else kInvalid says how many there are and how to have more.
Status ProvideDescriptors(int world_size);

}  // namespace farandole
