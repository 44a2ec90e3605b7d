"""Decisions of agents that outlive their launcher, and of the launcher that adopts their job. No processes."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from farandole.launch.job import Placement, Slots, place
from farandole.launch.membership import Lease
from farandole.launch.options import Elastic, OptionError, RunOptions
from farandole.launch.outlive import Outlive, find, outlive, runtime_folder
from farandole.launch.remote import recall, state_file
from farandole.launch.remote.adoption import AdoptedHost, Adoption
from farandole.launch.remote.assembly import AssemblyError
from farandole.launch.remote.backlog import Backlog
from farandole.launch.remote.frames import FrameReader, Output
from farandole.launch.remote.memory import JobMemory
from farandole.launch.remote.state_file import HostRecord, JobRecord, StateError, StateFile
from farandole.launch.remote.tenure import CLAIM_SECONDS, REPLACEABLE_SECONDS, Tenure
from farandole.launch.slots import Backoff
from farandole.launch.slots import Slots as Places

ABOUT = {"host": "h", "host_name": "h", "pid": 7}
STDOUT, STDERR = 0, 1


# An agent: held, alone, over


def test_an_agent_refuses_another_launcher_until_its_own_is_silent() -> None:
    tenure = Tenure(60.0, heard_at=100.0)
    tenure.hear(110.0)
    assert "said something 1.0 s ago" in tenure.claim(1, 111.0)
    assert tenure.adopt(1, 111.0) is None
    assert tenure.claim(1, 110.0 + REPLACEABLE_SECONDS) == ""
    assert tenure.adopt(1, 116.0) == 6.0 and not tenure.is_alone
    assert tenure.claim(2, 117.0) != ""  # it has another one now


def test_of_two_that_claim_an_agent_one_gets_it() -> None:
    tenure = Tenure(60.0, heard_at=0.0)
    tenure.lose(1.0)
    assert tenure.claim(1, 2.0) == "" == tenure.claim(1, 2.5)
    assert "another launcher is taking" in tenure.claim(2, 3.0)
    tenure.release(2)  # it has claimed nothing
    assert tenure.claim(2, 3.0) != ""
    tenure.release(1)
    assert tenure.claim(2, 4.0) == "" and tenure.adopt(1, 5.0) is None and tenure.adopt(2, 5.0) == 5.0


def test_an_agent_waits_its_time_and_longer_for_one_that_has_claimed_it() -> None:
    tenure = Tenure(60.0, heard_at=0.0)
    assert tenure.next_due(5.0) is None and not tenure.is_over(1000.0)
    tenure.lose(10.0)
    tenure.lose(20.0)  # of no account
    assert tenure.next_due(20.0) == 50.0 and not tenure.is_over(69.9) and tenure.is_over(70.0)
    assert tenure.claim(1, 69.0) == "" and not tenure.is_over(98.0) and tenure.is_over(69.0 + CLAIM_SECONDS)
    tenure.release(1)
    assert tenure.is_over(70.0) and "nobody came in time" in tenure.claim(2, 70.0)


# Output


def shown(backlog: Backlog) -> dict[tuple[int, int], bytes]:
    """The output of each pipe that a new launcher gets."""
    found: dict[tuple[int, int], bytes] = {}
    for frame in FrameReader(greeted=True).feed(b"".join(backlog.resend())):
        assert isinstance(frame, Output)
        found[frame.rank, frame.pipe] = found.get((frame.rank, frame.pipe), b"") + frame.data
    return found


def test_output_that_no_launcher_has_shown_goes_to_the_next_one() -> None:
    backlog = Backlog()
    for number in range(5):
        backlog.add(0, STDOUT, b"%d\n" % number, sent=True)
    backlog.add(1, STDERR, b"other\n", sent=True)
    backlog.shown(3)
    backlog.add(0, STDOUT, b"alone\n", sent=False)
    assert backlog.take_lost() == []
    assert shown(backlog) == {(0, STDOUT): b"3\n4\nalone\n", (1, STDERR): b"other\n"}
    backlog.shown(1)  # of the frames that were sent again: the oldest
    assert shown(backlog) == {(0, STDOUT): b"4\nalone\n", (1, STDERR): b"other\n"}
    backlog.shown(100)
    assert shown(backlog) == {}


def test_the_begin_of_a_line_comes_with_its_rest() -> None:
    backlog = Backlog()
    backlog.add(0, STDOUT, b"one\nbe", sent=True)
    backlog.add(0, STDOUT, b"gi", sent=True)
    backlog.shown(2)
    assert shown(backlog) == {}  # there is no rest yet
    backlog.add(0, STDOUT, b"n\n", sent=True)
    backlog.shown(1)
    backlog.add(0, STDOUT, b"two\nth", sent=True)
    backlog.shown(1)
    backlog.add(0, STDOUT, b"ree\n", sent=False)
    assert shown(backlog) == {(0, STDOUT): b"three\n"}


def test_the_last_bytes_of_each_rank_are_kept_and_the_others_counted() -> None:
    backlog = Backlog(most=1000)
    for number in range(100):
        backlog.add(0, STDOUT, b"%099d\n" % number, sent=number < 50)
        backlog.add(1, STDOUT, b"x", sent=False)
        backlog.add(0, STDERR, b"", sent=False)  # so that pieces stay apart
    assert backlog.take_lost() == [(0, 9000)]
    kept = shown(backlog)
    assert (
        kept[0, STDOUT] == b"".join(b"%099d\n" % number for number in range(90, 100)) and kept[1, STDOUT] == b"x" * 100
    )


def test_output_that_was_dropped_after_it_was_shown_is_not_lost() -> None:
    backlog = Backlog(most=100)
    for _ in range(10):
        backlog.add(0, STDOUT, b"x" * 49 + b"\n", sent=True)
    backlog.shown(9)
    assert backlog.take_lost() == [] and shown(backlog) == {(0, STDOUT): b"x" * 49 + b"\n"}


# The hosts


def hosts(count: int) -> list[AdoptedHost]:
    return [AdoptedHost(f"h{number}", [placement]) for number, placement in enumerate(placements(count))]


def placements(count: int) -> list[Placement]:
    return place(count, [Slots(f"h{number}", 1) for number in range(count)])


def state(memory: JobMemory | None = None, now: float = 0.0) -> dict[str, Any]:
    content = (memory or JobMemory()).state(now)
    return json.loads(json.dumps({"kind": "state", **content, "alone_s": 1.0, "lost": []}))


def test_hosts_are_claimed_in_their_order_and_adopted_together() -> None:
    adoption = Adoption(hosts(3), "1")
    assert adoption.on_message(2, {"kind": "adoptable"}) == [] == adoption.on_message(1, {"kind": "adoptable"})
    assert adoption.on_message(0, {"kind": "adoptable"}) == [(0, "claim", {})]
    assert adoption.waiting_for() == ["h0", "h1", "h2"]
    assert adoption.on_message(0, {"kind": "claimed"}) == [(1, "claim", {})]
    assert adoption.lose(1, "h1: gone") == [(2, "claim", {})]
    assert adoption.on_message(2, {"kind": "claimed"}) == [(0, "adopt", {}), (2, "adopt", {})]
    assert not adoption.is_complete and adoption.waiting_for() == ["h0", "h2"]
    adoption.on_message(0, state())
    adoption.on_message(2, state())
    assert adoption.is_complete and len(adoption.states) == 2


def test_a_host_that_refuses_or_none_that_is_left_ends_the_adoption() -> None:
    adoption = Adoption(hosts(2), "1")
    with pytest.raises(AssemblyError, match=r"^h0: it has a launcher\.$"):
        adoption.on_message(0, {"kind": "refused", "why": "it has a launcher"})
    adoption = Adoption(hosts(2), "1")
    adoption.lose(1, "h1: gone")
    with pytest.raises(AssemblyError, match="nothing is left of this job: h0: lost; h1: gone"):
        adoption.lose(0, "h0: lost")
    assert adoption.is_hopeless
    with pytest.raises(AssemblyError, match="'state'"):
        Adoption(hosts(1), "1").on_message(0, state())


# The memory of agents becomes the lease of the next launcher


class Agents:
    """Agents of one rank each, which pass on what ranks and launchers say, as long as they can."""

    def __init__(self, size: int) -> None:
        self.memories = [JobMemory() for _ in range(size)]
        self.lease = Lease(size, 1, 60.0)
        self.told: list[tuple[int, dict[str, Any]]] = []
        for rank, placement in enumerate(placements(size)):
            self.memories[rank].started(placement, 100 + rank, 0.0)
            self.say(rank, {"kind": "hello", "member": rank, "about": ABOUT})
            self.say(rank, {"kind": "begin"})

    def say(self, rank: int, message: dict[str, Any], is_heard: bool = True, reach: int | None = None) -> None:
        """`is_heard`: by a launcher, whose answers come to the first `reach` ranks."""
        self.memories[rank].heard(rank, message)
        if is_heard:
            self.tell(self.lease.hear(rank, message, 0.0), reach)

    def tell(self, answers: list[tuple[int, dict[str, Any]]], reach: int | None = None) -> None:
        for rank, message in answers:
            if reach is None or rank < reach:
                self.memories[rank].told(rank, message)
                self.told.append((rank, message))

    def die(self, rank: int) -> None:
        """The agent reports the death to its launcher, where it has one."""
        told = {"kind": "death", "rank": rank, "pid": 1, "code": -9, "ran_s": 1.0, "asked": False, "joins": 1}
        self.memories[rank].died({**told, "said": None, "recorded": ""}, 1.0)

    def adopt(self, dead: tuple[int, ...] = ()) -> list[int]:
        """Another launcher. Returns the ranks that it answers."""
        states = [recall.parse(state(memory, 2.0)) for memory in self.memories]
        self.lease = Lease(len(self.memories), 1, 60.0)
        recall.restore(self.lease, states)
        for rank in dead:
            assert self.lease.survives(rank)
            self.tell(self.lease.end(rank))
        answers = recall.answer(self.lease, states, set(range(len(self.memories))) - {*dead}, 2.0)
        self.tell(answers)
        return [rank for rank, _ in answers]


def report(rank: int, epoch: int = 0, kind: str = "report", leaving: bool = False) -> dict[str, Any]:
    return {"kind": kind, "epoch": epoch, "store": f"unix:{rank}", "suspects": [], "leaving": leaving}


def test_a_death_without_a_launcher_is_decided_by_the_next_one() -> None:
    agents = Agents(4)
    agents.die(3)
    for rank in range(3):
        agents.say(rank, report(rank), is_heard=False)
    assert agents.adopt(dead=(3,)) == [0, 1, 2]
    assert (agents.lease.number, agents.lease.members) == (1, (0, 1, 2))
    assert {message["store"] for _, message in agents.told if message["kind"] == "epoch"} == {"unix:0"}
    assert agents.adopt() == []  # a third one finds it decided
    assert (agents.lease.number, agents.lease.members) == (1, (0, 1, 2))


def test_a_rank_that_still_computes_is_waited_for() -> None:
    agents = Agents(3)
    agents.die(2)
    agents.say(0, report(0), is_heard=False)
    assert agents.adopt(dead=(2,)) == []
    agents.say(1, report(1))
    assert agents.lease.members == (0, 1) and sorted(rank for rank, _ in agents.told) == [0, 1]


def test_a_decision_that_has_reached_one_rank_is_told_to_the_others() -> None:
    agents = Agents(3)
    agents.tell(agents.lease.end(2))
    agents.die(2)
    agents.say(0, report(0))
    agents.say(1, report(1), reach=1)  # the launcher dies after it has told rank 0
    assert agents.adopt(dead=()) == [1]
    assert agents.told[0][1] == agents.told[1][1] and agents.lease.number == 1


def test_a_decision_that_has_reached_nobody_is_made_again() -> None:
    agents = Agents(2)
    agents.say(0, report(0))
    agents.say(1, report(1), reach=0)
    assert agents.adopt() == [0, 1] and agents.lease.number == 1 and agents.lease.members == (0, 1)


def test_one_that_leaves_and_one_that_was_left_out_are_told() -> None:
    agents = Agents(3)
    agents.say(0, report(0))
    agents.say(1, report(1))
    agents.say(2, report(2, leaving=True), reach=1)
    assert agents.adopt() == [1, 2] and agents.lease.members == (0, 1)
    assert agents.lease.has_left(2) and not agents.lease.has_left(1)
    assert agents.told[-1] == (2, agents.told[0][1])  # it sees that it is no member
    blamed = {**report(2), "suspects": []}
    agents = Agents(4)
    for rank in (0, 1, 3):
        agents.say(rank, {**report(rank), "suspects": [2]})
    agents.say(2, blamed, reach=2)
    assert sorted(agents.adopt()) == [2, 3]
    assert dict(agents.told)[2] == {"kind": "end", "why": recall.LEFT_OUT} and dict(agents.told)[3]["kind"] == "epoch"


def test_a_rank_that_is_lost_with_its_host_has_no_say() -> None:
    """Its agent has told its state, and then the way to it was lost, too."""
    agents = Agents(3)
    for rank in range(3):
        agents.say(rank, report(rank), is_heard=False)
    assert agents.adopt(dead=(2,)) == [0, 1] and agents.lease.members == (0, 1)


def test_ranks_outside_of_the_loop_are_known_to_be_there() -> None:
    agents = Agents(3)
    agents.say(1, {"kind": "pause"})
    agents.adopt()
    assert not agents.lease.survives(0) and "outside of elastic.run" in agents.lease.reason_against(0)
    agents.say(1, {"kind": "begin"})
    agents.adopt()
    assert agents.lease.survives(0)
    fresh = JobMemory()
    fresh.started(placements(1)[0], 1, 0.0)
    lease = Lease(1, 1, 60.0)
    recall.restore(lease, [recall.parse(state(fresh))])
    assert not lease.survives(0)  # it has not begun


def test_a_newcomer_that_waits_is_told_of_again() -> None:
    agents = Agents(2)
    newcomer = dataclasses.replace(placements(2)[1], rank=2)
    agents.memories.append(JobMemory())
    agents.memories[2].started(newcomer, 102, 1.0)
    agents.say(2, {"kind": "hello", "member": 2, "about": ABOUT}, is_heard=False)
    agents.say(2, report(2, -1, kind="join"), is_heard=False)
    states = [recall.parse(state(memory, 2.0)) for memory in agents.memories]
    lease = Lease(2, 1, 60.0)
    recall.restore(lease, states)
    assert [(rank, message["kind"]) for rank, message in recall.answer(lease, states, range(3), 2.0)] == [
        (0, "update"),
        (1, "update"),
    ]
    agents.lease = lease
    agents.say(0, report(0))
    agents.say(1, report(1), reach=1)
    agents.lease = Lease(2, 1, 60.0)
    states = [recall.parse(state(memory, 2.0)) for memory in agents.memories]
    recall.restore(agents.lease, states)
    assert [rank for rank, _ in recall.answer(agents.lease, states, range(3), 2.0)] == [
        1,
        2,
    ] and agents.lease.members == (
        0,
        1,
        2,
    )


def test_places_know_the_newcomers_and_their_numbers() -> None:
    first, second = placements(2)
    memory = JobMemory()
    memory.started(second, 1, 0.0)
    memory.died({"kind": "death", "rank": 1}, 1.0)
    memory.started(dataclasses.replace(second, rank=2), 1, 2.0)
    memory.died({"kind": "death", "rank": 3}, 3.0)  # one that could not be started
    slots = Places([first, second], 2, Backoff(1.0, 4.0))
    recall.restore_slots(slots, [recall.parse(state(memory))], [])
    slots.lost(1, 10.0)  # its place was taken by 2
    assert slots.next_due(10.0, 1) is None
    slots.lost(2, 10.0)
    found = slots.due(11.0, 1)
    assert found is not None and (found.rank, found.host) == (4, "h1")


# The file


def record() -> JobRecord:
    return JobRecord(
        job="1",
        key="ab",
        socket="s",
        seconds=60.0,
        grace_s=5.0,
        hosts=[HostRecord("h0", "h0 boot 1", True, placements(1))],
        elastic=Elastic(1, 600.0, 2),
        ssh=["ssh"],
        ssh_port=None,
        ssh_identity="",
        python="python",
        has_other_hosts=False,
        output={"prefix": True, "timestamp": False, "directory": "", "verbose": False},
    )


def test_the_file_comes_back_as_it_was_and_is_for_one_launcher_alone(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    made = StateFile.create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    made.write(dataclasses.replace(record(), ssh=("ssh", "-F", "x" * 4096)))
    made.write(record())  # a shorter one leaves nothing of the longer one
    assert made.read() == record()
    with pytest.raises(StateError, match="has a launcher on this host"):
        StateFile.open(path, wait_s=0.1)
    with pytest.raises(StateError, match="cannot be made: File exists"):
        StateFile.create(path)
    made.close()
    again = StateFile.open(path)
    assert again.read() == record()
    state_file.remove_of(str(path), "another job")
    assert path.exists()
    again.remove()
    again.remove()
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "died before all ranks were started"),
        ("{}", "no file of a job that this version"),
        ("[", "no file of a job"),
    ],
)
def test_a_file_without_a_job_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(StateError, match=words):
        StateFile.open(path).read()


def test_files_of_jobs_that_are_long_over_are_removed(tmp_path: Path) -> None:
    made = {name: StateFile.create(tmp_path / f"job-{name}.json") for name in ("old", "new", "led")}
    for name, file in made.items():
        file.write(record())
        if name != "new":
            os.utime(file.path, (0, 0))
        if name != "led":
            file.close()
    (tmp_path / "job-other.json").write_text("{}")
    state_file.remove_stale(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["job-led.json", "job-new.json", "job-other.json"]
    made["led"].touch(1000.0)
    assert made["led"].path.stat().st_mtime > 0
    made["led"].close()
    state_file.remove_stale(tmp_path)
    assert made["led"].path.exists()


def options(**given: Any) -> RunOptions:
    return RunOptions(**{**dict.fromkeys(each.name for each in dataclasses.fields(RunOptions)), **given})


@pytest.mark.parametrize(
    ("given", "is_elastic", "words"),
    [
        ({"job_state": Path("x")}, True, "give --outlive-launcher SECONDS"),
        ({"outlive_launcher": 0.0}, True, "more than 0"),
        ({"outlive_launcher": 1e9}, True, "at most a week"),
        ({"outlive_launcher": 5.0}, False, "give --min-np N, too"),
        ({"outlive_launcher": 5.0, "file": Path("x")}, True, "one command"),
        ({"outlive_launcher": 5.0, "job_state": Path("/no/folder/x")}, True, "there is no folder /no/folder"),
        ({"outlive_launcher": 5.0, "job_state": Path("/etc/passwd")}, True, "is there already"),
    ],
)
def test_options_that_contradict_each_other_are_one_sentence(
    given: dict[str, Any], is_elastic: bool, words: str
) -> None:
    plan = Elastic(1, 600.0) if is_elastic else None
    with pytest.raises(OptionError, match=words):
        outlive(options(**given), plan, None, False, {})


def test_without_the_option_nothing_outlives_the_launcher(tmp_path: Path) -> None:
    assert outlive(options(), Elastic(1, 600.0), None, False, {}) is None
    found = outlive(options(outlive_launcher=5.0, job_state=tmp_path / "x"), Elastic(1, 600.0), None, False, {})
    assert found == Outlive(5.0, tmp_path / "x") and not found.is_in_runtime_folder


def test_a_file_of_another_version_user_or_mode_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "job.json"
    made = StateFile.create(path)
    made.write(dataclasses.replace(record(), version="0.0.1"))
    made.close()
    with pytest.raises(StateError, match=r"farandole 0\.0\.1; adopt it with that version"):
        StateFile.open(path).read()
    path.chmod(0o640)
    with pytest.raises(StateError, match="mode must be 0600"):
        StateFile.open(path)
    path.chmod(0o600)
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(StateError, match="belongs to another user"):
        StateFile.open(path)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    with pytest.raises(StateError, match="cannot be read"):
        StateFile.open(link)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(StateError, match="is no file of a job"):
        StateFile.open(tmp_path / "fifo")


def test_the_folder_of_files_is_this_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with pytest.raises(OptionError, match="no job has left a file"):
        find(base)
    folder = runtime_folder(base)
    assert folder == tmp_path / "farandole" and folder.stat().st_mode & 0o777 == 0o700
    (folder / "job-1.json").touch()
    assert find(base) == folder / "job-1.json"
    (folder / "job-2.json").touch()
    with pytest.raises(OptionError, match=r"2 jobs have left files: name one of .*job-1\.json, .*job-2\.json"):
        find(base)
    folder.chmod(0o750)
    with pytest.raises(OptionError, match="no folder of this user alone"):
        runtime_folder(base)
    folder.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(OptionError, match="no folder of this user alone"):
        find(base)
