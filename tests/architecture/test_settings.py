"""The page of settings and `farandole doctor` know each variable that the code reads; the page has its default."""

import re

from farandole.observe.doctor.settings import KNOWN
from tree import ROOT, sources

PAGE = "docs/guide/settings.md"
_NOT_FOR_USERS = {
    "what a launcher tells its ranks": {
        *("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "STORE", "STATUS_FILE"),
        *("MEMBERSHIP", "JOINS", "NODE", "RAY_SOCKET", "DRIVER_LOG", "COMMIT_TARGET"),
    },
    "tests": {"FAILPOINTS", "TEST_LAUNCHER"},
}
_OF_A_BACKEND = {"NCCL_LIB", "NCCL_NETWORK", "MPI_LIB", "GLOO_LIB"}  # the core makes the names
_ENCODED = {"ARENAS", "ORDER", "LOG_LEVEL"}  # which the core keeps as switches and numbers
_PREFIXES = {"RUN": "RUN_NUM_PROC", "RUN_": "RUN_NUM_PROC"}


def rows() -> dict[str, str]:
    """Variable -> default, as the tables have them."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    return dict(re.findall(r"^\| `FARANDOLE_(\w+)`.*\| ([^|]*) \|$", text, re.MULTILINE))


def read_variables() -> set[str]:
    files = sources(ROOT, "core/src/*", "core/python/*", "plugins/*/src/*")
    return {name for each in files for name in re.findall(r'"FARANDOLE_([A-Z_]+)"', each.text)}


def test_doctor_knows_the_variables_that_the_code_reads() -> None:
    assert {*KNOWN} == read_variables() - {*_PREFIXES} | _OF_A_BACKEND


def test_the_page_has_the_variables_that_the_code_reads() -> None:
    read = read_variables()
    others = {name for names in _NOT_FOR_USERS.values() for name in names}
    assert others - read == set(), "no longer read"
    assert {_PREFIXES.get(name, name) for name in read - others} | _OF_A_BACKEND == {*rows()}


def test_the_page_has_the_defaults_of_the_core() -> None:
    header = re.sub(r"\s+", " ", (ROOT / "core/src/common/config.h").read_text())
    found = re.findall(r" = ([^;=]+); // FARANDOLE_(\w+)( \(seconds)?", header)
    assert len(found) >= 10
    for text, name, seconds in found:
        number = re.fullmatch(r"([\d']+)(?: << (\d+))?", text)
        value = int(number[1].replace("'", "")) << int(number[2] or 0) if number else text.strip('"')
        if name not in _ENCODED:
            assert str(value // 1000 if seconds else value) in rows()[name], name
