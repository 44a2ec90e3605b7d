"""`import farandole` is quick and brings no framework, no compiled module and none of the launcher's packages."""

import subprocess
import sys

import pytest

HEAVY = ("numpy", "torch", "click", "psutil", "cloudpickle", "farandole._core", "rich", "yaml")


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("module", ["farandole", "farandole.plugin"])
def test_import_brings_nothing_heavy(module):
    loaded = run(f"import {module}, sys; print([name for name in {HEAVY!r} if name in sys.modules])")
    assert loaded.strip() == "[]"


def test_import_reads_no_variable_of_ours():
    """Ranks of tests are forks of a process that has imported it with another environment."""
    code = """
import os
read = []
class Watched(dict):
    def __getitem__(self, name): read.append(name); return super().__getitem__(name)
    def __contains__(self, name): read.append(name); return super().__contains__(name)
os.environ._data = Watched(os.environ._data)
os.environ.get("WATCHED"), "WATCHED" in os.environ
import farandole
print(sorted({os.fsdecode(name) for name in read if name.startswith((b"FARANDOLE", b"WATCHED"))}))
"""
    assert run(code).strip() == "['WATCHED']"


def test_a_name_that_only_modules_for_frameworks_have_gets_an_error_that_names_them():
    import farandole

    with pytest.raises(AttributeError, match=r"no attribute 'allreduce'.* farandole_torch.* farandole\.numpy"):
        farandole.allreduce  # noqa: B018
    assert not hasattr(farandole, "alreduce")


def test_the_compiled_module_comes_with_the_first_use():
    code = "import farandole, sys; farandole.init(); print('farandole._core' in sys.modules, farandole.size())"
    assert run(code).split() == ["True", "1"]


def test_a_second_copy_of_the_core_is_refused_with_both_paths(tmp_path):
    code = f"""
import importlib.util, shutil, sys
from farandole import _core
copy = shutil.copy(_core.__file__, {str(tmp_path)!r})
spec = importlib.util.spec_from_file_location("other._core", copy)
try:
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
except ImportError as error:
    print(_core.__file__ in str(error), copy in str(error), "twice" in str(error))
import farandole
farandole.init()
print(farandole.size())
"""
    assert run(code).split() == ["True", "True", "True", "1"]
