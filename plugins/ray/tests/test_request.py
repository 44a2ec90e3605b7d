"""The request to Ray, and who is which rank: without Ray."""

from __future__ import annotations

import pytest
from farandole import ArgumentError
from farandole_ray._request import Request, make, places, refusal, variables, waiting


def test_bundles_are_packed_one_for_each_worker() -> None:
    request = make(3, None, 1, 2, use_gpu=True, gpus=None)
    assert (request.bundles, request.strategy) == ([{"CPU": 2, "GPU": 1}] * 3, "PACK")
    assert request.words == "3 workers of 2 CPU and 1 GPU each"


def test_hosts_have_one_bundle_each_on_different_nodes() -> None:
    request = make(None, 2, 4, 1, use_gpu=True, gpus=0.5)
    assert (request.workers, request.bundles, request.strategy) == (8, [{"CPU": 4, "GPU": 2}] * 2, "STRICT_SPREAD")
    assert request.words == "8 workers of 1 CPU and 0.5 GPU each on 2 nodes"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((None, None, 1, 1, False, None), "num_workers=N, or num_hosts=N"),
        ((2, 2, 1, 1, False, None), "one of both"),
        ((0, None, 1, 1, False, None), "num_workers=0"),
        ((True, None, 1, 1, False, None), "num_workers=True"),
        ((2.5, None, 1, 1, False, None), "num_workers=2.5"),
        ((None, 2, 0, 1, False, None), "num_workers_per_host=0"),
        ((2, None, 1, -1, False, None), "CPUs and GPUs of at least 0"),
        ((2, None, 1, 1, False, 2), "use_gpu=True"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments: tuple[object, ...], words: str) -> None:
    with pytest.raises(ArgumentError, match="RayExecutor") as caught:
        make(*arguments)  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_a_node_has_as_many_places_as_its_scarcest_resource() -> None:
    request = make(8, None, 1, 2, use_gpu=True, gpus=None)
    assert places({"CPU": 9, "GPU": 2}, request) == 2
    assert places({"CPU": 9}, request) == 0
    assert places({"CPU": 0.3, "GPU": 3}, Request(9, {"CPU": 0.1})) == 3  # 0.3 / 0.1 is a little less
    assert places({}, Request(9, {"CPU": 0})) == 9


def test_more_than_the_cluster_has_is_said_in_one_sentence() -> None:
    nodes = [{"CPU": 4.0}, {"CPU": 3.0}]
    assert refusal(nodes, make(7, None, 1, 1, False, None), 7) == ""
    told = refusal(nodes, make(9, None, 1, 1, False, None), 9)
    assert told.startswith(
        "RayExecutor: 9 workers of 1 CPU each do not fit into the cluster: its 2 nodes have places for 7;"
    )
    assert refusal(nodes, make(9, None, 1, 1, False, None), 7) == ""  # an elastic job that begins with 7
    assert "have places for 4;" in refusal(nodes, make(None, 2, 4, 1, False, None), 8)  # one node is too small
    assert waiting({"CPU": 2.5}, make(9, None, 1, 1, False, None)) == "waiting for 9 places, 2 free"


def test_ranks_count_node_by_node() -> None:
    found = [variables(rank, ["b", "a", "b", "b"]) for rank in range(4)]
    numbers = [
        tuple(
            int(each[f"FARANDOLE_{name}"]) for name in ("RANK", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
        )
        for each in found
    ]
    assert numbers == [(0, 0, 3, 0, 2), (1, 0, 1, 1, 2), (2, 1, 3, 0, 1), (3, 2, 3, 0, 1)]
    assert {each["FARANDOLE_SIZE"] for each in found} == {"4"}


def test_the_module_itself_needs_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    import farandole_ray

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"farandole_ray\.RayExecutor needs Ray: python -m pip install 'ray'"):
        _ = farandole_ray.RayExecutor
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        farandole_ray.nothing  # noqa: B018
