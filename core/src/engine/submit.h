// From an operation to its place in the negotiation: described, counted in, or, when it is small, put where all members
// fold it. Any thread; the driver submits, too, when this rank was invited after it had joined.
#pragma once

#include "engine/table.h"
#include "world/world.h"

namespace farandole {

// polling: the caller waits for the operation next and does not sleep before it has called AskForBells, so nobody needs
// to wake it.
Status Enter(World* world, Table* table, const OperationPtr& operation, bool polling);

// A call that is to be looked at next; it is over already when the others come within so many `looks` (at least one),
// with a pause before each. False, and nothing is done, when it must be an operation from the beginning.
bool Enter(World* world, Table* table, SmallCall* call, int looks);

// To be entered once `before`, which has its name, is done. Any thread.
Status Defer(World* world, Table* table, const OperationPtr& operation, OperationPtr before);
// Those that can be entered now. The driver.
std::vector<OperationPtr> TakeDeferred(Table* table);

// Marks this rank as one that sleeps: the last rank to put to one of its small operations rings it. REQUIRES: before
// the bell is armed, and then another look.
void AskForBells(Table* table);

// After a caller, not the driver, has completed an operation: another one may have waited for its name.
void WakeForDeferred(World* world, const Table& table);

// Completes the small operation when all have put their data and nobody else has completed it. Any thread.
bool CompleteIfReady(World* world, Table* table, const OperationPtr& operation);
bool CompleteIfReady(World* world, Table* table, SmallCall* call);
// All of them. True when there were any. The driver.
bool CompleteReady(World* world, Table* table);
// One that the negotiation says is ready, and has ended: its span is this rank's until the driver reads the log again.
void CompleteSmall(World* world, Table* table, Ticket ticket);

}  // namespace farandole
