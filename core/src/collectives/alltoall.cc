// Alltoall within a node: each member streams its parts through its slots, and takes its own parts from the others'
// slots.
//
//   stream of m   [ sizes | part for m+1 | part for m+2 | ... ]     modulo the number of members; m's own part is
//                                                                      copied at once
//   round t       [ one slot of it ]
//
// A member knows only what it sends and gets, so each stream begins with the sizes. From these every member learns in
// the first round where its parts lie in the other streams, and how many rounds there are. A stream begins with the
// part for the next member, which spreads the readers: with equal parts, the streams hold data for different members in
// every round.
#include <algorithm>
#include <cstring>
#include <memory>

#include "algorithms/partition.h"
#include "collectives/staging.h"
#include "collectives/task.h"
#include "common/cache.h"

namespace farandole {
namespace {

// Calls visit(offset in the stretch, offset in the slot, size) for the bytes of a stretch that lie in round t.
template <typename Visit>
void InRound(uint64_t stream_offset, uint64_t size_bytes, uint64_t t, Visit visit) {
  const uint64_t begin = std::max(stream_offset, t * kSlotBytes);
  const uint64_t end = std::min(stream_offset + size_bytes, (t + 1) * kSlotBytes);
  if (begin < end) visit(begin - stream_offset, begin - t * kSlotBytes, end - begin);
}

class StagedAlltoall final : public StagedOperation {
 public:
  explicit StagedAlltoall(const OperationStart& start)
      : StagedOperation(start, 1, /*is_exchanged=*/false), positions_(partition().ranks()) {
    const std::vector<size_t> offsets = PartOffsets(task_->send_bytes);
    stream_bytes_ = HeaderBytes();
    for (int d = 1; d < staging_->count(); ++d) {
      const auto to =
          static_cast<size_t>(positions_[static_cast<size_t>((staging_->member() + d) % staging_->count())]);
      sent_.push_back({stream_bytes_, offsets[to], task_->send_bytes[to]});
      stream_bytes_ += task_->send_bytes[to];
    }
  }

 protected:
  // The header: by distance, the size of the part for the member at that distance.
  void Write(uint64_t t) override {
    std::byte* const slot = staging_->slot(staging_->member(), number(t));
    for (size_t i = 0; t == 0 && i < sent_.size(); ++i) {
      const uint64_t size_bytes = sent_[i].size_bytes;
      std::memcpy(slot + i * sizeof size_bytes, &size_bytes, sizeof size_bytes);
    }
    for (const Stretch& stretch : sent_) {
      InRound(stretch.stream_offset, stretch.size_bytes, t,
              [&](uint64_t within, uint64_t in_slot, uint64_t size_bytes) {
                ReadInput(task_->buffers[0], stretch.tensor_offset + within, size_bytes, slot + in_slot);
              });
    }
  }

  void Make(uint64_t t) override {
    if (t == 0) ReadHeaders();
    for (size_t i = 0; i < received_.size(); ++i) {
      const Stretch& stretch = received_[i];
      const int from = (staging_->member() + staging_->count() - static_cast<int>(i) - 1) % staging_->count();
      std::byte* const slot = staging_->slot(from, number(t));
      InRound(stretch.stream_offset, stretch.size_bytes, t,
              [&](uint64_t within, uint64_t in_slot, uint64_t size_bytes) {
                WriteOutput(task_->buffers[0], stretch.tensor_offset + within, size_bytes, slot + in_slot);
                AcquireLines(slot + in_slot, size_bytes);
              });
    }
  }

  bool Finish(uint64_t t) override { return staging_->AllCombined(number(t) + 1); }

 private:
  // The part of one stream that this member sends or receives.
  struct Stretch {
    uint64_t stream_offset;
    size_t tensor_offset;  // in the input or output
    size_t size_bytes;
  };

  size_t HeaderBytes() const {
    const size_t sizes_bytes = positions_.size() * sizeof(uint64_t);
    return (sizes_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  }

  void ReadHeaders() {
    const std::vector<size_t> offsets = PartOffsets(task_->recv_bytes);
    const int count = staging_->count();
    uint64_t longest = stream_bytes_;
    for (int d = 1; d < count; ++d) {
      const int from = (staging_->member() + count - d) % count;
      const std::byte* const header = staging_->slot(from, number(0));
      uint64_t stream = HeaderBytes(), mine = 0;
      for (int e = 1; e < count; ++e) {
        uint64_t size_bytes = 0;
        std::memcpy(&size_bytes, header + static_cast<size_t>(e - 1) * sizeof size_bytes, sizeof size_bytes);
        if (e == d) mine = stream;
        stream += size_bytes;
      }
      longest = std::max(longest, stream);
      const auto position = static_cast<size_t>(positions_[static_cast<size_t>(from)]);
      received_.push_back({mine, offsets[position], task_->recv_bytes[position]});
    }
    ExtendTo(SlotsFor(longest));
  }

  const std::vector<int>& positions_;  // of the members of this node
  std::vector<Stretch> sent_;          // by distance - 1
  std::vector<Stretch> received_;      // by distance behind - 1
  uint64_t stream_bytes_ = 0;
};

// ---- between nodes, and over links

const std::byte* At(const void* memory, size_t offset) {
  return memory ? static_cast<const std::byte*>(memory) + offset : nullptr;
}
std::byte* At(void* memory, size_t offset) { return memory ? static_cast<std::byte*>(memory) + offset : nullptr; }

// Copies this rank's own part, and starts the exchange with other nodes, straight between the tensors.
void StartElsewhere(const Task& task, ShardExchange* exchange) {
  const IoBuffer& buffer = task.buffers[0];
  const std::vector<size_t> send_at = PartOffsets(task.send_bytes), recv_at = PartOffsets(task.recv_bytes);
  const auto me = static_cast<size_t>(task.set->position);
  if (buffer.output != nullptr) {
    ReadInput(buffer, send_at[me], task.send_bytes[me], At(buffer.output, recv_at[me]));
  }
  if (task.set->local()) return;
  const size_t count = send_at.size();
  RunPlan plan;
  plan.blocks.resize(2 * count);
  plan.window_bytes = DefaultWindowBytes(static_cast<int>(2 * count));
  for (size_t p = 0; p < count; ++p) {
    const bool elsewhere = task.set->layout.node_of[p] != exchange->partition().node;
    plan.blocks[p] = {At(buffer.input, send_at[p]), nullptr, elsewhere ? task.send_bytes[p] : 0};
    plan.blocks[count + p] = {nullptr, At(buffer.output, recv_at[p]), elsewhere ? task.recv_bytes[p] : 0};
  }
  exchange->Add(ShardExchange::Kind::kAlltoall, 0, 0, std::move(plan));
}

}  // namespace

// counts [ position ][ tensor ][ receiver ]: what each position sends to each.
std::vector<int64_t> SplitRows(const ReportedRows& reported, Task* task) {
  const auto positions = static_cast<size_t>(task->set->size());
  const auto me = static_cast<size_t>(task->set->position);
  const auto rows_from_to = [&](size_t from, size_t to) {
    return reported.counts[(from * reported.tensors + reported.index) * positions + to];
  };
  std::vector<int64_t> received;
  for (size_t p = 0; p < positions; ++p) {
    received.push_back(rows_from_to(p, me));
    task->recv_bytes.push_back(static_cast<size_t>(received.back()) * reported.row_bytes);
    task->send_bytes.push_back(static_cast<size_t>(rows_from_to(me, p)) * reported.row_bytes);
  }
  return received;
}

// One stage: through staging between members of a node, over the links between all others, both at once.
Status StartAlltoall(const OperationStart& start, std::unique_ptr<StagedOperation>* staged) {
  StartElsewhere(*start.task, start.exchange);
  if (start.staging->count() > 1) *staged = std::make_unique<StagedAlltoall>(start);
  return Status::Ok();
}

}  // namespace farandole
