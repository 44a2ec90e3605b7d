// A log line never keeps its caller from going on, and never ends the process.
#include "common/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>

namespace farandole {
namespace {

// A pipe in the place of stderr while it lives.
class PipedStderr {
 public:
  PipedStderr() {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
    before_ = dup(STDERR_FILENO);
    dup2(ends_[1], STDERR_FILENO);
  }
  ~PipedStderr() {
    dup2(before_, STDERR_FILENO);
    for (int end : {ends_[0], ends_[1], before_}) close(end);
  }

  void Fill() {
    fcntl(ends_[1], F_SETFL, O_NONBLOCK);
    const std::string page(4096, 'x');
    while (write(ends_[1], page.data(), page.size()) > 0) {
    }
    fcntl(ends_[1], F_SETFL, 0);
  }
  void CloseReader() {
    close(ends_[0]);
    ends_[0] = -1;
  }
  std::string Read() {
    char text[8192];
    const ssize_t size = read(ends_[0], text, sizeof text);
    return std::string(text, size > 0 ? static_cast<size_t>(size) : 0);
  }

 private:
  int ends_[2], before_;
};

TEST(StderrTest, ALineIsWritten) {
  std::string read;
  {
    PipedStderr piped;
    Log(LogLevel::kError, "rank ", 1, " is late");
    read = piped.Read();
  }
  EXPECT_NE(read.find("error: rank 1 is late\n"), std::string::npos) << read;
}

TEST(StderrTest, AFullStderrDropsTheLine) {
  PipedStderr piped;
  piped.Fill();
  alarm(20);  // a write that blocks ends the test program
  Log(LogLevel::kError, "x");
  alarm(0);
}

TEST(StderrTest, AStderrWithoutReaderDropsTheLine) {
  PipedStderr piped;
  piped.CloseReader();
  Log(LogLevel::kError, "x");
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

TEST(StderrTest, ALongLineIsCutWhereThePipeHasRoom) {
  size_t size = 0;
  {
    PipedStderr piped;
    Log(LogLevel::kError, std::string(100'000, 'x'));
    size = piped.Read().size();
  }
  EXPECT_GE(size, 1000u);
}

}  // namespace
}  // namespace farandole
