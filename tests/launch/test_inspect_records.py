"""Reading a flight recorder's file. No processes."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from farandole.observe import jobs, records
from farandole.observe.records import ALL, Link, RecordError, State, TornError, parse
from farandole.observe.tails import Tails
from inspection_samples import NOW_NS, RECORDS, Written, file_of

_CORE = Path(__file__).parents[2] / "core" / "src"


def test_a_record_has_what_the_core_wrote() -> None:
    copy = file_of([Written(5, site=2, submitted=30, ended=90), Written(4)], [("grad", "(3,)"), ("train.py:9", "")])
    found = parse([copy] * 3)
    assert (found.run, found.rank, found.size, found.pid, found.state) == ("ab12", 0, 2, 42, State.RUNNING)
    assert (found.begun, found.lost, found.culprit, found.reason, found.late_ns) == (9, 1, -1, "why", NOW_NS)
    in_flight, ended = found.operations
    assert (in_flight.number, in_flight.ended_ns) == (4, None)
    assert (ended.title, ended.place, ended.shapes) == ("allreduce 'grad'", " (train.py:9)", "(3,)")
    assert (ended.submitted_ns, ended.ended_ns, ended.bytes, ended.dtype) == (30, 90, 4, "float32")


def test_links_to_other_hosts_are_read_but_for_empty_places() -> None:
    links = [Link(3, 10**12, 7, 5_000_000, 2, 150), Link(-1, 0, 0, 0, 0, 0)]
    assert parse([file_of([Written(1)], links=links)] * 3).links == (links[0],)


def test_the_ranks_of_a_later_epoch_have_numbers_in_the_order_of_start() -> None:
    links = [Link(1, 9, 9, 9, 9, 9)]
    found = parse([file_of([Written(1)], rank=2, links=links, epoch=4)] * 3)
    assert (found.epoch, found.rank) == (4, 2)
    assert found.numbered({3: (0, 1, 2)}) == found, "those of another epoch"
    later = found.numbered({4: (1, 5, 7)})
    assert (later.rank, later.culprit, later.links[0].peer, later.size) == (7, -1, 5, found.size)


def test_a_mixture_of_two_operations_is_never_taken_for_one() -> None:
    """The writer may be anywhere in its stores at each copy: whatever is returned is one of its operations."""
    chance = random.Random(5)
    history = [Written(number, submitted=100 * number, size=number, ended=0) for number in range(1, 40)]
    returned = 0
    for _ in range(2000):
        moments = sorted(chance.choices(range(RECORDS * 64, len(history) * 64), k=3))
        if chance.random() < 0.5:
            moments = [moments[0], moments[0], moments[0]]  # a writer that sleeps
        for each in parse([_written_until(history, moment) for moment in moments]).operations:
            returned += 1
            assert each.submitted_ns == 100 * each.number and each.bytes == each.number, moments
    assert returned > 5000


def _written_until(history: list[Written], moment: int) -> bytes:
    """A file whose writer has stored 64 bytes for each operation, in the recorder's order, until that moment."""
    number, within = divmod(moment, 64)
    file = bytearray(file_of(history[max(0, number - RECORDS) : number]))
    if within and number < len(history):
        offset = 4096 + history[number].number % RECORDS * 64
        being_written = history[number].bytes(sequence=2 * history[number].number)
        file[offset : offset + max(8, within)] = being_written[: max(8, within)]
    return bytes(file)


def test_a_text_that_others_replaced_is_forgotten() -> None:
    copy = file_of([Written(1, name=9)])
    assert parse([copy] * 3).operations[0].name == "a name that is forgotten"
    copy, being_written = file_of([Written(1)]), file_of([Written(1)], [])
    assert parse([copy, copy, being_written]).operations[0].name == "a name that is forgotten"


def test_a_clock_that_is_being_set_needs_another_look() -> None:
    copy = bytearray(file_of([]))
    copy[48:56] = (3).to_bytes(8, "little")
    with pytest.raises(TornError, match="its clock was being set"):
        parse([bytes(copy)] * 3)


@pytest.mark.parametrize("seed", range(40))
def test_any_bytes_are_read_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    file = bytearray(file_of([Written(number) for number in range(1, 9)]))
    for _ in range(200):
        file[chance.randrange(8, len(file))] = chance.randrange(256)
    length = chance.choice([len(file), chance.randrange(len(file))])
    try:
        parse([bytes(file[:length])] * 3)
    except RecordError as error:
        assert str(error)


def test_names_are_those_of_the_core() -> None:
    text = (_CORE / "common" / "types.def").read_text()
    for macro, names in {"FRD_OP_KIND": records.KINDS, "FRD_DTYPE": records.DTYPES}.items():
        rows = re.findall(rf'^{macro}\(\w+, (\d+), "(\w+)"', text, re.MULTILINE)
        assert [(int(number), name) for number, name in rows] == list(enumerate(names))


def test_files_of_others_and_links_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ab12.42.flight").write_bytes(file_of([Written(1, ended=20)]))
    (tmp_path / "cd34.43.flight").write_bytes(b"no recorder")
    (tmp_path / "ef56.44.flight").symlink_to(tmp_path / "ab12.42.flight")
    base = {"FARANDOLE_FLIGHT_RECORDER": str(tmp_path)}
    (tmp_path / "ab99.45.flight").write_bytes(file_of([Written(1)]).replace(b"ab12", b"ab99"))
    assert sorted((job.run, len(job.recordings)) for job in jobs.find(base)) == [("ab12", 1), ("ab99", 1)]
    for given, operations in (((), 0), ((ALL,), 1)):
        (job,) = jobs.find(base, "ab1", *given)
        assert (job.run, len(job.recordings[0].operations)) == ("ab12", operations)
    monkeypatch.setattr("os.getuid", lambda: 12345)
    assert jobs.find(base) == []


def test_a_job_has_the_ranks_of_its_last_epoch(tmp_path: Path) -> None:
    """Ranks that were lost before leave their files, and their numbers are those of others now."""
    for pid, rank, epoch, late_ns in ((1, 0, 0, 5), (2, 0, 1, 3), (3, 1, 1, 4), (4, 1, 1, 9), (5, 2, 0, 8)):
        file = file_of([Written(1)], rank=rank, process=(pid, 7), epoch=epoch, late_ns=late_ns)
        (tmp_path / f"ab12.{pid}.flight").write_bytes(file)
    base = {"FARANDOLE_FLIGHT_RECORDER": str(tmp_path)}
    (job,) = jobs.find(base)
    assert [each.pid for each in job.recordings] == [2, 4]
    seen = Tails(base, lambda _: True).look()
    assert [each.recording.pid for each in seen] == [2, 4]

    (tmp_path / "ab12.5.flight").unlink()
    started_again = file_of([Written(1)], process=(6, 7), late_ns=10)
    (tmp_path / "ab12.6.flight").write_bytes(started_again)
    other = file_of([Written(1)], rank=1, process=(7, 7), epoch=8, late_ns=11).replace(b"ab12", b"cd34")
    (tmp_path / "cd34.7.flight").write_bytes(other)
    seen = Tails(base, lambda _: True).look()
    assert [each.recording.pid for each in seen] == [6, 7], "another job says nothing of this one's epoch"


def test_a_job_is_chosen_by_name_pid_or_being_alone() -> None:
    one = jobs.Job("ab12", (parse([file_of([])] * 3),))
    other = jobs.Job("cd34", (parse([file_of([], rank=1).replace(b"ab12", b"cd34")] * 3),))
    assert jobs.choose([one, other], "cd", lambda each: True) is other
    assert jobs.choose([one, other], "", lambda each: each.rank == 1) is other
    assert jobs.choose([one], "42", lambda each: True) is one
    for given, wanted, sentence in (
        ([one, other], "", "2 jobs of yours run on this host; name one: ab12"),
        ([one, other], "42", "2 jobs of yours on this host have the name"),
        ([one], "nope", "no job of yours on this host has the name or a rank with the pid nope: ab12"),
        ([], "", "no rank of yours has a flight recorder on this host"),
    ):
        with pytest.raises(jobs.InspectionError, match=re.escape(sentence)):
            jobs.choose(given, wanted, lambda each: True)
