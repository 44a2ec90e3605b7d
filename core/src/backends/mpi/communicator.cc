#include "backends/mpi/communicator.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <numeric>
#include <tuple>
#include <utility>

namespace farandole {
namespace {

// ---- reductions

// The type and op by which the library reduces: its own, or a function made here.
struct MpiReduction {
  MpiHandle type;
  MpiHandle op;
};

template <DType kDType, ReduceOp kReduce>
void Reduce(void* input, void* in_and_out, int* count, void* /*type*/) {
  const void* const inputs[] = {input, in_and_out};
  Reduce(kDType, kReduce, inputs, 2, static_cast<size_t>(*count), Scale(), in_and_out);
}

// MPI passes a reduction no argument of its caller, so there is a function for each element type and reduction.
template <size_t... kPairs>
constexpr std::array<MpiReduceFunction, sizeof...(kPairs)> AllFunctions(std::index_sequence<kPairs...>) {
  return {&Reduce<static_cast<DType>(kPairs / kReduceOpCount), static_cast<ReduceOp>(kPairs % kReduceOpCount)>...};
}
constexpr auto kFunctions = AllFunctions(std::make_index_sequence<size_t{kDTypeCount} * kReduceOpCount>());

// An empty cell is a type that the library lacks. No library has types for 16-bit floats: an integer type of the same
// size stands for them, and a function of this library reduces them.
constexpr auto kTypes = ByNumber<kDTypeCount, MpiKnown>(MpiKnown::kNone, {{DType::kUint8, MpiKnown::kUint8},
                                                                          {DType::kInt8, MpiKnown::kInt8},
                                                                          {DType::kUint16, MpiKnown::kUint16},
                                                                          {DType::kInt16, MpiKnown::kInt16},
                                                                          {DType::kInt32, MpiKnown::kInt32},
                                                                          {DType::kInt64, MpiKnown::kInt64},
                                                                          {DType::kFloat16, MpiKnown::kUint16},
                                                                          {DType::kBfloat16, MpiKnown::kUint16},
                                                                          {DType::kFloat32, MpiKnown::kFloat},
                                                                          {DType::kFloat64, MpiKnown::kDouble},
                                                                          {DType::kBool, MpiKnown::kUint8},
                                                                          {DType::kUint32, MpiKnown::kUint32},
                                                                          {DType::kUint64, MpiKnown::kUint64}});
constexpr auto kOps = ByNumber<kReduceOpCount, MpiKnown>(MpiKnown::kNone, {{ReduceOp::kSum, MpiKnown::kSum},
                                                                           {ReduceOp::kMin, MpiKnown::kMin},
                                                                           {ReduceOp::kMax, MpiKnown::kMax},
                                                                           {ReduceOp::kProduct, MpiKnown::kProduct}});

// kNone where a function of this library is needed: for types that the MPI library lacks, and for the minimum and
// maximum of floats, where the library's may lose a NaN.
MpiKnown TheirOp(DType dtype, ReduceOp reduce) {
  if (IsHalf(dtype) || dtype == DType::kBool) return MpiKnown::kNone;
  const bool finds_extremes = reduce == ReduceOp::kMin || reduce == ReduceOp::kMax;
  return IsFloating(dtype) && finds_extremes ? MpiKnown::kNone : kOps[static_cast<size_t>(reduce)];
}

// Finds the library's type and op, or makes an op where it has none that means the same. REQUIRES: MpiKnows the type;
// reduce is neither kAverage nor kAdasum.
Status FindReduction(const MpiLibrary& library, DType dtype, ReduceOp reduce, MpiReduction* reduction) {
  reduction->type = library.Known(kTypes[static_cast<size_t>(dtype)]);
  if (const MpiKnown theirs = TheirOp(dtype, reduce); theirs != MpiKnown::kNone) {
    reduction->op = library.Known(theirs);
    return Status::Ok();
  }
  const MpiReduceFunction ours = kFunctions[static_cast<size_t>(dtype) * kReduceOpCount + static_cast<size_t>(reduce)];
  // Made once per process, and never freed: an op stays as long as MPI.
  static std::mutex mutex;
  static auto* const made = new std::map<std::tuple<const MpiLibrary*, MpiReduceFunction>, MpiHandle>();
  std::lock_guard<std::mutex> lock(mutex);
  const auto [place, is_new] = made->try_emplace({&library, ours});
  if (is_new) {
    constexpr int kCommutes = 1;
    const Status created = library.Call(library.op_create, ours, kCommutes, &place->second);
    if (!created.ok()) {
      made->erase(place);
      return created;
    }
  }
  reduction->op = place->second;
  return Status::Ok();
}

// ---- sizes

size_t Sum(const std::vector<size_t>& sizes) { return std::accumulate(sizes.begin(), sizes.end(), size_t{0}); }

size_t BeginOf(const std::vector<size_t>& sizes, size_t part) {
  return std::accumulate(sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(part), size_t{0});
}

// MPI counts elements in int. REQUIRES: they fit.
std::vector<int> Counts(const std::vector<size_t>& sizes, size_t element_bytes) {
  std::vector<int> counts;
  for (const size_t size : sizes) counts.push_back(static_cast<int>(size / element_bytes));
  return counts;
}

std::vector<int> Offsets(const std::vector<int>& counts) {
  std::vector<int> offsets(counts.size(), 0);
  for (size_t i = 1; i < counts.size(); ++i) offsets[i] = offsets[i - 1] + counts[i - 1];
  return offsets;
}

// Calls piece(offset, size) for the pieces of `size`, none above `most`, until one fails.
template <typename Piece>
Status InPieces(size_t size, size_t most, Piece piece) {
  for (size_t offset = 0; offset < size; offset += most)
    FRD_RETURN_IF_ERROR(piece(offset, static_cast<int>(std::min(most, size - offset))));
  return Status::Ok();
}

}  // namespace

bool MpiKnows(DType dtype) { return kTypes[static_cast<size_t>(dtype)] != MpiKnown::kNone; }

MpiCommunicator::~MpiCommunicator() {
  if (is_made_) library_.comm_free(library_.abi, &handle_);
}

// Only the members call MPI_Comm_create_group: other ranks may be busy, and need not know of the set.
Status MpiCommunicator::Make(int set_id, const std::vector<int>& places, int position) {
  std::vector<int> sorted = places;
  std::sort(sorted.begin(), sorted.end());
  if (const auto duplicate = std::adjacent_find(sorted.begin(), sorted.end()); duplicate != sorted.end())
    return Invalid("two ranks of this job are rank ", *duplicate, " in MPI (", library_.Title(),
                   "): start all of them with one mpirun");
  position_ = static_cast<size_t>(position);
  const MpiHandle world = library_.Known(MpiKnown::kCommWorld);
  MpiHandle everybody, group;
  FRD_RETURN_IF_ERROR(library_.Call(library_.comm_group, world, &everybody));
  FRD_RETURN_IF_ERROR(
      library_.Call(library_.group_incl, everybody, static_cast<int>(places.size()), places.data(), &group));
  constexpr int kTags = 1 << 14;  // MPI promises 32767
  FRD_RETURN_IF_ERROR(library_.Call(library_.comm_create_group, world, group, set_id % kTags, &handle_));
  is_made_ = true;
  FRD_RETURN_IF_ERROR(library_.Call(library_.group_free, &group));
  FRD_RETURN_IF_ERROR(library_.Call(library_.group_free, &everybody));
  // Without this handler the library ends the process at the first error.
  return library_.Call(library_.comm_set_errhandler, handle_, library_.Known(MpiKnown::kErrorsReturn));
}

Status MpiCommunicator::Allreduce(DType dtype, ReduceOp reduce, const void* input, void* output,
                                  size_t element_count) const {
  MpiReduction reduction;
  FRD_RETURN_IF_ERROR(FindReduction(library_, dtype, reduce, &reduction));
  const size_t element_bytes = SizeOf(dtype);
  return InPieces(element_count, max_bytes_ / element_bytes, [&](size_t offset, int count) {
    char* const result = static_cast<char*>(output) + offset * element_bytes;
    const void* const source =
        input == output ? library_.in_place() : static_cast<const char*>(input) + offset * element_bytes;
    return library_.Call(library_.allreduce, source, result, count, reduction.type, reduction.op, handle_);
  });
}

Status MpiCommunicator::Broadcast(int root, void* data, size_t size_bytes) const {
  const MpiHandle byte = library_.Known(MpiKnown::kUint8);
  return InPieces(size_bytes, max_bytes_, [&](size_t offset, int count) {
    return library_.Call(library_.bcast, static_cast<char*>(data) + offset, count, byte, root, handle_);
  });
}

Status MpiCommunicator::Allgather(const void* input, void* output, const std::vector<size_t>& rank_bytes) const {
  const MpiHandle byte = library_.Known(MpiKnown::kUint8);
  const size_t mine = rank_bytes[position_];
  char* const place = static_cast<char*>(output) + BeginOf(rank_bytes, position_);
  if (Sum(rank_bytes) <= max_bytes_) {
    const std::vector<int> counts = Counts(rank_bytes, 1), offsets = Offsets(counts);
    const void* const source = input == place ? library_.in_place() : input;
    return library_.Call(library_.allgatherv, source, static_cast<int>(mine), byte, output, counts.data(),
                         offsets.data(), byte, handle_);
  }
  if (input != place) std::copy_n(static_cast<const char*>(input), mine, place);
  char* part = static_cast<char*>(output);
  for (size_t root = 0; root < rank_bytes.size(); part += rank_bytes[root++])
    FRD_RETURN_IF_ERROR(Broadcast(static_cast<int>(root), part, rank_bytes[root]));
  return Status::Ok();
}

Status MpiCommunicator::Alltoall(const void* input, const std::vector<size_t>& send_bytes, void* output,
                                 const std::vector<size_t>& recv_bytes) const {
  size_t most = std::max(Sum(send_bytes), Sum(recv_bytes));
  FRD_RETURN_IF_ERROR(AgreeOnMost(&most));
  if (most <= max_bytes_) {
    const MpiHandle byte = library_.Known(MpiKnown::kUint8);
    const std::vector<int> sends = Counts(send_bytes, 1), send_offsets = Offsets(sends);
    const std::vector<int> receives = Counts(recv_bytes, 1), receive_offsets = Offsets(receives);
    return library_.Call(library_.alltoallv, input, sends.data(), send_offsets.data(), byte, output, receives.data(),
                         receive_offsets.data(), byte, handle_);
  }
  const size_t ranks = send_bytes.size(), rounds = (most + max_bytes_ - 1) / max_bytes_;
  for (size_t step = 0; step < ranks; ++step) {
    const size_t to = (position_ + step) % ranks, from = (position_ + ranks - step) % ranks;
    FRD_RETURN_IF_ERROR(Exchange(to, static_cast<const char*>(input) + BeginOf(send_bytes, to), send_bytes[to], from,
                                 static_cast<char*>(output) + BeginOf(recv_bytes, from), recv_bytes[from], rounds));
  }
  return Status::Ok();
}

Status MpiCommunicator::Reducescatter(DType dtype, ReduceOp reduce, const void* input, void* output,
                                      const std::vector<size_t>& rank_bytes) const {
  MpiReduction reduction;
  FRD_RETURN_IF_ERROR(FindReduction(library_, dtype, reduce, &reduction));
  const size_t element_bytes = SizeOf(dtype);
  if (Sum(rank_bytes) <= max_bytes_) {
    const std::vector<int> counts = Counts(rank_bytes, element_bytes);
    return library_.Call(library_.reduce_scatter, input, output, counts.data(), reduction.type, reduction.op, handle_);
  }
  const char* part = static_cast<const char*>(input);
  for (size_t root = 0; root < rank_bytes.size(); part += rank_bytes[root++]) {
    char* const result = root == position_ ? static_cast<char*>(output) : nullptr;
    const size_t count = rank_bytes[root] / element_bytes;
    FRD_RETURN_IF_ERROR(InPieces(count, max_bytes_ / element_bytes, [&](size_t offset, int piece) {
      const size_t begin = offset * element_bytes;
      return library_.Call(library_.reduce, part + begin, result != nullptr ? result + begin : nullptr, piece,
                           reduction.type, reduction.op, static_cast<int>(root), handle_);
    }));
  }
  return Status::Ok();
}

// Sets *size_bytes to the largest of all ranks'. Only this rank knows what it sends, but all ranks must call the same
// functions of MPI.
Status MpiCommunicator::AgreeOnMost(size_t* size_bytes) const {
  auto most = static_cast<int64_t>(*size_bytes);
  FRD_RETURN_IF_ERROR(library_.Call(library_.allreduce, library_.in_place(), &most, 1, library_.Known(MpiKnown::kInt64),
                                    library_.Known(MpiKnown::kMax), handle_));
  *size_bytes = static_cast<size_t>(most);
  return Status::Ok();
}

// Every rank sends equally many messages, some of them empty, so that each finds its receiver.
Status MpiCommunicator::Exchange(size_t to, const char* sent, size_t send_bytes, size_t from, char* received,
                                 size_t recv_bytes, size_t rounds) const {
  constexpr int kTag = 0;  // any will do: nothing else uses the communicator
  const MpiHandle byte = library_.Known(MpiKnown::kUint8);
  for (size_t round = 0; round < rounds; ++round) {
    const size_t send = std::min(max_bytes_, send_bytes), receive = std::min(max_bytes_, recv_bytes);
    FRD_RETURN_IF_ERROR(library_.Call(library_.sendrecv, sent, static_cast<int>(send), byte, static_cast<int>(to), kTag,
                                      received, static_cast<int>(receive), byte, static_cast<int>(from), kTag, handle_,
                                      library_.status_ignore()));
    sent += send;
    received += receive;
    send_bytes -= send;
    recv_bytes -= receive;
  }
  return Status::Ok();
}

}  // namespace farandole
