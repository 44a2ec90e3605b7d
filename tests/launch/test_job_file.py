"""Job files in RiseML's form: their forms, their mistakes, the ranks they start."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from farandole.launch import job_file, job_file_checks
from farandole.launch.hosts import HostList, HostSlots
from farandole.launch.job_file import JobFile, Resources, parse, read
from farandole.launch.job_file_checks import Machine
from farandole.launch.spec import SpecError

GIB = 1 << 30


def text_of(
    inner: str = "", resources: str = "", framework: str = "tensorflow", run: str = "python train.py", more: str = ""
) -> str:
    """A job file with this section of the framework, in YAML's flow form."""
    lines = ["project: example", "train:", *([f"  framework: {framework}"] if framework else [])]
    lines += [f"  {framework}: {{{inner}}}"] if inner else []
    lines += [f"  resources: {{{resources}}}"] if resources else []
    lines += [f"  {more}"] if more else []
    return "\n".join([*lines, f"  run: {run}", ""])


def ranks_of(inner: str, resources: str = "") -> tuple[int, int]:
    file = parse(text_of(inner, resources), "j")
    return file.workers, file.processes


@pytest.fixture
def job(tmp_path: Path) -> Callable[[str], str]:
    """job(text) writes job.yml, and is its name in the folder of `run`."""

    def write(text: str) -> str:
        (tmp_path / "job.yml").write_text(text)
        return "job.yml"

    return write


# ---- Forms -----------------------------------------------------------------------------------------------------------


def test_the_final_form_has_horovod_below_the_framework() -> None:
    text = (
        "project: example\ntrain:\n  framework: tensorflow\n  tensorflow:\n    version: 1.10\n    horovod:\n"
        "      workers: 32\n  resources:\n    gpus: 4\n    cpus: 7.5\n    mem: 16GiB\n"
        "  run:\n  - python prepare.py\n  - python train.py --lr 0.1\n"
    )
    lines = ("python prepare.py", "python train.py --lr 0.1")
    resources = Resources(4, 7.5, 16 * GIB)
    assert parse(text, "j") == JobFile("example", "tensorflow", "1.10", 32, 4, resources, lines, "j")


@pytest.mark.parametrize(
    ("inner", "resources", "expected"),
    [
        ("horovod: {workers: 32}", "gpus: 4", (32, 4)),
        ("horovod: {workers: 32}", "gpus: 0", (32, 1)),
        ("horovod: {workers: 32}", "", (32, 1)),
        ("horovod: {workers: {count: 32}}", "gpus: 4", (32, 4)),
        ("horovod: {workers: {count: 32, processes: 1}}", "gpus: 4", (32, 1)),
        ("horovod: {workers: {count: 2, processes: 3}}", "", (2, 3)),
        ("distributed: {horovod: {workers: 32}}", "gpus: 4", (32, 4)),
        ("distributed: {horovod: {workers: {count: 32, processes: 1}}}", "gpus: 4", (32, 1)),
        ("version: 1.8", "gpus: 4", (1, 1)),
        ("horovod: {workers: 16384}", "gpus: 4", (16384, 4)),
    ],
)
def test_the_number_of_processes(inner: str, resources: str, expected: tuple[int, int]) -> None:
    assert ranks_of(inner, resources) == expected


def test_workers_may_stand_without_a_framework() -> None:
    file = parse(text_of(framework="", more="workers: 2"), "j")
    assert (file.framework, file.version, file.ranks) == ("", "", 2)


@pytest.mark.parametrize(
    ("mem", "size", "said"),
    [
        ("4", 4 * GIB, "4GiB"),
        ("4096", 4 * GIB, "4096MiB"),
        ("512", GIB // 2, "512MiB"),
        ("511", 511 * GIB, "511GiB"),
        ("0.5", GIB // 2, "0.5GiB"),
        ("4GiB", 4 * GIB, ""),
        ("1.5 MiB", 3 << 19, ""),
        ("2GB", 2 * 10**9, ""),
        ("1TiB", 1 << 40, ""),
        ("8KiB", 8192, ""),
    ],
)
def test_memory_without_a_unit_is_told(mem: str, size: int, said: str) -> None:
    file = parse(text_of("version: 1", f"mem: {mem}"), "j")
    assert file.resources.memory_bytes == size
    expected = [f"j, line 5: train.resources.mem is taken as {said}; write the unit."] if said else []
    assert list(file.notes) == expected


def test_keys_without_effect_are_told_with_the_remedy() -> None:
    more = "{image: a/b, install: [pip install x], parameters: {lr: [1, 2], x: 1}, concurrency: 2, framework: mxnet,"
    text = f"project: a\ntrain: {more}\n  mxnet: {{tensorboard: true}}, run: x}}\n"
    names = ["image", "install", "concurrency", "parameters.lr", "mxnet.tensorboard"]
    notes = parse(text, "j").notes
    assert [note.partition(" has no effect; ")[0].partition(": ")[2] for note in notes] == [f"train.{n}" for n in names]
    assert all(note.partition(" has no effect; ")[2] for note in notes)


def test_scalars_are_texts_as_they_are_spelt() -> None:
    file = parse(text_of("version: 1.10, horovod: {workers: '4'}", run="[true, 007]"), "j")
    assert (file.version, file.workers, file.lines) == ("1.10", 4, ("true", "007"))


def test_a_line_may_be_a_script_and_aliases_are_values() -> None:
    text = "project: &p a\ntrain:\n  run:\n  - |\n    cd /tmp\n    ls $HOME\n  - *p\n"
    assert parse(text, "j").lines == ("cd /tmp\nls $HOME", "a")


# ---- Mistakes --------------------------------------------------------------------------------------------------------

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
WRONG = {
    "": "j is empty; write project: NAME, and train: with run: below it.",
    "# nothing\n": "j is empty",
    "- 1\n": "line 1: must be keys with values, not a list",
    "text\n": "line 1: must be keys with values, not 'text'",
    "project: a\n": "j: train is missing",
    "train: {run: x}\n": "j: project is missing",
    "project:\ntrain: {run: x}\n": "line 1: project must be a text, not nothing",
    "project: [a]\ntrain: {run: x}\n": "line 1: project must be a text, not a list",
    "project: a\ntrain:\n": "line 2: train must be keys with values, not nothing",
    "project: a\ntrain: x\n": "line 2: train must be keys with values, not 'x'",
    "project: a\ntrian: {run: x}\n": "line 2: there is an unknown key, 'trian'; did you mean train?",
    "project: a\nproject: b\n": "line 2: it is not YAML: project is listed twice.",
    "project: a\ntrain: {}\n": "line 2: run is missing",
    "project: a\n? [b, c]\n: d\n": "line 2: it is not YAML: a key has several values.",
    "project: a\n<<: {train: {run: x}}\n": "line 2: there is an unknown key, '<<'; known are project, train",
    '"a\\eb": 1\n': "there is an unknown key, 'a\\x1bb'",
    text_of(run="\n"): "train.run must be a text, not nothing",
    text_of(run="[]"): "train.run must be a line, or a list of lines, not a list",
    text_of(run="{a: b}"): "train.run must be a text, not keys with values",
    text_of(run="[a, [b]]"): "train.run, item 2, must be a text, not a list",
    text_of(run='"  "'): "train.run must be a text, not '  '",
    text_of(run='"a\\0b"'): "train.run has a character that no argument",
    text_of(run='"a\\ud800"'): "train.run has a character that no argument",
    text_of(run="a" * (128 << 10)): "train.run has more than 131071 bytes",
    text_of(framework="tensorflw"): "line 3: train.framework must be one of tensorflow, pytorch, mxnet, keras, not",
    text_of(
        more="pytorch: {version: 1}"
    ): "line 4: train.pytorch needs `framework: pytorch` beside it, but framework is",
    text_of(
        framework="", more="mxnet: {}"
    ): "train.mxnet needs `framework: mxnet` beside it, but there is no framework",
    text_of("versions: 1"): "line 4: train.tensorflow has an unknown key, 'versions'; did you mean version?",
    text_of("version: [1]"): "line 4: train.tensorflow.version must be a text, not a list",
    text_of("horovod: 3"): "train.tensorflow.horovod must be keys with values, not '3'",
    text_of("horovod: {}"): "line 4: workers is missing",
    text_of("horovod: {worker: 3}"): "has an unknown key, 'worker'; did you mean workers?",
    text_of("horovod: {workers: 0}"): "horovod.workers must be a whole number from 1 on, not '0'",
    text_of("horovod: {workers: -1}"): "horovod.workers must be a whole number from 1 on, not '-1'",
    text_of("horovod: {workers: 1.5}"): "horovod.workers must be a whole number from 1 on, not '1.5'",
    text_of("horovod: {workers: 0x10}"): "horovod.workers must be a whole number from 1 on, not '0x10'",
    text_of("horovod: {workers: 1:30}"): "horovod.workers must be a whole number from 1 on, not '1:30'",
    text_of("horovod: {workers: many}"): "horovod.workers must be a whole number from 1 on, not 'many'",
    text_of("horovod: {workers: [4]}"): "horovod.workers must be a whole number from 1 on, not a list",
    text_of(f"horovod: {{workers: {'9' * 5000}}}"): "must be a whole number from 1 on, not '999",
    text_of("horovod: {workers: 65537}"): "asks for 65537 processes, more than the 65536",
    text_of("horovod: {workers: 32769}", "gpus: 2"): "asks for 65538 processes",
    text_of("horovod: {workers: {processes: 2}}"): "line 4: count is missing",
    text_of("horovod: {workers: {count: 2, processes: 0}}"): "processes must be a whole number from 1 on, not '0'",
    text_of("horovod: {workers: {cout: 2}}"): "has an unknown key, 'cout'; did you mean count?",
    text_of("horovod: {workers: 2}", more="workers: 3"): "says the same as train.workers in line 5; leave one out",
    text_of("horovod: {workers: 2}, distributed: {horovod: {workers: 2}}"): "says the same as train.tensorflow.horovod",
    text_of("distributed: {ps: 1, worker: 3}"): "distributed.ps belongs to parameter servers",
    text_of("version: 1", "gpu: 1"): "line 5: train.resources has an unknown key, 'gpu'; did you mean gpus?",
    text_of("version: 1", "gpus: 1.5"): "train.resources.gpus must be a whole number from 0 on, not '1.5'",
    text_of("version: 1", "gpus: -1"): "train.resources.gpus must be a whole number from 0 on, not '-1'",
    text_of("version: 1", "cpus: -0.5"): "train.resources.cpus must be a number from 0 on, not '-0.5'",
    text_of("version: 1", "cpus: .nan"): "train.resources.cpus must be a number from 0 on, not '.nan'",
    text_of("version: 1", "mem: 4 bags"): "train.resources.mem must be a size such as 32GiB, not '4 bags'",
    text_of("version: 1", "mem: -4"): "train.resources.mem must be a size such as 32GiB, not '-4'",
    text_of(
        run="!!python/object/apply:os.system ['touch x']"
    ): "line 4: it is not YAML: could not determine a constructor for the tag",
    text_of(run="!!python/name:os.system ''"): "line 4: it is not YAML: could not determine a constructor for the tag",
    text_of(run="!mine x"): "line 4: it is not YAML: could not determine a constructor for the tag '!mine'",
    "!!python/object/apply:os.system ['touch x']": "line 1: it is not YAML: could not determine a constructor",
    "project: *p\n": "line 1: it is not YAML: found undefined alias 'p'",
    "project: a\n---\nproject: b\n": "line 2: it is not YAML: but found another document",
    "project: a\n  train: b\n": "line 2: it is not YAML",
    "project: [\n": "line 2: it is not YAML",
    "project: \x07\n": "is not YAML",
    "project: " + "[" * 100_000: "is not YAML: ",
    f"{BOMB}project: a\ntrain: {{run: *i}}\n": "line 1: there is an unknown key, 'a'",
    "project: a\ntrain:\n  run: &a [*a]\n": "line 3: it is not YAML: found unconstructable recursive node",
}


@pytest.mark.parametrize(("text", "said"), WRONG.items(), ids=lambda text: ascii(text)[:50])
def test_a_wrong_file_is_one_sentence(text: str, said: str) -> None:
    began = time.process_time()
    with pytest.raises(SpecError) as caught:
        parse(text, "j")
    assert str(caught.value).startswith("j") and said in str(caught.value), caught.value
    assert time.process_time() - began < 10.0


def test_a_bomb_of_aliases_costs_nothing() -> None:
    began = time.monotonic()
    bomb = "".join(f"    {line}\n" for line in BOMB.splitlines())
    assert parse(f"project: a\ntrain:\n  parameters:\n{bomb}  run: x\n", "j").lines == ("x",)
    assert time.monotonic() - began < 10.0


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"project: a\n\xff\xfe\x00")
    cases = {tmp_path: "Is a directory", tmp_path / "none.yml": "No such file", Path("a\0b"): "null"}
    cases |= {
        Path("/dev/zero"): "is no job file: it has more than 256 KiB",
        tmp_path / "binary": "line 2: it must be UTF-8",
    }
    for path, said in cases.items():
        with pytest.raises(SpecError, match=said):
            read(path)


def test_a_missing_parser_of_yaml_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(SpecError, match=r"^j is YAML, which needs PyYAML: .* -m pip install pyyaml\.$"):
        parse("project: a\n", "j")


# ---- Beside the options and the machine ------------------------------------------------------------------------------


def file_with(workers: int = 1, processes: int = 1, version: str = "", **resources: int) -> JobFile:
    return JobFile("a", "pytorch", version, workers, processes, Resources(**resources), ("x",), "j")


@pytest.mark.parametrize(
    ("wanted", "installed", "said"),
    [
        ("2.13", "2.13.1", ""),
        ("2.13", "2.13.0+cpu", ""),
        ("2", "2.13.0", ""),
        ("2.13.0+cpu", "2.13.0+cpu", ""),
        ("", "", ""),
        ("2.1", "2.13.0", "j wants pytorch 2.1, but torch 2.13.0 is installed beside farandole"),
        ("2.13.0.1", "2.13.0", "but torch 2.13.0 is installed"),
        ("2.13", "", "j wants pytorch 2.13, but no torch is installed"),
    ],
)
def test_the_version_of_the_framework(wanted: str, installed: str, said: str) -> None:
    found = job_file_checks.about_version(file_with(version=wanted), lambda name: {"torch": installed}[name])
    assert found.startswith(said) if said == "" else said in found
    assert bool(found) == bool(said)


def test_one_of_several_distributions_is_enough() -> None:
    file = JobFile("a", "tensorflow", "2.13", 1, 1, Resources(), ("x",), "j")
    assert job_file_checks.about_version(file, lambda name: "2.13.1" if name == "tensorflow-cpu" else "") == ""


def test_hosts_are_needed_for_more_gpus_than_are_here() -> None:
    file = file_with(32, 4, gpus=4)
    with pytest.raises(SpecError, match=r"asks for 128 GPUs on 32 workers, and this machine has 4; name the hosts: -H"):
        job_file_checks.hosts_of(file, None, None, 4, dry_run=False)
    plan = job_file_checks.hosts_of(file, "128", None, 4, dry_run=True)
    assert (
        plan.slots[0] == HostSlots("worker-1", 4)
        and plan.slots[-1] == HostSlots("worker-32", 4)
        and len(plan.slots) == 32
    )
    here = (HostSlots("localhost", 8),)
    assert job_file_checks.hosts_of(file_with(2, 4, gpus=4), None, None, 8, dry_run=False).slots == here
    assert job_file_checks.hosts_of(file_with(1, 8, gpus=8), "auto", None, 0, dry_run=False).slots == here


def test_a_number_of_ranks_that_contradicts_the_file_is_told() -> None:
    with pytest.raises(SpecError, match=r"-np 4 contradicts j, which asks for 128 ranks \(32 workers with 4 processes"):
        job_file_checks.hosts_of(file_with(32, 4), "4", None, 0, dry_run=True)
    listed = HostList((HostSlots("h1", 4),), "-H h1:4")
    with pytest.raises(SpecError, match=r"j asks for 128 ranks .* but -H h1:4 has 4 slots; list more slots"):
        job_file_checks.hosts_of(file_with(32, 4), None, listed, 0, dry_run=False)
    assert job_file_checks.hosts_of(file_with(4, 1), "4", listed, 0, dry_run=False) == listed


def test_resources_beyond_this_machine_are_one_sentence() -> None:
    machine = Machine(gpus=2, cores=8, memory_bytes=32 * GIB)
    file = file_with(2, 2, gpus=2, cpus=8, memory_bytes=32 * GIB)
    assert job_file_checks.about_resources(file, 2, machine) == ""
    assert job_file_checks.about_resources(file, 3, machine) == (
        "j: the 2 workers on this machine want 4 GPUs (here: 2), 16 cores (here: 8), 64.0 GiB of memory (here: 32.0); "
        "the job starts all the same."
    )
    assert "its worker on this machine wants 1 GPU (here: 0);" in job_file_checks.about_resources(
        file_with(gpus=1), 1, Machine(0, 8, GIB)
    )


# ---- As a command ----------------------------------------------------------------------------------------------------


def test_a_dry_run_shows_the_plan_of_128_ranks(run: Callable, job: Callable) -> None:
    job(text_of("version: '1.8', horovod: {workers: 32}", "gpus: 4", run="[python a.py, python b.py]"))
    result = run("-f", "job.yml", "--dry-run", env={"CUDA_VISIBLE_DEVICES": ""})
    ranks, lines = result.out.split("\n\n")
    rows = [line.split() for line in ranks.splitlines()[1:]]
    assert rows == [[str(rank), f"worker-{rank // 4 + 1}", str(rank % 4)] for rank in range(128)]
    assert lines.splitlines()[1:] == ["1     python a.py", "2     python b.py"]
    assert result.code == 0 and result.err.count("\n") == 1 and "wants tensorflow 1.8, but " in result.err


def test_lines_run_one_after_the_other_and_all_wait_for_all(run: Callable, job: Callable) -> None:
    first = "test $FARANDOLE_RANK = 2 && sleep 0.3; touch first.$FARANDOLE_RANK; echo $$"
    second = "ls first.* | wc -l; echo ${GIVEN:-none}; touch second.$FARANDOLE_RANK"
    job(text_of(framework="", more="workers: 3", run=f"\n  - '{first}'\n  - '{second}'\n  - ls second.* | wc -l\n"))
    result = run("--file", "job.yml", "--output-dir", "logs", env={"GIVEN": "a b"})
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert sorted(lines[3:9]) == sorted(f"[{rank}] {said}" for rank in range(3) for said in ("3", "a b"))
    assert sorted(lines[9:]) == ["[0] 3", "[1] 3", "[2] 3"]


def test_logs_hold_all_lines(run: Callable, job: Callable, tmp_path: Path) -> None:
    job(text_of(framework="", more="workers: 2", run="[echo one, echo two]"))
    for _ in range(2):
        run("-f", "job.yml", "--output-dir", "logs")
        assert (tmp_path / "logs" / "rank.1.log").read_text() == "one\ntwo\n"


def test_a_failing_line_ends_the_job_and_is_named(run: Callable, job: Callable) -> None:
    job(text_of(framework="", more="workers: 2", run="[echo one, 'exit $((FARANDOLE_RANK * 3))', echo no, echo no]"))
    result = run("-f", "job.yml")
    assert (result.code, sorted(result.out.splitlines())) == (3, ["[0] one", "[1] one"])
    said = result.err.splitlines()[-1]
    assert said == (
        "farandole: line 2 of 4, 'exit $((FARANDOLE_RANK * 3))', ended with exit code 3; lines 3 to 4 were not started."
    )


def test_a_job_file_starts_worlds_of_farandole(run: Callable, job: Callable, tmp_path: Path) -> None:
    script = "import farandole\nfarandole.init()\nprint(farandole.rank(), farandole.size())\nfarandole.shutdown()\n"
    (tmp_path / "train.py").write_text(script)
    job(text_of(framework="", more="workers: 2", run=f"[{sys.executable} train.py, {sys.executable} train.py]"))
    result = run("-f", "job.yml")
    assert (result.code, sorted(result.out.splitlines())) == (0, ["[0] 0 2", "[0] 0 2", "[1] 1 2", "[1] 1 2"]), (
        result.err
    )


@pytest.mark.parametrize("line", [1, 2])
def test_an_interrupt_ends_the_job_in_any_line(launch: Callable, job: Callable, line: int) -> None:
    waits = "echo here; exec sleep 60"
    job(text_of(framework="", more="workers: 2", run=f"['{waits if line == 1 else 'true'}', '{waits}', echo no]"))
    launched = launch("-f", "job.yml")
    assert {launched.read_line(), launched.read_line()} == {b"[0] here\n", b"[1] here\n"}
    launched.process.send_signal(signal.SIGINT)
    result = launched.finish()
    assert (result.code, result.out) == (130, "")
    launched.wait_until_nothing_is_left(5.0)


def test_an_interrupt_among_short_lines_is_not_lost(launch: Callable, job: Callable) -> None:
    job(text_of(framework="", more="workers: 1", run=f"[{', '.join(['echo go'] * 2000)}]"))
    for lines in range(1, 5):
        launched = launch("-f", "job.yml")
        for _ in range(lines):
            launched.read_line()
        launched.process.send_signal(signal.SIGTERM)
        result = launched.finish()
        assert result.code == 143 and result.out.count("go") < 1000, result.err


def test_an_interrupt_that_comes_after_a_line_starts_no_other() -> None:
    code = """if True:
        import os, signal, sys
        from farandole.launch import guard

        def first(lifeline):
            os.kill(os.getppid(), signal.SIGTERM)  # this process blocks what the outer one passes on
            return 0

        sys.exit(guard.run_guarded(first, lambda lifeline: print("second") or 0))
    """
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (143, "")
    assert result.stderr == "farandole: ended by SIGTERM between two lines.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["echo"], "give one of --file and COMMAND: the lines of job.yml are the commands."),
        (["-m"], "-m needs a COMMAND"),
        (["-np", 3], "-np 3 contradicts --file job.yml, which asks for 2 ranks (2 workers with 1 process each)"),
        (["-H", "localhost:1"], "--file job.yml asks for 2 ranks"),
    ],
)
def test_options_that_contradict_the_file_are_told(
    run: Callable, job: Callable, arguments: list[object], said: str
) -> None:
    job(text_of(framework="", more="workers: 2", run="touch x"))
    result = run("-f", "job.yml", *arguments)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1) and said in result.err


def test_another_version_of_the_framework_is_one_sentence(run: Callable, job: Callable, tmp_path: Path) -> None:
    job(text_of("version: 0.1, horovod: {workers: 2}", framework="pytorch", run="touch x"))
    result = run("-f", "job.yml")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert "--file job.yml wants pytorch 0.1, but " in result.err and not (tmp_path / "x").exists()


def test_a_job_file_and_options_of_hosts_combine(run: Callable, job: Callable) -> None:
    job(text_of("horovod: {workers: 2}", "gpus: 2"))
    result = run("-f", "job.yml", "-H", "h1:2,h2:2", "-np", 4, "--dry-run")
    rows = [line.split() for line in result.out.split("\n\n")[0].splitlines()[1:]]
    assert rows == [["0", "h1", "0"], ["1", "h1", "1"], ["2", "h2", "0"], ["3", "h2", "1"]]


def test_the_longest_file_is_read_in_time() -> None:
    line = "  - " + "a" * 60 + "\n"
    text = text_of(framework="", run="\n" + line * (job_file.MAX_FILE_BYTES // len(line) - 2))
    assert len(parse(text, "j").lines) > 4000


# ---- Parameters and variables ----------------------------------------------------------------------------------------


def with_parameters(parameters: str, run: str = "train --lr {{lr}}") -> JobFile:
    return parse(text_of(framework="", more=f"parameters: {parameters}", run=f'"{run}"'), "j")


@pytest.mark.parametrize("value", ["0.10", "[0.10]", "'0.10'"])
def test_a_parameter_of_one_value_is_in_the_lines_and_a_variable(value: str) -> None:
    file = with_parameters(f"{{lr: {value}, Batch_size: 64}}", "train {{lr}} {{ lr }} {{Batch_size}} {{other}} {lr}")
    assert file.lines == ("train 0.10 0.10 64 {{other}} {lr}",)
    assert file.variables == {"LR": "0.10", "BATCH_SIZE": "64"} and file.notes == ()


@pytest.mark.parametrize("values", ["[0.1, 0.01]", "{range: {min: 3, max: 5, step: 1}}", "[]"])
def test_a_parameter_of_several_values_has_no_effect_unless_a_line_needs_one(values: str) -> None:
    file = with_parameters(f"{{lr: {values}}}", "train")
    assert file.variables == {} and file.notes == (
        "j, line 3: train.parameters.lr has no effect; write one value, and start one job for each.",
    )
    with pytest.raises(SpecError, match=r"^j, line 3: train.parameters.lr has several values, but a job needs one"):
        with_parameters(f"{{lr: {values}}}")


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("{learning rate: 1}", "train.parameters.learning rate becomes a variable: name it by letters"),
        ("{farandole_rank: 1}", "train.parameters.farandole_rank becomes a variable"),
        ("{lr: 1, LR: 2}", "train.parameters.LR is the variable LR, as is train.parameters.lr in line 3"),
        ("{lr: [[1]]}", "must be a text, not a list"),
        ("lr", "train.parameters must be keys with values, not 'lr'"),
    ],
)
def test_mistakes_in_parameters_are_one_sentence(parameters: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        with_parameters(parameters)
    assert said in str(caught.value) and str(caught.value).startswith("j, line 3: ")


def test_programs_for_riseml_find_its_variables() -> None:
    file = with_parameters("{lr: 0.1}")
    made = job_file_checks.variables(file, {"LR": "0.1"}, "/work", 1.5)
    assert made == {"OUTPUT_DIR": "/work", "EXPERIMENT_ID": "19700101-000001-500"}
    assert job_file_checks.variables(file, {"OUTPUT_DIR": "/o", "EXPERIMENT_ID": "4"}, "/work", 1.5) == {"LR": "0.1"}
    with pytest.raises(SpecError, match=r"^j: the parameter lr, '0.1', becomes the variable LR, which the env"):
        job_file_checks.variables(file, {"LR": "0.2"}, "/work", 1.5)


def test_all_ranks_of_all_lines_have_one_experiment(run: Callable, job: Callable, tmp_path: Path) -> None:
    line = "echo {{word}} $WORD $OUTPUT_DIR $EXPERIMENT_ID"
    job(text_of(framework="", more="workers: 2\n  parameters: {word: x1}", run=f'["{line}", "{line}"]'))
    result = run("--no-prefix", "-f", "job.yml")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert len(lines) == 4 and len(set(lines)) == 1 and lines[0].startswith(f"x1 x1 {tmp_path} 20")
