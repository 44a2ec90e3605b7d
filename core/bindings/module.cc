// Python <-> engine: conversions only. _core.pyi says what the functions promise.
//
// The GIL is released wherever a call may wait, and taken every 100 ms of waiting to check for signals (Ctrl-C).
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <limits>
#include <string_view>
#include <tuple>

#include "backends/table.h"
#include "bindings/bindings.h"
#include "common/dynamic_library.h"
#include "engine/process.h"
#include "farandole/farandole.h"
#include "operation/timeline.h"
#include "transport/socket.h"

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
  if (!status.ok()) {
    SetCallError(status);
    throw py::error_already_set();
  }
  return HandleOf(std::move(engine), std::move(operation), keep);
}

void Refuse(std::string_view name, int process_set, const std::string& why) {
  const std::shared_ptr<Engine> engine = CurrentEngine();
  if (!engine) return;
  const std::string site = SiteOf(0);
  py::gil_scoped_release release;
  engine->Refuse(process_set, name, site, why);
}

int64_t ExcludeCalls(const std::string& prefix, int process_set, const std::string& meeting, const std::string& why,
                     const std::string& advice) {
  return Need()->Exclude({process_set, prefix, meeting, why, advice});
}

void AllowCalls(int64_t number) {
  if (const std::shared_ptr<Engine> engine = CurrentEngine()) engine->Allow(number);
}

void LimitWaitsOf(int process_set, int64_t limit_ms) { Need()->LimitWaits(process_set, limit_ms); }

// ---- the world

bool IsReady(const std::future<Status>& meeting) {
  py::gil_scoped_release release;
  return meeting.wait_for(std::chrono::milliseconds(kSignalIntervalMs)) == std::future_status::ready;
}

void CancelAndWait(std::future<Status>* meeting) {
  py::gil_scoped_release release;
  CancelInit(true);
  const bool met = meeting->get().ok();
  CancelInit(false);
  if (met) ShutdownProcess();
}

py::list ListHostAddresses() {
  std::vector<std::string> addresses;
  RaiseIfError(HostAddresses(&addresses));
  return py::cast(addresses);
}

py::tuple ListenAt(const std::string& endpoint) {
  Descriptor listener;
  std::string bound;
  Status status;
  {
    py::gil_scoped_release release;  // a name may have to be looked up
    status = Listen(endpoint, &listener);
    if (status.ok()) status = BoundEndpoint(listener.get(), &bound);
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
void CallWhileWaiting(const py::object& look) {
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
          const py::object& look, uint32_t epoch, const std::string& recording_path, const std::string& run) {
  WorldSpec spec;
  if (listener >= 0) spec.listener = std::make_shared<Descriptor>(listener);
  spec.interface_address = address;
  spec.rank = rank;
  spec.size = size;
  spec.rendezvous_endpoint = store;
  spec.epoch = epoch;
  if (size > 1) spec.key = KeyOf(key);
  spec.recording_path = recording_path;
  spec.run = run;
  // Runs in a thread of its own, so that this one can check for signals: a user must be able to interrupt a job whose
  // other ranks never come.
  std::future<Status> meeting = std::async(std::launch::async, [spec] { return InitProcess(spec); });
  while (!IsReady(meeting)) {
    try {
      CallWhileWaiting(look);
    } catch (py::error_already_set&) {
      CancelAndWait(&meeting);
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

py::tuple ToTuple(const TraceRecord& record) {
  PyObject* const name =
      PyUnicode_DecodeUTF8(record.name.data(), static_cast<Py_ssize_t>(std::strlen(record.name.data())), "replace");
  if (name == nullptr) throw py::error_already_set();
  return py::make_tuple(static_cast<int>(record.what), NameOf(record.kind), py::reinterpret_steal<py::object>(name),
                        record.submitted, record.agreed, record.started, record.done, record.bytes, record.tensors,
                        record.process_set, record.failed);
}

py::list TakeEvents(size_t most) {
  py::list events;
  TraceRecord record;
  while (events.size() < most && Timeline::Take(&record)) events.append(ToTuple(record));
  return events;
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
bool Performs(const std::string& name, int op, int dtype, int reduce, bool on_device, double factor) {
  const std::vector<std::string> names = BackendTable::Names();
  const auto number = static_cast<int>(std::find(names.begin(), names.end(), name) - names.begin());
  if (number == static_cast<int>(names.size())) return false;
  OperationFacts facts;
  RaiseIfError(ToEnumeration(op, kOpKindCount, "operation", &facts.kind));
  RaiseIfError(ToEnumeration(dtype, kDTypeCount, "dtype", &facts.dtype));
  RaiseIfError(ToEnumeration(reduce, kReduceOpCount, "reduction", &facts.reduce));
  if (Reduces(facts.kind)) {
    if (!Supports(facts.dtype, facts.reduce)) return false;
    facts.dtype = ReducedAs(facts.dtype);
  }
  facts.set_size = 2;
  facts.on_device = facts.results_on_device = on_device;
  facts.scale.multiplier = factor;
  return BackendTable::Supports(number, facts) && (!on_device || BackendTable::TakesDeviceMemory(number));
}

py::object LostRank() {
  const std::shared_ptr<Engine> engine = CurrentEngine();
  std::string reason;
  const int rank = engine ? engine->LostRank(&reason) : -1;
  return rank < 0 ? py::object(py::none()) : py::make_tuple(rank, reason);
}

py::object LateRank() {
  const std::shared_ptr<Engine> engine = CurrentEngine();
  bool waits_too = false;
  const int rank = engine ? engine->LateRank(&waits_too) : -1;
  return rank < 0 ? py::object(py::none()) : py::make_tuple(rank, waits_too);
}

bool ReadsDevices() {
  const std::shared_ptr<Engine> engine = CurrentEngine();
  return engine && engine->reads_devices();
}

bool TakesDeviceMemory() {
  const std::shared_ptr<Engine> engine = CurrentEngine();
  return engine && engine->takes_device_memory();
}

py::dict Info() {
  const std::shared_ptr<Engine> engine = Need();
  const World* const world = engine->world();
  py::dict info;
  info["isa"] = ActiveIsa() == Isa::kAvx512 ? "avx512" : ActiveIsa() == Isa::kAvx2 ? "avx2" : "portable";
  info["nodes"] = world != nullptr ? world->layout.nodes : std::vector<std::vector<int>>{{engine->rank()}};
  info["shares_cores"] = world != nullptr && world->shares_cores();
  info["arena_bytes"] = world != nullptr ? world->node->segment_bytes() : 0;
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
  module.def("set_error_types", &SetErrorTypes, "types"_a);
  module.def("set_site_function", &SetSiteFunction, "place"_a);
  module.def("set_map_function", &SetMapFunction, "map"_a);
  module.def("call_site", &SiteOf, "above"_a);
  module.def("init", &Init, "rank"_a, "size"_a, "store"_a, "key"_a, "address"_a = "", "listener"_a = -1,
             "look"_a = py::none(), "epoch"_a = 0, "recording_path"_a = "", "run"_a = "");
  module.def("host_addresses", &ListHostAddresses);
  module.def("listen", &ListenAt, "endpoint"_a);
  module.def("exchange", &Exchange, "rank"_a, "size"_a, "mine"_a);
  module.def("shutdown", &Shutdown);
  module.def("start_timeline", &Timeline::Start, "marks_batches"_a);
  module.def("take_events", &TakeEvents, "most"_a);
  module.def("take_lost_events", &Timeline::TakeLost);
  module.def("stop_timeline", &Timeline::Stop);
  module.def("is_initialized", [] { return CurrentEngine() != nullptr; });
  module.def("lost_rank", &LostRank);
  module.def("late_rank", &LateRank);
  module.def("submit", &Submit, "op"_a, "tensors"_a, "keep"_a, "parameters"_a = py::make_tuple("", 0, 0, 1.0, 1.0, 0),
             "splits"_a = std::vector<int64_t>(), "ranks"_a = std::vector<int64_t>());
  module.def("refuse", &Refuse, "name"_a, "process_set"_a, "why"_a);
  module.def("exclude_calls", &ExcludeCalls, "prefix"_a, "process_set"_a, "meeting"_a, "why"_a, "advice"_a);
  module.def("allow_calls", &AllowCalls, "number"_a);
  module.def("limit_waits", &LimitWaitsOf, "process_set"_a, "limit_ms"_a);
  module.def("reads_devices", &ReadsDevices);
  module.def("takes_device_memory", &TakesDeviceMemory);
  module.def("settings_take_device_memory", &SettingsTakeDeviceMemory);
  module.def("info", &Info);
  // For plugins' native parts: the address of the function table of farandole.h.
  module.attr("api_address") = reinterpret_cast<uintptr_t>(frd_get_api());

  module.def("find_backend", &LookForBackend, "name"_a);
  module.def("performs", &Performs, "backend"_a, "op"_a, "dtype"_a, "reduce"_a, "on_device"_a, "factor"_a);
  module.attr("backends") = py::tuple(py::cast(BackendTable::Names()));

  AddDiagnosisFunctions(&module);
  AddOutputType(&module);
  AddMessages(&module);
  if (!AddHandleType(module.ptr()) || !AddCalls(module.ptr())) throw py::error_already_set();
}

}  // namespace farandole
