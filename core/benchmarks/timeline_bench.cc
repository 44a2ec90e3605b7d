// Measures the cost of recording an event of a timeline, in the thread of the operation: nanoseconds, the minimum and
// the median of many rounds. Ends with 1 above the limit.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "operation/operation.h"
#include "operation/timeline.h"

namespace {

using farandole::Timeline;

constexpr double kLimitNs = 200;
constexpr int kRounds = 101, kEach = 1000;  // the queue is emptied between rounds

// Records the events that Submit, the driver and Complete add to an operation.
double OneRound() {
  farandole::Request request;
  request.name = "gradient.transformer.layer.11.attention.weight";
  request.tensors.resize(1);
  request.tensors[0].shape = {1024, 1024};
  std::vector<farandole::OperationPtr> operations;
  for (int i = 0; i < kEach; ++i) operations.push_back(std::make_shared<farandole::Operation>(request));
  const int64_t began = Timeline::NowNs();
  for (const auto& operation : operations) {
    operation->submitted_ns = Timeline::Timestamp();
    farandole::RecordOperation(*operation);
  }
  return static_cast<double>(Timeline::NowNs() - began) / kEach;
}

}  // namespace

int main() {
  Timeline::Start(/*marks_batches=*/false);
  std::vector<double> taken;
  for (int round = 0; round < kRounds; ++round) {
    taken.push_back(OneRound());
    for (farandole::TraceRecord record; Timeline::Take(&record);) continue;
  }
  Timeline::Stop();
  std::sort(taken.begin(), taken.end());
  std::printf("%.0f ns an event at least, %.0f median (limit %.0f)\n", taken.front(), taken[kRounds / 2], kLimitNs);
  return taken[kRounds / 2] <= kLimitNs ? 0 : 1;
}
