"""The cases as parameters of a test, and their jobs, several of them at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lab_namespaces import CannotMake

from failures import ways
from failures.case import Case
from failures.judge import complaints

LONG = bool(os.environ.get("FARANDOLE_LONG"))
Check = Callable[[Case, str], None]


def rows(cases: Sequence[Case], on_hosts: bool) -> list[Any]:
    """A parameter for each way of each case, those over hosts or the others; in the default run the quick ones."""
    chosen = [(case, way) for case in cases for way in (case.all_ways if LONG else case.quick.split())]
    return [pytest.param(case, way, id=f"{case.name}-{way}") for case, way in chosen if ("hosts" in way) == on_hosts]


@pytest.fixture(scope="module")
def check(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Check]:
    """Judges a case of this module. The jobs of all that pytest has selected are on their way by then."""
    folder = tmp_path_factory.mktemp("failures")
    items: list[Any] = [item for item in request.session.items if item.path == request.path]
    chosen = [item.callspec.params for item in items if hasattr(item, "callspec")]
    selected = [(each["case"], each["way"]) for each in chosen]
    with ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:
        jobs = {
            (case.name, way): pool.submit(ways.run, case, way, Path(folder, str(number)))
            for number, (case, way) in enumerate(selected)
        }

        def judge(case: Case, way: str) -> None:
            try:
                told = jobs[case.name, way].result()
            except CannotMake as why:
                pytest.skip(str(why))
            if wrong := list(complaints(case, told)):
                pytest.fail("\n".join([*wrong, "stdout:", told.out[-2000:], "stderr:", told.err[-2000:], told.message]))

        yield judge
        pool.shutdown(cancel_futures=True)
