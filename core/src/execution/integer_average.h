// Averages of integers, for any backend: it sums wide copies of the inputs (reduce/integer_average.h), and the averages
// of these sums are the results. The copies belong to the operations, since posts may touch them as long as tensors.
#pragma once

#include "operation/batch.h"

namespace farandole {

// Gives an average of integers the wide sum that the backend performs instead (PlannedTask::wide); no-op for other
// tasks. kInternal when memory is short. REQUIRES: the inputs are there, in host memory.
Status WidenIntegerAverage(PlannedTask* planned);
// Writes the results of such an average, once the backend is done; no-op for other tasks.
void NarrowIntegerAverage(PlannedTask* planned);

}  // namespace farandole
