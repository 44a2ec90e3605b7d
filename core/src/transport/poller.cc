#include "transport/poller.h"

#include <sys/epoll.h>

#include <array>

namespace farandole {

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

void Poller::WatchWriting(int descriptor, uint64_t tag, bool on) {
  epoll_event event{};
  event.events = EPOLLIN | (on ? uint32_t{EPOLLOUT} : 0);
  event.data.u64 = tag;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, descriptor, &event);
}

void Poller::Forget(int descriptor) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr); }

void Poller::Wait(int timeout_ms, std::vector<uint64_t>* tags) const {
  std::array<epoll_event, 32> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  for (int i = 0; i < count; ++i) tags->push_back(events[static_cast<size_t>(i)].data.u64);
}

}  // namespace farandole
