// A rank of a job started by an MPI's own launcher: every collective of the MPI backend, in one call and in pieces, on
// the whole world and on a process set.
//
//   mpirun -n 3 mpi_ranks /usr/lib/libmpi.so.40
//
// Ends with 0 and prints the library's version once, or says on which rank what was wrong. Run by the session
// `backend_mpi`, or by hand with a library that is there.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "backends/mpi/communicator.h"
#include "reduce/conversions.h"

namespace {

using namespace farandole;

int g_rank = -1;

void Require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "rank %d: %s\n", g_rank, what.c_str());
  std::exit(1);
}

void Require(const Status& status) { Require(status.ok(), status.message()); }

// The input of a test.
struct Case {
  int position;
  int size;
  const MpiCommunicator& communicator;
};

int Value(int position, size_t i) { return position + 1 + static_cast<int>(i % 5); }

int Expected(ReduceOp reduce, int size, size_t i) {
  int result = Value(0, i);
  for (int p = 1; p < size; ++p) {
    const int next = Value(p, i);
    if (reduce == ReduceOp::kSum) result += next;
    if (reduce == ReduceOp::kProduct) result *= next;
    if (reduce == ReduceOp::kMin) result = std::min(result, next);
    if (reduce == ReduceOp::kMax) result = std::max(result, next);
  }
  return result;
}

template <typename Element>
Element From(int value) {
  return static_cast<Element>(value);
}

constexpr ReduceOp kReductions[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

// `convert` makes an element of a small number.
template <typename Element, typename Convert>
void TestReductions(const Case& c, DType dtype, Convert convert) {
  for (const ReduceOp reduce : kReductions) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{1000}}) {
      std::vector<Element> input(count), output(count);
      for (size_t i = 0; i < count; ++i) input[i] = convert(Value(c.position, i));
      Require(c.communicator.Allreduce(dtype, reduce, input.data(), output.data(), count));
      Require(c.communicator.Allreduce(dtype, reduce, input.data(), input.data(), count));
      const std::string what = std::string("allreduce ") + NameOf(reduce) + " of " + NameOf(dtype);
      for (size_t i = 0; i < count; ++i) {
        const Element expected = convert(Expected(reduce, c.size, i));
        Require(std::memcmp(&output[i], &expected, sizeof expected) == 0, what + " is wrong");
        Require(std::memcmp(&input[i], &expected, sizeof expected) == 0, what + ", in place, is wrong");
      }
    }
    std::vector<size_t> parts(static_cast<size_t>(c.size));
    for (size_t p = 0; p < parts.size(); ++p) parts[p] = (p * 30 + 1) * sizeof(Element);
    const size_t total = std::accumulate(parts.begin(), parts.end(), size_t{0}) / sizeof(Element);
    const size_t mine = parts[static_cast<size_t>(c.position)] / sizeof(Element);
    size_t begin = 0;
    for (int p = 0; p < c.position; ++p) begin += parts[static_cast<size_t>(p)] / sizeof(Element);
    std::vector<Element> input(total), output(mine);
    for (size_t i = 0; i < total; ++i) input[i] = convert(Value(c.position, i));
    Require(c.communicator.Reducescatter(dtype, reduce, input.data(), output.data(), parts));
    for (size_t i = 0; i < mine; ++i) {
      const Element expected = convert(Expected(reduce, c.size, begin + i));
      Require(std::memcmp(&output[i], &expected, sizeof expected) == 0,
              std::string("reducescatter ") + NameOf(reduce) + " of " + NameOf(dtype) + " is wrong");
    }
  }
}

void TestMinimumOfNaN(const Case& c) {
  for (const ReduceOp reduce : {ReduceOp::kMin, ReduceOp::kMax}) {
    float value = c.position == c.size - 1 ? std::strtof("nan", nullptr) : 1.0f;
    Require(c.communicator.Allreduce(DType::kFloat32, reduce, &value, &value, 1));
    Require(value != value, std::string("a NaN is lost in ") + NameOf(reduce));
  }
}

void TestMoves(const Case& c) {
  const auto n = static_cast<size_t>(c.size), me = static_cast<size_t>(c.position);
  for (int root = 0; root < c.size; ++root) {
    std::vector<char> data(301, c.position == root ? static_cast<char>(root + 1) : '\0');
    Require(c.communicator.Broadcast(root, data.data(), data.size()));
    Require(data == std::vector<char>(301, static_cast<char>(root + 1)), "broadcast is wrong");
  }
  std::vector<size_t> parts(n), begins(n, 0);
  for (size_t p = 0; p < n; ++p) parts[p] = p * 77;  // of rank 0 nothing
  for (size_t p = 1; p < n; ++p) begins[p] = begins[p - 1] + parts[p - 1];
  for (const bool in_place : {false, true}) {
    std::vector<char> gathered(begins.back() + parts.back(), -1), own(parts[me], static_cast<char>(me));
    char* const place = gathered.data() + begins[me];
    std::copy(own.begin(), own.end(), place);
    Require(c.communicator.Allgather(in_place ? place : own.data(), gathered.data(), parts));
    for (size_t p = 0; p < n; ++p)
      for (size_t i = 0; i < parts[p]; ++i)
        Require(gathered[begins[p] + i] == static_cast<char>(p), "allgather is wrong");
  }
  std::vector<size_t> sends(n), receives(n);
  std::vector<char> sent, expected;
  for (size_t p = 0; p < n; ++p) {
    sends[p] = (me * 3 + p) * 20;
    receives[p] = (p * 3 + me) * 20;
    sent.insert(sent.end(), sends[p], static_cast<char>(me * n + p));
    expected.insert(expected.end(), receives[p], static_cast<char>(p * n + me));
  }
  std::vector<char> received(expected.size());
  Require(c.communicator.Alltoall(sent.data(), sends, received.data(), receives));
  Require(received == expected, "alltoall is wrong");
}

void TestAll(const Case& c) {
  TestReductions<uint8_t>(c, DType::kUint8, From<uint8_t>);
  TestReductions<int8_t>(c, DType::kInt8, From<int8_t>);
  TestReductions<uint16_t>(c, DType::kUint16, From<uint16_t>);
  TestReductions<int16_t>(c, DType::kInt16, From<int16_t>);
  TestReductions<int32_t>(c, DType::kInt32, From<int32_t>);
  TestReductions<int64_t>(c, DType::kInt64, From<int64_t>);
  TestReductions<float>(c, DType::kFloat32, From<float>);
  TestReductions<double>(c, DType::kFloat64, From<double>);
  TestReductions<uint16_t>(c, DType::kFloat16, [](int value) { return FloatToFloat16(static_cast<float>(value)); });
  TestReductions<uint16_t>(c, DType::kBfloat16, [](int value) { return FloatToBfloat16(static_cast<float>(value)); });
  TestReductions<uint8_t>(c, DType::kBool, [](int) { return uint8_t{1}; });
  TestMinimumOfNaN(c);
  TestMoves(c);
}

void TestErrors(const Case& c) {
  const int no_root = c.size + 7;
  char byte = 0;
  const Status status = c.communicator.Broadcast(no_root, &byte, 1);
  Require(!status.ok() && status.message().find("MPI_Bcast failed: ") == 0, "no error: " + status.message());
}

}  // namespace

int main(int argument_count, char** arguments) {
  MpiSearch places;
  if (argument_count > 1) places.wanted = arguments[1];
  const MpiLibrary* library = nullptr;
  Require(OpenMpiLibrary(places, &library));
  Require(StartMpi(*library, ""));
  Require(StartMpi(*library, ""));  // once more is no error
  int size = 0;
  Require(library->Call(library->comm_rank, library->Known(MpiKnown::kCommWorld), &g_rank));
  Require(library->Call(library->comm_size, library->Known(MpiKnown::kCommWorld), &size));
  int place = -1;
  Require(FindRankInMpi(*library, size, &place));
  Require(place == g_rank, "another place in MPI");
  Require(!FindRankInMpi(*library, size + 1, &place).ok(), "a size that MPI does not have is accepted");
  std::vector<std::vector<int>> sets(2);
  for (int rank = 0; rank < size; ++rank) sets[0].push_back(rank);
  for (int rank = size % 2; rank < size; ++rank) sets[1].push_back(rank);
  for (int id = 0; id < 2; ++id) {
    const std::vector<int>& ranks = sets[static_cast<size_t>(id)];
    const auto found = std::find(ranks.begin(), ranks.end(), g_rank);
    if (found == ranks.end()) continue;
    const auto position = static_cast<int>(found - ranks.begin()), members = static_cast<int>(ranks.size());
    for (const size_t most : {MpiCommunicator::kMaxBytes, size_t{64}}) {
      MpiCommunicator communicator(*library, most);
      Require(communicator.Make(id, ranks, position));
      TestAll({position, members, communicator});
      TestErrors({position, members, communicator});
    }
  }
  constexpr const char* kInterfaces[] = {"MPICH's", "MPI 5.0's", "Open MPI's"};
  const char* const interface = kInterfaces[static_cast<size_t>(library->abi)];
  if (g_rank == 0) std::printf("%s: %s binary interface\n", library->Title().c_str(), interface);
  return 0;
}
