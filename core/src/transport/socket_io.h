// Waits, single sends and receives, and the passing of descriptors over connected sockets.
//
// The caller owns the sockets, which may be blocking or not; no function blocks longer than its deadline. Any thread
// may call; different threads use different sockets. The codes are those of socket.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/descriptor.h"
#include "common/status.h"

namespace farandole {

// ---- waits

// While set, every wait of the transport layer, in any thread, ends with kDeadline within a tenth of a second. Ctrl-C
// during the start of a job sets it.
void CancelWaits(bool cancel);
// Loops that sleep without WaitFor check this.
bool WaitsAreCancelled();
inline constexpr int64_t kCancelIntervalMs = 100;  // the longest that a wait may take to notice it

// True once poll reports any of `events`, or an error, which the next call on the descriptor returns. False at the
// deadline and when waits are cancelled.
bool WaitFor(int fd, short events, Deadline deadline);

// Returns whether the peer has closed or reset the connection, even if earlier bytes are still unread. Never waits.
bool HasPeerClosed(int fd);

// ---- bytes

// Move the bytes that the connection takes or gives now, perhaps none. kPeerLost: the peer has closed or reset the
// connection; after kPeerLost of TrySend, earlier bytes of the peer can still be received. REQUIRES: size_bytes > 0.
Status TrySend(int fd, const void* data, size_t size_bytes, size_t* moved_bytes);
Status TryRecv(int fd, void* data, size_t size_bytes, size_t* moved_bytes);

// The status of a failed send or receive, "what: strerror(errno)". kPeerLost: the connection has ended; after a send,
// reading reports that end, too, behind everything that the peer sent before. kInternal: the system refused, or this
// process is at fault. REQUIRES: errno still holds the error.
Status MoveFailed(const std::string& what);

// ---- descriptors

// Pass open descriptors, whose number both ends know: one byte per <= 200 descriptors, which travel with it.
// REQUIRES: a Unix socket.
//
// Received descriptors are close-on-exec and in the order sent. kMismatch: another number has arrived. kInternal: this
// process may not open so many descriptors. After an error the caller closes the connection, and *descriptors has those
// that arrived.
Status SendDescriptors(int fd, const std::vector<int>& descriptors, Deadline deadline);
Status RecvDescriptors(int fd, size_t count, std::vector<Descriptor>* descriptors, Deadline deadline);

}  // namespace farandole
