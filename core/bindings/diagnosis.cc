// The functions through which the diagnosis in Python (_runtime/diagnosis) talks with the core.
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "common/log.h"
#include "engine/process.h"
#include "operation/diagnosis.h"

namespace py = pybind11;

namespace farandole {
namespace {

std::shared_ptr<Engine> EngineOfSeveral() {
  std::shared_ptr<Engine> engine = CurrentEngine();
  return engine && engine->diagnosis() != nullptr ? engine : nullptr;
}

py::tuple ToPython(const WaitFacts& wait) {
  return py::make_tuple(wait.title, wait.call, wait.is_named, wait.set_size, wait.waited_ms, wait.operations,
                        py::tuple(py::cast(wait.missing)), wait.who, wait.is_reported_by_peer, wait.ends_by_itself);
}

py::object ToPython(const std::optional<WaitReport>& report) {
  if (!report) return py::none();
  py::list waits, needed;
  for (const WaitFacts& wait : report->waits) waits.append(ToPython(wait));
  for (const Absence& each : report->needed) needed.append(py::make_tuple(each.title, py::tuple(py::cast(each.here))));
  return py::make_tuple(report->entered, report->warn_after_ms, report->is_overdue, waits, needed,
                        report->knows_who_needs_us);
}

// Waits without the GIL, so the thread costs nothing while there is no news.
py::object AwaitNews() {
  const std::shared_ptr<Engine> engine = EngineOfSeveral();
  DiagnosisChannel::News news;
  bool is_open = false;
  if (engine) {
    const WithoutGil scope;
    is_open = engine->diagnosis()->Await(&news);
  }
  if (!is_open) return py::none();
  py::list answers;
  for (const RankAnswer& each : news.answers) {
    PyObject* const text = PyUnicode_DecodeUTF8(each.text.data(), static_cast<Py_ssize_t>(each.text.size()), "replace");
    if (text == nullptr) throw py::error_already_set();
    answers.append(py::make_tuple(each.rank, each.entered, py::reinterpret_steal<py::str>(text)));
  }
  return py::make_tuple(ToPython(news.report), news.askers, answers);
}

void AskRanks(const std::vector<int>& ranks) {
  if (const std::shared_ptr<Engine> engine = EngineOfSeveral()) engine->diagnosis()->Ask(ranks);
}

void Reply(int asker, const std::string& text) {
  if (const std::shared_ptr<Engine> engine = EngineOfSeveral()) engine->diagnosis()->Reply(asker, text);
}

void EndWorld(bool is_deadlock, int culprit, const std::string& why, uint64_t entered) {
  const Status status{is_deadlock ? Code::kDeadlock : Code::kDeadline, why};
  if (const std::shared_ptr<Engine> engine = EngineOfSeveral()) engine->diagnosis()->Decide({status, culprit, entered});
}

// Does not release the GIL, so that no other thread runs Python meanwhile.
py::object OnlyWaits() {
  const std::shared_ptr<Engine> engine = EngineOfSeveral();
  const std::optional<Engine::BlockedSnapshot> waits = engine ? engine->SnapshotBlocked() : std::nullopt;
  if (!waits) return py::none();
  py::dict threads;
  for (const auto& [thread, operation] : waits->threads)
    threads[py::int_(thread)] = py::make_tuple(operation->Title(), operation->Call());
  return py::make_tuple(waits->entered, threads);
}

std::string TitleOfRank(int rank) {
  const std::shared_ptr<Engine> engine = EngineOfSeveral();
  return engine && rank >= 0 && rank < engine->size() ? engine->world()->NameOf(rank) : Text("rank ", rank);
}

void Warn(const std::string& text) { Log(LogLevel::kWarning, text); }

}  // namespace

void AddDiagnosisFunctions(py::module_* module) {
  using namespace pybind11::literals;
  module->def("await_news", &AwaitNews);
  module->def("ask_ranks", &AskRanks, "ranks"_a);
  module->def("reply", &Reply, "asker"_a, "text"_a);
  module->def("end_world", &EndWorld, "is_deadlock"_a, "culprit"_a, "why"_a, "entered"_a);
  module->def("only_waits", &OnlyWaits);
  module->def("title_of_rank", &TitleOfRank, "rank"_a);
  module->def("warn", &Warn, "text"_a);
  module->def("set_stack_signal", &SetStackSignal, "signal"_a, "descriptor"_a);
}

}  // namespace farandole
