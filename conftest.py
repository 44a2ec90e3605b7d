"""For every run of pytest: the helpers beside the tests, the count of skips, and what the tests' processes inherit."""

import os
import signal
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
SUPPORT = ROOT / "tests" / "support"
TESTS = [ROOT / "core" / "tests" / "python", *ROOT.glob("plugins/*/tests"), *(ROOT / "tests").rglob("test_*.py")]

# `importmode=importlib`, which lets files of several folders have one name, puts no folder into sys.path.
sys.path[:0] = [str(SUPPORT), *dict.fromkeys(str(each if each.is_dir() else each.parent) for each in TESTS)]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SUPPORT), os.environ.get("PYTHONPATH")]))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that spin while they wait take the cores of other ranks
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles what it imports, for up to a minute
sys.dont_write_bytecode = False
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell has started us in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
pytest_plugins = ["skips", "leftovers"]


def pytest_collectstart(collector: pytest.Collector) -> None:
    """What a file imports from beside it comes from there, even if another folder has a file of that name."""
    if isinstance(collector, pytest.Module):
        sys.path.insert(0, str(collector.path.parent))
