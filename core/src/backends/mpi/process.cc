#include "backends/mpi/process.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

namespace farandole {
namespace {

std::mutex g_mutex;                         // one beginning at a time
const MpiLibrary* g_begun_by_us = nullptr;  // guarded by g_mutex
std::atomic<bool> g_unfinished{false};
std::atomic<int> g_within{0};

void FinishAtExit() {
  if (g_within > 0) return;
  std::lock_guard<std::mutex> lock(g_mutex);
  int finalized = 0;
  if (g_unfinished || g_begun_by_us == nullptr) return;
  if (g_begun_by_us->finalized(g_begun_by_us->abi, &finalized) != kMpiSuccess || finalized != 0) return;
  g_begun_by_us->finalize(g_begun_by_us->abi);
}

Status CheckLevel(const MpiLibrary& library, int level, const std::string& what, const std::string& remedy) {
  if (level >= library.thread_multiple()) return Status::Ok();
  return Invalid(what + " without MPI_THREAD_MULTIPLE (level " + std::to_string(level) + " of " +
                 std::to_string(library.thread_multiple()) + ", " + library.Title() +
                 "), but Farandole calls MPI in a thread of its own: " + remedy);
}

// MPICH ends a process that Open MPI's launcher has started, so it is not asked.
Status CheckStarter(const MpiLibrary& library, const std::string& starter) {
  if (starter != "openmpi" || library.version.find("Open MPI") != std::string::npos) return Status::Ok();
  return Invalid("Open MPI's mpirun started this process, but the library is " + library.Title() +
                 ": start the job with the mpirun that comes with this library, or set FARANDOLE_MPI_LIB to the "
                 "libmpi.so.40 of the mpirun you use");
}

Status Begin(const MpiLibrary& library) {
  int level = 0;
  FRD_RETURN_IF_ERROR(library.Call(library.init_thread, nullptr, nullptr, library.thread_multiple(), &level));
  g_begun_by_us = &library;
  std::atexit(&FinishAtExit);
  return CheckLevel(library, level, "MPI started",
                    "install a library that was built for threads, or set FARANDOLE_MPI_LIB to its path");
}

// ---- reductions of ours

template <DType kDType, ReduceOp kReduce>
void Reduce(void* input, void* in_and_out, int* count, void* /*type*/) {
  const void* const inputs[] = {input, in_and_out};
  Fold(kDType, kReduce, inputs, 2, static_cast<size_t>(*count), Scale(), in_and_out);
}

// MPI gives a reduction no argument of ours, so there is one for each element type and reduction.
template <size_t... kPairs>
constexpr std::array<MpiReduceFunction, sizeof...(kPairs)> AllFunctions(std::index_sequence<kPairs...>) {
  return {&Reduce<static_cast<DType>(kPairs / kReduceOpCount), static_cast<ReduceOp>(kPairs % kReduceOpCount)>...};
}
constexpr auto kFunctions = AllFunctions(std::make_index_sequence<size_t{kDTypeCount} * kReduceOpCount>());

// 16-bit floats have types of their own in no library: what stands for them says only how large they are.
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
                                                                          {DType::kBool, MpiKnown::kUint8}});
constexpr auto kOps = ByNumber<kReduceOpCount, MpiKnown>(MpiKnown::kNone, {{ReduceOp::kSum, MpiKnown::kSum},
                                                                           {ReduceOp::kMin, MpiKnown::kMin},
                                                                           {ReduceOp::kMax, MpiKnown::kMax},
                                                                           {ReduceOp::kProduct, MpiKnown::kProduct}});

// kNone where one of ours is needed: for types that the library does not have, and since its minimum and maximum of
// floats forget a NaN.
MpiKnown TheirOp(DType dtype, ReduceOp reduce) {
  if (IsHalf(dtype) || dtype == DType::kBool) return MpiKnown::kNone;
  const bool finds_extremes = reduce == ReduceOp::kMin || reduce == ReduceOp::kMax;
  return IsFloating(dtype) && finds_extremes ? MpiKnown::kNone : kOps[static_cast<size_t>(reduce)];
}

}  // namespace

Status StartMpi(const MpiLibrary& library, const std::string& starter) {
  std::lock_guard<std::mutex> lock(g_mutex);
  int finalized = 0, initialized = 0, level = 0;
  FRD_RETURN_IF_ERROR(library.Call(library.finalized, &finalized));
  if (finalized != 0)
    return Invalid("MPI (" + library.Title() +
                   ") cannot be used any more: the program has called MPI_Finalize. Call farandole's init before it, "
                   "and end MPI when the program ends");
  FRD_RETURN_IF_ERROR(library.Call(library.initialized, &initialized));
  if (initialized == 0) {
    FRD_RETURN_IF_ERROR(CheckStarter(library, starter));
    return Begin(library);
  }
  FRD_RETURN_IF_ERROR(library.Call(library.query_thread, &level));
  return CheckLevel(library, level, "the program has initialized MPI",
                    "ask MPI_Init_thread for MPI_THREAD_MULTIPLE (mpi4py does, unless mpi4py.rc.thread_level says "
                    "otherwise), or call farandole's init first");
}

void LeaveMpiUnfinished() { g_unfinished = true; }

WithinMpi::WithinMpi() { ++g_within; }
WithinMpi::~WithinMpi() { --g_within; }

bool MpiReduces(DType dtype, ReduceOp reduce) {
  return kTypes[static_cast<size_t>(dtype)] != MpiKnown::kNone && Supports(dtype, reduce) && !NeedsWholeTensors(reduce);
}

Status FindMpiReduction(const MpiLibrary& library, DType dtype, ReduceOp reduce, MpiReduction* reduction) {
  reduction->type = library.Known(kTypes[static_cast<size_t>(dtype)]);
  if (const MpiKnown theirs = TheirOp(dtype, reduce); theirs != MpiKnown::kNone) {
    reduction->op = library.Known(theirs);
    return Status::Ok();
  }
  const MpiReduceFunction ours = kFunctions[static_cast<size_t>(dtype) * kReduceOpCount + static_cast<size_t>(reduce)];
  // Made once per process: an op stays as long as MPI.
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

}  // namespace farandole
