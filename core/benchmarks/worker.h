// One rank of a contestant in the benchmark: connects to the benchmark, says who it is, then does what it is told,
// batch by batch, and answers with times. Between commands it sleeps in recv, so that contestants that have their turn
// see an idle machine. Used by one thread.
//
//   benchmark -> rank    "<what> <bytes> <repetitions> <batches>\n"
//   rank -> benchmark    "hello <rank> <ranks>\n" once, then per command "<seconds of one> ...\n", a number per batch
//
// The end of the connection is the end of the rank.
#pragma once

#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace bench {

[[noreturn]] inline void Fail(const std::string& what) {
  std::fprintf(stderr, "benchmark: %s\n", what.c_str());
  std::_Exit(1);
}

inline void Require(bool condition, const std::string& what) {
  if (!condition) Fail(what);
}

// For what is timed: makes no string of a literal.
inline void Require(bool condition, const char* what) {
  if (!condition) Fail(what);
}

inline std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  Require(value != nullptr, std::string(name) + " is not set: this program is started by run.py");
  return value;
}

inline double Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Left alone, the scheduler may put two ranks that wait for each other on one core. Threads made later stay there, too.
inline void PinToCore(int rank) {
  cpu_set_t allowed, mine;
  Require(sched_getaffinity(0, sizeof allowed, &allowed) == 0, "sched_getaffinity");
  int wanted = rank % CPU_COUNT(&allowed);
  int core = 0;
  while (!CPU_ISSET(core, &allowed) || wanted-- > 0) ++core;
  CPU_ZERO(&mine);
  CPU_SET(core, &mine);
  Require(sched_setaffinity(0, sizeof mine, &mine) == 0, "sched_setaffinity");
}

// Page-aligned memory that has been written once.
inline float* NewBuffer(size_t bytes) {
  void* const memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  Require(memory != nullptr, "no memory for a buffer of " + std::to_string(bytes) + " bytes");
  std::memset(memory, 0, bytes);
  return static_cast<float*>(memory);
}

struct Command {
  std::string what;
  size_t bytes = 0;
  int repetitions = 0;  // in a batch
  int batches = 0;
};

class Connection {
 public:
  Connection(int rank, int ranks) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const std::string path = Variable("BENCH_SOCKET");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    Require(path.size() < sizeof address.sun_path, "BENCH_SOCKET is too long");
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    Require(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "cannot reach " + path);
    Say("hello " + std::to_string(rank) + " " + std::to_string(ranks));
  }

  // False when there is nothing left to do.
  bool Next(Command* command) {
    std::string line;
    for (char addressed; recv(socket_, &addressed, 1, 0) == 1;) {
      if (addressed == '\n') {
        std::istringstream words(line);
        words >> command->what >> command->bytes >> command->repetitions >> command->batches;
        Require(!words.fail() && command->repetitions > 0, "not a command: " + line);
        return true;
      }
      line += addressed;
    }
    return false;
  }

  void Answer(const std::vector<double>& seconds) {
    std::ostringstream line;
    line.precision(9);
    for (const double each : seconds) line << each << ' ';
    Say(line.str());
  }

 private:
  void Say(std::string line) {
    line += '\n';
    for (size_t sent = 0; sent < line.size();) {
      const ssize_t count = send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
      Require(count > 0, "the benchmark has gone");
      sent += static_cast<size_t>(count);
    }
  }

  const int socket_;
};

// Seconds of one call, for each batch. `together` is called before each batch and brings the ranks together.
template <typename Call, typename Together>
std::vector<double> TimeBatches(const Command& command, Call call, Together together) {
  std::vector<double> seconds;
  for (int batch = 0; batch < command.batches; ++batch) {
    together();
    const double begin = Now();
    for (int i = 0; i < command.repetitions; ++i) call();
    seconds.push_back((Now() - begin) / command.repetitions);
  }
  return seconds;
}

// Looks whether the library's sums of so many elements are right, and leaves zeros.
template <typename Sum>
void CheckSums(int rank, int ranks, float* data, size_t count, Sum sum) {
  for (size_t i = 0; i < count; ++i) data[i] = static_cast<float>(rank + 1 + static_cast<int>(i % 7));
  sum(data, count);
  for (size_t i = 0; i < count; ++i) {
    const int expected = ranks * (ranks + 1) / 2 + ranks * static_cast<int>(i % 7);
    if (data[i] != static_cast<float>(expected)) Fail("a wrong sum of " + std::to_string(count) + " floats");
  }
  std::memset(data, 0, count * sizeof(float));
}

// A contestant whose only operation is an in-place sum of float32. `sum(data, count)` is the library's.
template <typename Sum>
void ServeSums(int rank, int ranks, Sum sum) {
  Connection connection(rank, ranks);
  float* data = nullptr;
  size_t size = 0;
  std::set<size_t> checked;
  for (Command command; connection.Next(&command);) {
    const size_t count = command.bytes / sizeof(float);
    if (command.bytes != size) {
      std::free(data);
      data = NewBuffer(size = command.bytes);
      if (checked.insert(size).second) CheckSums(rank, ranks, data, count, sum);
    }
    float small = 0;
    const auto together = [&] { command.bytes > 1 << 20 ? sum(&small, 1) : sum(data, count); };
    connection.Answer(TimeBatches(command, [&] { sum(data, count); }, together));
  }
  std::free(data);
}

}  // namespace bench
