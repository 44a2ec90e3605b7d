// A rank that waits for one which makes no more such calls ends the epoch, wherever the two are.
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

TEST(IsTitleOfTest, ComparesTheSetAndThePrefix) {
  EXPECT_TRUE(IsTitleOf("allreduce 'gradient.0'", 0, "gradient."));
  EXPECT_TRUE(IsTitleOf("allgather 'gradient.12.indices'", 0, "gradient."));
  EXPECT_TRUE(IsTitleOf("allreduce 'gradient.0' of process set 3", 3, "gradient."));
  EXPECT_FALSE(IsTitleOf("allreduce 'gradient.0' of process set 3", 0, "gradient."));
  EXPECT_FALSE(IsTitleOf("allreduce 'gradient.0'", 3, "gradient."));
  EXPECT_FALSE(IsTitleOf("allreduce 'gradient.model.0'", 0, "gradient."));
  EXPECT_FALSE(IsTitleOf("allreduce 'model.gradient.0'", 0, "gradient."));
  EXPECT_TRUE(IsTitleOf("allreduce 'call/then/allreduce.gradient.0'", 0, "gradient."));
  EXPECT_FALSE(IsTitleOf("allreduce 'call/allreduce.model.gradient.0'", 0, "gradient."));
  EXPECT_TRUE(IsTitleOf("allreduce 'call/allreduce.model.gradient.0'", 0, "model.gradient."));
  EXPECT_TRUE(IsTitleOf("allgather 'while/allgather.compared.gradient#12.3'", 0, "compared.gradient"));
  EXPECT_TRUE(IsTitleOf("allgather 'compared.gradient'", 0, "compared.gradient"));
  EXPECT_FALSE(IsTitleOf("allgather 'compared.gradients'", 0, "compared.gradient"));
  EXPECT_FALSE(IsTitleOf("unnamed allreduce number 0", 0, "gradient."));
  EXPECT_FALSE(IsTitleOf("join", 0, ""));
}

// Ranks on hosts of these sizes; the ranks from `first_with_more` on make one call more than the others.
struct UnevenCase {
  std::vector<int> hosts;
  int first_with_more;
  size_t elements;
};

void PrintTo(const UnevenCase& of, std::ostream* out) {
  for (int size : of.hosts) *out << size << " ";
  *out << "from rank " << of.first_with_more << " on, " << of.elements << " elements";
}

class ExcludedCallsTest : public testing::TestWithParam<UnevenCase> {
 protected:
  static Status Reduce(Engine& engine) {
    std::vector<float> values(GetParam().elements, 1);
    return SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(values, &values)}, "gradient.0"));
  }

  static Status Meet(Engine& engine) {
    const int64_t number = engine.Exclude({0, "gradient.", "end", "all is done", "make as many"});
    const Status met = SubmitAndWait(engine, Make(OpKind::kBarrier, {}, "end"));
    engine.Allow(number);
    return met;
  }

  static Status Train(Engine& engine, int epochs) {
    for (int epoch = 0; epoch < epochs; ++epoch) {
      FRD_RETURN_IF_ERROR(Reduce(engine));
      FRD_RETURN_IF_ERROR(Meet(engine));
    }
    return Status::Ok();
  }

  static void Run(const std::function<void(Engine&)>& body) {
    Settings settings;
    settings.warn_after_ms = 1000;  // ranks ask others after half of it
    RunWorlds(ThreadWorlds(GetParam().hosts), body, settings);
  }
};

TEST_P(ExcludedCallsTest, OneCallMoreEndsTheEpochOnAllRanks) {
  Run([](Engine& engine) {
    Status ended = Train(engine, 3);  // a slow rank may hear of the end before it knows that the last meeting is over
    if (ended.ok()) ended = engine.rank() >= GetParam().first_with_more ? Reduce(engine) : Meet(engine);
    EXPECT_EQ(ended.code(), Code::kMismatch);
    EXPECT_NE(ended.message().find("all is done, but rank "), std::string::npos) << ended.message();
    EXPECT_NE(ended.message().find(": make as many"), std::string::npos) << ended.message();
    EXPECT_EQ(Reduce(engine).code(), Code::kMismatch);
  });
}

TEST_P(ExcludedCallsTest, AsManyCallsNeverDo) {
  Run([](Engine& engine) {
    const Status trained = Train(engine, 100);
    EXPECT_TRUE(trained.ok()) << trained.message();
  });
}

INSTANTIATE_TEST_SUITE_P(Hosts, ExcludedCallsTest,
                         testing::Values(UnevenCase{{2}, 1, 4}, UnevenCase{{3}, 2, 1 << 20}, UnevenCase{{1, 1}, 1, 4},
                                         UnevenCase{{1, 1}, 1, 1 << 20}, UnevenCase{{2, 1}, 2, 4},
                                         UnevenCase{{2, 1}, 1, 4}, UnevenCase{{2, 2}, 2, 4},
                                         UnevenCase{{2, 2}, 2, 1 << 20}, UnevenCase{{2, 2}, 3, 4},
                                         UnevenCase{{2, 2}, 1, 1 << 20}));

}  // namespace
}  // namespace farandole
