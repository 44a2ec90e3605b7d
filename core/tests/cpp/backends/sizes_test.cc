// Sizes that code easily gets wrong: everything for one rank, nothing for most, more elements than 32 bits can count.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>

#include "backends/performed.h"

namespace farandole::tests {
namespace {

const std::vector<int> kNodes[] = {{3}, {1, 1, 1}, {2, 1}, {1, 2}};

std::string PerformCase(Rank& rank, const Case& c) {
  const Performed performed(c, WholeWorld(rank.world().layout, rank.rank()));
  const std::string error = rank.Perform(performed.task());
  return error.empty() ? performed.Check() : error;
}

Case Empty(OpKind kind) {
  Case c;
  c.kind = kind;
  c.dtype = DType::kInt32;
  c.counts = {0};
  c.joined = {false, false, false};
  c.parts = {0, 0, 0};
  c.matrix = {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}};
  return c;
}

TEST(Sizes, NothingAtAllIsDone) {
  for (const auto& nodes : kNodes) {
    for (int kind : {0, 1, 2, 3, 4, 5}) {
      EXPECT_EQ(RunBackends(nodes, [&](Rank& rank) { return PerformCase(rank, Empty(static_cast<OpKind>(kind))); }),
                "");
    }
  }
}

TEST(Sizes, OneRankMayGetOrGiveEverything) {
  constexpr size_t kMany = 150001;  // several rounds
  for (const auto& nodes : kNodes) {
    for (size_t one = 0; one < 3; ++one) {
      EXPECT_EQ(RunBackends(nodes,
                            [&](Rank& rank) -> std::string {
                              Case parts = Empty(OpKind::kReducescatter), rows = Empty(OpKind::kAllgather),
                                   to = Empty(OpKind::kAlltoall);
                              Case from = to;
                              parts.parts[one] = rows.parts[one] = kMany;
                              for (size_t p = 0; p < 3; ++p) to.matrix[p][one] = from.matrix[one][p] = kMany;
                              std::string error;
                              for (const Case& c : {parts, rows, to, from}) error += PerformCase(rank, c);
                              return error;
                            }),
                "");
    }
  }
}

// Memory that uses no pages until it is written.
class LazyBytes {
 public:
  explicit LazyBytes(size_t size_bytes) : size_bytes_(size_bytes) {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    begin_ = static_cast<uint8_t*>(memory);
  }
  ~LazyBytes() { munmap(begin_, size_bytes_); }
  LazyBytes(const LazyBytes&) = delete;

  uint8_t* begin() const { return begin_; }

 private:
  size_t size_bytes_;
  uint8_t* begin_;
};

// In place, through every way in which an allreduce goes. The results are all zeros except around the places where
// numbers of 31 and 32 bits end. FARANDOLE_LONG=1 takes 2^31 + 7 elements and as many bytes per rank.
TEST(Sizes, ElementsAreCountedInMoreThan32Bits) {
  const bool huge = std::getenv("FARANDOLE_LONG") != nullptr;
  const size_t element_count = (size_t{1} << (huge ? 31 : 21)) + 7;
  const size_t places[] = {0, element_count / 2, element_count - 8, element_count - 7, element_count - 1};
  for (const std::vector<int>& nodes : {std::vector<int>{2}, {1, 1}, {2, 1}}) {
    EXPECT_EQ(RunBackends(nodes,
                          [&](Rank& rank) -> std::string {
                            const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
                            const LazyBytes data(element_count);
                            for (size_t place : places)
                              data.begin()[place] = static_cast<uint8_t>(place % 50 + 1 + rank.rank());
                            Task task;
                            task.set = &set;
                            task.dtype = DType::kUint8;
                            task.buffers = {{data.begin(), data.begin(), element_count}};
                            const std::string error = rank.Perform(task, std::chrono::seconds(300));
                            if (!error.empty()) return error;
                            size_t sum = 0, expected_sum = 0;
                            for (size_t i = 0; i < element_count; ++i) sum += data.begin()[i];
                            for (size_t place : places) {
                              size_t expected = 0;
                              for (int r = 0; r < set.size(); ++r) expected += place % 50 + 1 + static_cast<size_t>(r);
                              if (data.begin()[place] != expected) return "wrong at " + std::to_string(place);
                              expected_sum += expected;
                            }
                            return sum == expected_sum ? "" : "values where there must be none";
                          }),
              "");
  }
}

TEST(Sizes, WorkThatIsAbortedLeavesMemoryAlone) {
  for (const auto& nodes : kNodes) {
    EXPECT_EQ(RunBackends(nodes,
                          [](Rank& rank) -> std::string {
                            if (rank.rank() != 0) return "";  // the others do not come
                            const ProcessSet set = WholeWorld(rank.world().layout, rank.rank());
                            const Settings settings;
                            BackendTable backends(const_cast<World*>(&rank.world()), settings, BackendList());
                            for (ReduceOp reduce : {ReduceOp::kSum, ReduceOp::kAdasum}) {
                              std::vector<float> input(100000, 1.0f), output(100000, 5.0f);
                              Task task;
                              task.set = &set;
                              task.reduce = reduce;
                              task.buffers = {{input.data(), output.data(), input.size() * sizeof(float)}};
                              Backend* const backend = backends.At(0);
                              bool moved = false, done = false;
                              Status status = backend->Start(&task);
                              for (int i = 0; status.ok() && i < 50; ++i) status = backend->Poll(&moved, &done);
                              if (!status.ok() || done) return "done without the others";
                              if (backend->WaitingOn().empty()) return "waits for nobody";
                              backend->Abort();
                              if (input != std::vector<float>(input.size(), 1.0f)) return "the input was written";
                            }
                            return "";
                          }),
              "");
  }
}

}  // namespace
}  // namespace farandole::tests
