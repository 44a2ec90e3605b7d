// A connection in one call, and other functions that several tests of sockets share.
#pragma once

#include <fcntl.h>
#include <poll.h>

#include <chrono>
#include <string>

#include "transport/socket.h"
#include "transport/socket_io.h"

namespace farandole {

// A deadline for operations that take no time, on a machine that may be busy.
inline Deadline Soon() { return After(std::chrono::milliseconds(5000)); }

inline bool IsCloseOnExec(int fd) { return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0; }

inline Status ConnectAttempt(const std::string& endpoint, size_t attempt, Deadline deadline, Descriptor* connection) {
  FRD_RETURN_IF_ERROR(BeginConnect(endpoint, attempt, connection));
  if (!WaitFor(connection->get(), POLLOUT, deadline)) return {Code::kDeadline, endpoint + ": no answer"};
  return EndConnect(endpoint, connection->get());
}

// Connects; kPeerLost at once when nobody listens there. A name may have two addresses, of which the listener has one.
inline Status ConnectOnce(const std::string& endpoint, Deadline deadline, Descriptor* connection) {
  Status status;
  for (size_t attempt = 0; attempt < 2; ++attempt) {
    status = ConnectAttempt(endpoint, attempt, deadline, connection);
    if (status.code() != Code::kPeerLost) return status;
    connection->Reset();
  }
  return status;
}

// Retries while nobody listens there yet.
inline Status ConnectRetry(const std::string& endpoint, Deadline deadline, Descriptor* connection) {
  for (;;) {
    const Status status = ConnectOnce(endpoint, deadline, connection);
    if (status.code() != Code::kPeerLost || std::chrono::steady_clock::now() >= deadline) return status;
  }
}

// Send and receive all bytes; kDeadline when the other end neither reads nor writes.
inline Status SendAll(int fd, const void* data, size_t size_bytes, Deadline deadline) {
  for (size_t done = 0, moved = 0; done < size_bytes; done += moved) {
    FRD_RETURN_IF_ERROR(TrySend(fd, static_cast<const char*>(data) + done, size_bytes - done, &moved));
    if (moved == 0 && !WaitFor(fd, POLLOUT, deadline)) return {Code::kDeadline, "the other end does not read"};
  }
  return Status::Ok();
}
inline Status RecvAll(int fd, void* data, size_t size_bytes, Deadline deadline) {
  for (size_t done = 0, moved = 0; done < size_bytes; done += moved) {
    FRD_RETURN_IF_ERROR(TryRecv(fd, static_cast<char*>(data) + done, size_bytes - done, &moved));
    if (moved == 0 && !WaitFor(fd, POLLIN, deadline)) return {Code::kDeadline, "the other end does not write"};
  }
  return Status::Ok();
}

}  // namespace farandole
