// Operations for tests of the runner, and their data.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "collectives/runner.h"

namespace farandole::tests {

using Bytes = std::vector<char>;

// Small whole numbers, whose sums are exact in every type, so the expected result does not depend on the order.
inline int Element(int participant, int64_t i) { return static_cast<int>((i * 7 + participant * 3) % 11); }
inline int SumOfElements(int participants, int64_t i) {
  int sum = 0;
  for (int p = 0; p < participants; ++p) sum += Element(p, i);
  return sum;
}

inline void Store(DType dtype, char* to, double value) {
  const auto put = [&](auto typed) { std::memcpy(to, &typed, sizeof typed); };
  switch (dtype) {
    case DType::kFloat32:
      return put(static_cast<float>(value));
    case DType::kFloat64:
      return put(value);
    case DType::kInt32:
      return put(static_cast<int32_t>(value));
    default:
      break;
  }
  const float single = static_cast<float>(value);  // bfloat16 is the upper half; exact for small whole numbers
  uint32_t bits;
  std::memcpy(&bits, &single, sizeof bits);
  put(static_cast<uint16_t>(bits >> 16));
}

template <typename Value>
Bytes Elements(DType dtype, int64_t count, Value value) {
  Bytes bytes(count * SizeOf(dtype));
  for (int64_t i = 0; i < count; ++i) Store(dtype, bytes.data() + i * SizeOf(dtype), value(i));
  return bytes;
}

struct Job {
  DType dtype;
  int64_t element_count;
  size_t chunk_bytes;
};

// 0, 1, around the number of participants, odd, exactly and about one chunk, several chunks; then at random.
inline std::vector<Job> Jobs(int participants, uint32_t seed) {
  const DType dtypes[] = {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kBfloat16};
  const int64_t n = participants;
  const int64_t counts[] = {0, 1, n - 1, n, n + 1, 77, 1023, 1024, 1025, 70001};
  std::vector<Job> jobs;
  std::mt19937 random(seed);
  for (DType dtype : dtypes) {
    for (int64_t count : counts) jobs.push_back({dtype, count, 4096});
  }
  jobs.push_back({DType::kFloat32, 600011, 0});
  for (int i = 0; i < 40; ++i) {
    const int64_t count = random() % (int64_t{1} << (random() % 16));
    jobs.push_back({dtypes[random() % 4], count, size_t{1} << (6 + random() % 10)});
  }
  std::shuffle(jobs.begin(), jobs.end(), random);
  return jobs;
}

// source: nullptr for the data.
inline RunPlan PlanOf(const Schedule& schedule, const Job& job, Bytes* data, const Bytes* source = nullptr) {
  RunPlan plan;
  const Bytes& from = source == nullptr ? *data : *source;
  plan.blocks = CutBlocks(from.data(), data->data(), job.element_count, SizeOf(job.dtype), schedule.block_count);
  plan.dtype = job.dtype;
  const auto blocks = static_cast<size_t>(schedule.block_count);
  const size_t border = kBorderBytes;
  if (job.chunk_bytes > 0) plan.window_bytes = std::max(border, job.chunk_bytes / blocks / border * border);
  return plan;
}

inline std::string ErrorOf(const Job& job, const Status& status, bool equal) {
  if (status.ok() && equal) return "";
  return std::string(NameOf(job.dtype)) + " x " + std::to_string(job.element_count) + ", chunks of " +
         std::to_string(job.chunk_bytes) + ": " + (status.ok() ? "wrong values" : status.message());
}

}  // namespace farandole::tests
