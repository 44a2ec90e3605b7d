"""`farandole.run`: a function on several ranks, from a script, from a notebook, and from a program that is killed."""

from __future__ import annotations

import contextlib
import functools
import io
import linecache
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import farandole
import numpy
import psutil
import pytest
from farandole._functions import call_payload, outcome

LIMIT_S = 60.0
_lock = threading.Lock()


class PickyError(Exception):
    """Its pickle cannot be read, as with many exceptions that take several arguments."""

    def __init__(self, word: str, number: int) -> None:
        super().__init__(f"{word} {number}")


class Wrapper:
    def __init__(self) -> None:
        self.parts = {"guard": threading.Lock()}


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """user("...") is a process that runs a script with that text, in a folder of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(text: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        (tmp_path / "train.py").write_text(text)
        path = os.pathsep.join(filter(None, sys.path))
        (tmp_path / "tmp").mkdir(exist_ok=True)
        started.append(
            subprocess.Popen(
                [sys.executable, str(tmp_path / "train.py")],
                cwd="/",
                env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path / "tmp"), **(env or {})},
                stdin=subprocess.DEVNULL,
                text=True,
                **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509  (no locks)
            )
        )
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    return out, err


# ---- Results ---------------------------------------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_ranks() -> None:
    def train(base: int, *, step: int) -> tuple[int, int, list[int]]:
        farandole.init()
        time.sleep(0.1 * (farandole.size() - farandole.rank()))
        return farandole.rank(), farandole.size(), farandole.allgather_object(base + step * farandole.rank())

    results = farandole.run(train, args=(10,), kwargs={"step": 5}, np=3)
    assert results == [(rank, 3, [10, 15, 20]) for rank in range(3)]


def test_one_rank_is_the_default_and_numpy_counts_are_taken() -> None:
    assert farandole.run(os.getcwd, np=numpy.int64(1)) == farandole.run(os.getcwd) == [os.getcwd()]


def test_closures_partials_and_large_arguments_travel() -> None:
    base, data = 40, bytes(5_000_000)
    results = farandole.run(functools.partial(lambda more, text: (base + more, len(text)), 2), args=(data,), np=2)
    assert results == [(42, 5_000_000)] * 2


def test_a_function_may_call_itself_and_the_next_job() -> None:
    def outer() -> list[int]:
        farandole.init()
        return farandole.run(lambda: farandole.init() or farandole.size(), np=2)  # type: ignore[func-returns-value]

    assert farandole.run(outer, np=2) == [[2, 2], [2, 2]]


def test_modules_beside_the_script_are_found(user: Callable, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(
        "class Box:\n    def __init__(self, n): self.n = n\ndef box(n): return Box(n)\n"
    )
    (tmp_path / "late.py").write_text("N = 7\n")
    (tmp_path / "odd_name.txt").write_text("def times(n): return n * FACTOR\nFACTOR = 3\n")
    text = """
import farandole, importlib.util, importlib.machinery, pathlib, sys
from beside import Box, box
here = pathlib.Path(__file__).parent
loader = importlib.machinery.SourceFileLoader("loaded_by_hand", str(here / "odd_name.txt"))
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("loaded_by_hand", loader))
sys.modules["loaded_by_hand"] = module
loader.exec_module(module)
def train():
    import late
    return late.N
class Own: pass
for results in (farandole.run(box, (4,), np=2), farandole.run(lambda: Own(), np=2)):
    print([type(each) in (Box, Own) for each in results])
print(farandole.run(train, np=2), farandole.run(module.times, (5,), np=2))
"""
    out, _ = finish(user(text))
    assert out.splitlines() == ["[True, True]", "[True, True]", "[7, 7] [15, 15]"]


def test_another_python_has_its_own_packages_and_the_scripts_modules(user: Callable, tmp_path: Path) -> None:
    """The other one is a virtual environment without Farandole, which then is that of the caller."""
    venv.EnvBuilder(symlinks=True).create(tmp_path / "other")
    (packages,) = (tmp_path / "other").glob("lib/python*/site-packages")
    (packages / "of_the_other.py").write_text("WORD = 'found'")
    (tmp_path / "beside.py").write_text("WORD = 'too'")
    process = user(
        f"""
import farandole
def train():
    import beside, colorsys, of_the_other, sys
    return of_the_other.WORD, beside.WORD, sys.prefix, sys.path[0]
if __name__ == "__main__":
    print(*farandole.run(train, np=2, executable={str(tmp_path / "other" / "bin" / "python")!r})[1])
""",
        {"PYTHONPATH": ""},
    )
    out, _ = finish(process)
    assert out.split() == ["found", "too", str(tmp_path / "other"), str(tmp_path)]


def test_a_module_that_calls_while_it_is_imported_does_not_start_jobs_without_end(
    user: Callable, tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text("import farandole\ndef train(): return 5\nRESULTS = farandole.run(train, np=2)\n")
    out, _ = finish(user("import job; print(job.RESULTS)"))
    assert out == "[5, 5]\n"


def test_modules_in_the_working_directory_hide_none_of_ours(user: Callable, tmp_path: Path) -> None:
    for name in ("pickle.py", "click.py", "farandole.py", "selectors.py"):
        (tmp_path / "cwd").mkdir(exist_ok=True)
        (tmp_path / "cwd" / name).write_text("raise RuntimeError('hides')\n")
    text = f"import farandole, os; os.chdir({str(tmp_path / 'cwd')!r}); print(farandole.run(lambda: 1, np=2))"
    assert finish(user(text))[0] == "[1, 1]\n"


# ---- Exceptions and deaths -------------------------------------------------------------------------------------------


def test_the_first_ranks_exception_is_raised_with_its_traceback() -> None:
    def train() -> None:
        farandole.init()
        if farandole.rank() == 1:
            raise KeyError("no such batch")
        farandole.barrier()

    with pytest.raises(KeyError, match="no such batch") as caught:
        farandole.run(train, np=3)
    cause = str(caught.value.__cause__)
    assert "rank 1 of 3" in cause and "test_function.py" in cause and 'raise KeyError("no such batch")' in cause
    assert "_functions" not in cause
    own = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert sys.version_info < (3, 11) or own == [__file__], own


def test_a_ranks_traceback_has_the_line_of_a_cell() -> None:
    name, text = "<cell 1>", "def train():\n    raise KeyError('bad')  # in a cell\n"
    names: dict[str, Any] = {"__name__": "__main__"}
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    exec(compile(text, name, "exec"), names)
    call = call_payload.for_elsewhere(names["train"], (), {}, "farandole.run")
    del linecache.cache[name]
    answer, _ = outcome.of_call(call, 0)
    assert "raise KeyError('bad')  # in a cell" in outcome.traceback_in(answer)
    del linecache.cache[name]


def test_an_exception_keeps_its_class_where_it_is_the_scripts(user: Callable) -> None:
    text = """
import farandole
class Bad(Exception): pass
def train(): raise Bad("worse", 3)
try: farandole.run(train, np=2)
except Bad as error: print(error.args)
"""
    out, err = finish(user(text))
    assert out == "('worse', 3)\n" and err == ""


def test_an_exception_that_cannot_be_pickled_is_told_in_words() -> None:
    def train() -> None:
        raise PickyError("nine", 9)

    with pytest.raises(RuntimeError, match=r"rank 0 of 1 raised .*PickyError: nine 9"):
        farandole.run(train)


def test_a_rank_that_is_killed_is_named_in_the_launchers_words() -> None:
    def train() -> None:
        farandole.init()
        if farandole.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        farandole.barrier()

    with pytest.raises(RuntimeError, match=r"^rank 1 on localhost .* failed first: killed by SIGKILL"):
        farandole.run(train, np=2)


def test_a_rank_that_exits_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"^rank 0 on localhost .* exit code 3"):
        farandole.run(lambda: sys.exit(3))
    with pytest.raises(RuntimeError, match=r"^rank 0 ended with exit code 0 before its function returned"):
        farandole.run(lambda: os._exit(0), np=2)


def test_the_other_ranks_end_when_one_has_raised() -> None:
    def train() -> None:
        farandole.init()
        if farandole.rank() == 0:
            raise ValueError("enough")
        time.sleep(60)

    began = time.monotonic()
    with pytest.raises(ValueError, match="enough"):
        farandole.run(train, np=2)
    assert time.monotonic() - began < 15


# ---- Refusals --------------------------------------------------------------------------------------------------------


def helper() -> bool:
    return _lock.locked()


def uses(value: object) -> Callable[[], object]:
    return lambda: value


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (uses(threading.Lock()), (), "its closure variable 'value', of type _thread.lock,"),
        (uses(Wrapper()), (), "'value', attribute 'parts', item 'guard', of type _thread.lock,"),
        (lambda: _lock, (), "its global variable '_lock', of type _thread.lock,"),
        (print, (1, threading.Lock()), "its argument 1, of type _thread.lock,"),
        (functools.partial(print, {"a": [threading.Lock()]}), (), "its argument 0, item 'a', item 0, of type"),
    ],
)
def test_what_cannot_be_pickled_is_named(function: Any, arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(TypeError, match=re.escape(words)):
        farandole.run(function, arguments)


def test_a_variable_of_a_function_that_the_function_calls_is_named(user: Callable) -> None:
    text = """
import farandole, threading
lock = threading.Lock()
def inner(): return lock
def train(): return inner()
try: farandole.run(train, np=2)
except TypeError as error: print(error)
"""
    assert "its global variable 'inner', global variable 'lock', of type _thread.lock," in finish(user(text))[0]


def test_a_result_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(TypeError, match=r"the result of rank 0, of type lock, cannot be pickled"):
        farandole.run(threading.Lock)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"np": 0}, ValueError, "at least one rank, not np=0"),
        ({"np": "2"}, TypeError, "not np='2'"),
        ({"args": 1}, TypeError, "wants arguments as a tuple, not args=1; write args=(1,)"),
        ({"args": "ab"}, TypeError, "not args='ab'"),
        ({"kwargs": [1]}, TypeError, "wants keyword arguments as a dict, not kwargs=[1]"),
        ({"hosts": "no_name_:2"}, RuntimeError, "'no_name_' is no name of a host"),
        ({"hosts": "localhost:1", "hostfile": "x"}, ValueError, "not both"),
        ({"hostfile": "/nowhere"}, RuntimeError, "--hostfile /nowhere cannot be read"),
        ({"np": 3, "hosts": "localhost:2"}, RuntimeError, "-np 3 asks for more ranks than the 2 slots"),
        ({"start_timeout": -1}, RuntimeError, "start-timeout"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        farandole.run(print, **options)
    with pytest.raises(TypeError, match="wants a function, not NoneType"):
        farandole.run(print("called already"))  # type: ignore[func-returns-value, arg-type]


def test_a_caller_without_stdin_may_call(user: Callable) -> None:
    assert finish(user("import farandole, os; os.close(0); print(farandole.run(lambda: 5, np=2))"))[0] == "[5, 5]\n"


def test_hosts_may_name_this_one(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# ours\nlocalhost slots=2\n")
    assert farandole.run(lambda: 1, np=2, hosts=f"{os.uname().nodename}:2") == [1, 1]
    assert farandole.run(lambda: 1, np=2, hostfile=tmp_path / "hosts") == [1, 1]


# ---- Output ----------------------------------------------------------------------------------------------------------


def test_many_lines_arrive_whole_and_in_order(user: Callable) -> None:
    text = """
import farandole, sys
def train():
    farandole.init()
    for number in range(10_000): print(number, "é" * 20, file=(sys.stdout, sys.stderr)[farandole.rank()])
farandole.run(train, np=2)
"""
    for rank, stream in enumerate(finish(user(text))):
        assert stream.splitlines() == [f"[{rank}] {number} {'é' * 20}" for number in range(10_000)]


def test_lines_go_to_where_the_caller_prints() -> None:
    def train() -> None:
        farandole.init()
        for number in range(1000):
            print(number)
        print("careful", file=sys.stderr)

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        farandole.run(train, np=2)
    for rank in range(2):
        mine = [line for line in out.getvalue().splitlines() if line.startswith(f"[{rank}]")]
        assert mine == [f"[{rank}] {number}" for number in range(1000)]
    assert sorted(err.getvalue().splitlines()) == ["[0] careful", "[1] careful"]


def test_a_log_file_of_each_rank_and_what_is_started(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    farandole.run(lambda: print("here"), np=2, output_dir=tmp_path / "logs", verbose=True, timestamp=True)
    assert [(tmp_path / "logs" / f"rank.{rank}.log").read_text() for rank in range(2)] == ["here\n", "here\n"]
    captured = capfd.readouterr()
    assert "farandole: 2 ranks on localhost" in captured.err and re.search(r"\d:\d\d.* here", captured.out)


def test_a_terminal_shows_stderr_as_it_shows_stdout(user: Callable, tmp_path: Path) -> None:
    text = """
import farandole, sys
def train():
    print("out", sys.stdout.isatty())
    print("err", file=sys.stderr)
farandole.run(train, np=2, executable=sys.executable)
"""
    ours, theirs = os.openpty()
    process = user(text, stdout=theirs, stderr=theirs, env={"NO_COLOR": "", "TERM": "xterm"})
    os.close(theirs)
    shown = bytearray()
    with contextlib.suppress(OSError):  # the end of a terminal
        while data := os.read(ours, 1 << 16):
            shown += data
    os.close(ours)
    assert process.wait(LIMIT_S) == 0, shown
    labels = [f"\x1b[{color}m[{rank}]\x1b[0m" for rank, color in ((0, 36), (1, 33))]
    assert sorted(shown.decode().splitlines()) == sorted(f"{each} {w}" for each in labels for w in ("err", "out False"))


def test_options_of_the_command_in_the_environment_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NUM_PROC": "7", "HOSTS": "nowhere:7", "DRY_RUN": "1", "NO_SUCH": "1"}.items():
        monkeypatch.setenv(f"FARANDOLE_RUN_{name}", value)
    assert farandole.run(lambda: 1, np=2) == [1, 1]


# ---- The end ---------------------------------------------------------------------------------------------------------

SLEEPS = """
import farandole, os, time
def train(path):
    farandole.init()
    print("rank", os.getpid(), flush=True)
    farandole.barrier()
    time.sleep(60)
try: farandole.run(train, (1,), np=2)
except KeyboardInterrupt: print("interrupted", flush=True)
"""


def ranks_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    assert process.stdout is not None
    found = [psutil.Process(int(process.stdout.readline().split()[-1])) for _ in range(2)]
    time.sleep(0.2)
    return found + psutil.Process(process.pid).children(recursive=True)


def test_an_interruption_ends_the_job_and_is_raised(user: Callable, tmp_path: Path) -> None:
    process = user(SLEEPS)
    family = ranks_of(process)
    process.send_signal(signal.SIGINT)
    out, _ = finish(process)
    assert out.endswith("interrupted\n")
    assert psutil.wait_procs(family, timeout=10)[1] == [] and list((tmp_path / "tmp").iterdir()) == []


def test_nothing_lives_on_when_the_caller_is_killed(user: Callable, tmp_path: Path) -> None:
    process = user(SLEEPS)
    family = ranks_of(process)
    process.kill()
    assert psutil.wait_procs(family, timeout=10)[1] == [] and list((tmp_path / "tmp").iterdir()) == []


def test_jobs_leave_no_process_no_file_and_no_descriptor(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def descriptors() -> set[tuple[str, str]]:
        found = set()
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # the listing's own
                found.add((number, os.readlink(f"/proc/self/fd/{number}")))
        return found

    def children() -> list[psutil.Process]:
        return psutil.Process().children(recursive=True)

    before, children_before = descriptors(), children()
    for number in range(3):
        assert farandole.run(lambda: number, np=2) == [number, number]  # noqa: B023
    assert not descriptors() - before  # those of earlier tests may be collected meanwhile
    assert (children(), os.listdir(tmp_path)) == (children_before, [])


def test_the_call_lies_in_memory_that_this_user_alone_can_read() -> None:
    def train() -> tuple[int, bool]:
        words = psutil.Process().cmdline()
        path = words[-2]
        return os.stat(path).st_mode & 0o777, os.readlink(path).startswith("/memfd:")

    assert farandole.run(train) == [(0o400, True)]
