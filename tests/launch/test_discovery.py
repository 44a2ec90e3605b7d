"""The sources of hosts of an elastic job, the processes that ask them, and what becomes of their lists."""

from __future__ import annotations

import os
import random
import re
import selectors
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from farandole.launch.discovery import host_query as inquiries
from farandole.launch.discovery import source
from farandole.launch.discovery.choice import await_hosts
from farandole.launch.discovery.host_query import WELL_SECONDS, HostQuery, QueryFailure, ReportedFailures
from farandole.launch.discovery.host_states import HostStates
from farandole.launch.discovery.source import Source
from farandole.launch.hosts import HostList, HostSlots, one_name_here, parse_hosts
from farandole.launch.rank_slots import Backoff
from farandole.launch.spec import SpecError


def answer(found: Source, printed: str) -> list[tuple[str, int]]:
    """The hosts of a source whose command prints this."""
    return [(each.host, each.count) for each in found.hosts_in(printed).slots]


# The hosts that sources find in answers


def test_a_script_prints_hosts_with_and_without_slots() -> None:
    printed = "h1\nh2:4\n\n# spare\nh3 slots=2\n[fd00::1]:8\r\nroot@h4:1\n"
    assert answer(source.script("./s", 3), printed) == [
        ("h1", 3), ("h2", 4), ("h3", 2), ("fd00::1", 8), ("root@h4", 1)
    ]  # fmt: skip
    assert answer(source.script("./s", None), "h1") == [("h1", 1)]


@pytest.mark.parametrize(
    "nonsense",
    ["", "\n\n", "h1:x", "h1:-1", "h1:0", "-oProxyCommand=x", "h1\nh1:2", "h 1", "\x1b[2J", "h1:99999999", "1.2.3"],
)
def test_nonsense_is_refused_with_the_name_of_the_script(nonsense: str) -> None:
    with pytest.raises(SpecError, match=r"--host-discovery-script ./list me") as error:
        source.script("./list me", None).hosts_in(nonsense)
    assert "\x1b" not in str(error.value) and "\n" not in str(error.value)


def test_a_hostfile_is_read_by_another_process(tmp_path: Path) -> None:
    assert source.hostfile(tmp_path / "hosts").args == ["cat", "--", str(tmp_path / "hosts")]
    assert answer(source.hostfile(Path("hosts")), "h0 slots=2\nh1\n") == [("h0", 2), ("h1", 1)]


def test_a_service_counts_a_host_of_two_kinds_of_addresses_once() -> None:
    printed = "fd00::7    STREAM train\nfd00::7    DGRAM\n10.0.0.7   STREAM\n10.0.0.8   STREAM\n10.0.0.8   RAW\n"
    assert answer(source.service("train", 4), printed) == [("10.0.0.7", 4), ("10.0.0.8", 4)]
    assert answer(source.service("train", None), "fd00::7 STREAM\nfd00::8 STREAM\n") == [
        ("fd00::7", 1), ("fd00::8", 1)
    ]  # fmt: skip
    for nonsense in ("", "nobody STREAM"):
        with pytest.raises(SpecError, match="--host-discovery-service train"):
            source.service("train", 1).hosts_in(nonsense)


JOB = "JobId=7 JobName=x ReqNodeList=(null) ExcNodeList=b9 NodeList=a[1-2],b1 BatchHost=a1 NumNodes=3 NumCPUs=12"


def test_slurm_tells_the_nodes_that_the_allocation_has_now() -> None:
    known = HostList((HostSlots("a1", 4), HostSlots("a2", 2)), "Slurm")
    found = source.slurm({"SLURM_JOB_ID": "7"}, known, None)
    assert found is not None
    assert answer(found, "a1\na2\nb1\n") == [("a1", 4), ("a2", 2), ("b1", 4)]
    with pytest.raises(SpecError, match="Slurm's allocation 7 has no nodes"):
        found.hosts_in("(null)\n")
    assert source.slurm({}, None, None) is None


def test_this_machine_has_one_name() -> None:
    found = one_name_here(
        [HostSlots("localhost", 2), HostSlots("h1", 1), HostSlots("here", 3)], {"here", "localhost"}, "here"
    )
    assert found == [HostSlots("here", 5), HostSlots("h1", 1)]


# Processes that answer


class Asker:
    """An query, and a loop around it that reaps as the launcher's does."""

    def __init__(self, found: Source) -> None:
        self.answers: list[HostList | QueryFailure] = []
        self.selector = selectors.DefaultSelector()
        self.query = HostQuery(found, dict(os.environ), self.selector, self.answers.append)

    def turn(self) -> None:
        self.query.tick(time.monotonic())
        for key, _ in self.selector.select(0.01):
            key.data()
        if (pid := self.query.pid) is not None:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self.query.reaped(pid, os.waitstatus_to_exitcode(status))

    def first(self) -> HostList | QueryFailure:
        until = time.monotonic() + 20.0
        while not self.answers or self.query.pid is not None:
            assert time.monotonic() < until
            self.turn()
        assert not self.selector.get_map()
        return self.answers[0]


def failure(command: str) -> QueryFailure:
    """Of a script."""
    found = Asker(source.script(command, None)).first()
    assert isinstance(found, QueryFailure), found
    return found


def test_an_answer_is_heard_and_asked_for_again() -> None:
    asker = Asker(replace(source.script("echo h1:2; echo h2; echo told >&2", None), every_s=0.05))
    assert asker.first() == HostList(
        (HostSlots("h1", 2), HostSlots("h2", 1)), "--host-discovery-script echo h1:2; echo h2; echo told >&2"
    )
    while len(asker.answers) < 3:
        asker.turn()


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        ("echo first >&2; echo '  no  cluster\x07' >&2; exit 3", "exit", r"ended with exit code 3: no cluster\\x07$"),
        ("kill -9 $$", "exit", "ended with signal 9$"),
        ("no-such-program-here", "unusable", "exit code 127: .*not found; give the path of a command that is on this"),
        ("echo h1; echo ---; echo", "nonsense", "line 2"),
        ("yes h1", "flood", "prints more than 1 MiB and was killed$"),
        ("head -c 3000000 /dev/zero", "flood", "prints more than 1 MiB"),
        ("yes >&2 & yes no >&2", "late", "has not answered within 0 s and was killed$"),
        ("sleep 60 & sleep 60", "late", "has not answered"),
        ("trap '' TERM INT; while :; do sleep 0.01; done", "late", "has not answered"),
    ],
)
def test_a_script_that_fails_is_one_sentence(
    command: str, kind: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inquiries, "ANSWER_SECONDS", 0.4 if kind == "late" else 10.0)
    found = failure(command)
    assert found.kind == kind
    assert found.sentence.startswith("--host-discovery-script ")
    assert re.search(words, found.sentence), found.sentence


def test_slurm_names_the_hosts_of_its_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "scontrol"
    names = 'printf "a1\\na2\\nb1\\n"'
    program.write_text(f'#!/bin/sh\n[ "$2" = show ] && echo "{JOB}" || {{ [ "$3" = "a[1-2],b1" ] && {names}; }}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = source.slurm({"SLURM_JOB_ID": "7"}, None, 2)
    assert found is not None
    heard = Asker(found).first()
    assert isinstance(heard, HostList) and [each.host for each in heard.slots] == ["a1", "a2", "b1"]


def test_a_service_that_has_no_name_is_a_trouble() -> None:
    found = Asker(source.service("nowhere.invalid", None)).first()
    assert (
        isinstance(found, QueryFailure)
        and "--host-discovery-service nowhere.invalid ended with exit code 2" in found.sentence
    )
    here = Asker(source.service("localhost", 3)).first()
    assert isinstance(here, HostList) and here.slots[0].count == 3


def test_a_program_that_is_not_there_is_told_of() -> None:
    found = Asker(Source("the source", ["/no/such/program"], parse_hosts)).first()
    assert found == QueryFailure(
        "unusable", "the source: /no/such/program cannot be started: No such file or directory"
    )


def test_a_process_that_a_script_leaves_behind_holds_nobody_up() -> None:
    began = time.monotonic()
    asker = Asker(source.script("sleep 60 & echo h1", None))
    assert isinstance(asker.first(), HostList) and time.monotonic() - began < 30.0


def test_enough_hosts_are_waited_for(tmp_path: Path) -> None:
    told: list[str] = []
    script = tmp_path / "s.py"
    script.write_text(
        "import os, sys\n"
        f"n = os.path.getsize({str(tmp_path / 'n')!r}) if os.path.exists({str(tmp_path / 'n')!r}) else 0\n"
        f"open({str(tmp_path / 'n')!r}, 'a').write('x')\n"
        "sys.exit(9) if n == 0 else print('h1:1' if n == 1 else 'h1:4')\n"
    )
    found = replace(source.script(f"{sys.executable} {script}", None), every_s=0.01)
    assert await_hosts(found, os.environ, 3, 30.0, told.append).slots == (HostSlots("h1", 4),)
    assert len(told) == 2 and "exit code 9; it is asked again for 30 s" in told[0]
    assert "offers 1 slot, and --min-np asks for 3; waiting for more" in told[1]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo h1:2", "offers 2 slots, and --min-np asks for 3; the job was not started within 0.3 s"),
        ("exit 1", "ended with exit code 1; the job was not started"),
        ("sleep 60", "has not answered; the job was not started"),
    ],
)
def test_too_few_hosts_are_an_error_at_last(command: str, words: str) -> None:
    found = replace(source.script(command, None), every_s=0.01)
    with pytest.raises(SpecError, match=words):
        await_hosts(found, os.environ, 3, 0.3, lambda _: None)


@pytest.mark.parametrize("code", [127, 126])
def test_a_script_that_cannot_be_run_is_an_error_at_once(tmp_path: Path, code: int) -> None:
    script = tmp_path / "hosts.sh"
    if code == 126:
        script.write_text("echo h1:3\n")
    told: list[str] = []
    remedy = "give the path of a command" if code == 127 else r"make it executable \(chmod \+x\)"
    with pytest.raises(
        SpecError, match=rf"^--host-discovery-script {script} ended with exit code {code}: .*; {remedy}"
    ):
        await_hosts(source.script(str(script), None), os.environ, 1, 600.0, told.append)
    assert not told


# Reported failures


def test_a_trouble_is_told_once_until_all_was_well_for_a_while() -> None:
    told = ReportedFailures()
    assert told.is_news(QueryFailure("exit", "a")) and not told.is_news(QueryFailure("exit", "b"))
    assert told.is_news(QueryFailure("late", "c"))
    for second in range(int(WELL_SECONDS)):  # it fails each other time
        told.all_well(float(second))
        assert not told.is_news(QueryFailure("exit", "a"))
    for second in range(100, 102 + int(WELL_SECONDS)):
        told.all_well(float(second))
    assert told.is_news(QueryFailure("exit", "a"))


# The host_states


def host_states(*hosts: str) -> HostStates:
    """A job that runs on these."""
    made = HostStates(Backoff(1.0, 8.0))
    made.start(parse_hosts(",".join(hosts)).slots, 0.0)
    return made


def lists(made: HostStates, *hosts: str) -> None:
    made.listed(parse_hosts(",".join(hosts)).slots)


def test_new_hosts_are_called_once_and_are_there_when_they_have_arrived() -> None:
    made = host_states("h0:2")
    lists(made, "h0:2", "h1:4", "h2:1")
    assert made.next_due(1.0) == 0.0
    assert made.due(1.0, 99) == ["h1", "h2"]
    assert made.due(2.0, 99) == [] and made.next_due(2.0) is None
    assert made.wanted() == [HostSlots("h0", 2)]
    made.arrived("h1", 3.0)
    assert made.wanted() == [HostSlots("h0", 2), HostSlots("h1", 4)]


def test_no_more_hosts_are_called_than_have_ranks_to_take() -> None:
    made = host_states("h0:2")
    lists(made, "h0:2", "h1:2", "h2:2", "h3:2")
    assert made.due(1.0, 3) == ["h1", "h2"]
    assert made.due(1.0, 3) == []  # those on their way count
    made.failed("h1", "why", 2.0)
    assert made.due(2.0, 3) == ["h3"]
    assert made.due(2.0, 0) == []


def test_a_host_that_lies_is_tried_more_and_more_rarely_and_told_of_once() -> None:
    made, now, pauses = host_states("h0:1"), 0.0, []
    lists(made, "h0:1", "h1:1")
    for number in range(6):
        assert made.due(now, 9) == ["h1"]
        told = made.failed("h1", "h1 cannot be reached", now)
        assert (told == "") == (number > 0)
        pauses.append(made.next_due(now))
        now += pauses[-1] or 0.0
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert made.due(now, 9) == ["h1"]
    assert "has another Farandole" in made.failed("h1", "h1 has another Farandole", now)  # its failure has changed


def test_a_host_that_was_lost_comes_back_sooner_if_it_was_there_for_long() -> None:
    made = host_states("h0:1", "h1:1")
    made.lost("h1", 1.0)
    assert made.wanted() == [HostSlots("h0", 1)] and made.next_due(1.0) == 1.0
    assert made.due(2.0, 9) == ["h1"]
    made.arrived("h1", 3.0)
    made.lost("h1", 4.0)
    assert made.next_due(4.0) == 2.0
    assert made.due(6.0, 9) == ["h1"]
    made.arrived("h1", 7.0)
    made.lost("h1", 99.0)
    assert made.next_due(99.0) == 1.0


def test_a_host_goes_once_two_lists_lack_it() -> None:
    made = host_states("h0:1", "h1:4")
    lists(made, "h0:1")
    assert HostSlots("h1", 4) in made.wanted()
    lists(made, "h0:1", "h1:4")
    lists(made, "h0:1")
    assert HostSlots("h1", 4) in made.wanted()
    lists(made, "h0:1")
    assert HostSlots("h1", 0) in made.wanted()
    made.let_go("h1", 5.0)
    assert made.wanted() == [HostSlots("h0", 1)]
    lists(made, "h0:1", "h1:2")  # it is listed again before it has gone
    assert made.due(6.0, 9) == []
    made.gone("h1", 7.0)
    assert made.due(7.0, 9) == ["h1"]


def test_slots_become_fewer_once_two_lists_say_so_and_more_at_once() -> None:
    made = host_states("h0:4")
    for count, then in ((2, 4), (3, 3), (3, 3), (1, 3), (2, 2), (5, 5), (1, 5), (5, 5), (1, 5)):
        lists(made, f"h0:{count}")
        assert made.wanted() == [HostSlots("h0", then)], count


def test_a_host_that_takes_itself_away_is_left_alone_for_a_while() -> None:
    made = host_states("h0:1", "h1:1")
    lists(made, "h0:1", "h1:1")
    made.let_go("h1", 1.0)
    made.gone("h1", 2.0, pause_s=8.0)
    assert made.due(9.0, 9) == [] and made.due(10.0, 9) == ["h1"]


def test_at_most_sixteen_hosts_are_on_their_way() -> None:
    made = host_states("h0:1")
    lists(made, "h0:1", *(f"n{number}:1" for number in range(100)))
    called = made.due(1.0, 1000)
    assert len(called) == 16
    made.failed(called[0], "why", 1.0)
    assert len(made.due(1.0, 1000)) == 1


@pytest.mark.parametrize("seed", range(20))
def test_no_host_is_forgotten_whatever_comes(seed: int) -> None:
    """Random lists, failures, losses: once all is well, all hosts that are listed are there, and no other."""
    chance, made, now = random.Random(seed), host_states("h0:1"), 0.0
    states: dict[str, str] = {"h0": "present"}
    moves: dict[str, Callable[[str], object]] = {
        "arrived": lambda name: made.arrived(name, now),
        "failed": lambda name: made.failed(name, chance.choice("ab"), now),
        "lost": lambda name: made.lost(name, now),
    }
    for step in range(400):
        now += chance.random()
        is_end = step > 300
        names = ["h0", "h1", "h3"] if is_end else [each for each in ("h0", "h1", "h2", "h3") if chance.random() < 0.7]
        lists(made, *(f"{name}:2" for name in names or ["h0"]))
        for name in made.due(now, 99):
            assert states.get(name, "absent") == "absent"
            states[name] = "arriving"
        for host in made.wanted():
            assert states[host.host] == "present"
            if host.count == 0:
                made.let_go(host.host, now)
                states[host.host] = "leaving"
        for name, state in list(states.items()):
            if state == "leaving" and (is_end or chance.random() < 0.5):
                made.gone(name, now)
                states[name] = "absent"
            elif state == "arriving" and (is_end or chance.random() < 0.5):
                move = "arrived" if is_end else chance.choice(["arrived", "failed"])
                moves[move](name)
                states[name] = "present" if move == "arrived" else "absent"
            elif state == "present" and not is_end and chance.random() < 0.2:
                made.lost(name, now)
                states[name] = "absent"
    assert sorted((each.host, each.count) for each in made.wanted()) == [("h0", 2), ("h1", 2), ("h3", 2)]
