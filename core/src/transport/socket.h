// Sockets by endpoint text: listening, accepting, connecting, and names of the other end.
//
// An endpoint is "unix:<abstract name>" or "tcp:<host>:<port>", host being a name, an IPv4 literal or an IPv6 literal
// in [brackets]. Abstract Unix sockets have no owner in the file system, so each end checks that the other has its user
// id. The start of a job uses these functions; socket_io.h moves bytes over the sockets.
//
// The caller owns each descriptor that it gets. Descriptors are close-on-exec and non-blocking, and no function blocks
// longer than its deadline, except for name look-ups, which the system's resolver bounds. Any thread may call;
// different threads use different descriptors.
//
// Codes: kDeadline the time is up; kPeerLost the other end refused, closed or reset; kMismatch the other end belongs to
// another user or breaks the protocol: the caller closes this connection and goes on; kInvalid the endpoint text is
// wrong; kInternal the system refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/descriptor.h"
#include "common/status.h"

namespace farandole {

// ---- listening

// Tries the addresses of a name in their order and listens at the first one that the system allows. Port 0 lets the
// kernel choose; BoundEndpoint says what it chose. kInternal: the system allows none.
Status Listen(const std::string& endpoint, Descriptor* listener);

// The endpoint that others connect to: "tcp:127.0.0.1:40123", "unix:name".
Status BoundEndpoint(int fd, std::string* endpoint);

// Waits for one connection. kMismatch: a process of another user connected and was refused; call again.
Status Accept(int listener_fd, Deadline deadline, Descriptor* connection);

// ---- connecting

// Two steps of an attempt that do not block (name look-ups excepted). The first begins to connect to address number
// `attempt` of the endpoint, modulo their count, so that attempts try all addresses. Once poll reports POLLOUT, the
// second says whether the connection was made. kPeerLost: nobody listens there.
Status BeginConnect(const std::string& endpoint, size_t attempt, Descriptor* connection);
Status EndConnect(const std::string& endpoint, int fd);

// How long the kernel of another host may be silent until TCP connections with it fail, for the connections that this
// process makes and accepts from now on: FARANDOLE_SILENCE_TIMEOUT, at least 1 s. 4 s unless this was called.
void SetSilenceTimeout(int64_t milliseconds);

// A TCP connection then fails so long after the other host has stopped to answer, also while data are under way. Not
// for connections that a slow reader may fill: the kernel counts a full window as silence, so the peers of a rank that
// is merely stopped would lose it. Others notice a dead host only while they are idle.
void FailWhenUnanswered(int fd);

// ---- names

// For messages: " at 10.0.0.2:4711"; "" for an abstract Unix socket, whose name tells users nothing.
std::string AtEndpoint(const std::string& endpoint);

// The other end of a connection, for messages: "tcp:10.0.0.2:4711", "unix:name", "process 4711 on this machine".
std::string DescribePeer(int fd);

// ---- this host

// The addresses of the interfaces that are up, in their order, each with its prefix length: "10.0.0.7/24",
// "2001:db8::7/64". Loopback and link-local addresses are left out.
Status HostAddresses(std::vector<std::string>* addresses);

}  // namespace farandole
