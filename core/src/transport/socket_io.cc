#include "transport/socket_io.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <thread>

#include "transport/socket.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

constexpr size_t kDescriptorsPerMessage = 200;  // the kernel takes 253

std::atomic<bool> g_waits_cancelled{false};

bool IsTemporary(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

Status Lost(int fd, const std::string& what) { return {Code::kPeerLost, DescribePeer(fd), " ", what}; }

// As MoveFailed, and names the peer, which may change errno.
Status MoveFailedWith(int fd, const std::string& what) {
  const int error = errno;
  const std::string peer = DescribePeer(fd);
  errno = error;
  return MoveFailed(what + peer);
}

// ---- descriptors

// The message that carries one byte and, in its control part, descriptors.
struct DescriptorMessage {
  char byte = 'D';
  iovec piece = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsPerMessage * sizeof(int))] = {};
  msghdr message = {};

  DescriptorMessage() {
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;
};

Status SendSome(int fd, const int* descriptors, size_t count, Deadline deadline) {
  DescriptorMessage passing;
  passing.message.msg_controllen = CMSG_SPACE(count * sizeof(int));
  cmsghdr* const header = CMSG_FIRSTHDR(&passing.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(count * sizeof(int));
  std::memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
  for (;;) {
    if (sendmsg(fd, &passing.message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) return Status::Ok();
    if (errno == ETOOMANYREFS && Now() < deadline) {
      // The kernel's limit of descriptors in transit is reached; it frees up as receivers take theirs.
      std::this_thread::sleep_for(milliseconds(1));
    } else if (!IsTemporary(errno)) {
      return MoveFailedWith(fd, "passing descriptors to ");
    } else if (!WaitFor(fd, POLLOUT, deadline)) {
      return {Code::kDeadline, DescribePeer(fd), " did not take the descriptors in time"};
    }
  }
}

// Takes all descriptors that have arrived, wanted or not, so that none leaks.
void TakeAll(msghdr* message, std::vector<Descriptor>* descriptors) {
  for (cmsghdr* header = CMSG_FIRSTHDR(message); header != nullptr; header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      descriptors->emplace_back(fd);
    }
  }
}

Status RecvSome(int fd, size_t count, std::vector<Descriptor>* descriptors, Deadline deadline) {
  const size_t before = descriptors->size();
  for (;;) {
    DescriptorMessage passing;
    const ssize_t got = recvmsg(fd, &passing.message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got == 0) return Lost(fd, "closed the connection before it passed its descriptors");
    if (got > 0) {
      TakeAll(&passing.message, descriptors);
      if ((passing.message.msg_flags & MSG_CTRUNC) != 0) {
        return Internal(
            "this process may not open the descriptors that were passed to it: raise the limit (ulimit -n)");
      }
      if (descriptors->size() - before == count) return Status::Ok();
      return Status(Code::kMismatch, DescribePeer(fd), " passed ", descriptors->size() - before, " descriptors where ",
                    count, " were expected");
    }
    if (!IsTemporary(errno)) return MoveFailedWith(fd, "receiving descriptors from ");
    if (!WaitFor(fd, POLLIN, deadline)) return {Code::kDeadline, DescribePeer(fd), " passed no descriptors in time"};
  }
}

}  // namespace

bool WaitFor(int fd, short events, Deadline deadline) {
  for (;;) {
    // Rounds up, since waking a fraction of a millisecond early would spin until the deadline.
    const auto left = std::chrono::ceil<milliseconds>(deadline - Now()).count();
    pollfd entry = {fd, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left, 0, kCancelIntervalMs)));
    if (ready > 0) return true;
    if (left <= 0 || WaitsAreCancelled()) return false;
  }
}

bool HasPeerClosed(int fd) {
  pollfd entry = {fd, POLLRDHUP, 0};
  return poll(&entry, 1, 0) > 0;
}

void CancelWaits(bool cancel) { g_waits_cancelled = cancel; }
bool WaitsAreCancelled() { return g_waits_cancelled; }

Status TrySend(int fd, const void* data, size_t size_bytes, size_t* moved_bytes) {
  const ssize_t sent = send(fd, data, size_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  *moved_bytes = sent > 0 ? static_cast<size_t>(sent) : 0;
  return sent >= 0 || IsTemporary(errno) ? Status::Ok() : MoveFailedWith(fd, "sending to ");
}

Status TryRecv(int fd, void* data, size_t size_bytes, size_t* moved_bytes) {
  const ssize_t got = recv(fd, data, size_bytes, MSG_DONTWAIT);
  *moved_bytes = got > 0 ? static_cast<size_t>(got) : 0;
  if (got == 0) return Lost(fd, "closed the connection");
  return got > 0 || IsTemporary(errno) ? Status::Ok() : MoveFailedWith(fd, "receiving from ");
}

Status MoveFailed(const std::string& what) {
  constexpr int kOurs[] = {ENOBUFS, ENOMEM, EBADF, ENOTSOCK, EFAULT, EINVAL, ETOOMANYREFS};
  const bool is_ours = std::find(std::begin(kOurs), std::end(kOurs), errno) != std::end(kOurs);
  const Status error = SystemError(what);
  return is_ours ? error : Status(Code::kPeerLost, error.message());
}

Status SendDescriptors(int fd, const std::vector<int>& descriptors, Deadline deadline) {
  for (size_t sent = 0; sent < descriptors.size(); sent += kDescriptorsPerMessage) {
    const size_t count = std::min(kDescriptorsPerMessage, descriptors.size() - sent);
    FRD_RETURN_IF_ERROR(SendSome(fd, descriptors.data() + sent, count, deadline));
  }
  return Status::Ok();
}

Status RecvDescriptors(int fd, size_t count, std::vector<Descriptor>* descriptors, Deadline deadline) {
  descriptors->clear();
  while (descriptors->size() < count) {
    const size_t next = std::min(kDescriptorsPerMessage, count - descriptors->size());
    FRD_RETURN_IF_ERROR(RecvSome(fd, next, descriptors, deadline));
  }
  return Status::Ok();
}

}  // namespace farandole
