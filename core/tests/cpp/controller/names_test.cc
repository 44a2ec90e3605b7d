// Names that never repeat, such as "loss.1", "loss.2" and so on, in a job that also repeats one.
// FARANDOLE_NAMES=1000000 measures it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>

#include "controller/coordinator.h"
#include "controller/described.h"
#include "support/pages.h"

namespace farandole {
namespace {

// A job of two ranks with one machine, or one each, whose calls are made one after the other in one thread.
class Job {
 public:
  explicit Job(const std::vector<std::string>& machines) : layout_(LayoutOf(machines)), coordinator_(layout_) {
    for (int rank = 0; rank < layout_.size(); ++rank) {
      const int members = static_cast<int>(layout_.nodes[0].size());
      if (rank < layout_.node_count()) memories_.push_back(std::make_unique<Pages>(NodeMemory::BytesFor(members)));
      std::byte* const memory = memories_[static_cast<size_t>(layout_.node_of[static_cast<size_t>(rank)])]->data();
      ranks_.push_back(std::make_unique<Negotiation>(layout_, rank, memory));
    }
  }

  int descriptions() const { return descriptions_; }

  // Every rank makes the call. Returns whether it completes on all.
  bool Run(const Description& description) {
    std::vector<Admission> admissions(ranks_.size());
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank]->Submit(ReadyDescription(description), &admissions[rank]).ok()) return false;
      if (admissions[rank].id >= 0 && ranks_[rank]->Arrive(admissions[rank]) == Negotiation::Arrived::kLast)
        ranks_[rank]->PublishComplete(admissions[rank]);
    }
    completed_ = 0;
    while (Deliver()) continue;
    return completed_ == ranks_.size();
  }

 private:
  // Moves every message and reads every log once.
  bool Deliver() {
    bool moved = false;
    std::vector<Outgoing> out;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      Negotiation& negotiation = *ranks_[rank];
      std::vector<Negotiation::Event> events;
      if (negotiation.HasNews()) moved |= negotiation.Advance(&events);
      for (const auto& event : events) {
        completed_ += event.items.size();
        for (const auto& item : event.items) negotiation.Release(item.ticket);
      }
      for (const Bytes& message : negotiation.outbox().Take()) {
        descriptions_ += static_cast<MessageKind>(message[0]) == MessageKind::kDescribe;
        moved |= coordinator_.OnMessage(static_cast<int>(rank), message, &out).ok();
      }
    }
    coordinator_.Flush(&out);
    std::vector<Negotiation::Event> none;
    for (const Outgoing& each : out)
      moved |= ranks_[static_cast<size_t>(each.rank)]->OnMessage(each.message, &none).ok();
    return moved;
  }

  const Layout layout_;
  Coordinator coordinator_;
  std::vector<std::unique_ptr<Pages>> memories_;  // by node
  std::vector<std::unique_ptr<Negotiation>> ranks_;
  size_t completed_ = 0;
  int descriptions_ = 0;
};

int64_t ResidentBytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

void RunNames(const std::vector<std::string>& machines) {
  const char* const wanted = std::getenv("FARANDOLE_NAMES");
  const int names = wanted != nullptr ? std::atoi(wanted) : 40'000;
  constexpr int kEach = 1000, kCompared = 10 * kEach;
  Job job(machines);
  Description often, never_again;
  for (Description* description : {&often, &never_again})
    description->signature.tensors = {{DType::kFloat32, {1 << 20}}};  // goes through the log
  often.name = "often";
  for (int use = 0; use < 2; ++use) ASSERT_TRUE(job.Run(often));
  double first_us = 1e9, last_us = 1e9;  // the least of the first and of the last ten
  int64_t bytes_of_half = 0;
  const int before = job.descriptions();
  for (int begun = 0; begun < names; begun += kEach) {
    const std::clock_t start = std::clock();
    for (int i = begun; i < begun + kEach; ++i) {
      never_again.name = "loss." + std::to_string(i);
      ASSERT_TRUE(job.Run(never_again));
      if (i % 10 == 0) {
        ASSERT_TRUE(job.Run(often));
      }
    }
    const double each_us = static_cast<double>(std::clock() - start) * 1e6 / CLOCKS_PER_SEC / kEach;
    if (begun < kCompared) first_us = std::min(first_us, each_us);
    if (begun >= names - kCompared) last_us = std::min(last_us, each_us);
    if (begun <= names / 2) bytes_of_half = ResidentBytes();
  }
  const int64_t more_bytes = ResidentBytes() - bytes_of_half;
  EXPECT_EQ(job.descriptions() - before, 2 * names);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these keep freed memory for a while
  EXPECT_LT(more_bytes, 1 << 20);
#endif
  if (wanted == nullptr) return;
  std::cout << names << " names: " << first_us << " us of processor time for each of the first thousand, " << last_us
            << " for each of the last; the second half takes " << more_bytes << " bytes more\n";
}

TEST(NamesTest, NamesThatNeverRepeatOnOneHost) { RunNames({"a", "a"}); }
TEST(NamesTest, NamesThatNeverRepeatOnTwoHosts) { RunNames({"a", "b"}); }

}  // namespace
}  // namespace farandole
