// A rank of Farandole in the benchmark: named in-place sums through farandole.h, submit to completion.
#include <cstdint>
#include <fstream>
#include <string>

#include "farandole/farandole.h"
#include "worker.h"

namespace {

const frd_api* api = nullptr;

void Check(int32_t code) { bench::Require(code == FRD_OK, api->last_error()); }

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

// A training step names its tensors anew each time, with the same names.
std::string NameOf(size_t count) { return "tensor." + std::to_string(count); }

void Sum(float* data, size_t count) {
  static size_t named_count = 0;
  static std::string name;
  if (count != named_count) name = NameOf(named_count = count);
  const int64_t shape = static_cast<int64_t>(count);
  frd_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.dtype = FRD_FLOAT32;
  tensor.input = data;
  tensor.output = data;
  tensor.shape = &shape;
  tensor.dimension_count = 1;
  frd_request request{};
  request.struct_size = sizeof request;
  request.operation = FRD_ALLREDUCE;
  request.tensors = &tensor;
  request.tensor_count = 1;
  request.reduce = FRD_SUM;
  request.name = name.c_str();
  request.prescale = 1.0;
  request.postscale = 1.0;
  Check(api->run(&request, nullptr));
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
