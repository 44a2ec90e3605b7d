"""-H, files of hosts and options for other hosts are understood, and nothing hostile passes."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from farandole.launch import environment, options
from farandole.launch.hosts import is_local, parse_hosts, parse_lines, read_hostfile
from farandole.launch.messages import one_line
from farandole.launch.options import HostOptions, reach_options
from farandole.launch.spec import SpecError, Where

NAMES = frozenset({"localhost", "127.0.0.1", "::1", "box", "10.0.0.7"})


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("localhost", [("localhost", 1)]),
        ("localhost:4", [("localhost", 4)]),
        ("h0:2,h1", [("h0", 2), ("h1", 1)]),
        ("h0:2, h1:3", [("h0", 2), ("h1", 3)]),
        ("127.0.0.1:2", [("127.0.0.1", 2)]),
        ("[::1]:2", [("::1", 2)]),
        ("[fd00::1],[fd00::2]:3", [("fd00::1", 1), ("fd00::2", 3)]),
        ("bob@h1:2,a.b-c@[fd00::1]", [("bob@h1", 2), ("a.b-c@fd00::1", 1)]),
        ("a-b.3com.example.org:1", [("a-b.3com.example.org", 1)]),
        ("a" * 63 + ":2", [("a" * 63, 2)]),
        ("h0:2,h1:3,", [("h0", 2), ("h1", 3)]),
        ("h0:2, h1, ", [("h0", 2), ("h1", 1)]),
        ("my_job_worker_1:2,a_b.c_d", [("my_job_worker_1", 2), ("a_b.c_d", 1)]),
    ],
)
def test_hosts_are_understood(text: str, slots: list[tuple[str, int]]) -> None:
    assert [(one.host, one.count) for one in parse_hosts(text).slots] == slots


def test_a_file_of_hosts_is_understood() -> None:
    text = "\ufeff# ours: ü\n\nh0 slots=4\r\n h1\tslots = 2 # far\nh2:3\n[fd00::1] slots=2\n[fd00::2]:5\nbob@h3\n"
    found = parse_lines(text.removeprefix("\ufeff"), "--hostfile hosts")
    assert [(one.host, one.count) for one in found.slots] == [
        *(("h0", 4), ("h1", 2), ("h2", 3), ("fd00::1", 2), ("fd00::2", 5), ("bob@h3", 1))
    ]
    assert found.origin == "--hostfile hosts"


def test_a_file_of_hosts_for_open_mpi_is_understood() -> None:
    text = "h0 slots=2 max_slots=4\nh1 max-slots = 3 slots=3\nwork_er max_slots=4\n"
    found = parse_lines(text, "--hostfile hosts")
    assert [(one.host, one.count) for one in found.slots] == [("h0", 2), ("h1", 3), ("work_er", 4)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no host; write lines such as localhost slots=4"),
        ("# none\n\n", "names no host"),
        ("h0 slots=2\nh1 slot=2\n", "line 2: 'slot=2' is not understood; write host slots=N or host:N"),
        ("h0 slots=4 max_slots=2\n", "line 1: h0 has more slots (4) than its max_slots allows (2)"),
        ("h0 slots=2 max_slots=x\n", "line 1: the max_slots of h0 must be a positive whole number, not 'x'"),
        ("h0 slots=2 slots=4\n", "line 1: 'slots=4' is not understood"),
        ("h0 slots=two\n", "line 1: the number of slots of h0 must be a positive whole number, not 'two'"),
        ("h0 slots=\n", "line 1: the number of slots of h0 must be a positive whole number, not ''"),
        ("h0:0\n", "line 1: the number of slots of h0 must be a positive whole number, not '0'"),
        ("h0:2 slots=2\n", "line 1: 'h0:2' is no name of a host"),
        ("h0\nh1\nH0 slots=2\n", "line 3: host H0 is listed twice, first at line 1; list it once, with all its slots"),
        ("h0\n\nfd00::1:4\n", "line 3 wants brackets around an IPv6 address"),
    ],
)
def test_a_wrong_file_of_hosts_is_told_with_its_line(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_lines(text, "--hostfile my/hosts")
    assert str(caught.value).startswith("--hostfile my/hosts") and said in str(caught.value)


@pytest.mark.parametrize(
    "text", ["h1:2,h1:3", "h1,H1", "[fd00::1],[FD00:0::1]", "a@h1,b@h1", "1.2.3.4,[::ffff:1.2.3.4]"]
)
def test_a_host_that_is_listed_twice_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"^-H: host .* is listed twice; list it once"):
        parse_hosts(text)


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    for path, said in {tmp_path: "Is a directory", tmp_path / "none": "No such file", Path("/dev/zero"): "MiB"}.items():
        with pytest.raises(SpecError, match=f"--hostfile {path} .*{said}"):
            read_hostfile(path)


def test_this_machine_is_known_by_its_names() -> None:
    assert all(is_local(host, NAMES) for host in ("localhost", "BOX", "127.0.0.9", "::1", "10.0.0.7", "bob@box"))
    assert not any(is_local(host, NAMES) for host in ("h1", "10.0.0.8", "fd00::1", "box.example.org", "127.example"))


# ---- Nothing hostile passes ------------------------------------------------------------------------------------------

PIECES = [
    *("-oProxyCommand=touch x", "-", "--", "-F/tmp/x", "$(touch x)", "`touch x`", "${HOME}", "$HOME", ";touch x"),
    *("|cat", "&", "&&touch x", "> x", "< x", "(", ")", "{a,b}", "*", "?", "[", "]", "[]", "[[::1]]", "!", "~"),
    *("^", "\\", "\\n", "'", '"', "'; touch x; '", "\n", "\r", "\n-oProxyCommand=x", "\t", "\x00", "\x1b[31m"),
    *("\x7f", "\x85", "\u2028", "../", "../../etc/passwd", "/", "/etc/hosts", "%h", "%", "%25", "fe80::1%eth0"),
    *("=", "a=b", "+", "#", " ", "\xa0", "h\u043est", "\uff48ost", "\u0661", "h\u200bost", "h\u202eost", "\u00e9"),
    *("\udcff", "\U0001f600", "a" * 64, "a" * 70_000, ".", "..", "a..b", ".a", "a.", "-a", "a-", "a.-b", "a-.b"),
    *("_a", "a_", "1.2.3", "1.2.3.4.5", "256.1.1.1", "4", "0x7f000001", "0.0.0.0", "224.0.0.1", "01.2.3.4", "@"),
    *("@h", "user@", "-l@h", "a b@h", "a:b@h", "a@b@h", "$u@h"),
]  # fmt: skip
HARMLESS = {"h1.a", "h1-a", "h1_a", "h1@h", "h1-l@h", "h14"}  # of those that are put together below
HOSTS = [*PIECES, *(f"h1{piece}" for piece in PIECES if piece != "#" and not piece[0].isalnum())]
HOSTS += [f"{piece}@h1" for piece in PIECES if set(piece) - set("abcdefghijklmnopqrstuvwxyz0123456789._-")]
HOSTS = [each for each in HOSTS if each not in HARMLESS]
SAFE = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:@")


def refused(parse: Callable[[str], object], text: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        parse(text)
    told = one_line(str(caught.value))
    assert told.isprintable() and told.isascii() and len(told) < 400, told[:400]


def test_there_are_many_hostile_texts() -> None:
    assert len(set(HOSTS)) >= 200


@pytest.mark.parametrize("text", HOSTS, ids=lambda text: ascii(text)[:40])
def test_a_hostile_host_is_refused_in_one_line(text: str) -> None:
    if text.strip(" ") not in ("", "h1"):  # spaces around an item are left out
        refused(parse_hosts, f"{text}:2", SpecError)
    alone = text.partition("#")[0].strip(" \t\r")
    if alone not in ("", "h1") and "\n" not in text:
        refused(lambda line: parse_lines(line, "--hostfile f"), f"{text} slots=2", SpecError)


def random_hosts() -> Iterator[str]:
    yield from ("".join(pair) for pair in itertools.product([*PIECES, "h1", "bob@", ":", ":2"], repeat=2))


def test_a_host_that_passes_has_safe_characters_only() -> None:
    passed = set()
    for text in random_hosts():
        for parse in (parse_hosts, lambda line: parse_lines(line, "--hostfile f")):
            try:
                passed |= {slots.host for slots in parse(text).slots}
            except SpecError as error:
                assert one_line(str(error)).isprintable()
    assert "h1" in passed
    for host in passed:
        assert set(host) <= SAFE and not host.startswith("-") and not host.rpartition("@")[2].startswith(("-", ".")), (
            host
        )


@pytest.mark.parametrize(
    "text",
    [each for each in PIECES if not each.isidentifier() or not each.isascii()],
    ids=lambda text: ascii(text)[:40],
)
def test_a_hostile_variable_is_refused_in_one_line(text: str) -> None:
    for each in (f"{text}=1" if text != "a=b" else "=1", f"A{text}B"):
        name = each.partition("=")[0]
        if not (name.isidentifier() and name.isascii()):
            refused(lambda given: environment.given_variables([given], {}), each, SpecError)


@pytest.mark.parametrize("text", [each for each in PIECES if set(each) - SAFE], ids=lambda text: ascii(text)[:40])
def test_a_hostile_option_for_hosts_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    if set(text) - SAFE - set("/+=,"):
        refused(lambda word: reach_options(Where(python=word), False), f"/usr/bin/python{text}", SpecError)
    if text.strip():  # a comma may end the list
        refused(lambda word: reach_options(Where(network_interfaces=word), False), f"eth0,{text}", SpecError)
    refused(lambda word: reach_options(Where(ssh_identity_file=Path(word)), False), f"{tmp_path}/{text}", SpecError)


def test_options_for_hosts_are_collected(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    typed = Where(ssh_port=2222, ssh_identity_file=tmp_path / "key", python="/opt/py", network_interfaces="eth0, ib0,")
    assert reach_options(typed, True) == HostOptions(
        ssh_port=2222, ssh_identity=tmp_path / "key", python="/opt/py", interfaces=("eth0", "ib0")
    )
    assert reach_options(Where(), True) == HostOptions() and HostOptions().python == sys.executable


def test_an_interpreter_of_an_odd_name_matters_with_other_hosts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options.sys, "executable", "/my python/bin/python")
    assert reach_options(Where(), False).python == "/my python/bin/python"
    with pytest.raises(SpecError, match="--python names the interpreter"):
        reach_options(Where(), True)


# ---- As a command ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [each for each in PIECES if "\0" not in each and len(each) < 1000][::6], ids=ascii)
def test_the_command_refuses_hostile_hosts_and_runs_nothing(run: Callable, tmp_path: Path, text: str) -> None:
    (tmp_path / "hosts").write_bytes(f"h0 slots=1\n{text}h1 slots=2 x\n".encode(errors="surrogateescape"))
    for arguments in (["-H", f"{text}h1:2,-h"], ["--hostfile", "hosts"], ["-x", f"-{text}"]):
        result = run("-np", 1, *arguments, "touch", "x")
        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
        assert result.err.removesuffix("\n").isprintable(), result.err
    assert not (tmp_path / "x").exists()


def test_one_list_of_hosts_counts(run: Callable, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost slots=3\n")
    for option in ("--hostfile", "-hostfile"):
        assert run(option, "hosts", "true").code == 0
    result = run("-H", "localhost:2", "--hostfile", "hosts", "true")
    assert result.code == 2 and "give one of --hosts and --hostfile" in result.err
    result = run("-H", "localhost:2", "--dry-run", "true", env={"FARANDOLE_RUN_HOSTFILE": "hosts"})
    assert result.out.count("localhost") == 2
    result = run("--hostfile", "hosts", "--dry-run", "true", env={"FARANDOLE_RUN_HOSTS": "localhost:2"})
    assert result.out.count("localhost") == 3


def test_variables_of_the_command_line_reach_the_ranks(run: Callable) -> None:
    result = run(
        "-np", 1, "-x", "A=b=c", "-x", "B", "--env", "C=", "sh", "-c", 'echo "$A $B ${C-unset}"', env={"B": "2"}
    )
    assert result.out == "[0] b=c 2 \n"
    assert "-x NOT_THERE: there is no such variable here" in run("-np", 1, "-x", "NOT_THERE", "true").err
    assert "-x FARANDOLE_RANK: the launcher sets it" in run("-np", 1, "-x", "FARANDOLE_RANK=1", "true").err


def test_a_dry_run_shows_the_places_and_starts_nothing(run: Callable, tmp_path: Path) -> None:
    result = run("-np", 128, "-H", "h0:64,h1:64", "--dry-run", "touch", "a b", "$x")
    assert (result.code, result.err) == (0, "") and result.took_s < 10  # no word of ssh, and no wait for it
    lines = result.out.splitlines()
    assert len(lines) == 129 and lines[0].split() == ["rank", "host", "local", "rank", "command"]
    assert lines[65 + 1].split(maxsplit=3)[:3] == ["65", "h1", "1"] and lines[1].endswith("touch 'a b' '$x'")
    assert list(tmp_path.iterdir()) == []


def test_names_of_one_machine_are_said_to_be_one_host(run: Callable) -> None:
    result = run("-H", "localhost:1,127.0.0.1:2", "--dry-run", "true")
    assert (result.code, result.out.count("localhost")) == (0, 3)
    said = "localhost and 127.0.0.1 are the same machine, which counts as one host with 3 slots."
    assert result.err == f"farandole: -H localhost:1,127.0.0.1:2: {said}\n"


def test_auto_counts_gpus_or_cores(run: Callable) -> None:
    result = run("-np", "auto", "--dry-run", "true", env={"CUDA_VISIBLE_DEVICES": "4,5,6"})
    assert len(result.out.splitlines()) == 4
    cores = environment.available_cores()
    result = run("-np", "auto", "--dry-run", "true", env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert len(result.out.splitlines()) == 1 + cores
