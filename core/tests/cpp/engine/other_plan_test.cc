// One rank runs an operation by another plan than the others: by another schedule or path. Every rank gets an error
// that names both plans, soon, and no rank gets a wrong result. In a broadcast some ranks may have their right result
// before.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "common/failpoint.h"
#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

// The plan of one rank: its word in the failpoints (failpoint.h), or null for the usual one, and its text in errors.
struct OnePlan {
  const char* failpoint;
  std::string text;
};

struct PlanCase {
  std::string name;
  std::vector<int> groups;  // their sizes
  OpKind kind;
  std::string algorithm;  // of the settings of all ranks
  OnePlan others, own;    // of the rank with the other plan
  int rank;               // that one
  size_t count;           // of floats
  bool is_early = false;

  int size() const { return std::accumulate(groups.begin(), groups.end(), 0); }
};

std::ostream& operator<<(std::ostream& stream, const PlanCase& each) { return stream << each.name; }

constexpr std::chrono::seconds kSoon{2};   // for a busy machine; otherwise it takes a few milliseconds
constexpr size_t kLeaderAlone = 32 << 10;  // of several ranks in a node only the leader exchanges up to so many bytes

// ---- the cases

std::string OnPath(const PlanCase& each) {
  const bool alone = *std::max_element(each.groups.begin(), each.groups.end()) == 1;
  return alone ? "inter-node links" : "two levels";
}

std::string WithSchedule(const std::string& path, const std::string& schedule) {
  return path + " with the " + schedule + " schedule";
}

// Rank 0, the last rank, and the leader of the last node.
std::vector<int> RanksToDiffer(const PlanCase& each) {
  std::vector<int> ranks = {0, each.size() - each.groups.back(), each.size() - 1};
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
    std::string name = std::string(farandole::NameOf(each.kind)) + (each.is_early ? "_early_" : "_") +
                       each.others.text + "_but_" + each.own.text + "_on_" + std::to_string(each.rank) + "_of";
    for (const int members : each.groups) name += "_" + std::to_string(members);
    name += "_count_" + std::to_string(each.count);
    for (char& letter : name) letter = std::isalnum(static_cast<unsigned char>(letter)) ? letter : '_';
    return name;
  }

  std::vector<PlanCase> cases_;
};

void AddSchedules(OpKind kind, const std::vector<const char*>& schedules, PlanCase each, PlanCaseList* list) {
  each.kind = kind;
  for (const char* others : schedules) {
    for (const char* own : schedules) {
      if (others == own) continue;
      each.algorithm = others;
      each.others = {nullptr, WithSchedule(OnPath(each), others)};
      each.own = {own, WithSchedule(OnPath(each), own)};
      list->Add(each);
    }
  }
}

// With the links, or two levels, on all ranks but one. The nodes have one rank each, since links need that.
void AddPaths(OpKind kind, PlanCase each, PlanCaseList* list) {
  each.kind = kind;
  each.algorithm = "direct";
  const bool chooses = kind == OpKind::kAllreduce || kind == OpKind::kAllgather;
  const OnePlan links{nullptr, chooses ? WithSchedule("inter-node links", "direct") : "inter-node links"};
  const OnePlan two_level{"two-level", chooses ? WithSchedule("two levels", "direct") : "two levels"};
  for (const bool differs_by_links : {false, true}) {
    each.others = differs_by_links ? two_level : links;
    each.own = differs_by_links ? links : two_level;
    list->Add(each);
  }
}

void AddEarly(PlanCase each, PlanCaseList* list) {
  const int largest = *std::max_element(each.groups.begin(), each.groups.end());
  const int64_t limit_bytes = EarlyLimitBytes(static_cast<int>(each.groups.size()), largest);
  each.count = std::min(each.count, static_cast<size_t>(limit_bytes) / sizeof(float));
  each.kind = OpKind::kAllreduce;
  each.algorithm = "auto";
  each.is_early = true;
  const OnePlan exchange{nullptr, WithSchedule("early messages", "exchange")};
  const OnePlan tree{"early-tree", WithSchedule("early messages", "tree")};
  for (const bool differs_by_exchange : {false, true}) {
    each.others = differs_by_exchange ? tree : exchange;
    each.own = differs_by_exchange ? exchange : tree;
    list->Add(each);
  }
}

std::vector<PlanCase> PlanCases() {
  PlanCaseList list;
  for (const auto& groups : {std::vector<int>{1, 1}, std::vector<int>{1, 1, 1}, std::vector<int>{2, 2}}) {
    for (const size_t bytes : {size_t{1} << 10, size_t{64} << 10, size_t{1} << 20}) {
      const size_t count = bytes / sizeof(float) / 12 * 12;  // a multiple of the ranks
      PlanCase each{"", groups, OpKind::kAllreduce, "", {}, {}, 0, count};
      AddSchedules(OpKind::kAllreduce, {"direct", "ring", "tree", "exchange"}, each, &list);
      AddSchedules(OpKind::kAllgather, {"direct", "ring"}, each, &list);
      for (const OpKind kind :
           {OpKind::kAllreduce, OpKind::kAllgather, OpKind::kBroadcast, OpKind::kAlltoall, OpKind::kReducescatter}) {
        if (groups.back() == 1) AddPaths(kind, each, &list);
      }
      if (bytes < 1 << 20) AddEarly(each, &list);
    }
  }
  return list.Take();
}

// ---- running one

class OtherPlanTest : public testing::TestWithParam<PlanCase> {
 protected:
  OtherPlanTest() : end_of_(static_cast<size_t>(GetParam().size())) {}
  ~OtherPlanTest() override { EXPECT_TRUE(SetFailpoints("").ok()); }

  // A rank that exchanges nothing with other nodes may have any plan.
  static bool IsHarmless() {
    const PlanCase& param = GetParam();
    const bool leads = param.rank == 0 || param.rank == param.size() - param.groups.back();
    const size_t bytes = param.count * sizeof(float);
    const size_t all_bytes = param.kind == OpKind::kAllgather ? bytes * static_cast<size_t>(param.size()) : bytes;
    return !leads && (param.is_early || all_bytes <= kLeaderAlone);
  }

  static std::string Failpoints() {
    const PlanCase& param = GetParam();
    std::string text = "plan=error";
    for (int rank = 0; rank < param.size(); ++rank) {
      const char* const plan = (rank == param.rank ? param.own : param.others).failpoint;
      if (plan != nullptr) text += std::string(";plan.") + plan + "." + std::to_string(rank) + "=error";
    }
    return text;
  }

  // Checks the result if there is one.
  static Status Perform(Engine& engine, int use) {
    const PlanCase& param = GetParam();
    const auto input = Values<float>(engine.rank(), param.count, use);
    std::vector<float> output = input;
    // A name that is used again is early.
    const std::string name = param.is_early ? "grad" : "grad" + std::to_string(use);
    const bool in_place = !AllocatesOutput(param.kind);
    OperationPtr done;
    FRD_RETURN_IF_ERROR(SubmitAndWait(
        engine, Make(param.kind, {in_place ? TensorOf(output, &output) : TensorOf<float>(input, nullptr)}, name),
        &done));
    if (!in_place) {
      output.resize(done->outputs.at(0).size_bytes / sizeof(float));
      std::memcpy(output.data(), done->outputs.at(0).memory.get(), output.size() * sizeof(float));
    }
    EXPECT_TRUE(output == Expected(engine.rank(), use)) << "a wrong result on rank " << engine.rank();
    return Status::Ok();
  }

  static std::vector<float> Expected(int rank, int use) {
    const PlanCase& param = GetParam();
    const auto ranks = static_cast<size_t>(param.size()), me = static_cast<size_t>(rank);
    const size_t part = param.count / ranks;
    const auto sum = [&](size_t i) { return static_cast<float>(SumOf(param.size(), i, use)); };
    std::vector<float> result;
    for (size_t r = 0; r < ranks; ++r) {
      const auto theirs = Values<float>(static_cast<int>(r), param.count, use);
      if (param.kind == OpKind::kBroadcast && r == 0) result = theirs;
      if (param.kind == OpKind::kAllgather) result.insert(result.end(), theirs.begin(), theirs.end());
      for (size_t i = 0; i < part && param.kind == OpKind::kAlltoall; ++i) result.push_back(theirs[me * part + i]);
    }
    for (size_t i = 0; i < param.count && param.kind == OpKind::kAllreduce; ++i) result.push_back(sum(i));
    for (size_t i = 0; i < part && param.kind == OpKind::kReducescatter; ++i) result.push_back(sum(me * part + i));
    return result;
  }

  void ExpectBothPlans(const Status& status, int rank) {
    const PlanCase& param = GetParam();
    EXPECT_EQ(status.code(), Code::kInternal) << status.message();
    for (const std::string& part : {param.others.text, param.own.text, "rank " + std::to_string(param.rank) + " by",
                                    " on rank " + std::to_string(rank) + ": ", std::string("grad")})
      EXPECT_NE(status.message().find(part), std::string::npos) << "without '" << part << "': " << status.message();
  }

  std::atomic<int> met_{0};
  std::vector<TimePoint> end_of_;
};

TEST_P(OtherPlanTest, IsToldToAllRanksAndNoneGetsAWrongResult) {
  const PlanCase& param = GetParam();
  Settings settings;
  settings.algorithm = param.algorithm;
  std::atomic<bool> begins{false};
  std::atomic<int> errors{0};
  TimePoint begin;
  RunRanks(
      param.groups,
      [&](Engine& engine) {
        const Status first = Perform(engine, 0);
        ASSERT_TRUE(first.ok()) << first.message();
        ++met_;
        AwaitThat([&] { return met_ >= param.size(); });
        if (engine.rank() == 0) {
          ASSERT_TRUE(SetFailpoints(Failpoints()).ok());
          begin = Now();
          begins = true;
        }
        while (!begins) std::this_thread::yield();
        const Status second = Perform(engine, 1);
        end_of_[static_cast<size_t>(engine.rank())] = Now();
        errors += second.ok() ? 0 : 1;
        if (!second.ok()) {
          ExpectBothPlans(second, engine.rank());
          if (engine.rank() == 0) RecordProperty("error", second.message());
        }
        // Nobody leaves before all have their result.
        ++met_;
        AwaitThat([&] { return met_ >= 2 * param.size(); });
      },
      settings);
  const auto took = *std::max_element(end_of_.begin(), end_of_.end()) - begin;
  RecordProperty("microseconds", static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(took).count()));
  EXPECT_LT(took, kSoon);
  if (IsHarmless()) {
    EXPECT_EQ(errors, 0);
  } else if (param.kind == OpKind::kBroadcast) {
    EXPECT_GE(errors, 1);  // the root, and ranks that it has told its data before, are done
  } else {
    EXPECT_EQ(errors, param.size());
  }
}

INSTANTIATE_TEST_SUITE_P(All, OtherPlanTest, testing::ValuesIn(PlanCases()),
                         [](const testing::TestParamInfo<PlanCase>& info) { return info.param.name; });

}  // namespace
}  // namespace farandole
