// Raw sockets between two hosts, beside the contestants: the limits of a link. Commands:
//
//   streams-S-T   both send and receive the bytes over S connections, with T threads   the time of all bytes
//   trip          one sends the bytes, the other answers with as many                  half of that
//
// With two threads one sends and the other receives. Received bytes go to one place: to write them elsewhere is not
// the link's work. A process sleeps while it can do nothing, except in `trip`, where it polls.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "worker.h"

namespace {

constexpr int kMaxStreams = 4;
constexpr size_t kMaxBytesAtOnce = 256 << 10;
constexpr int kBufferBytes = 4 << 20;  // as the core's
constexpr int kPort = 7100;

// Zero-filled at the beginning.
struct Shared {
  std::atomic<uint32_t> arrived[2];
};

class Wire {
 public:
  Wire(int rank, Shared* shared) : me_(rank), shared_(shared), in_(kMaxBytesAtOnce) { Connect(); }

  std::vector<double> Measure(const bench::Command& command) {
    Resize(command.bytes);
    int streams = 0, threads = 0;
    if (command.what == "trip") {
      std::vector<double> seconds = TimeBatches(command, [&] { Trip(command.bytes); }, [this] { Meet(); });
      for (double& each : seconds) each /= 2;
      return seconds;
    }
    const bool understood = std::sscanf(command.what.c_str(), "streams-%d-%d", &streams, &threads) == 2;
    bench::Require(understood && streams >= 1 && streams <= kMaxStreams, "no such limit: " + command.what);
    return TimeBatches(command, [&] { Exchange(command.bytes, streams, threads); }, [this] { Meet(); });
  }

 private:
  void Meet() {
    const uint32_t mine = ++meetings_;
    shared_->arrived[me_].store(mine, std::memory_order_release);
    while (static_cast<int32_t>(shared_->arrived[1 - me_].load(std::memory_order_acquire) - mine) < 0) sched_yield();
  }

  // ---- streams

  struct Stream {
    int fd;
    size_t to_send, to_receive;  // bytes
    const char* next;
  };

  void Exchange(size_t bytes, int streams, int threads) {
    std::vector<Stream> all;
    for (int i = 0; i < streams; ++i) {
      const size_t begin = bytes * static_cast<size_t>(i) / static_cast<size_t>(streams);
      const size_t end = bytes * static_cast<size_t>(i + 1) / static_cast<size_t>(streams);
      all.push_back({sockets_[static_cast<size_t>(i)], end - begin, end - begin, data_.data() + begin});
    }
    if (threads == 1) return Move(all);
    std::vector<Stream> sent = all;
    for (Stream& stream : sent) stream.to_receive = 0;
    for (Stream& stream : all) stream.to_send = 0;
    std::thread sender([&sent, this] {
      Unpin();
      Move(sent);
    });
    Move(all);
    sender.join();
  }

  void Move(std::vector<Stream>& streams) {
    std::vector<pollfd> waits(streams.size());
    for (bool open = true; open;) {
      open = false;
      bool moved = false;
      for (size_t i = 0; i < streams.size(); ++i) {
        Stream& stream = streams[i];
        moved |= Send(&stream) | Receive(&stream);
        const int events = (stream.to_send > 0 ? POLLOUT : 0) | (stream.to_receive > 0 ? POLLIN : 0);
        waits[i] = {events == 0 ? -1 : stream.fd, static_cast<short>(events), 0};
        open |= events != 0;
      }
      if (open && !moved) poll(waits.data(), waits.size(), -1);
    }
  }

  static bool Send(Stream* stream) {
    if (stream->to_send == 0) return false;
    const ssize_t count =
        send(stream->fd, stream->next, std::min(kMaxBytesAtOnce, stream->to_send), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count <= 0) return false;
    stream->next += count;
    stream->to_send -= static_cast<size_t>(count);
    return true;
  }

  bool Receive(Stream* stream) {
    if (stream->to_receive == 0) return false;
    const ssize_t count = recv(stream->fd, in_.data(), std::min(kMaxBytesAtOnce, stream->to_receive), MSG_DONTWAIT);
    bench::Require(count != 0, "the other process has gone");
    if (count <= 0) return false;
    stream->to_receive -= static_cast<size_t>(count);
    return true;
  }

  // ---- a trip

  void Trip(size_t bytes) {
    if (me_ == 0) SendAll(bytes);
    for (size_t left = bytes; left > 0;) {
      const ssize_t count = recv(sockets_[0], in_.data(), std::min(kMaxBytesAtOnce, left), MSG_DONTWAIT);
      bench::Require(count != 0, "the other process has gone");
      if (count > 0) left -= static_cast<size_t>(count);
    }
    if (me_ == 1) SendAll(bytes);
  }

  void SendAll(size_t bytes) {
    for (size_t sent = 0; sent < bytes;) {
      const ssize_t count = send(sockets_[0], data_.data() + sent, bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count > 0) sent += static_cast<size_t>(count);
    }
  }

  // ---- connections

  void Connect() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(kPort);
    bench::Require(inet_aton(bench::Variable("BENCH_ADDRESS").c_str(), &address.sin_addr) == 1, "BENCH_ADDRESS");
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    const int listener = me_ == 0 ? NewSocket() : -1;
    if (me_ == 0) {
      bench::Require(bind(listener, raw, sizeof address) == 0 && listen(listener, kMaxStreams) == 0, "cannot listen");
    }
    Meet();
    for (int i = 0; i < kMaxStreams; ++i) {
      const int made = me_ == 0 ? accept(listener, nullptr, nullptr) : NewSocket();
      if (me_ == 1) bench::Require(connect(made, raw, sizeof address) == 0, "cannot connect");
      bench::Require(made >= 0, "cannot accept");
      const int one = 1;
      setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      sockets_.push_back(made);
    }
    if (me_ == 0) close(listener);
  }

  static int NewSocket() {
    const int created = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bench::Require(created >= 0, "no socket");
    const int one = 1;
    setsockopt(created, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(created, SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof kBufferBytes);
    setsockopt(created, SOL_SOCKET, SO_RCVBUF, &kBufferBytes, sizeof kBufferBytes);
    return created;
  }

  static void Unpin() {
    cpu_set_t all;
    std::memset(&all, 0xff, sizeof all);
    sched_setaffinity(0, sizeof all, &all);
  }

  void Resize(size_t bytes) {
    if (data_.size() < bytes) data_.assign(bytes, 1);
  }

  const int me_;
  Shared* const shared_;
  std::vector<char> data_, in_;
  std::vector<int> sockets_;
  uint32_t meetings_ = 0;
};

}  // namespace

int main() {
  const int rank = std::stoi(bench::Variable("BENCH_RANK"));
  bench::PinToCore(rank);
  const int file = open(bench::Variable("BENCH_SHARED").c_str(), O_RDWR | O_CLOEXEC);
  bench::Require(file >= 0 && ftruncate(file, sizeof(Shared)) == 0, "no shared memory");
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  bench::Require(memory != MAP_FAILED, "no shared memory");
  bench::Connection connection(rank, 2);
  Wire wire(rank, static_cast<Shared*>(memory));
  for (bench::Command command; connection.Next(&command);) connection.Answer(wire.Measure(command));
  return 0;
}
