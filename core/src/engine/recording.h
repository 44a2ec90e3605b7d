// What operations and tasks say to a timeline (engine/trace/timeline.h). While there is none: a look at a flag.
#pragma once

#include <vector>

namespace farandole {

class Operation;
struct PlannedTask;
struct ReadyOperation;

// One that has ended, and was submitted while a timeline was recorded. Any thread.
void RecordOperation(const Operation& operation);

// All ranks have agreed on these operations. The driver.
void RecordBatch(const std::vector<ReadyOperation>& batch);
// The work begins to move data. The driver.
void StampStart(PlannedTask* planned);
void RecordWork(const PlannedTask& planned);

}  // namespace farandole
