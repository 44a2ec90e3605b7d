// How fast Reduce is: bytes read and written per second, for each element type, instruction set and number of inputs.
//
//   reduce_bench [dtype] [buffer_bytes]        buffers of 256 KB unless told otherwise: a segment, which stays in the
//   second-level cache
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "reduce/reduce.h"

namespace {

using farandole::DType;
using farandole::Isa;
using farandole::Reduce;
using farandole::ReduceOp;
using farandole::Scale;

// An ordinary number in every type: 0x3c3c is 1.06 in float16. Tiny ones would measure the hardware's care for
// subnormals.
constexpr char kFill = 0x3c;

const char* const kIsaNames[] = {"portable", "avx2", "avx512"};

// The best of several rounds: what disturbs a round is not the kernel.
double BestGigabytesPerSecond(DType dtype, ReduceOp reduce, size_t input_count, size_t buffer_bytes, Scale scale) {
  std::vector<std::vector<char>> buffers(input_count + 1, std::vector<char>(buffer_bytes, kFill));
  std::vector<const void*> inputs;
  for (size_t k = 0; k < input_count; ++k) inputs.push_back(buffers[k].data());
  const size_t element_count = buffer_bytes / farandole::SizeOf(dtype);
  const int repeats = static_cast<int>(std::max<size_t>(1, (16u << 20) / (buffer_bytes * (input_count + 1))));
  double best_seconds = 1e9;
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) {
      Reduce(dtype, reduce, inputs.data(), input_count, element_count, scale, buffers[input_count].data());
    }
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    best_seconds = std::min(best_seconds, spent.count() / repeats);
  }
  return static_cast<double>(buffer_bytes) * static_cast<double>(input_count + 1) / best_seconds / 1e9;
}

void PrintRow(DType dtype, ReduceOp reduce, Isa isa, size_t buffer_bytes, Scale scale) {
  UseIsa(isa);
  std::printf("%-9s %-8s %-8s", NameOf(dtype), scale.IsIdentity() ? NameOf(reduce) : "average",
              kIsaNames[static_cast<int>(isa)]);
  for (const size_t input_count : {1, 2, 3, 4, 5, 8, 9}) {
    std::printf(" %7.1f", BestGigabytesPerSecond(dtype, reduce, input_count, buffer_bytes, scale));
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  const size_t buffer_bytes = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 256u << 10;
  const farandole::FloatingPointScope ieee;
  std::printf("GB/s read and written, buffers of %zu bytes; inputs:\n%-27s", buffer_bytes, "");
  for (const int input_count : {1, 2, 3, 4, 5, 8, 9}) std::printf(" %7d", input_count);
  std::printf("\n");
  for (int type = 0; type < farandole::kDTypeCount; ++type) {
    const DType dtype = static_cast<DType>(type);
    if (!only.empty() && only != NameOf(dtype)) continue;
    for (int isa = 0; isa <= static_cast<int>(farandole::BestIsa()); ++isa) {
      PrintRow(dtype, ReduceOp::kSum, static_cast<Isa>(isa), buffer_bytes, Scale{});
      if (dtype != DType::kBool) PrintRow(dtype, ReduceOp::kSum, static_cast<Isa>(isa), buffer_bytes, Scale{1.0, 7.0});
      PrintRow(dtype, ReduceOp::kMin, static_cast<Isa>(isa), buffer_bytes, Scale{});
      PrintRow(dtype, ReduceOp::kMax, static_cast<Isa>(isa), buffer_bytes, Scale{});
    }
  }
  return 0;
}
