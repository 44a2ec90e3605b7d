"""Rank processes that begin with modules imported: forks, which behave as processes started by themselves do."""

import os
import signal
import sys
import time

import pytest
from farandole import testing
from farandole.testing import RanksFailed, World, _starting, spawn
from farandole.testing._ranks import launcher_environment

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch):
    """Leaves alone what conftest.py preloads, and the worlds that were started."""
    monkeypatch.setattr(_starting, "_modules", [])
    monkeypatch.setattr(_starting, "_templates", {})
    yield
    _starting.end_templates()


@pytest.fixture
def preloaded(tmp_path, monkeypatch):
    """A module that says, in a file, which process imported it."""
    (tmp_path / "heavy.py").write_text(
        f"import os\nopen({str(tmp_path / 'importers')!r}, 'a').write(f'{{os.getpid()}} ')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    testing.preload("heavy")
    return lambda: (tmp_path / "importers").read_text().split()


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return write


def parent_and_sum():
    import farandole.numpy as fnp
    import heavy
    import numpy as np

    return os.getppid(), fnp.allreduce(np.ones(3), op=fnp.Sum).tolist(), heavy.__name__


def test_ranks_are_forks_of_one_process_that_has_imported_the_modules(preloaded):
    for ranks in (2, 3):
        with World(ranks) as world:
            answers = world.run(parent_and_sum)
        (importer,) = preloaded()
        assert answers == [(int(importer), [float(ranks)] * 3, "heavy")] * ranks


def threads_wanted():
    return os.environ["OMP_NUM_THREADS"]


def test_variables_that_libraries_read_at_import_have_a_process_of_their_own(preloaded):
    for threads in ("1", "1", "2"):
        with World(1, env={"OMP_NUM_THREADS": threads}) as world:
            assert world.run(threads_wanted) == [threads]
    assert len(preloaded()) == 2


def test_a_script_ends_as_a_python_of_its_own_does(preloaded, script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = script(
        "import atexit, os, sys\nimport heavy\natexit.register(print, 'at exit')\n"
        "print(__name__, sys.argv[1:], sys.path[0] == os.path.dirname(__file__), os.environ['MORE'], end=' ')\n"
        "print(os.getcwd() == os.path.dirname(__file__))\n"
        "def use(): return heavy.os.sep\natexit.register(lambda: print(use()))\nsys.exit(int(sys.argv[1]))\n"
    )
    for code, output in spawn(2, path, 7, timeout=60, env=lambda rank: {"MORE": str(rank)}, check=False):
        assert code == 7
        first, *rest = output.splitlines()
        assert first in ("__main__ ['7'] True 0 True", "__main__ ['7'] True 1 True")
        assert rest == [os.sep, "at exit"]
    assert len(preloaded()) == 1


def test_what_ends_a_script_is_told(preloaded, script):
    killed = script("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert [ended.code for ended in spawn(2, killed, timeout=60, check=False)] == [-signal.SIGKILL] * 2
    code, output = spawn(
        1, script("def fail():\n    raise LookupError('for this')\nfail()\n"), timeout=60, check=False
    )[0]
    assert code == 1
    assert 'script.py", line 2, in fail' in output and output.endswith("LookupError: for this\n")


def test_who_does_not_end_in_time_is_killed(preloaded, script):
    began = time.monotonic()
    with pytest.raises(RanksFailed, match=r"rank 0 did not end within 1 s(.|\n)*here"):
        spawn(1, script("import time\nprint('here', flush=True)\ntime.sleep(60)\n"), timeout=1)
    assert time.monotonic() - began < 30


def test_a_module_that_cannot_be_imported_is_said():
    testing.preload("nothing_of_this_name")
    with pytest.raises(RuntimeError, match="the process that imports nothing_of_this_name has ended"):
        World(1).run(os.getpid)


def test_a_command_that_is_not_python_is_not_forked(preloaded, tmp_path):
    with (tmp_path / "output").open("w+b") as output:
        process = _starting.start(["/bin/echo", "hello"], dict(os.environ), output)
        assert process.wait(30) == 0
        assert (tmp_path / "output").read_text() == "hello\n"
    with (tmp_path / "output").open("w+b") as output:
        env = launcher_environment(1)
        process = _starting.start([sys.executable, "-c", "import heavy; print('forked')"], env, output)
        assert process.wait(30) == 0
        assert (tmp_path / "output").read_text() == "forked\n"
