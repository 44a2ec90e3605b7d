#include "common/log.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace farandole {
namespace {

// Keeps the SIGPIPE of one write from the process: blocked in this thread, and consumed there.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

  void Consume() const {
    const timespec at_once = {0, 0};
    sigtimedwait(&pipe_, nullptr, &at_once);
  }

 private:
  sigset_t pipe_, before_;
};

}  // namespace

// A pipe that poll() calls writable takes PIPE_BUF bytes without blocking.
void WriteToStderr(const std::string& line) {
  pollfd stream = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&stream, 1, 0) <= 0 || (stream.revents & POLLOUT) == 0) return;
  const NoSigpipe guard;
  if (write(STDERR_FILENO, line.data(), std::min<size_t>(line.size(), PIPE_BUF)) < 0 && errno == EPIPE) guard.Consume();
}

}  // namespace farandole
