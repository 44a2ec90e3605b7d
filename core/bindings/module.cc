// Python <-> engine: conversions only. _core.pyi says what the functions promise.
//
// The GIL is released wherever a call may wait, and taken every 100 ms of waiting to check for signals (Ctrl-C).
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <future>
#include <limits>
#include <tuple>

#include "bindings/arguments.h"
#include "bindings/carried.h"
#include "bindings/errors.h"
#include "bindings/handle.h"
#include "bindings/one.h"
#include "bindings/output.h"
#include "bindings/persistent.h"
#include "bindings/sites.h"
#include "bindings/stacks.h"
#include "common/dynamic_library.h"
#include "engine/process.h"
#include "engine/small.h"
#include "engine/stacks.h"
#include "engine/timeline.h"
#include "farandole/farandole.h"

namespace py = pybind11;

namespace farandole {
namespace {

std::shared_ptr<Engine> Need() {
  Status status;
  std::shared_ptr<Engine> engine = CurrentEngine(&status);
  RaiseIfError(status);
  return engine;
}

std::string SiteOf(int above) {
  std::string site;
  if (!CallSite(above, &site)) throw py::error_already_set();
  return site;
}

// ---- submitting

py::object HandleOf(std::shared_ptr<Engine> engine, OperationPtr operation, const py::object& keep) {
  PyObject* const handle = NewHandle(std::move(engine), std::move(operation), keep.ptr(), Py_None);
  if (handle == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(handle);
}

py::object Submit(const py::object& op, const py::list& tensors, const py::object& keep, const py::tuple& parameters,
                  const std::vector<int64_t>& splits, const std::vector<int64_t>& ranks) {
  ReleaseOrphans();
  std::shared_ptr<Engine> engine = Need();
  std::vector<Dimensions> dimensions(tensors.size());
  std::vector<TensorView> views(tensors.size());
  for (size_t i = 0; i < views.size(); ++i) {
    if (!ReadTensor(tensors[i].ptr(), &dimensions[i], &views[i])) throw py::error_already_set();
  }
  RequestView request;
  if (!ReadParameters(op.ptr(), parameters.ptr(), &request)) throw py::error_already_set();
  const std::string site = SiteOf(0);
  request.tensors = {views.data(), views.size()};
  request.site = site;
  request.results_on_device = true;  // if the tensors are there
  request.splits = {splits.data(), splits.size()};
  request.ranks = {ranks.data(), ranks.size()};
  OperationPtr operation;
  Status status;
  {
    py::gil_scoped_release release;
    status = engine->Submit(request, &operation);
  }
  RaiseIfError(status);
  return HandleOf(std::move(engine), std::move(operation), keep);
}

void TellOfRefusal(const std::string& why) {
  const std::shared_ptr<Engine> engine = Need();
  const std::string site = SiteOf(0);
  py::gil_scoped_release release;
  engine->TellOfRefusal(why, site);
}

// ---- the world

bool IsReady(const std::future<Status>& meeting) {
  py::gil_scoped_release release;
  return meeting.wait_for(std::chrono::milliseconds(kSignalIntervalMs)) == std::future_status::ready;
}

void CancelMeeting(std::future<Status>* meeting) {
  py::gil_scoped_release release;
  CancelInit(true);
  const bool met = meeting->get().ok();
  CancelInit(false);
  if (met) ShutdownProcess();
}

py::list ListHostAddresses() {
  std::vector<std::string> addresses;
  RaiseIfError(FindHostAddresses(&addresses));
  return py::cast(addresses);
}

py::tuple ListenAt(const std::string& endpoint) {
  Descriptor listener;
  std::string bound;
  Status status;
  {
    py::gil_scoped_release release;  // a name may have to be looked up
    status = ListenForRanks(endpoint, &listener, &bound);
  }
  RaiseIfError(status);
  return py::make_tuple(listener.Release(), bound);
}

py::list Exchange(int rank, int size, const std::string& mine) {
  std::vector<std::string> all;
  Status status;
  {
    py::gil_scoped_release release;
    status = ExchangeThroughLauncher(rank, size, mine, &all);
  }
  RaiseIfError(status);
  py::list list;
  for (const std::string& each : all) list.append(py::bytes(each));
  return list;
}

// Raises an exception if waiting for other ranks should stop: a signal handler's, or that of `look`.
void LookAround(const py::object& look) {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  if (!look.is_none()) look();
}

Key KeyOf(const py::bytes& bytes) {
  const std::string secret = bytes;
  Key key{};
  if (secret.size() != key.size())
    RaiseIfError(Invalid("the job key must have 32 bytes, not " + std::to_string(secret.size())));
  std::copy(secret.begin(), secret.end(), key.begin());
  return key;
}

void Init(int rank, int size, const std::string& store, const py::bytes& key, const std::string& address, int listener,
          const py::object& look, const std::string& tuning, const py::bytes& job_key, uint32_t epoch) {
  WorldSpec spec;
  spec.tuning = tuning;
  if (listener >= 0) spec.listener = std::make_shared<Descriptor>(listener);
  spec.interface_address = address;
  spec.rank = rank;
  spec.size = size;
  spec.rendezvous_endpoint = store;
  spec.epoch = epoch;
  if (size > 1) spec.key = KeyOf(key);
  if (py::len(job_key) > 0) spec.job_key = KeyOf(job_key);
  // Runs in a thread of its own, so that this one can check for signals: a user must be able to interrupt a job whose
  // other ranks never come.
  std::future<Status> meeting = std::async(std::launch::async, [spec] { return InitProcess(spec); });
  while (!IsReady(meeting)) {
    try {
      LookAround(look);
    } catch (py::error_already_set&) {
      CancelMeeting(&meeting);
      throw;
    }
  }
  RaiseIfError(meeting.get());
}

void Shutdown() {
  {
    py::gil_scoped_release release;
    ShutdownProcess();
  }
  ReleaseOrphans(std::numeric_limits<size_t>::max());  // all operations are done
}

void StartTimeline(const std::string& path, const std::string& title, int64_t offset_ns, bool marks_batches) {
  TimelineOptions options{path, title, Need()->rank(), offset_ns, marks_batches};
  Status status;
  {
    py::gil_scoped_release release;
    status = Timeline::Start(options);
  }
  RaiseIfError(status);
}

void ContinueTimeline(const std::string& path) {
  Status status;
  {
    py::gil_scoped_release release;
    status = Timeline::Continue(path);
  }
  RaiseIfError(status);
}

bool StopTimeline() {
  py::gil_scoped_release release;
  return Timeline::Stop();
}

py::tuple LookForBackend(const std::string& name) {
  BackendFound found;
  {
    py::gil_scoped_release release;
    found = FindBackend(name);
  }
  return py::make_tuple(found.library, found.missing);
}

// True when a backend is called `name`, performs such operations of 2 ranks, and takes tensors as they lie on a device.
// cut_off: between hosts, where the user says that its library has no network.
bool Performs(const std::string& name, int op, int dtype, int reduce, bool on_device, double factor, bool cut_off) {
  const std::vector<std::string> names = BackendNames();
  const auto number = static_cast<int>(std::find(names.begin(), names.end(), name) - names.begin());
  if (number == static_cast<int>(names.size())) return false;
  PathFacts facts;
  RaiseIfError(ToEnumeration(op, kOpKindCount, "operation", &facts.kind));
  RaiseIfError(ToEnumeration(dtype, kDTypeCount, "dtype", &facts.dtype));
  RaiseIfError(ToEnumeration(reduce, kReduceOpCount, "reduction", &facts.reduce));
  facts.set_size = 2;
  facts.on_device = facts.results_on_device = on_device;
  facts.scale.multiplier = factor;
  facts.has_network = !cut_off;
  facts.group_count = cut_off ? 2 : 1;
  return BackendSupports(number, facts) && (!on_device || BackendTakesDeviceMemory(number));
}

py::object LostRank() {
  Status status;
  const std::shared_ptr<Engine> engine = CurrentEngine(&status);
  std::string reason;
  const int rank = engine ? engine->LostRank(&reason) : -1;
  return rank < 0 ? py::object(py::none()) : py::make_tuple(rank, reason);
}

bool IsInitialized() {
  Status status;
  return CurrentEngine(&status) != nullptr;
}

bool ReadsDevices() {
  Status status;
  const std::shared_ptr<Engine> engine = CurrentEngine(&status);
  return engine && engine->reads_devices();
}

bool TakesDeviceMemory() {
  Status status;
  const std::shared_ptr<Engine> engine = CurrentEngine(&status);
  return engine && engine->takes_device_memory();
}

std::string TuningInUse() {
  const std::shared_ptr<Engine> engine = Need();
  return engine->world() != nullptr ? engine->world()->tuning.text() : kUntuned;
}

void Tune(const std::string& limits) {
  const std::shared_ptr<Engine> engine = Need();
  if (engine->world() != nullptr && !engine->world()->tuning.Use(limits))
    RaiseIfError(Invalid(limits + " are no limits of a machine"));
}

bool AreLimits(const std::string& text) { return ParseTuning(text).has_value(); }

std::tuple<int64_t, int64_t, int64_t, bool> BuiltInLimits(int ranks) {
  return {CellLimitBytes(ranks, /*awaited=*/true), CellLimitBytes(ranks), kRoundBytes, Tuning().overwrites()};
}

py::dict Info() {
  const std::shared_ptr<Engine> engine = Need();
  const World* const world = engine->world();
  py::dict info;
  info["isa"] = ActiveIsa() == Isa::kAvx512 ? "avx512" : ActiveIsa() == Isa::kAvx2 ? "avx2" : "portable";
  info["groups"] = world != nullptr ? world->layout.groups : std::vector<std::vector<int>>{{engine->rank()}};
  info["shares_cores"] = world != nullptr && world->shares_cores();
  info["arena_bytes"] = world != nullptr ? world->group->segment_bytes() : 0;
  info["bytes_submitted"] = engine->bytes_submitted();
  info["negotiation_messages"] = engine->messages_sent();
  return info;
}

void RefuseSecondCopy() {
  const std::string other = PathOfOtherCopy("frd_get_api");
  if (other.empty()) return;
  throw py::import_error("farandole's core is in this process twice: " + other + " is loaded already, and now " +
                         PathOfThisCopy() +
                         " is to be. Keep one of the two installations; if one was just replaced by " +
                         "the other, start the process anew.");
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  using namespace pybind11::literals;

  RefuseSecondCopy();
  PrepareToLookAtStacks();
  SetStackFunction(&PythonStacks);
  module.def("set_error_types", &SetErrorTypes, "types"_a);
  module.def("set_place_function", &SetPlaceFunction, "place"_a);
  module.def("call_site", &SiteOf, "above"_a);
  module.def("init", &Init, "rank"_a, "size"_a, "store"_a, "key"_a, "address"_a = "", "listener"_a = -1,
             "look"_a = py::none(), "tuning"_a = "", "job_key"_a = py::bytes(), "epoch"_a = 0);
  module.def("tuning", &TuningInUse);
  module.def("tune", &Tune, "limits"_a);
  module.def("are_limits", &AreLimits, "text"_a);
  module.def("built_in_limits", &BuiltInLimits, "ranks"_a);
  module.attr("largest_whole_fold_bytes") = kMostFoldedWhole;
  module.def("host_addresses", &ListHostAddresses);
  module.def("listen", &ListenAt, "endpoint"_a);
  module.def("exchange", &Exchange, "rank"_a, "size"_a, "mine"_a);
  module.def("shutdown", &Shutdown);
  module.def("start_timeline", &StartTimeline, "path"_a, "title"_a, "offset_ns"_a, "marks_batches"_a);
  module.def("continue_timeline", &ContinueTimeline, "path"_a);
  module.def("stop_timeline", &StopTimeline);
  module.def("is_initialized", &IsInitialized);
  module.def("lost_rank", &LostRank);
  module.def("submit", &Submit, "op"_a, "tensors"_a, "keep"_a, "parameters"_a = py::make_tuple("", 0, 0, 1.0, 1.0, 0),
             "splits"_a = std::vector<int64_t>(), "ranks"_a = std::vector<int64_t>());
  module.def("tell_of_refusal", &TellOfRefusal, "why"_a);
  module.def("reads_devices", &ReadsDevices);
  module.def("takes_device_memory", &TakesDeviceMemory);
  module.def("settings_take_device_memory", &SettingsTakeDeviceMemory);
  module.def("info", &Info);
  // For plugins' native parts: the address of the function table of farandole.h.
  module.attr("api_address") = reinterpret_cast<uintptr_t>(frd_get_api());

  module.def("find_backend", &LookForBackend, "name"_a);
  module.def("performs", &Performs, "backend"_a, "op"_a, "dtype"_a, "reduce"_a, "on_device"_a, "factor"_a, "cut_off"_a);
  module.attr("backends") = py::tuple(py::cast(BackendNames()));

  AddOutputType(&module);
  if (!AddHandleType(module.ptr()) || !AddOneTensorFunctions(module.ptr()) || !AddPersistentType(module.ptr()) ||
      !AddCarryFunction(module.ptr()))
    throw py::error_already_set();
}

}  // namespace farandole
