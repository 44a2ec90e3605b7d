// Sockets by endpoint text, and whole messages over them with a deadline.
//
// An endpoint is "unix:<abstract name>" or "tcp:<host>:<port>", host being a name, an IPv4 literal or an IPv6 literal
// in [brackets]. Abstract Unix sockets belong to nobody in the file system, so both ends check that the other has our
// user id. For setting up a job: the data plane moves bytes through Link instead. Every descriptor made here is
// close-on-exec and non-blocking; a descriptor made elsewhere may be blocking, no function here blocks longer than its
// deadline (name look-ups, which the system's resolver bounds, excepted).
//
// Codes: kDeadline the time is up; kPeerLost the other end refused, closed or reset; kMismatch it is not one of us or
// breaks the rules, give this connection up and go on; kInvalid the endpoint text is wrong; kInternal the system
// refused.
// Functions are pure but for the descriptors and what the system answers; different threads may use different
// descriptors.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "common/descriptor.h"
#include "common/status.h"

namespace farandole {

using Deadline = std::chrono::steady_clock::time_point;

inline Deadline After(std::chrono::milliseconds span) { return std::chrono::steady_clock::now() + span; }

// While set, every wait in this file, in any thread, ends with kDeadline within a tenth of a second: Ctrl-C while a job
// starts.
void CancelWaits(bool cancel);

// ---- connections

// Port 0 lets the kernel choose; BoundEndpoint says what it chose.
Status Listen(const std::string& endpoint, Descriptor* listener);

// The endpoint others connect to: "tcp:127.0.0.1:40123", "unix:name".
Status BoundEndpoint(int fd, std::string* endpoint);

// For messages: " at 10.0.0.2:4711"; "" for an abstract Unix socket, whose name tells nobody anything.
std::string AtEndpoint(const std::string& endpoint);

// Waits for one connection. kMismatch: a process of another user knocked and was shown out; call again.
Status Accept(int listener_fd, Deadline deadline, Descriptor* connection);

// An attempt in two halves that do not block (name look-ups excepted): the first begins to connect to one of the
// endpoint's addresses, the attempt-th, going round; once poll reports POLLOUT the second says whether it came to be.
// kPeerLost when nobody listens there.
Status BeginConnect(const std::string& endpoint, size_t attempt, Descriptor* connection);
Status EndConnect(const std::string& endpoint, int fd);

// Who is at the other end, for messages: "tcp:10.0.0.2:4711", "unix:name", "process 4711 on this machine".
std::string DescribePeer(int fd);

// ---- bytes

// Move what the connection takes or gives now, which may be nothing. REQUIRES: size_bytes > 0.
Status TrySend(int fd, const void* data, size_t size_bytes, size_t* moved_bytes);
Status TryRecv(int fd, void* data, size_t size_bytes, size_t* moved_bytes);

// Of a send that failed. kPeerLost: the connection has ended, which reading tells, too, behind what was sent before;
// kInternal: the system refused, and the connection goes on. REQUIRES: errno still holds the error.
Status SendFailed(const std::string& what);

Status SendAll(int fd, const void* data, size_t size_bytes, Deadline deadline);
Status RecvAll(int fd, void* data, size_t size_bytes, Deadline deadline);

// Passes open descriptors, any number of them, with a few bytes that say what they are. REQUIRES: a Unix socket.
//
//   | count, uint32 | length, uint32 | length bytes | one byte per <= 200 descriptors, which ride on it |
//
// Received descriptors are close-on-exec and in the order sent. The receiver takes no more than its limits (else
// kMismatch).
Status SendDescriptors(int fd, const std::vector<int>& descriptors, const std::string& payload, Deadline deadline);
Status RecvDescriptors(int fd, size_t limit_count, size_t limit_bytes, std::vector<Descriptor>* descriptors,
                       std::string* payload, Deadline deadline);

// Of the interfaces that are up, in their order, each with the length of its network's part: "10.0.0.7/24",
// "2001:db8::7/64". Without loopback and without addresses that mean something on one cable only.
Status HostAddresses(std::vector<std::string>* addresses);

}  // namespace farandole
