"""Stores: their paths, and files that are whole or not there."""

import contextlib
import errno
import pickle
from pathlib import Path

import farandole
import pytest
from farandole_spark.ml import _checkpoints
from farandole_spark.ml._checkpoints import Checkpoint, Identity
from farandole_spark.ml.store import (
    DBFSLocalStore,
    FilesystemStore,
    HDFSStore,
    LocalStore,
    S3Store,
    Store,
)

fsspec = pytest.importorskip("fsspec")
IDENTITY = Identity({"x": (3.0, 1e-9)}, {"loss": "mse", "shapes": [(2, 1)]})


@pytest.mark.parametrize(
    ("path", "kind", "prefix"),
    [
        ("/data/x", LocalStore, "/data/x"),
        ("file:///data/x", LocalStore, "file:///data/x"),
        ("s3://bucket/x", S3Store, "s3://bucket/x"),
        ("s3a://bucket/x", S3Store, "s3a://bucket/x"),
        ("hdfs://node:8020/x", HDFSStore, "hdfs://node:8020/x"),
        ("dbfs:/x/y", DBFSLocalStore, "/dbfs/x/y"),
        ("/dbfs/x/y", DBFSLocalStore, "/dbfs/x/y"),
        ("file:///dbfs/x", DBFSLocalStore, "/dbfs/x"),
        ("memory://x", FilesystemStore, "memory://x"),
    ],
)
def test_the_path_chooses_the_class(path, kind, prefix):
    store = Store.create(path)
    assert type(store) is kind and store.prefix_path == prefix
    assert store.get_checkpoint_path("r") == f"{prefix}/runs/r/checkpoint"
    assert store.get_train_data_path() == f"{prefix}/intermediate_train_data"
    assert store.get_val_data_path(3) == f"{prefix}/intermediate_val_data.3"
    assert store.get_logs_path("r") == f"{prefix}/runs/r/logs"


def test_hosts_of_hdfs_come_from_the_path_or_the_arguments():
    assert HDFSStore("hdfs://node:8020/x").storage_options == {"host": "node", "port": 8020}
    assert HDFSStore("/x", host="n", port=9, user="u").storage_options == {"host": "n", "port": 9, "user": "u"}
    assert HDFSStore("/x").prefix_path == "hdfs:///x"


def test_folders_can_be_named_apart(tmp_path):
    store = Store.create(tmp_path, train_path="/other/train", runs_path="/other/runs", checkpoint_filename="state")
    assert store.get_train_data_path() == "/other/train"
    assert store.get_checkpoint_path("r") == "/other/runs/r/state"


@pytest.mark.parametrize("prefix", ["{tmp}", "file://{tmp}", "memory://{tmp}"])
def test_files_are_written_and_read(prefix, tmp_path):
    store = pickle.loads(pickle.dumps(Store.create(prefix.format(tmp=tmp_path))))
    path = store.get_checkpoint_path("r")
    assert not store.exists(path)
    store.write_text(path, "one")
    store.write_bytes(path, b"two")
    assert store.read(path) == b"two" and store.get_checkpoints("r", "point") != []
    assert [name.rpartition("/")[2] for name in store.fs.find(store.get_localized_path(store.prefix_path))] == [
        "checkpoint"
    ]
    store.delete(store.get_run_path("r"))
    store.delete(store.get_run_path("r"))
    assert not store.exists(path)


def test_a_folder_of_logs_is_copied(tmp_path):
    store = Store.create(tmp_path / "store")
    with store.get_local_output_dir_fn("r")() as folder:
        (tmp_path / folder / "logs").mkdir()
        (tmp_path / folder / "logs" / "events").write_text("1")
        store.sync_fn("r")(folder)
        (tmp_path / folder / "logs" / "events").write_text("2")
        store.sync_fn("r")(folder)
    found = [path.relative_to(tmp_path / "store") for path in tmp_path.rglob("*") if path.is_file()]
    assert found == [Path("runs/r/logs/events")] and (tmp_path / "store" / found[0]).read_text() == "2"


def test_a_full_store_is_told_and_keeps_the_former_checkpoint(tmp_path, monkeypatch):
    store = Store.create(tmp_path)
    _checkpoints.write(store, "r", IDENTITY, Checkpoint(1, [], b"before"))

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store.fs, "mv", fail)
    with pytest.raises(farandole.FarandoleError, match=r"runs/r/checkpoint was not written: the store is full"):
        _checkpoints.write(store, "r", IDENTITY, Checkpoint(2, [], b"after"))
    assert [each.name for each in (tmp_path / "runs" / "r").iterdir()] == ["checkpoint"]
    assert _checkpoints.read(store, "r") == Checkpoint(1, [], b"before")


def test_contents_are_on_the_disk_before_a_file_has_its_name(tmp_path, monkeypatch):
    store, steps = Store.create(tmp_path), []
    monkeypatch.setattr("os.fsync", lambda _: steps.append("sync"))
    monkeypatch.setattr(store.fs, "mv", lambda *_: steps.append("move"))
    store.write_bytes(str(tmp_path / "file"), b"1")
    assert steps == ["sync", "move"]


@pytest.mark.parametrize(
    ("identity", "epochs", "message"),
    [
        (IDENTITY, 2, ""),
        (Identity({"x": (3.0 + 1e-10, 1e-9)}, IDENTITY.parameters), 9, ""),
        (IDENTITY, 1, "for 2 epochs, which is more than epochs=1"),
        (Identity({"x": (3.1, 1e-9)}, IDENTITY.parameters), 2, "with other data"),
        (Identity({"y": (3.0, 1e-9)}, IDENTITY.parameters), 2, "with other data"),
        (Identity(IDENTITY.data, {"loss": "mae", "shapes": [(2, 1)]}), 2, "with another value of loss"),
    ],
)
def test_only_the_same_run_is_resumed(identity, epochs, message, tmp_path):
    store = Store.create(tmp_path)
    _checkpoints.check(store, "r", identity, epochs)
    _checkpoints.write(store, "r", IDENTITY, Checkpoint(2, [{"loss": 0.1}], b"line\nline"))
    with pytest.raises(farandole.ArgumentError, match=message) if message else contextlib.nullcontext():
        _checkpoints.check(store, "r", identity, epochs)
    assert _checkpoints.read(store, "r") == Checkpoint(2, [{"loss": 0.1}], b"line\nline")


def test_other_files_are_no_checkpoints(tmp_path):
    store = Store.create(tmp_path)
    store.write_bytes(store.get_checkpoint_path("r"), b"something")
    with pytest.raises(farandole.FarandoleError, match="runs/r/checkpoint is no checkpoint of this version"):
        _checkpoints.check(store, "r", IDENTITY, 1)


def test_what_may_be_secret_is_not_saved():
    store = Store.create("s3://bucket/x", storage_options={"secret": "s", "anon": False}, train_path="/t")
    kept = store.without_options()
    assert kept.storage_options == {} and store.storage_options["secret"] == "s"
    assert (type(kept), kept.prefix_path, kept.get_train_data_path()) == (S3Store, "s3://bucket/x", "/t")
    assert HDFSStore("/x", host="n", port=9, user="u").without_options().storage_options == {"host": "n", "port": 9}


def test_what_an_interrupted_write_left_is_removed(tmp_path):
    store = Store.create(tmp_path)
    (tmp_path / "runs" / "r").mkdir(parents=True)
    (tmp_path / "runs" / "r" / "checkpoint.partial").write_text("half")
    _checkpoints.clean(store, "r")
    assert [*(tmp_path / "runs").iterdir()] == []


def test_a_store_without_runs_has_no_checkpoint(tmp_path):
    store = Store.create(tmp_path, save_runs=False)
    store.write_bytes(store.get_checkpoint_path("r"), b"1")
    assert _checkpoints.read(store, "r") is None


def test_a_missing_package_is_told():
    with pytest.raises(farandole.FarandoleError, match=r"the store gcs2?://x|needs a package that is missing"):
        Store.create("gs://x").fs  # noqa: B018
    with pytest.raises(farandole.ArgumentError, match="is no path of DBFS"):
        DBFSLocalStore("/data")
