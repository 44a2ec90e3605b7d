"""`farandole run --timeline-filename` and `farandole timeline`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from farandole._start.timeline_files import path_of
from farandole.observe import timeline

SCRIPT = """
import farandole.numpy as hvd, numpy as np
hvd.init()
for _ in range(3):
    hvd.allreduce(np.ones(100000), name="grad")
"""


@pytest.mark.parametrize(("options", "marked"), [([], False), (["--timeline-mark-cycles"], True)])
def test_recorded_by_all_ranks_and_merged(
    run: Callable, script: Callable, tmp_path: Path, options: list[str], marked: bool
) -> None:
    result = run("-np", 2, "--timeline-filename", "trace.json", *options, script(SCRIPT))
    assert (result.code, result.err) == (0, "")
    assert {each["pid"] for each in json.loads((tmp_path / "trace.json").read_text())} == {0}, "rank 0's so far"
    merged = run("trace.json", verb="timeline")
    assert merged.code == 0, merged.err
    assert "of 2 ranks. Open it in https://ui.perfetto.dev" in merged.out
    events = json.loads((tmp_path / "trace.json").read_text())
    assert {each["pid"] for each in events if each["name"] == "grad"} == {0, 1}
    assert len([each for each in events if (each["name"], each["ph"]) == ("grad", "b")]) == 6
    assert any(each["name"] == "BATCH" for each in events) is marked


def test_a_folder_that_is_not_there(run: Callable) -> None:
    result = run("-np", 2, "--timeline-filename", "nowhere/trace.json", "true")
    assert result.code == 2
    assert "there is no folder" in result.err and "nowhere" in result.err


def test_a_folder_instead_of_a_file(run: Callable, tmp_path: Path) -> None:
    result = run("-np", 2, "--timeline-filename", tmp_path, "true")
    assert result.code == 2
    assert "is a folder; name a file in it" in result.err


def test_a_failed_merge_leaves_what_was_there(run: Callable, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "all.json").write_text("precious")
    assert run("other.json", "-o", "all.json", verb="timeline").code == 1
    assert (tmp_path / "all.json").read_text() == "precious"
    assert sorted(each.name for each in tmp_path.glob("*.json")) == ["all.json", "other.json"]
    assert not list(tmp_path.glob(".*.unfinished"))


def test_nothing_to_merge(run: Callable, tmp_path: Path) -> None:
    result = run("trace.json", verb="timeline")
    assert result.code == 1
    assert "there is neither trace.json nor trace.rank0.json beside it" in result.err
    (tmp_path / "other.json").write_text("{}")
    assert "is no timeline of Farandole" in run("other.json", verb="timeline").err


def test_what_was_cut_off_is_lost_alone(tmp_path: Path) -> None:
    (tmp_path / "t.rank0.json").write_text('[\n{"ph":"b","pid":0},\n{"ph":"e","pi')
    (tmp_path / "t.rank1.json").write_text('[\n{"ph":"b","pid":1}\n]\n')
    files = timeline.find([tmp_path / "t.json"])
    assert [each.name for each in files] == ["t.rank0.json", "t.rank1.json"]
    assert timeline.merge(tmp_path / "all.json", files) == 2
    assert json.loads((tmp_path / "all.json").read_text()) == [{"ph": "b", "pid": 0}, {"ph": "b", "pid": 1}]


def test_files_of_an_earlier_run_with_more_ranks_are_left_out(run: Callable, script: Callable, tmp_path: Path) -> None:
    for ranks in (3, 2):
        assert run("-np", ranks, "--timeline-filename", "trace.json", script(SCRIPT)).code == 0
    merged = run("trace.json", verb="timeline")
    assert (merged.code, "of 2 ranks" in merged.out) == (0, True)
    assert "left out, because they are from another run than trace.rank" in merged.err
    assert merged.err.strip().endswith(": trace.rank2.json")
    assert {each["pid"] for each in json.loads((tmp_path / "trace.json").read_text())} == {0, 1}


def test_a_job_of_one_rank_after_one_of_more_is_not_taken_for_what_was_merged(tmp_path: Path) -> None:
    def written(name: str, run: str) -> Path:
        title = {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": f"rank 0 (h, pid 1){run}"}}
        (tmp_path / name).write_text(f"[\n{json.dumps(title)}\n]\n")
        return tmp_path / name

    ranks = [written(f"t.rank{rank}.json", " of run ab12") for rank in range(2)]
    whole = written("t.json", " of run ab12")
    assert timeline.find([whole]) == ranks, "merged, or a link to that of rank 0"
    assert timeline.of_one_run(timeline.find([written("t.json", "")]))[0] == [whole]


def test_files_are_in_the_order_of_their_ranks(tmp_path: Path) -> None:
    for rank in (10, 9, 0):
        (tmp_path / f"t.rank{rank}.json").write_text("[\n]\n")
    (tmp_path / "t.json").write_text("[\n]\n")  # merged before
    files = timeline.find([tmp_path / "t.json"])
    assert [each.name for each in files] == ["t.rank0.json", "t.rank9.json", "t.rank10.json"]
    assert timeline.default_output(files).name == "t.json"
    assert timeline.find([tmp_path / "t.rank9.json"]) == [tmp_path / "t.rank9.json"]


@pytest.mark.parametrize("name", ["trace", "trace[1].json", "a.rank.json", "trace.json.gz", "run.rank1.of.x"])
def test_whatever_the_files_name(tmp_path: Path, name: str) -> None:
    files = [Path(path_of(str(tmp_path / name), rank, 2)) for rank in range(2)]
    for each in [*files, tmp_path / "trace.rank0.other", tmp_path / "other.rank0"]:
        each.write_text("[\n]\n")
    assert timeline.find([tmp_path / name]) == files
    assert timeline.find(files) == files
    assert timeline.default_output(files) == tmp_path / name


def test_a_url_is_refused(run: Callable, script: Callable) -> None:
    result = run("-np", 2, "--timeline-filename", "s3://bucket/t.json", script(SCRIPT))
    assert result.code == 2
    assert "is written to a file, not to a URL such as 's3://bucket/t.json'" in result.err
