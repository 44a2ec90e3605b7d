// Measures the limits of the machine, beside the contestants: one process per core, in-place float32 data. Commands:
//
//   exchange  both write a cache line and wait for the other's                       what 4 bytes cost at least
//   hop       one writes a cache line, the other sees it and answers: half of that
//   cross     both add up what the other has just written, both ways at once         what bytes in caches cost at least
//   memory    everybody adds to a buffer in place                                    what bytes in DRAM cost at least
//   socket    both send and receive the bytes over TCP on the loopback interface     what bytes on a link cost at least
//
// Only the first two processes take part in what needs two; the others answer with the time 0.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "common/clock.h"
#include "worker.h"

namespace {

constexpr size_t kMaxCrossBytes = 32u << 20;
constexpr int kSocketBufferBytes = 4 << 20;
constexpr size_t kSocketChunks[] = {64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20};

struct alignas(128) Line {
  std::atomic<uint32_t> number{0};
};

// Zero-filled at the beginning. The two sides write to different cache lines.
struct Shared {
  Line arrived[2];
  Line line[2];
  Line port;
  alignas(4096) float data[2][kMaxCrossBytes / sizeof(float)];
};

class Limits {
 public:
  Limits(int rank, int processes, Shared* shared) : me_(rank), processes_(processes), shared_(shared) {
    bench::PinToCore(rank);
    if (me_ < 2 && processes > 1) socket_ = Connect();
  }

  std::vector<double> Measure(const bench::Command& command) {
    if (command.what == "memory") return Memory(command);
    if (me_ > 1 || processes_ < 2) return std::vector<double>(static_cast<size_t>(command.batches), 0.0);
    if (command.what == "exchange") return TimeBatches(command, [this] { ExchangeLines(); }, [this] { Meet(); });
    if (command.what == "hop") return Hop(command);
    if (command.what == "cross") return Cross(command);
    if (command.what == "socket") return Socket(command);
    bench::Fail("no such limit: " + command.what);
  }

 private:
  // Both are here.
  void Meet() {
    const uint32_t mine = ++meetings_;
    shared_->arrived[me_].number.store(mine, std::memory_order_release);
    while (static_cast<int32_t>(shared_->arrived[1 - me_].number.load(std::memory_order_acquire) - mine) < 0)
      farandole::CpuPause();
  }

  void ExchangeLines() {
    const uint32_t mine = ++lines_;
    shared_->line[me_].number.store(mine, std::memory_order_release);
    while (static_cast<int32_t>(shared_->line[1 - me_].number.load(std::memory_order_acquire) - mine) < 0) {
    }
  }

  std::vector<double> Hop(const bench::Command& command) {
    const auto there_and_back = [this] {
      const uint32_t mine = ++lines_;
      if (me_ == 0) shared_->line[0].number.store(mine, std::memory_order_release);
      while (shared_->line[1 - me_].number.load(std::memory_order_acquire) != mine) {
      }
      if (me_ == 1) shared_->line[1].number.store(mine, std::memory_order_release);
    };
    std::vector<double> seconds = TimeBatches(command, there_and_back, [this] { Meet(); });
    for (double& each : seconds) each /= 2;
    return seconds;
  }

  // Only the reading is timed.
  std::vector<double> Cross(const bench::Command& command) {
    bench::Require(command.bytes <= kMaxCrossBytes, "too many bytes for `cross`");
    const size_t count = command.bytes / sizeof(float);
    Resize(command.bytes);
    float* __restrict mine = data_.get();
    float* __restrict written = shared_->data[me_];
    const float* __restrict read = shared_->data[1 - me_];
    std::vector<double> seconds;
    for (int batch = 0; batch < command.batches; ++batch) {
      for (size_t i = 0; i < count; ++i) written[i] = static_cast<float>(batch);
      Meet();
      const double begin = bench::Now();
      for (size_t i = 0; i < count; ++i) mine[i] += read[i];
      seconds.push_back(bench::Now() - begin);
      Meet();
    }
    return seconds;
  }

  std::vector<double> Memory(const bench::Command& command) {
    const size_t count = command.bytes / sizeof(float);
    Resize(command.bytes);
    float* const data = data_.get();
    const auto pass = [=] {
      for (size_t i = 0; i < count; ++i) data[i] += 1.0f;
    };
    return TimeBatches(command, pass, [this] { me_ < 2 && processes_ > 1 ? Meet() : void(); });
  }

  // A chunk size per batch, in turn. Received bytes go to one place: what has to be written elsewhere is not the
  // link's.
  std::vector<double> Socket(const bench::Command& command) {
    Resize(command.bytes);
    std::vector<double> seconds;
    for (int batch = 0; batch < command.batches; ++batch) {
      bench::Command one = command;
      one.batches = 1;
      const size_t chunk = kSocketChunks[next_chunk_++ % std::size(kSocketChunks)];
      seconds.push_back(TimeBatches(one, [&] { ExchangeBytes(one.bytes, chunk); }, [this] { Meet(); }).front());
    }
    return seconds;
  }

  void ExchangeBytes(size_t bytes, size_t chunk) {
    const char* const out = reinterpret_cast<const char*>(data_.get());
    static std::vector<char> in(kSocketChunks[std::size(kSocketChunks) - 1]);
    for (size_t sent = 0, received = 0; sent < bytes || received < bytes;) {
      if (sent < bytes) {
        const ssize_t count = send(socket_, out + sent, std::min(chunk, bytes - sent), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count > 0) sent += static_cast<size_t>(count);
      }
      if (received < bytes) {
        const ssize_t count = recv(socket_, in.data(), std::min(chunk, bytes - received), MSG_DONTWAIT);
        bench::Require(count != 0, "the other process has gone");
        if (count > 0) received += static_cast<size_t>(count);
      }
    }
  }

  int Connect() {
    const int listener = NewSocket();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    if (me_ == 0) {
      bench::Require(bind(listener, raw, size) == 0 && listen(listener, 1) == 0, "cannot listen");
      bench::Require(getsockname(listener, raw, &size) == 0, "getsockname");
      shared_->port.number.store(address.sin_port);
      const int accepted = accept(listener, nullptr, nullptr);
      bench::Require(accepted >= 0, "cannot accept");
      const int one = 1;
      setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      close(listener);
      return accepted;
    }
    while (shared_->port.number.load() == 0) sched_yield();
    address.sin_port = static_cast<in_port_t>(shared_->port.number.load());
    bench::Require(connect(listener, raw, size) == 0, "cannot connect");
    return listener;
  }

  static int NewSocket() {
    const int created = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bench::Require(created >= 0, "no socket");
    const int one = 1;
    setsockopt(created, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(created, SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof kSocketBufferBytes);
    setsockopt(created, SOL_SOCKET, SO_RCVBUF, &kSocketBufferBytes, sizeof kSocketBufferBytes);
    return created;
  }

  void Resize(size_t bytes) {
    if (bytes == size_) return;
    data_.reset(bench::NewBuffer(bytes));
    size_ = bytes;
  }

  struct Free {
    void operator()(float* data) const { std::free(data); }
  };

  const int me_;
  const int processes_;
  Shared* const shared_;
  std::unique_ptr<float[], Free> data_;
  size_t size_ = 0;
  int socket_ = -1;
  uint32_t meetings_ = 0;
  uint32_t lines_ = 0;
  size_t next_chunk_ = 0;
};

}  // namespace

int main() {
  const int rank = std::stoi(bench::Variable("BENCH_RANK"));
  const int processes = std::stoi(bench::Variable("BENCH_RANKS"));
  const int file = open(bench::Variable("BENCH_SHARED").c_str(), O_RDWR | O_CLOEXEC);
  bench::Require(file >= 0 && ftruncate(file, sizeof(Shared)) == 0, "no shared memory");
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  bench::Require(memory != MAP_FAILED, "no shared memory");
  bench::Connection connection(rank, processes);
  Limits limits(rank, processes, static_cast<Shared*>(memory));
  for (bench::Command command; connection.Next(&command);) connection.Answer(limits.Measure(command));
  return 0;
}
