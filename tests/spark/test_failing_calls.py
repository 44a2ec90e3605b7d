"""Calls in a classic session of Spark that fail: tests/support/failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import farandole_spark
import pytest
from failures.case import Case
from failures.clusters import Cluster
from failures.judge import complaints

pytestmark = pytest.mark.timeout(600)


def call(work: Callable[[], object], ranks: int, variables: Mapping[str, str]) -> object:
    return farandole_spark.run(work, num_proc=ranks, env=variables)


CLUSTER = Cluster(2, call, lambda _node: "executor")  # as a loopback address is called


@pytest.mark.parametrize("case", CLUSTER.cases(), ids=lambda case: case.name)
def test_the_culprit_is_named_and_nothing_is_left(
    case: Case, warm: Any, tmp_path: Path, nothing_left: Callable[[], bool]
) -> None:
    told = CLUSTER.run(case, tmp_path / "job")
    wrong = [*complaints(case, told), *([] if nothing_left() else ["left behind: an agent"])]
    assert not wrong, "\n".join([*wrong, told.message, told.out[-2000:], told.err[-2000:]])
