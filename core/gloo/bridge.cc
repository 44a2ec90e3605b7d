// libfarandole_gloo.so, see bridge.h: the only file that is compiled against Gloo.
#include "backends/gloo/bridge.h"

#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "interruptible.h"

namespace {

using farandole_gloo::Interruptible;

// Gloo's own rendezvous wants a store that it can wait at; here the core carries all addresses at once instead.
class MetContext final : public gloo::Context {
 public:
  MetContext(const char* address, int position, int members, std::chrono::milliseconds limit)
      : gloo::Context(position, members) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = address;
    device_ = gloo::transport::tcp::CreateDevice(attributes);
    interruptible_ = std::make_shared<Interruptible>(device_->createContext(rank, size));
    transportContext_ = interruptible_;
    // Before there are connections, which take it over; until then the transport's is any number.
    setTimeout(limit);
    interruptible_->SetLimit(limit);
  }

  // One connection to every other member, listening.
  void Listen(char* greeting) {
    std::memset(greeting, 0, static_cast<size_t>(size) * FRD_GLOO_ADDRESS_BYTES);
    for (int other = 0; other < size; ++other) {
      if (other == rank) continue;
      const std::vector<char> bytes = transportContext_->createPair(other)->address().bytes();
      char* const to = greeting + other * FRD_GLOO_ADDRESS_BYTES;
      if (bytes.size() > FRD_GLOO_ADDRESS_BYTES - 1) throw std::runtime_error("an address of Gloo's is too long");
      *to = static_cast<char>(bytes.size());
      std::memcpy(to + 1, bytes.data(), bytes.size());
    }
  }

  void Interrupt() { interruptible_->Interrupt(); }

  void Connect(const char* greetings) {
    for (int other = 0; other < size; ++other) {
      if (other == rank) continue;
      const char* const from = greetings + (other * size + rank) * FRD_GLOO_ADDRESS_BYTES;
      transportContext_->getPair(other)->connect(std::vector<char>(from + 1, from + 1 + static_cast<uint8_t>(*from)));
    }
  }

 private:
  std::shared_ptr<Interruptible> interruptible_;
};

using ContextPtr = std::shared_ptr<MetContext>;

const ContextPtr& Of(void* context) { return *static_cast<ContextPtr*>(context); }

template <typename Body>
int Guarded(char* error, Body body) {
  try {
    body();
    return 0;
  } catch (const std::exception& exception) {
    std::strncpy(error, exception.what(), FRD_GLOO_ERROR_BYTES - 1);
  } catch (...) {
    std::strncpy(error, "Gloo threw something unknown", FRD_GLOO_ERROR_BYTES - 1);
  }
  error[FRD_GLOO_ERROR_BYTES - 1] = '\0';
  return 1;
}

void* Listen(const char* address, int position, int size, int64_t timeout_ms, char* greeting, char* error) {
  ContextPtr* made = nullptr;
  Guarded(error, [&] {
    auto context = std::make_shared<MetContext>(address, position, size, std::chrono::milliseconds(timeout_ms));
    context->Listen(greeting);
    made = new ContextPtr(std::move(context));
  });
  return made;
}

int Connect(void* context, const char* greetings, char* error) {
  return Guarded(error, [&] { Of(context)->Connect(greetings); });
}

void Close(void* context) { Of(context)->Interrupt(); }

void Destroy(void* context) {
  char ignored[FRD_GLOO_ERROR_BYTES];
  Guarded(ignored, [&] { Of(context)->closeConnections(); });
  delete static_cast<ContextPtr*>(context);
}

template <typename Element>
void Reduce(void* context, const void* input, void* output, size_t count, const gloo::AllreduceOptions::Func& reduce) {
  gloo::AllreduceOptions options(Of(context));
  if (input != output) options.setInput(static_cast<Element*>(const_cast<void*>(input)), count);
  options.setOutput(static_cast<Element*>(output), count);
  options.setReduceFunction(reduce);
  gloo::allreduce(options);
}

int Allreduce(void* context, const void* input, void* output, size_t element_count, size_t element_bytes,
              FrdGlooReduce reduce, void* argument, char* error) {
  return Guarded(error, [&] {
    const auto call = [reduce, argument](void* to, const void* left, const void* right, size_t count) {
      reduce(argument, to, left, right, count);
    };
    switch (element_bytes) {  // Gloo cuts vectors between elements, and wants to know no more of them
      case 1:
        return Reduce<uint8_t>(context, input, output, element_count, call);
      case 2:
        return Reduce<uint16_t>(context, input, output, element_count, call);
      case 4:
        return Reduce<uint32_t>(context, input, output, element_count, call);
      default:
        return Reduce<uint64_t>(context, input, output, element_count, call);
    }
  });
}

int Broadcast(void* context, void* data, size_t size_bytes, int root, char* error) {
  return Guarded(error, [&] {
    gloo::BroadcastOptions options(Of(context));
    options.setOutput(static_cast<uint8_t*>(data), size_bytes);
    options.setRoot(root);
    gloo::broadcast(options);
  });
}

int Allgather(void* context, const void* input, void* output, const size_t* position_bytes, char* error) {
  return Guarded(error, [&] {
    const ContextPtr& members = Of(context);
    std::vector<size_t> parts(position_bytes, position_bytes + members->size);
    const auto me = static_cast<size_t>(members->rank);
    const size_t before = std::accumulate(parts.begin(), parts.begin() + members->rank, size_t{0});
    const size_t mine = parts[me];
    gloo::AllgathervOptions options(members);
    const bool in_place = input == static_cast<uint8_t*>(output) + before;
    if (!in_place) options.setInput(static_cast<uint8_t*>(const_cast<void*>(input)), mine);
    options.setOutput(static_cast<uint8_t*>(output), std::move(parts));
    gloo::allgatherv(options);
  });
}

int Alltoall(void* context, const void* input, const size_t* send_bytes, void* output, const size_t* recv_bytes,
             char* error) {
  return Guarded(error, [&] {
    const ContextPtr& members = Of(context);
    gloo::AlltoallvOptions options(members);
    options.setInput(static_cast<uint8_t*>(const_cast<void*>(input)),
                     std::vector<int64_t>(send_bytes, send_bytes + members->size));
    options.setOutput(static_cast<uint8_t*>(output), std::vector<int64_t>(recv_bytes, recv_bytes + members->size));
    gloo::alltoallv(options);
  });
}

std::string Version() {
  return std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) + "." +
         std::to_string(GLOO_VERSION_PATCH);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const FrdGlooTable* frd_gloo_table() {
  static const std::string version = Version();
  static const FrdGlooTable table{sizeof(FrdGlooTable),
                                  FRD_GLOO_ABI,
                                  version.c_str(),
                                  Listen,
                                  Connect,
                                  Close,
                                  Destroy,
                                  Allreduce,
                                  Broadcast,
                                  Allgather,
                                  Alltoall};
  return &table;
}
