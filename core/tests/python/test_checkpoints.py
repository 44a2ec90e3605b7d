"""Checkpoints that one rank writes and reads for all."""

import errno
import os
import resource
from pathlib import Path

import farandole.numpy as hvd
import pytest
from farandole.testing import RanksFailed, spawn, world

pytestmark = pytest.mark.timeout(60)
OLD, NEW = "old" * 1000, "new" * 100_000


class OfNoUse(Exception):
    """Cannot be unpickled."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def raised(call, *arguments):
    """The error of a call that every rank makes, and whether another rank's stands behind it; the job goes on."""
    with pytest.raises(Exception) as caught:
        call(*arguments)
    hvd.barrier()
    return caught.type, str(caught.value), str(caught.value.__cause__)


def test_the_old_file_stays_until_the_new_one_is_complete(tmp_path):
    file = tmp_path / "model"
    file.write_text(OLD)

    def save(path):
        with open(path, "w") as stream:
            stream.write(NEW[:5])
            stream.flush()
            assert file.read_text() == OLD and Path(path).name == "model"
            stream.write(NEW[5:])

    def saved():
        hvd.save_checkpoint(file, save)
        return file.read_text() == NEW

    assert world(2).run(saved) == [True, True]
    assert os.listdir(tmp_path) == ["model"]


def test_a_job_that_dies_in_the_middle_leaves_the_old_file(tmp_path):
    file = tmp_path / "model"
    file.write_text(OLD)

    def dies():
        def save(path):
            Path(path).write_text(NEW[:5])
            os._exit(9)

        hvd.init()
        hvd.save_checkpoint(file, save)

    with pytest.raises(RanksFailed):
        spawn(1, dies, timeout=30)
    assert file.read_text() == OLD


def test_the_root_alone_writes_and_the_others_arguments_do_not_count(tmp_path):
    def saved():
        path = tmp_path / "sub" / ("mine" if hvd.rank() == 1 else "other")
        hvd.save_checkpoint(path, lambda path: Path(path).write_text(str(hvd.rank())), root_rank=1)
        return (tmp_path / "sub" / "mine").read_text()

    assert world(2).run(saved) == ["1", "1"]
    assert os.listdir(tmp_path / "sub") == ["mine"]


def test_a_folder_is_moved_as_a_whole_to_a_new_place_only(tmp_path):
    def save(path):
        (Path(path) / "inner").mkdir(parents=True)
        (Path(path) / "inner" / "file").write_text("x")

    def saved():
        hvd.save_checkpoint(tmp_path / "epoch1", save)
        return (tmp_path / "epoch1" / "inner" / "file").read_text()

    assert world(2).run(saved) == ["x", "x"]
    again = world(2).run(raised, hvd.save_checkpoint, tmp_path / "epoch1", save)
    assert [kind for kind, *_ in again] == [OSError, OSError] and "not empty" in again[0][1]
    assert os.listdir(tmp_path) == ["epoch1"]


def test_a_disk_that_takes_no_more_is_an_error_on_every_rank(tmp_path):
    def save(path):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            Path(path).write_text(NEW)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    first, second = world(2).run(raised, hvd.save_checkpoint, tmp_path / "model", save)
    assert first == (OSError, f"[Errno {errno.EFBIG}] File too large", "None")
    assert second[:2] == first[:2] and second[2] == "rank 0 raised this in save_checkpoint; no rank continued"
    assert os.listdir(tmp_path) == []


def test_an_error_that_does_not_travel_is_quoted_to_the_others(tmp_path):
    def save(path):
        raise OfNoUse("no", "use")

    first, second = world(2).run(raised, hvd.save_checkpoint, tmp_path / "model", save)
    assert first[:2] == (OfNoUse, "no use") and second[:2] == (hvd.FarandoleError, "OfNoUse: no use")


@pytest.mark.parametrize(
    ("save", "words"),
    [
        (lambda path: None, "should have written model, but wrote nothing"),
        (lambda path: Path(f"{path}.npy").write_text("x"), "should have written model, but wrote model.npy"),
        ({"state": 1}, "takes a function that writes to a path"),
    ],
    ids=["nothing", "another", "state"],
)
def test_a_function_that_does_not_write_the_file_is_refused_on_every_rank(tmp_path, save, words):
    results = world(2).run(raised, hvd.save_checkpoint, tmp_path / "model", save)
    assert all(words in text for _, text, _ in results)
    assert os.listdir(tmp_path) == []


def test_what_the_root_loads_reaches_ranks_that_have_no_file(tmp_path):
    (tmp_path / "of-rank-1").write_text("weights")

    def loaded():
        path = tmp_path / f"of-rank-{hvd.rank()}"
        return hvd.load_checkpoint(path, lambda path: Path(path).read_text(), root_rank=1)

    assert world(2).run(loaded) == ["weights", "weights"]


def test_a_missing_file_is_the_same_error_everywhere(tmp_path):
    results = world(2).run(raised, hvd.load_checkpoint, tmp_path / "model", lambda path: Path(path).read_text())
    assert [kind for kind, *_ in results] == [FileNotFoundError] * 2


def test_a_result_that_cannot_be_sent_is_an_error_everywhere(tmp_path):
    results = world(2).run(raised, hvd.load_checkpoint, tmp_path, lambda path: (each for each in path))
    assert all("generator" in text for _, text, _ in results)
