#include "algorithms/halving.h"

#include <algorithm>
#include <utility>

namespace farandole {
namespace {

struct Section {
  int first;  // participant
  int size;   // a power of two
  int levels;
};

std::vector<Section> SectionsOf(int participants) {
  std::vector<Section> sections;
  int first = 0;
  for (int levels = 30; levels >= 0; --levels) {
    if ((participants >> levels & 1) == 0) continue;
    sections.push_back({first, 1 << levels, levels});
    first += 1 << levels;
  }
  return sections;
}

struct Blocks {
  int first;
  int count;
};

class Halving {
 public:
  Halving(int participants, int me) : sections_(SectionsOf(participants)) {
    while (me >= sections_[at_].first + sections_[at_].size) ++at_;
    index_ = me - section().first;
    schedule_.block_count = sections_[0].size;
    schedule_.phase_count = std::max(1, FirstDoublingPhase() + sections_[0].levels);
    written_.resize(static_cast<size_t>(schedule_.block_count));
    read_.resize(written_.size());
  }

  Schedule Make() {
    for (int s = 0; s < section().levels; ++s) Halve(s);
    if (!IsLast()) TakeFromNext();
    if (sections_.size() == 1 && section().levels == 0) Fold(0, Owned(0, 0), {kOwnData}, true, {});
    if (at_ > 0) HandToPrevious();
    if (at_ > 0) TakeResult();
    if (!IsLast()) HandResultToNext();
    for (int s = section().levels - 1; s >= 0; --s) Double(s);
    return std::move(schedule_);
  }

 private:
  const Section& section() const { return sections_[at_]; }
  bool IsLast() const { return at_ + 1 == sections_.size(); }

  int UpPhase(size_t from) const { return sections_[0].levels + static_cast<int>(sections_.size() - 1 - from); }
  int DownPhase(size_t from) const { return UpPhase(1) + 1 + static_cast<int>(from); }
  int FirstDoublingPhase() const { return sections_[0].levels + 2 * static_cast<int>(sections_.size() - 1); }

  // What a member of a section has left after so many steps of halving.
  Blocks Owned(int index, int steps) const {
    Blocks owned{0, schedule_.block_count};
    for (int s = 0; s < steps; ++s) {
      owned.count /= 2;
      if (index >> s & 1) owned.first += owned.count;
    }
    return owned;
  }
  Blocks Mine() const { return Owned(index_, section().levels); }

  void Halve(int s) {
    const int partner = index_ ^ (1 << s);
    const bool lower = index_ < partner;
    Send(s, Owned(partner, s + 1), section().first + partner);
    const Blocks kept = Owned(index_, s + 1);
    const int received = schedule_.RecvScratch(s, kept.first, section().first + partner, s, {}, kept.count);
    const bool last = s + 1 == section().levels && sections_.size() == 1;
    Fold(s, kept, lower ? std::vector<int>{kOwnData, s} : std::vector<int>{s, kOwnData}, last, {received});
  }

  // The next section is smaller: its member with the same lowest bits has all blocks that I have.
  void TakeFromNext() {
    const Section& next = sections_[at_ + 1];
    const int phase = UpPhase(at_ + 1), slot = section().levels;
    const int from = next.first + index_ % next.size;
    const int received = schedule_.RecvScratch(phase, Mine().first, from, slot, {}, Mine().count);
    Fold(phase, Mine(), {kOwnData, slot}, at_ == 0, {received});
  }

  template <typename Visit>
  void ForEachInPrevious(Visit visit) {
    const Section& previous = sections_[at_ - 1];
    for (int i = index_; i < previous.size; i += section().size) {
      visit(Owned(i, previous.levels), previous.first + i);
    }
  }
  void HandToPrevious() {
    ForEachInPrevious([this](Blocks blocks, int peer) { Send(UpPhase(at_), blocks, peer); });
  }
  void TakeResult() {
    ForEachInPrevious([this](Blocks blocks, int peer) { RecvData(DownPhase(at_ - 1), blocks, peer); });
  }
  void HandResultToNext() {
    const Section& next = sections_[at_ + 1];
    Send(DownPhase(at_), Mine(), next.first + index_ % next.size);
  }

  void Double(int s) {
    const int partner = index_ ^ (1 << s), peer = section().first + partner;
    const int phase = FirstDoublingPhase() + section().levels - 1 - s;
    Send(phase, Owned(index_, s + 1), peer);
    RecvData(phase, Owned(partner, s + 1), peer);
  }

  // Steps with everything before them that touches the same blocks.
  void Send(int phase, Blocks blocks, int peer) {
    const int step = schedule_.Send(phase, blocks.first, peer, Writers(blocks), blocks.count);
    for (int b = 0; b < blocks.count; ++b) read_[static_cast<size_t>(blocks.first + b)].push_back(step);
  }
  void RecvData(int phase, Blocks blocks, int peer) {
    Written(blocks, schedule_.RecvData(phase, blocks.first, peer, Touchers(blocks), blocks.count));
  }
  void Fold(int phase, Blocks blocks, std::vector<int> operands, bool scale, std::vector<int> after) {
    const std::vector<int> touchers = Touchers(blocks);
    after.insert(after.end(), touchers.begin(), touchers.end());
    Written(blocks, schedule_.Fold(phase, blocks.first, std::move(operands), scale, std::move(after), blocks.count));
  }

  void Written(Blocks blocks, int step) {
    for (int b = blocks.first; b < blocks.first + blocks.count; ++b) {
      written_[static_cast<size_t>(b)] = {step};
      read_[static_cast<size_t>(b)].clear();
    }
  }
  std::vector<int> Writers(Blocks blocks) const { return Collect(blocks, {&written_}); }
  std::vector<int> Touchers(Blocks blocks) const { return Collect(blocks, {&written_, &read_}); }

  using StepsByBlock = std::vector<std::vector<int>>;
  static std::vector<int> Collect(Blocks blocks, std::initializer_list<const StepsByBlock*> tables) {
    std::vector<int> steps;
    for (const StepsByBlock* table : tables) {
      for (int b = blocks.first; b < blocks.first + blocks.count; ++b) {
        const std::vector<int>& of_block = (*table)[static_cast<size_t>(b)];
        steps.insert(steps.end(), of_block.begin(), of_block.end());
      }
    }
    std::sort(steps.begin(), steps.end());
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    return steps;
  }

  const std::vector<Section> sections_;
  size_t at_ = 0;  // my section
  int index_ = 0;  // in it
  Schedule schedule_;
  StepsByBlock written_, read_;  // by block: the last step that wrote it, those that have read it since
};

}  // namespace

Schedule HalvingAllreduce(int participants, int me) { return Halving(participants, me).Make(); }

}  // namespace farandole
