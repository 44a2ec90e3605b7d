// A rank of Farandole in the benchmark: named in-place sums through farandole.h, submit to completion.
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

#include "farandole/farandole.h"
#include "worker.h"

namespace {

const frd_api* api = nullptr;

void Check(int32_t code) {
  if (code != FRD_OK) bench::Fail(api->last_error());  // asks for the text of an error only
}

void Join(int rank, int ranks) {
  const std::string store = bench::Variable("FARANDOLE_STORE");
  uint8_t key[32];
  std::ifstream file(bench::Variable("FARANDOLE_KEY_FILE"), std::ios::binary);
  bench::Require(static_cast<bool>(file.read(reinterpret_cast<char*>(key), sizeof key)), "the key file has no key");
  frd_world world{};
  world.struct_size = sizeof world;
  world.rank = rank;
  world.size = ranks;
  world.store = store.c_str();
  world.key = key;
  Check(api->init(&world));
}

std::string NameOf(size_t count) { return "tensor." + std::to_string(count); }

// The request of one tensor, which its caller keeps from step to step.
class Summand {
 public:
  explicit Summand(size_t count) : name_(NameOf(count)), shape_(static_cast<int64_t>(count)) {
    tensor_.struct_size = sizeof tensor_;
    tensor_.dtype = FRD_FLOAT32;
    tensor_.shape = &shape_;
    tensor_.dimension_count = 1;
    request_.struct_size = sizeof request_;
    request_.operation = FRD_ALLREDUCE;
    request_.tensors = &tensor_;
    request_.tensor_count = 1;
    request_.reduce = FRD_SUM;
    request_.name = name_.c_str();
    request_.prescale = 1.0;
    request_.postscale = 1.0;
  }
  Summand(const Summand&) = delete;

  size_t count() const { return static_cast<size_t>(shape_); }

  void Sum(float* data) {
    tensor_.input = data;
    tensor_.output = data;
    Check(api->run(&request_, nullptr));
  }

 private:
  const std::string name_;
  const int64_t shape_;
  frd_tensor tensor_{};
  frd_request request_{};
};

void Sum(float* data, size_t count) {
  static std::unique_ptr<Summand> summand;
  if (!summand || summand->count() != count) summand = std::make_unique<Summand>(count);
  summand->Sum(data);
}

// Set by the benchmark itself, or by the launcher of a library that carries the sums.
int Place(const char* ours, const char* open_mpis, const char* mpichs) {
  for (const char* const name : {open_mpis, mpichs}) {
    if (const char* const value = std::getenv(name)) return std::stoi(value);
  }
  return std::stoi(bench::Variable(ours));
}

}  // namespace

int main() {
  const int rank = Place("FARANDOLE_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK");
  const int ranks = Place("FARANDOLE_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
  bench::PinToCore(rank);
  api = frd_get_api();
  Join(rank, ranks);
  bench::ServeSums(rank, ranks, Sum);
  api->shutdown();
  return 0;
}
