"""Events of a job: as messages, and as `farandole.launch.run` hands them to a program."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
from farandole import launch
from farandole._start.frames import FrameReader
from farandole.launch.events import Event, JobEnded, MembershipChanged, RankEnded, RankStarted, read

pytestmark = pytest.mark.timeout(120)
ENDED = JobEnded(3, ("rank 1 on h1 failed.", "advice."), culprit=1, last_lines=("a", "b"))


def message_of(event: Event) -> dict[str, Any]:
    (found,) = FrameReader(greeted=True).feed(event.to_frame())
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    "event", [ENDED, RankStarted(0, "h", 7), MembershipChanged(2, (0, 3))], ids=lambda x: type(x).__name__
)
def test_an_event_comes_back_from_its_message(event: Event) -> None:
    assert read(message_of(event)) == event


def test_what_a_reader_does_not_know_is_skipped() -> None:
    fields = message_of(RankStarted(0, "h", 7))
    assert read({**fields, "color": "red"}) == RankStarted(0, "h", 7)
    assert read({**fields, "kind": "RankSings"}) is None
    assert read({**fields, "version": 2}) is None


@pytest.mark.parametrize("message", [{"kind": "RankStarted"}, {"version": 1, "kind": "RankStarted", "rank": 0}])
def test_what_is_no_event_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"is no event|lacks a field"):
        read(message)


def test_the_text_has_the_last_lines_after_the_culprit_unless_they_are_shown() -> None:
    assert ENDED.text.splitlines() == ["rank 1 on h1 failed.", "[1] a", "[1] b", "advice."]
    shown = JobEnded(3, ENDED.sentences, culprit=1, last_lines=("a",), are_shown=True)
    assert shown.text.splitlines() == [*ENDED.sentences]


def python(code: str, **leaves: Any) -> launch.JobSpec:
    return launch.JobSpec.of([sys.executable, "-c", code], num_proc=2, **leaves)


def test_a_program_hears_of_ranks_and_of_the_end() -> None:
    events: list[Event] = []
    code = "import os\nif os.environ['FARANDOLE_RANK'] == '1':\n    raise KeyError('lost')"
    result = launch.run(python(code), events.append)
    assert sorted(each.rank for each in events if isinstance(each, RankStarted)) == [0, 1]
    assert {each.rank: each.exit_code for each in events if isinstance(each, RankEnded)} == {0: 0, 1: 1}
    assert events[-1] == result.ended and (result.exit_code, result.ended.culprit) == (1, 1)
    assert result.ended.traceback[-1] == "KeyError: 'lost'"


def test_a_job_that_cannot_start_names_the_field() -> None:
    with pytest.raises(launch.SpecError, match="min-np 5 asks for more ranks") as found:
        launch.run(python("", min_np=5))
    assert found.value.field == "min_np"


def test_another_thread_ends_the_job() -> None:
    stop = launch.Stop()

    def on_event(event: Event) -> None:
        if isinstance(event, RankStarted) and event.rank == 1:
            threading.Thread(target=stop.interrupt).start()

    assert launch.run(python("import time; time.sleep(100)"), on_event, stop=stop).exit_code == 130


def test_what_a_listener_raises_ends_the_job() -> None:
    def on_event(_event: Event) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        launch.run(python("import time; time.sleep(100)"), on_event)
