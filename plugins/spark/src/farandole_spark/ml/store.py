"""Stores for training data and runs, on any file system that fsspec supports.

store = Store.create("/data/experiments")              # a path that the driver and all executors reach
store = Store.create("s3://bucket/experiments", storage_options={"anon": False})

PREFIX/intermediate_train_data.ID    rows for training, while `fit` runs; the same for `val`
PREFIX/runs/RUN/checkpoint           the newest state of a run, from which another `fit` with its run_id resumes
PREFIX/runs/RUN/logs                 what callbacks such as TensorBoard's write
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import farandole

__all__ = ["DBFSLocalStore", "FilesystemStore", "HDFSStore", "LocalStore", "S3Store", "Store"]
PARTIAL = ".partial"  # the end of the name of a file that is being written
_ADDRESS = ("host", "port")
_PROTOCOL = re.compile(r"([a-z0-9]+)://")


class Store:
    """A folder of a file system for training data and runs. `Store.create` chooses the class by the path.

    Args:
        prefix_path: the folder, a path or a URL; the driver and all executors must reach it.
        train_path: another folder for training data.
        val_path: another folder for validation data.
        test_path: another folder for test data.
        runs_path: another folder for runs.
        save_runs: keep checkpoints and logs; without them a run cannot be resumed.
        storage_options: arguments of the file system of fsspec, such as credentials.
        checkpoint_filename: the name of a checkpoint in its run's folder.
        kwargs: more of `storage_options`.

    Example:
        >>> from farandole_spark.ml.store import Store
        >>> Store.create("/data").get_checkpoint_path("run")
        '/data/runs/run/checkpoint'
    """

    protocol = "file"

    def __init__(
        self,
        prefix_path: str | os.PathLike[str],
        train_path: str | None = None,
        val_path: str | None = None,
        test_path: str | None = None,
        runs_path: str | None = None,
        save_runs: bool = True,
        storage_options: Mapping[str, Any] | None = None,
        checkpoint_filename: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.storage_options = {**(storage_options or {}), **kwargs}
        self.prefix_path = self.get_full_path(os.fspath(prefix_path))
        self.checkpoint_filename = checkpoint_filename or "checkpoint"
        self._train_path = self._below(train_path, "intermediate_train_data")
        self._val_path = self._below(val_path, "intermediate_val_data")
        self._test_path = self._below(test_path, "intermediate_test_data")
        self._runs_path = self._below(runs_path, "runs")
        self._save_runs = save_runs
        self._fs: Any = None

    @staticmethod
    def create(prefix_path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Store:
        """The store for a path or a URL.

        Args:
            prefix_path: `"/data"`, `"hdfs://host:8020/data"`, `"s3://bucket/data"`, `"dbfs:/data"`, and what else
                fsspec knows.
            args: see the class.
            kwargs: see the class.
        """
        path = os.fspath(prefix_path)
        kinds: tuple[type[Store], ...] = (HDFSStore, DBFSLocalStore, S3Store, LocalStore, FilesystemStore)
        kind = next(each for each in kinds if each.matches(path))
        return kind(path, *args, **kwargs)

    @classmethod
    def matches(cls, path: str) -> bool:
        """Returns whether a path is for this class."""
        return True

    @property
    def fs(self) -> Any:
        """The file system of fsspec. Raises FarandoleError where its package is missing."""
        if self._fs is None:
            self._fs = self._connect()
        return self._fs

    def _connect(self) -> Any:
        try:
            import fsspec

            return fsspec.filesystem(self.protocol_of(self.prefix_path), **self.storage_options)
        except ImportError as error:
            raise farandole.FarandoleError(
                f"the store {self.prefix_path} needs a package that is missing ({error}): "
                "python -m pip install 'farandole-spark[estimators]', and the package that the message names"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fs": None}  # each process has connections of its own

    def without_options(self) -> Store:
        """A copy without what may be secret: the `storage_options`, but those that are the address."""
        copied = copy.copy(self)
        copied.storage_options = {name: each for name, each in self.storage_options.items() if name in _ADDRESS}
        return copied

    def protocol_of(self, path: str) -> str:
        """`"s3"` of `"s3://bucket"`."""
        found = _PROTOCOL.match(path)
        return found[1] if found else self.protocol

    def get_full_path(self, path: str) -> str:
        """The path as Spark takes it: absolute, or a URL."""
        return path if _PROTOCOL.match(path) else os.path.abspath(path)

    def get_localized_path(self, path: str) -> str:
        """The path as this file system takes it."""
        return _PROTOCOL.sub("", path)

    def get_train_data_path(self, idx: int | str | None = None) -> str:
        """The folder of training data number `idx`."""
        return self._train_path if idx is None else f"{self._train_path}.{idx}"

    def get_val_data_path(self, idx: int | str | None = None) -> str:
        """The folder of validation data number `idx`."""
        return self._val_path if idx is None else f"{self._val_path}.{idx}"

    def get_test_data_path(self, idx: int | str | None = None) -> str:
        """The folder of test data number `idx`."""
        return self._test_path if idx is None else f"{self._test_path}.{idx}"

    def saving_runs(self) -> bool:
        """Returns whether checkpoints and logs are kept."""
        return self._save_runs

    def get_runs_path(self) -> str:
        """The folder of all runs."""
        return self._runs_path

    def get_run_path(self, run_id: str) -> str:
        """The folder of a run."""
        return f"{self._runs_path}/{run_id}"

    def get_checkpoint_path(self, run_id: str) -> str:
        """The checkpoint of a run."""
        return f"{self.get_run_path(run_id)}/{self.get_checkpoint_filename()}"

    def get_checkpoints(self, run_id: str, suffix: str = ".ckpt") -> list[str]:
        """The files of a run whose names end so, in order."""
        found = self.fs.find(self.get_localized_path(self.get_run_path(run_id)))
        return sorted(name for name in found if name.endswith(suffix))

    def get_checkpoint_filename(self) -> str:
        """The name of a checkpoint in its run's folder."""
        return self.checkpoint_filename

    def get_logs_path(self, run_id: str) -> str:
        """The folder of a run's logs."""
        return f"{self.get_run_path(run_id)}/{self.get_logs_subdir()}"

    def get_logs_subdir(self) -> str:
        """The name of the logs' folder in that of the run."""
        return "logs"

    def exists(self, path: str) -> bool:
        """Returns whether there is a file or a folder."""
        return bool(self.fs.exists(self.get_localized_path(path)))

    def read(self, path: str) -> bytes:
        """The contents of a file."""
        with self.fs.open(self.get_localized_path(path), "rb") as file:
            return bytes(file.read())

    def write_bytes(self, path: str, contents: bytes) -> None:
        """Write a file, whose folder is made; it is whole, or not there.

        Raises:
            OSError: the store is full, or cannot be written to; a former file stays.
        """
        target = self.get_localized_path(path)
        partial = f"{target}{PARTIAL}"
        self.fs.makedirs(os.path.dirname(target), exist_ok=True)
        try:
            with self.fs.open(partial, "wb") as file:
                file.write(contents)
                if self.protocol_of(self.prefix_path) == "file":
                    file.flush()
                    os.fsync(file.fileno())  # else a crash of the host could leave the new name with an empty file
            self.fs.mv(partial, target)
        except BaseException:
            with contextlib.suppress(OSError):
                self.fs.rm(partial)
            raise

    def write_text(self, path: str, text: str) -> None:
        """The same with a text, as UTF-8."""
        self.write_bytes(path, text.encode())

    def delete(self, path: str) -> None:
        """Remove a file or a folder; nothing, if it is not there."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm(self.get_localized_path(path), recursive=True)

    def is_parquet_dataset(self, path: str) -> bool:
        """Returns whether a folder has Parquet files."""
        return self.exists(path) and any(each.endswith(".parquet") for each in self._files(path))

    def get_parquet_dataset(self, path: str) -> Any:
        """The Parquet files of a folder, as a dataset of pyarrow."""
        import pyarrow.dataset

        files = sorted(each for each in self._files(path) if each.endswith(".parquet"))
        return pyarrow.dataset.dataset(files, format="parquet", filesystem=self.fs)

    def _files(self, path: str) -> list[str]:
        return list(self.fs.find(self.get_localized_path(path)))

    def get_local_output_dir_fn(self, run_id: str) -> Callable[[], contextlib.AbstractContextManager[str]]:
        """A function that makes a local folder, which is gone after its block, for what callbacks write."""

        @contextlib.contextmanager
        def local_folder() -> Iterator[str]:
            with tempfile.TemporaryDirectory(prefix="farandole-run-") as folder:
                yield folder

        return local_folder

    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        """A function that copies the contents of a local folder into that of a run."""

        def sync(folder: str) -> None:
            for parent, _, names in os.walk(folder):
                for name in names:
                    file = os.path.join(parent, name)
                    below = os.path.relpath(file, folder)
                    target = self.get_localized_path(f"{self.get_run_path(run_id)}/{below}")
                    self.fs.makedirs(os.path.dirname(target), exist_ok=True)
                    self.fs.put_file(file, target)

        return sync

    def _below(self, path: str | None, name: str) -> str:
        return self.get_full_path(path) if path else f"{self.prefix_path.rstrip('/')}/{name}"


class FilesystemStore(Store):
    """A store on any file system of fsspec, by its URL."""


class LocalStore(FilesystemStore):
    """A store in a folder that the driver and all executors see under the same path."""

    @classmethod
    def matches(cls, path: str) -> bool:
        """Returns whether a path is local."""
        return not _PROTOCOL.match(path) or path.startswith("file://")


class S3Store(FilesystemStore):
    """A store in a bucket of S3 or what speaks its protocol; needs the package s3fs."""

    protocol = "s3"

    @classmethod
    def matches(cls, path: str) -> bool:
        """Returns whether a URL is of S3."""
        return re.match(r"s3[an]?://", path) is not None


class HDFSStore(Store):
    """A store in HDFS, by pyarrow and Hadoop's libhdfs.

    The path is `hdfs://host:port/path`, or one of the default file system. `user`, `kerb_ticket` (the path of Kerberos'
    cache of tickets) and `extra_conf` (settings of Hadoop) are pyarrow's; for the others see `Store`.
    """

    protocol = "hdfs"

    def __init__(
        self,
        prefix_path: str,
        host: str | None = None,
        port: int | None = None,
        user: str | None = None,
        kerb_ticket: str | None = None,
        driver: str = "libhdfs",
        extra_conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        if driver != "libhdfs":
            raise farandole.ArgumentError(f"HDFSStore has the driver 'libhdfs' alone, not {driver!r}; leave it out.")
        found = re.match(r"hdfs://([^/:]*)(?::(\d+))?", prefix_path)
        named = {
            "host": host or (found[1] if found and found[1] else "default"),
            "port": port or (int(found[2]) if found and found[2] else 0),
            "user": user,
            "kerb_ticket": kerb_ticket,
            "extra_conf": dict(extra_conf) if extra_conf else None,
        }
        super().__init__(prefix_path, storage_options={n: v for n, v in named.items() if v is not None}, **kwargs)

    @classmethod
    def matches(cls, path: str) -> bool:
        """Returns whether a URL is of HDFS."""
        return path.startswith("hdfs://")

    def get_full_path(self, path: str) -> str:
        """The path as a URL."""
        return path if path.startswith("hdfs://") else f"hdfs://{path}"

    def get_localized_path(self, path: str) -> str:
        """The path without the name node."""
        return re.sub("^hdfs://[^/]*", "", path)


class DBFSLocalStore(LocalStore):
    """A store in Databricks' file system, which all nodes see below /dbfs."""

    @classmethod
    def matches(cls, path: str) -> bool:
        """Returns whether a path is of DBFS: `dbfs:/...`, `/dbfs/...`, or `file:/dbfs/...`."""
        return re.match(r"(dbfs:/|(file:(//)?)?/dbfs(/|$))", path) is not None

    def get_full_path(self, path: str) -> str:
        """The path below /dbfs. Raises ArgumentError for one that is not of DBFS."""
        if not self.matches(path):
            raise farandole.ArgumentError(f"{path!r} is no path of DBFS; begin it with dbfs:/ or /dbfs/.")
        below = re.sub(r"^(dbfs:/+|(file:(//)?)?/dbfs/?)", "", path)
        return f"/dbfs/{below}".rstrip("/")
