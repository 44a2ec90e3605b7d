#include "backends/mpi/process.h"

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <tuple>

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

template <DType kDType>
MpiReduceFunction FunctionOf(ReduceOp reduce) {
  switch (reduce) {
    case ReduceOp::kMin:
      return &Reduce<kDType, ReduceOp::kMin>;
    case ReduceOp::kMax:
      return &Reduce<kDType, ReduceOp::kMax>;
    case ReduceOp::kProduct:
      return &Reduce<kDType, ReduceOp::kProduct>;
    default:
      return &Reduce<kDType, ReduceOp::kSum>;
  }
}

// Null where the library's own will do.
MpiReduceFunction OurFunction(DType dtype, ReduceOp reduce) {
  const bool finds_extremes = reduce == ReduceOp::kMin || reduce == ReduceOp::kMax;
  switch (dtype) {
    case DType::kFloat16:
      return FunctionOf<DType::kFloat16>(reduce);
    case DType::kBfloat16:
      return FunctionOf<DType::kBfloat16>(reduce);
    case DType::kBool:
      return FunctionOf<DType::kBool>(reduce);
    case DType::kFloat32:
      return finds_extremes ? FunctionOf<DType::kFloat32>(reduce) : nullptr;
    case DType::kFloat64:
      return finds_extremes ? FunctionOf<DType::kFloat64>(reduce) : nullptr;
    default:
      return nullptr;
  }
}

MpiKnown TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
    case DType::kBool:
      return MpiKnown::kUint8;
    case DType::kInt8:
      return MpiKnown::kInt8;
    case DType::kUint16:
    case DType::kFloat16:  // only how large they are
    case DType::kBfloat16:
      return MpiKnown::kUint16;
    case DType::kInt16:
      return MpiKnown::kInt16;
    case DType::kInt32:
      return MpiKnown::kInt32;
    case DType::kInt64:
      return MpiKnown::kInt64;
    case DType::kFloat32:
      return MpiKnown::kFloat;
    case DType::kFloat64:
      return MpiKnown::kDouble;
  }
  return MpiKnown::kUint8;
}

MpiKnown TheirOp(ReduceOp reduce) {
  switch (reduce) {
    case ReduceOp::kMin:
      return MpiKnown::kMin;
    case ReduceOp::kMax:
      return MpiKnown::kMax;
    case ReduceOp::kProduct:
      return MpiKnown::kProduct;
    default:
      return MpiKnown::kSum;
  }
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

Status FindMpiReduction(const MpiLibrary& library, DType dtype, ReduceOp reduce, MpiReduction* reduction) {
  reduction->type = library.Known(TypeOf(dtype));
  reduction->op = library.Known(TheirOp(reduce));
  const MpiReduceFunction ours = OurFunction(dtype, reduce);
  if (ours == nullptr) return Status::Ok();
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
