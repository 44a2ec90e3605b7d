// All participants of a collective in one thread, on symbolic values: a block's value is the expression that made it.
//
// A transfer happens only when both ends have reached it, and no buffer lies in between. So a schedule that cannot
// deadlock here cannot deadlock on a link with any buffer.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "algorithms/partition.h"
#include "algorithms/schedule.h"

namespace farandole::tests {

// The tree order of the strings, written with all its parentheses: {"a", "b", "c"} -> "((a+b)+c)".
inline std::string InOrder(const std::vector<std::string>& values) {
  if (values.size() == 1) return values[0];
  size_t p = 1;
  while (2 * p < values.size()) p *= 2;
  return "(" + InOrder({values.begin(), values.begin() + p}) + "+" + InOrder({values.begin() + p, values.end()}) + ")";
}

using MakeSchedule = std::function<Schedule(int participants, int me)>;

// Returns whether what one end sends is what the other receives.
using EndsAgree = std::function<bool(int from, const Step& send, int to, const Step& recv)>;
inline bool SameBlock(int /*from*/, const Step& send, int /*to*/, const Step& recv) { return send.block == recv.block; }

class Simulation {
 public:
  using Values = std::vector<std::string>;  // by block

  // `initial(me, block)` is the value at the beginning of every chunk. Transfers that are possible at the same time
  // happen in an order drawn from `seed`.
  Simulation(int participants, const MakeSchedule& make, const std::function<std::string(int, int)>& initial,
             int64_t chunk_count, uint32_t seed, EndsAgree agree = SameBlock)
      : random_(seed), agree_(std::move(agree)) {
    for (int me = 0; me < participants; ++me) schedules_.push_back(make(participants, me));
    for (int me = 0; me < participants; ++me)
      ranks_.push_back(std::make_unique<Rank>(schedules_, me, chunk_count, initial));
  }

  // Runs until nothing moves. "" when every step was taken, else what went wrong.
  std::string Run() {
    const int n = static_cast<int>(ranks_.size());
    std::vector<int> pairs(n * n);
    for (int i = 0; i < n * n; ++i) pairs[i] = i;
    for (bool moved = true; moved && error_.empty();) {
      moved = false;
      std::shuffle(pairs.begin(), pairs.end(), random_);
      for (int pair : pairs) moved |= pair / n == pair % n ? Reduce(pair / n) : Transfer(pair / n, pair % n);
    }
    for (int me = 0; me < n && error_.empty(); ++me) {
      if (!ranks_[me]->progress.done()) error_ = "deadlock: participant " + std::to_string(me) + " did not finish";
    }
    return error_;
  }

  const Values& At(int me, int64_t chunk) const { return ranks_[me]->data[chunk]; }
  const std::vector<Schedule>& schedules() const { return schedules_; }

 private:
  struct Rank {
    Rank(const std::vector<Schedule>& schedules, int me, int64_t chunk_count,
         const std::function<std::string(int, int)>& initial)
        : schedule(schedules[me]), progress(&schedule), reductions(schedule, Lane(StepKind::kReduce, -1)) {
      for (size_t peer = 0; peer < schedules.size(); ++peer) {
        sends.emplace_back(schedule, Lane(StepKind::kSend, static_cast<int>(peer)));
        recvs.emplace_back(schedule, Lane(StepKind::kRecvData, static_cast<int>(peer)));
      }
      for (auto* lanes : {&sends, &recvs}) {
        for (StepCursor& cursor : *lanes) cursor.Restart(chunk_count);
      }
      reductions.Restart(chunk_count);
      progress.Restart(chunk_count);
      Values blocks;
      for (int b = 0; b < schedule.block_count; ++b) blocks.push_back(initial(me, b));
      data.assign(chunk_count, blocks);
      scratch.resize(schedule.slot_count * Progress::kSlotDepth);
    }

    // kRecvData stands for both kinds of receive.
    std::vector<int> Lane(StepKind kind, int peer) const {
      std::vector<int> lane;
      for (size_t i = 0; i < schedule.steps.size(); ++i) {
        const Step& step = schedule.steps[i];
        const StepKind merged = step.kind == StepKind::kRecvScratch ? StepKind::kRecvData : step.kind;
        if (merged == kind && (peer < 0 || step.peer == peer)) lane.push_back(static_cast<int>(i));
      }
      return lane;
    }

    std::string& Slot(int slot, int64_t chunk) {
      return scratch[slot * Progress::kSlotDepth + chunk % Progress::kSlotDepth];
    }
    bool IsReady(const StepCursor& cursor) const {
      return !cursor.ended() && progress.Ready(cursor.chunk(), cursor.step());
    }
    void Finish(StepCursor* cursor) {
      progress.Complete(cursor->chunk(), cursor->step());
      cursor->Next();
    }

    const Schedule& schedule;
    Progress progress;
    std::vector<StepCursor> sends, recvs;
    StepCursor reductions;
    std::vector<Values> data;  // by chunk
    Values scratch;            // by slot and copy
  };

  bool Transfer(int from, int to) {
    Rank &sender = *ranks_[from], &receiver = *ranks_[to];
    StepCursor &send = sender.sends[to], &recv = receiver.recvs[from];
    if (send.ended() != recv.ended()) error_ = "one end waits for a transfer that the other does not know";
    if (!sender.IsReady(send) || !receiver.IsReady(recv)) return false;
    const Step& in = receiver.schedule.steps[recv.step()];
    const Step& out = sender.schedule.steps[send.step()];
    const bool agree = send.chunk() == recv.chunk() && agree_(from, out, to, in);
    if (!agree || out.phase != in.phase) error_ = "the ends disagree";
    const std::string& value = sender.data[send.chunk()][out.block];
    if (in.kind == StepKind::kRecvData) {
      receiver.data[recv.chunk()][in.block] = value;
    } else {
      receiver.Slot(in.slot, recv.chunk()) = value;
    }
    sender.Finish(&send);
    receiver.Finish(&recv);
    return true;
  }

  bool Reduce(int me) {
    Rank& rank = *ranks_[me];
    if (!rank.IsReady(rank.reductions)) return false;
    const Step& step = rank.schedule.steps[rank.reductions.step()];
    const int64_t chunk = rank.reductions.chunk();
    std::string& own = rank.data[chunk][step.block];
    Values operands;
    for (int operand : step.operands) operands.push_back(operand == kOwnData ? own : rank.Slot(operand, chunk));
    own = InOrder(operands) + (step.scale ? "*s" : "");
    rank.Finish(&rank.reductions);
    return true;
  }

  std::mt19937 random_;
  EndsAgree agree_;
  std::vector<Schedule> schedules_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::string error_;
};

}  // namespace farandole::tests
