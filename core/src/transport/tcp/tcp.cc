// The link over a stream socket. link.h declares MakeTcpLink.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "common/failpoint.h"
#include "transport/link.h"

namespace farandole {
namespace {

// Errors whose cause is in this process, not in the peer or the network.
bool IsOurs(int error) {
  return error == EBADF || error == ENOTSOCK || error == EFAULT || error == EINVAL || error == ENOMEM ||
         error == ENOBUFS;
}

class TcpLink final : public Link {
 public:
  TcpLink(Descriptor descriptor, std::string peer);
  ~TcpLink() override;
  TcpLink(const TcpLink&) = delete;
  TcpLink& operator=(const TcpLink&) = delete;

  Status TrySend(const void* data, size_t size_bytes, size_t* moved_bytes) override;
  Status TryRecv(void* data, size_t size_bytes, size_t* moved_bytes) override;
  int descriptor() const override { return descriptor_.get(); }

 private:
  Status Failure(const char* action, int error) const;

  const Descriptor descriptor_;
  const pid_t owner_;  // the process that made the link
  const std::string peer_;
};

TcpLink::TcpLink(Descriptor descriptor, std::string peer)
    : descriptor_(std::move(descriptor)), owner_(getpid()), peer_(std::move(peer)) {
  const int on = 1;  // a Unix socket refuses, and has no delay
  setsockopt(descriptor_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

TcpLink::~TcpLink() {
  // close alone does not end the connection while a forked child holds a copy of the descriptor. Such a child, however,
  // must leave its parent's connection open.
  if (getpid() == owner_) shutdown(descriptor_.get(), SHUT_WR);
}

Status TcpLink::TrySend(const void* data, size_t size_bytes, size_t* moved_bytes) {
  FRD_RETURN_IF_ERROR(FRD_FAILPOINT_STATUS("link.send"));
  *moved_bytes = 0;
  ssize_t sent;
  do {
    sent = send(descriptor_.get(), data, size_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) {
    *moved_bytes = static_cast<size_t>(sent);
    return Status::Ok();
  }
  return errno == EAGAIN || errno == EWOULDBLOCK ? Status::Ok() : Failure("sending to", errno);
}

Status TcpLink::TryRecv(void* data, size_t size_bytes, size_t* moved_bytes) {
  FRD_RETURN_IF_ERROR(FRD_FAILPOINT_STATUS("link.recv"));
  *moved_bytes = 0;
  ssize_t received;
  do {
    received = recv(descriptor_.get(), data, size_bytes, MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  if (received > 0) {
    *moved_bytes = static_cast<size_t>(received);
    return Status::Ok();
  }
  if (received == 0) return {Code::kPeerLost, peer_ + " left: it closed the connection to this rank"};
  return errno == EAGAIN || errno == EWOULDBLOCK ? Status::Ok() : Failure("receiving from", errno);
}

Status TcpLink::Failure(const char* action, int error) const {
  const std::string what = std::string(action) + " " + peer_ + " failed: " + std::strerror(error);
  return {IsOurs(error) ? Code::kInternal : Code::kPeerLost, what};
}

}  // namespace

std::unique_ptr<Link> MakeTcpLink(Descriptor socket, std::string peer) {
  return std::make_unique<TcpLink>(std::move(socket), std::move(peer));
}

}  // namespace farandole
