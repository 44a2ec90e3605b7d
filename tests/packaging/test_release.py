"""The rules of wheels and sdists for the package index, without building any."""

from __future__ import annotations

import re
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import farandole
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / ".ci"))
if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from dev import pins, portable  # noqa: E402

FOLDERS = ["core", "core/gloo", "plugins/horovod", "plugins/horovod/distribution", "plugins/mxnet"]
FOLDERS += ["plugins/ray", "plugins/spark", "plugins/tensorflow", "plugins/torch"]
each_folder = pytest.mark.parametrize("folder", FOLDERS)
MINOR = ".".join(farandole.__version__.split(".")[:2])


def project(folder: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]


@each_folder
def test_all_distributions_have_one_version(folder: str) -> None:
    about = project(folder)
    assert about["name"] == "horovod" or about["version"] == farandole.__version__
    required = [*about.get("dependencies", []), *chain(*about.get("optional-dependencies", {}).values())]
    ours = [each for each in required if re.match(r"farandole\b", each) and "[" not in each]
    assert all(each.endswith(f"=={MINOR}.*") for each in ours), ours


@each_folder
def test_every_distribution_says_the_same_of_itself(folder: str) -> None:
    about, core = project(folder), project("core")
    assert [about[each] for each in ("authors", "urls")] == [core["authors"], core["urls"]]
    assert about["keywords"] and about["readme"] == "README.md"
    assert (ROOT / folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@each_folder
def test_the_pythons_are_those_that_are_tested(folder: str) -> None:
    about = project(folder)
    tested = [each for each in pins.PYTHONS if folder != "plugins/mxnet" or int(each[2:]) <= pins.MXNET_PYTHON]
    named = [each.rpartition(" ")[2] for each in about["classifiers"] if "Python :: 3." in each]
    assert named == tested
    bound = f",<3.{pins.MXNET_PYTHON + 1}" if folder == "plugins/mxnet" else ""
    assert about["requires-python"] == f">={tested[0]}{bound}"


@each_folder
def test_an_sdist_is_complete_in_itself(folder: str) -> None:
    settings = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["tool"]
    borrowed = settings.get("scikit-build", {}).get("sdist", {}).pop("force-include", {})
    assert "../" not in str(settings)
    assert not [path for path in (ROOT / folder).rglob("*") if path.is_symlink()]
    if (ROOT / folder / "CMakeLists.txt").exists() and folder != "core":
        assert all((ROOT / folder / path).exists() for path in borrowed)
        assert [place for place in borrowed.values() if place.startswith("include")]


@each_folder
def test_the_links_of_a_readme_lead_from_the_index_to_files_that_are_here(folder: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / folder / "README.md").read_text())
    assert all(link.startswith(("https://", "#")) for link in links), links
    ours = [link.partition("/main/")[2].partition("#")[0] for link in links if "/farandole/farandole/" in link]
    assert all((ROOT / path).exists() for path in ours), ours


LISTING = """
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND exit@GLIBC_2.2.5 (2)
    12: 0000000000027380   300 FUNC    GLOBAL DEFAULT   15 dlopen@GLIBC_2.2.5
    13: 0000000000027380   300 FUNC    GLOBAL DEFAULT   15 dlopen@@GLIBC_2.34
    14: 0000000000027380   300 FUNC    WEAK   DEFAULT   15 pthread_once@GLIBC_2.2.5
    15: 0000000000027380   300 FUNC    WEAK   DEFAULT   15 pthread_once@@GLIBC_2.34
    16: 0000000000027380   300 IFUNC   GLOBAL DEFAULT   15 memcpy@@GLIBC_2.14
    17: 0000000000027380   300 FUNC    GLOBAL DEFAULT   15 memcpy@GLIBC_2.2.5
    18: 0000000000027380   300 FUNC    GLOBAL DEFAULT   15 fstat@@GLIBC_2.33
    19: 0000000000027380     8 OBJECT  GLOBAL DEFAULT   15 stdout@@GLIBC_2.2.5
    20: 0000000000027380    80 FUNC    GLOBAL DEFAULT   15 __nss_lookup@@GLIBC_PRIVATE
"""


def test_of_each_symbol_the_newest_version_that_is_old_enough_is_bound() -> None:
    found = {symbol.name: symbol for symbol in portable.old_symbols(LISTING)}
    versions = {name: symbol.version for name, symbol in found.items()}
    assert versions == {
        "dlopen": "GLIBC_2.2.5",
        "pthread_once": "GLIBC_2.2.5",
        "memcpy": "GLIBC_2.14",
        "stdout": "GLIBC_2.2.5",
    }
    libraries = [portable.library_of(found[name], "libc.so.6") for name in ("dlopen", "pthread_once", "memcpy")]
    assert libraries == ["libdl.so.2", "libpthread.so.0", "libc.so.6"]
    assert found["stdout"].is_data and not found["memcpy"].is_data
