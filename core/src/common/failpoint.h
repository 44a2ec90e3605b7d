// Named places where a test can inject a failure. Test builds (FARANDOLE_FAILPOINTS) compile them in; in shipped builds
// the macros are empty.
//
// The process has one set of failpoints, guarded by a lock. Any thread may visit a failpoint.
//
// FARANDOLE_FAILPOINTS="native.write=kill@3;counters.arrive=delay:5%10": at the third visit of native.write the process
// kills itself; one visit in ten of counters.arrive, the same in every run, takes 5 ms longer. Actions: kill, stop,
// delay:<ms>, hold (the visitor waits until the failpoints are replaced), error (the place reports that it failed; only
// those marked * can).
//
//   bootstrap.connected               this rank has reached rank 0
//   bootstrap.admit                   rank 0 admits a rank
//   bootstrap.send                    a message of the start is sent
//   bootstrap.wait                    the start is about to sleep
//   handshake.step*                   each stage of a handshake
//   shm_setup.open*                   a rank finds out whether it can share memory
//   shm_setup.enter*                  a member gives its descriptors to the leader
//   shm_setup.hand_out*               the leader gives all descriptors to the members
//   segment.create*  segment.attach*  shared memory
//   link.listen*                      the endpoint for data connections
//   counters.arrive                   an arrival counter goes up
//   slots.write  slots.reduce         small payloads in shared memory
//   native.write                      staged operations: a round of inputs goes into shared memory
//   native.combine                    staged operations: a round is reduced
//   native.finish                     staged and flat operations: results go to the outputs
//   native.make                       between nodes: data for other nodes are prepared
//   native.exchange                   between nodes: the data of other nodes have arrived
//   run.reduce                        between nodes: received data are reduced
//   link.send*  link.recv*            data over tcp, by schedule
//   early.send*  early.recv*          data over tcp, of sums that begin at submission
//   early.partial  early.result       a leader has the data of its node, or of all nodes
//   engine.break                      the epoch ends
//   abort.write                       the reason of the end is written for the node
#pragma once

#include <string>

#include "common/status.h"

namespace farandole {

// Replaces all failpoints. kInvalid: the text cannot be parsed. Any thread may call it.
Status SetFailpoints(const std::string& text);
// Returns kInternal with the failpoint's name when the action `error` fires, else Ok.
Status VisitFailpoint(const char* name);
// How many threads of this process wait at a failpoint whose action is `hold`.
int HeldAtFailpoints();

}  // namespace farandole

#ifndef FARANDOLE_FAILPOINTS  // 0 or 1 where a file's own #include of this header is known to CMake
#error "a new file has failpoints: run cmake again, so that it is compiled for the tests, too"
#elif FARANDOLE_FAILPOINTS
#define FRD_FAILPOINT(name) static_cast<void>(::farandole::VisitFailpoint(name))
#define FRD_FAILPOINT_STATUS(name) ::farandole::VisitFailpoint(name)
#else
#define FRD_FAILPOINT(name) static_cast<void>(0)
#define FRD_FAILPOINT_STATUS(name) ::farandole::Status()
#endif
