// One rank runs an operation by another schedule than the others, because its settings differ. Every rank gets an error
// that names both plans, soon, and no rank gets a wrong result.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

struct PlanCase {
  std::string name;
  std::vector<int> nodes;  // their sizes
  OpKind kind;
  std::string others, own;  // the schedule of the rank that differs is `own`
  int rank;                 // that one
  size_t count;             // of floats

  int size() const { return std::accumulate(nodes.begin(), nodes.end(), 0); }
};

std::ostream& operator<<(std::ostream& stream, const PlanCase& each) { return stream << each.name; }

constexpr std::chrono::seconds kSoon{2};   // for a busy machine; otherwise it takes a few milliseconds
constexpr int kUse = 1;                    // which of several values the ranks sum
constexpr size_t kLeaderAlone = 32 << 10;  // of several ranks in a node only the leader exchanges up to so many bytes

// ---- the cases

std::string OnPath(const PlanCase& each) {
  const bool alone = *std::max_element(each.nodes.begin(), each.nodes.end()) == 1;
  return alone ? "inter-node links" : "two levels";
}

// Rank 0, the last rank, and the leader of the last node.
std::vector<int> RanksToDiffer(const PlanCase& each) {
  std::vector<int> ranks = {0, each.size() - each.nodes.back(), each.size() - 1};
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

class PlanCaseList {
 public:
  // Adds a case for each rank that may differ.
  void Add(PlanCase each) {
    for (const int rank : RanksToDiffer(each)) {
      each.rank = rank;
      each.name = NameOf(each);
      cases_.push_back(each);
    }
  }
  std::vector<PlanCase> Take() { return std::move(cases_); }

 private:
  static std::string NameOf(const PlanCase& each) {
    std::string name = std::string(farandole::NameOf(each.kind)) + "_" + each.others + "_but_" + each.own + "_on_" +
                       std::to_string(each.rank) + "_of";
    for (const int members : each.nodes) name += "_" + std::to_string(members);
    name += "_count_" + std::to_string(each.count);
    return name;
  }

  std::vector<PlanCase> cases_;
};

void AddSchedules(OpKind kind, const std::vector<const char*>& schedules, PlanCase each, PlanCaseList* list) {
  each.kind = kind;
  for (const char* others : schedules) {
    for (const char* own : schedules) {
      if (others == own) continue;
      each.others = others;
      each.own = own;
      list->Add(each);
    }
  }
}

std::vector<PlanCase> PlanCases() {
  PlanCaseList list;
  for (const auto& nodes : {std::vector<int>{1, 1}, std::vector<int>{1, 1, 1}, std::vector<int>{2, 2}}) {
    for (const size_t bytes : {size_t{1} << 10, size_t{64} << 10, size_t{1} << 20}) {
      const size_t count = bytes / sizeof(float) / 12 * 12;  // a multiple of the ranks
      PlanCase each{"", nodes, OpKind::kAllreduce, "", "", 0, count};
      AddSchedules(OpKind::kAllreduce, {"direct", "ring", "tree", "exchange"}, each, &list);
      AddSchedules(OpKind::kAllgather, {"direct", "ring"}, each, &list);
    }
  }
  return list.Take();
}

// ---- running one

class OtherPlanTest : public testing::TestWithParam<PlanCase> {
 protected:
  OtherPlanTest() : end_of_(static_cast<size_t>(GetParam().size())) {}

  // A rank that exchanges nothing with other nodes may have any plan.
  static bool IsHarmless() {
    const PlanCase& param = GetParam();
    const bool leads = param.rank == 0 || param.rank == param.size() - param.nodes.back();
    const size_t bytes = param.count * sizeof(float);
    const size_t all_bytes = param.kind == OpKind::kAllgather ? bytes * static_cast<size_t>(param.size()) : bytes;
    return !leads && all_bytes <= kLeaderAlone;
  }

  // Checks the result if there is one.
  static Status Perform(Engine& engine) {
    const PlanCase& param = GetParam();
    const auto input = Values<float>(engine.rank(), param.count, kUse);
    std::vector<float> output = input;
    const bool in_place = !AllocatesOutput(param.kind);
    OperationPtr done;
    FRD_RETURN_IF_ERROR(SubmitAndWait(
        engine, Make(param.kind, {in_place ? TensorOf(output, &output) : TensorOf<float>(input, nullptr)}, "grad"),
        &done));
    if (!in_place) {
      output.resize(done->outputs.at(0).size_bytes / sizeof(float));
      std::memcpy(output.data(), done->outputs.at(0).memory.get(), output.size() * sizeof(float));
    }
    EXPECT_TRUE(output == Expected()) << "a wrong result on rank " << engine.rank();
    return Status::Ok();
  }

  static std::vector<float> Expected() {
    const PlanCase& param = GetParam();
    std::vector<float> result;
    for (int r = 0; r < param.size() && param.kind == OpKind::kAllgather; ++r) {
      const auto theirs = Values<float>(r, param.count, kUse);
      result.insert(result.end(), theirs.begin(), theirs.end());
    }
    for (size_t i = 0; i < param.count && param.kind == OpKind::kAllreduce; ++i)
      result.push_back(static_cast<float>(SumOf(param.size(), i, kUse)));
    return result;
  }

  void ExpectBothPlans(const Status& status, int rank) {
    const PlanCase& param = GetParam();
    EXPECT_EQ(status.code(), Code::kInternal) << status.message();
    const std::string path = OnPath(param) + " with the ", schedule = " schedule";
    for (const std::string& part :
         {path + param.others + schedule, path + param.own + schedule, "rank " + std::to_string(param.rank) + " by",
          " on rank " + std::to_string(rank) + ": ", std::string("grad")})
      EXPECT_NE(status.message().find(part), std::string::npos) << "without '" << part << "': " << status.message();
  }

  std::atomic<int> met_{0};
  std::vector<TimePoint> end_of_;
};

TEST_P(OtherPlanTest, IsToldToAllRanksAndNoneGetsAWrongResult) {
  const PlanCase& param = GetParam();
  std::atomic<int> errors{0};
  const TimePoint begin = Now();
  RunWorlds(
      ThreadWorlds(param.nodes),
      [&](Engine& engine) {
        const Status status = Perform(engine);
        end_of_[static_cast<size_t>(engine.rank())] = Now();
        errors += status.ok() ? 0 : 1;
        if (!status.ok()) ExpectBothPlans(status, engine.rank());
        // Nobody leaves before all have their result.
        ++met_;
        AwaitThat([&] { return met_ >= param.size(); });
      },
      [&param](int rank) {
        Settings settings;
        settings.algorithm = rank == param.rank ? param.own : param.others;
        return settings;
      });
  EXPECT_LT(*std::max_element(end_of_.begin(), end_of_.end()) - begin, kSoon);
  EXPECT_EQ(errors, IsHarmless() ? 0 : param.size());
}

INSTANTIATE_TEST_SUITE_P(All, OtherPlanTest, testing::ValuesIn(PlanCases()),
                         [](const testing::TestParamInfo<PlanCase>& info) { return info.param.name; });

}  // namespace
}  // namespace farandole
