#include "transport/poll.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "transport/socket_io.h"

namespace farandole {
namespace {

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

Descriptor OpenPidfd(pid_t pid) { return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

}  // namespace

// ---- PollSet

void PollSet::Add(const Descriptor& descriptor, short events) {
  if (!descriptor.valid()) return;
  entries_.push_back({descriptor.get(), events, 0});
  serials_.push_back(descriptor.serial());
}

void PollSet::WakeAt(TimePoint time) { wake_ = std::min(wake_, time); }

bool PollSet::Wait() {
  ready_.clear();
  while (!WaitsAreCancelled()) {
    const TimePoint now = Now();
    const TimePoint until = std::min(std::max(wake_, now), now + std::chrono::milliseconds(kCancelIntervalMs));
    const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    const int count = poll(entries_.data(), entries_.size(), static_cast<int>(left_ms));
    if (count <= 0 && Now() < wake_) continue;
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].revents != 0) ready_.insert(serials_[i]);
    }
    break;
  }
  entries_.clear();
  serials_.clear();
  wake_ = TimePoint::max();
  return !WaitsAreCancelled();
}

// ---- Poller

Status Poller::Open() {
  epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  return epoll_.get() >= 0 ? Status::Ok() : SystemError("epoll_create1");
}

Status Poller::Watch(int descriptor, uint64_t tag, bool edge_triggered) {
  epoll_event event{};
  event.events = edge_triggered ? (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) : EPOLLIN;
  event.data.u64 = tag;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) return SystemError("epoll_ctl");
  return Status::Ok();
}

void Poller::Forget(int descriptor) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr); }

// Polling the epoll descriptor itself leaves the edges for Wait.
void Poller::Sleep(int timeout_ms) const {
  pollfd entry{epoll_.get(), POLLIN, 0};
  poll(&entry, 1, timeout_ms);
}

void Poller::Wait(int timeout_ms, std::vector<uint64_t>* tags) const {
  std::array<epoll_event, 32> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  for (int i = 0; i < count; ++i) tags->push_back(events[static_cast<size_t>(i)].data.u64);
}

// ---- pidfds

Status OpenOwnPidfd(Descriptor* pidfd) {
  *pidfd = OpenPidfd(getpid());
  return pidfd->valid() ? Status::Ok() : SystemError("pidfd_open (Linux 5.3 or newer is needed to share memory)");
}

Descriptor PidfdOfPeer(int fd) {
  ucred peer = {};
  socklen_t size_bytes = sizeof(peer);
  const bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size_bytes) == 0 && peer.pid > 0;
  return known ? OpenPidfd(peer.pid) : Descriptor();
}

}  // namespace farandole
