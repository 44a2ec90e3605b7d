"""`farandole doctor -H`: findings about several hosts, and the command with a stand-in for ssh."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from farandole._start import frames
from farandole.observe.doctor.finding import FAIL, OK, WARN, Finding, fail, ok
from farandole.observe.doctor.hosts import Clock, HostFacts, Versions, findings_of
from farandole.observe.doctor.report import exit_code, hosts_as_json, hosts_as_text
from farandole.observe.doctor.run_checks import digest

VERSIONS = Versions(
    {"farandole": "0.1.0", "farandole-torch": "0.1.0"},
    {"Python": "3.12.1", "numpy": "2.0.0", "torch": "2.5.0"},
    {"farandole": "abc", "farandole-torch": "def"},
    "x86_64 CPython (3, 12)",
)
SSH = """#!/bin/sh
# Runs the last word, as sshd's shell does. Host `gone` has no name, `slow` never answers, `bare` has no farandole,
# `odd` says what a test has put beside this script.
for word; do
    case "$word" in
    gone) echo 'ssh: Could not resolve hostname gone: Name or service not known' >&2; exit 255;;
    bare) echo "/usr/bin/python: No module named farandole" >&2; exit 1;;
    slow) exec sleep 60;;
    odd) cat "$0.says"; head -c 1 >/dev/null; exit;;
    esac
done
exec env -i HOME="$HOME" PATH="$PATH" TEST_LAUNCH_MARK="$TEST_LAUNCH_MARK" sh -c "$word"
"""


def host(number: int, **changes: Any) -> HostFacts:
    """One of three hosts with nothing wrong."""
    others = [other for other in range(3) if other != number]
    facts = HostFacts(
        f"h{number}",
        python="/usr/bin/python3",
        version="0.1.0",
        identity=f"machine {number}",
        offered=[f"10.0.0.{number}", f"172.17.0.{number}"],
        reached={(other, f"10.0.0.{other}") for other in others},
        clock=Clock(0.0, 0.01),
        findings=[ok("memory", "enough")],
        versions=VERSIONS,
    )
    return replace(facts, **changes)


def judged(*hosts: HostFacts) -> list[Finding]:
    return [each for each in findings_of(hosts) if each.level != OK]


def test_nothing_is_wrong_with_good_hosts() -> None:
    found = findings_of([host(number) for number in range(3)])
    assert {each.level for each in found} == {OK} and exit_code(found) == 0
    text = hosts_as_text(found)
    assert "OK    h1:        3 checks OK; all others reach it at 10.0.0.1; 172.17.0.1 by none" in text.splitlines()
    assert "jobs run on these hosts." in text


def changed(part: str, **values: str) -> Versions:
    before = getattr(VERSIONS, part)
    new = {**before, **{name.replace("_", "-"): value for name, value in values.items()}}
    return replace(VERSIONS, **{part: {name: value for name, value in new.items() if value}})


@pytest.mark.parametrize(
    ("versions", "level", "check", "words"),
    [
        (changed("own", farandole="0.2.0"), FAIL, "farandole", "0.1.0 on h0, h1; 0.2.0 on h2"),
        (changed("own", farandole_torch=""), FAIL, "farandole-torch", "0.1.0 on h0, h1; none on h2"),
        (changed("own", farandole_mxnet="1"), FAIL, "farandole-mxnet", "none on h0, h1; 1 on h2"),
        (changed("others", torch="2.4.0"), WARN, "torch", "2.5.0 on h0, h1; 2.4.0 on h2"),
        (changed("others", numpy=""), WARN, "numpy", "none on h2"),
        (changed("others", Python="3.11.2"), WARN, "Python", "3.11.2 on h2"),
        (changed("wheels", farandole="xyz"), FAIL, "farandole", "wheels of 0.1.0: build abc on h0, h1; build xyz"),
    ],
)
def test_versions_that_differ_are_told_with_their_hosts(versions: Versions, level: str, check: str, words: str) -> None:
    (found,) = judged(host(0), host(1), host(2, versions=versions))
    assert (found.host, found.level, found.check) == ("", level, check)
    assert words in found.text and found.fix


def test_wheels_of_other_platforms_and_unknown_ones_are_not_compared() -> None:
    other = replace(changed("wheels", farandole="xyz"), platform="aarch64 CPython (3, 12)")
    assert judged(host(0), host(1, versions=other), host(2, versions=changed("wheels", farandole=""))) == []


def test_an_agent_of_another_version_is_told_without_its_checks() -> None:
    found = judged(host(0), host(1, version="0.0.9", versions=None, findings=None, problem="h1 was lost"))
    assert [each.check for each in found] == ["check", "farandole"]
    assert "0.0.9 on h1" in found[1].text


def test_a_wheel_is_known_by_its_own_files() -> None:
    record = ["farandole/a.py,sha256=1,10", "farandole/b.py,sha256=2,10", "f-1.dist-info/METADATA,sha256=3,10"]
    added = [
        "../../../bin/farandole,sha256=4,10",
        "farandole/__pycache__/a.pyc,,",
        "f-1.dist-info/INSTALLER,sha256=5,4",
    ]
    assert digest(record) == digest([*added, *reversed(record)])
    assert digest(record) != digest([record[0], "farandole/b.py,sha256=9,10"])
    assert digest(["__editable__.pth,,"]) == ""


@pytest.mark.parametrize(
    ("clocks", "late"),
    [
        ([Clock(5.0, 0.01), Clock(5.5, 0.01), Clock(4.9, 0.01)], ""),
        ([Clock(0.0, 0.01), Clock(0.0, 0.01), Clock(-3.0, 0.01)], "ahead of that of h2: h0 by 3.0 s, h1 by 3.0 s"),
        ([Clock(0.0, 0.01), Clock(1.5, 0.6), Clock(0.0, 0.01)], ""),
    ],
)
def test_clocks_more_than_a_second_apart_are_told(clocks: Sequence[Clock], late: str) -> None:
    found = judged(*(host(number, clock=clock) for number, clock in enumerate(clocks)))
    assert [each.level for each in found] == [WARN] * bool(late)
    assert not late or late in found[0].text


def test_a_host_that_another_does_not_reach_fails() -> None:
    (found,) = judged(host(0, reached={(2, "10.0.0.2")}), host(1), host(2))
    assert (found.host, found.level) == ("h1", FAIL)
    assert "h0 cannot connect to h1 (10.0.0.1, 172.17.0.1)" in found.text
    assert "firewall" in found.fix


def test_hosts_that_have_not_answered_count_for_nothing_else() -> None:
    lost = HostFacts("me@h1", problem="me@h1 cannot be reached", remedy="is it up?")
    found = judged(host(0), lost, host(2))
    assert found == [replace(fail("agent", lost.problem, "Is it up?"), host="me@h1")]
    (found_alone,) = judged(replace(lost, remedy=""))
    assert found_alone.fix == "Try it: ssh h1 true"


def test_one_machine_with_two_names_fails() -> None:
    (found,) = judged(host(0), host(1, identity="machine 0"), host(2))
    assert found.level == FAIL and "h0, h1 are one machine" in found.text


def test_json_is_a_list_with_hosts() -> None:
    found = findings_of([host(0, findings=[fail("memory", "none", "Buy some.")]), host(1), host(2)])
    rows = json.loads(hosts_as_json(found))
    assert {"host": "h0", "level": "FAIL", "check": "memory", "text": "none", "fix": "Buy some."} in rows
    assert {row["host"] for row in rows} == {"h0", "h1", "h2", ""} and exit_code(found) == 1


# The command

GREETING = {"version": "1", "python": "p", "identity": "a", "addresses": [["eth0", "10.0.0.1"]]}


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A script stands in for ssh."""
    script = tmp_path / "ssh"
    script.write_text(SSH)
    script.chmod(0o700)
    return {"FARANDOLE_SSH": str(script)}


def test_all_hosts_are_examined_whoever_fails(run: Callable[..., Any], env: dict[str, str]) -> None:
    result = run("-H", "there:2,gone,bare", "--json", verb="doctor", env=env)
    rows = json.loads(result.out)
    of = {name: [row for row in rows if row["host"] == name] for name in ("there", "gone", "bare")}
    levels = {row["check"]: row["level"] for row in of["there"]}
    assert levels["two ranks"] == levels["agent"] == levels["loopback"] == OK
    assert [(row["level"], row["text"]) for row in of["gone"]] == [(FAIL, "gone is no name that this machine knows")]
    assert "has no farandole" in of["bare"][0]["text"] and "pip install farandole" in of["bare"][0]["fix"]
    assert result.code == 1 and result.err == ""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (frames.message("greeting"), "'greeting' is invalid"),
        (frames.message("greeting", **GREETING) + frames.message("clock", time_s="late"), "'clock' is invalid"),
        (b"\xff" * 9, "does not answer like an agent"),
        (frames.message("greeting", **GREETING), "odd was lost while it was checked"),
    ],
)
def test_an_agent_that_makes_no_sense_is_a_problem_of_its_host(
    run: Callable[..., Any], env: dict[str, str], said: bytes, told: str
) -> None:
    Path(env["FARANDOLE_SSH"] + ".says").write_bytes(frames.GREETING + said)
    result = run("-H", "odd,there", "--json", verb="doctor", env=env)
    rows = json.loads(result.out)
    assert [told in row["text"] for row in rows if row["host"] == "odd" and row["level"] == FAIL] == [True]
    assert any(row["host"] == "there" and row["check"] == "two ranks" for row in rows)


def test_hosts_meet_and_the_settings_are_those_of_their_ranks(run: Callable[..., Any], env: dict[str, str]) -> None:
    result = run("-H", "localhost,there", verb="doctor", env={**env, "FARANDOLE_ORDER": "random"})
    lines = result.out.splitlines()
    assert sum(line.startswith("OK ") and "all others reach it at" in line for line in lines) == 2
    assert (
        sum(line.startswith("FAIL") and " settings " in line and "FARANDOLE_ORDER=random" in line for line in lines)
        == 2
    )
    assert any(line.startswith("OK    all hosts:") for line in lines)  # their clocks
    assert any(line.startswith("FAIL  all hosts:") and "localhost, there are one machine" in line for line in lines)
    assert result.code == 1


def test_a_silent_host_is_given_up_and_nothing_is_left(launch: Callable[..., Any], env: dict[str, str]) -> None:
    job = launch("-H", "slow,there", "--json", verb="doctor", env=env)
    result = job.finish()
    rows = json.loads(result.out)
    (said,) = [row["text"] for row in rows if row["host"] == "slow"]
    assert re.fullmatch(r"slow did not answer within 1\d s", said)  # it says how long it has waited
    assert any(row["host"] == "there" and row["check"] == "two ranks" for row in rows)
    job.wait_until_nothing_is_left(5)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_ended_early_it_leaves_nothing(launch: Callable[..., Any], env: dict[str, str], signum: int) -> None:
    job = launch("-H", "slow,there", verb="doctor", env=env)
    deadline = time.monotonic() + 20
    while not any("farandole.observe.doctor.run_checks" in words for words in job.of_each(psutil.Process.cmdline)):
        assert time.monotonic() < deadline
    job.process.send_signal(signum)
    assert job.finish().code == (-9 if signum == signal.SIGKILL else 128 + signum)
    job.wait_until_nothing_is_left(5)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-p", "22"], "name them with -H"),
        (["-H", "a;b"], "is no name of a host"),
        (["-H", "there", "--python", "a b"], "--python"),
        (["-H", "there", "-i", "/no/key"], "--ssh-identity-file"),
        (["-H", "there", "--network-interfaces", "-x"], "--network-interfaces"),
        (["-H", "there", "--hostfile", "hosts"], "give one of"),
        (["--hostfile", "/no/hosts"], "cannot be read"),
    ],
)
def test_wrong_options_are_one_sentence(run: Callable[..., Any], words: list[str], told: str) -> None:
    result = run(*words, verb="doctor")
    assert result.code == 2 and told in result.err and result.err.count("\n") == 1
