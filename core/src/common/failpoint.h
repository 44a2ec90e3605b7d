// Named places where a test can make something go wrong. Compiled in only with FARANDOLE_FAILPOINTS (test builds); in
// what is shipped the macros are empty.
//
// The process owns one set of failpoints, under a lock of its own. Any thread may visit one.
//
// FARANDOLE_FAILPOINTS="native.put=kill@3;board.arrive=delay:5%10": at the third visit of native.put the process kills
// itself; one visit in ten of board.arrive, the same in every run, takes 5 ms longer. Actions: kill, stop, delay:<ms>,
// hold (the visitor waits until the failpoints are replaced), error (the place reports that it failed; only those
// marked * can).
//
//   bootstrap.connected  bootstrap.admit  bootstrap.send      the start: rank 0 reached; a rank admitted; a message
//   bootstrap.wait                                            the next pass over what has come in
//   handshake.step*      shm_setup.enter*  shm_setup.hand_out*  each stage of a handshake; a member comes, is given all
//   segment.create*      segment.attach*   link.listen*         shared memory; the data endpoint
//   board.arrive         cells.put         cells.fold           a counter goes up; small payloads
//   native.put           native.combine   native.finish       local stages: what goes in, is combined, comes out
//   native.make          native.exchange  run.fold            between groups: what is made for the others, has come
//                                                             from them; a fold of what has come
//   link.send*           link.recv*                           data over tcp, by schedule
//   put.send*            put.recv*                            data over tcp, of eager operations
//   engine.break         abort.write                          the epoch ends; the reason is written for the group
#pragma once

#include <string>

#include "common/status.h"

namespace farandole {

// Replaces all failpoints. kInvalid when the text cannot be understood. Any thread may call, before the visits that the
// failpoints are meant for.
Status SetFailpoints(const std::string& text);
// Not ok where the action is `error`: kInternal, naming the failpoint.
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
