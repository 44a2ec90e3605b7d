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
from collections.abc import Callable, Mapping
from typing import Any

import farandole

__all__ = ["DBFSLocalStore", "FilesystemStore", "HDFSStore", "LocalStore", "S3Store", "Store"]
PARTIAL = ".partial"  # the end of the name of a file that is being written
_ADDRESS = ("host", "port")
_PROTOCOL = re.compile(r"([a-z0-9]+)://")


class Store:
    """A folder for training data and runs. `Store.create` chooses the class by the path.

    Args:
        prefix_path: path or URL of the folder, which the driver and all executors must reach.
        train_path: different folder for training data.
        val_path: different folder for validation data.
        test_path: different folder for test data.
        runs_path: different folder for runs.
        save_runs: whether to keep checkpoints and logs, without which a run cannot be resumed.
        storage_options: arguments for the fsspec file system, such as credentials.
        checkpoint_filename: name of a checkpoint in its run's folder.
        kwargs: more of `storage_options`.

    Example:
        >>> from farandole_spark.ml.store import Store
        >>> Store.create("/data").get_checkpoint_path("run")
        '/data/runs/run/checkpoint'
    """

    _begin = ""  # of a path or a URL for this class, as a regular expression

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
        """Create the store for a path or a URL.

        Args:
            prefix_path: path or URL, such as `"/data"`, `"hdfs://host:8020/data"`, `"s3://bucket/data"`,
                `"dbfs:/data"`, or any other URL that fsspec supports.
            args: see the class.
            kwargs: see the class.
        """
        path = os.fspath(prefix_path)
        kinds: tuple[type[Store], ...] = (HDFSStore, DBFSLocalStore, S3Store, LocalStore, FilesystemStore)
        kind = next(each for each in kinds if each.matches(path))
        return kind(path, *args, **kwargs)

    @classmethod
    def matches(cls, path: str) -> bool:
        """Return whether a path or a URL is for this class."""
        return re.match(cls._begin, path) is not None

    @property
    def fs(self) -> Any:
        """The fsspec file system. Raises FarandoleError if its package is missing."""
        if self._fs is None:
            self._fs = self._connect()
        return self._fs

    def _connect(self) -> Any:
        try:
            import fsspec

            return fsspec.filesystem(fsspec.utils.get_protocol(self.prefix_path), **self.storage_options)
        except ImportError as error:
            raise farandole.FarandoleError(
                f"the store {self.prefix_path} needs a package that is missing ({error}): "
                "python -m pip install 'farandole-spark[estimators]', and the package that the message names"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fs": None}  # each process opens its own connections

    def without_options(self) -> Store:
        """Return a copy without possible secrets: only the `storage_options` that belong to the address are kept."""
        copied = copy.copy(self)
        copied.storage_options = {name: each for name, each in self.storage_options.items() if name in _ADDRESS}
        return copied

    def get_full_path(self, path: str) -> str:
        """Return the path for Spark: absolute, or a URL."""
        return path if _PROTOCOL.match(path) else os.path.abspath(path)

    def get_localized_path(self, path: str) -> str:
        """Return the path for this file system."""
        return _PROTOCOL.sub("", path)

    def get_train_data_path(self, idx: int | str | None = None) -> str:
        """Return the folder of training data number `idx`."""
        return self._train_path if idx is None else f"{self._train_path}.{idx}"

    def get_val_data_path(self, idx: int | str | None = None) -> str:
        """Return the folder of validation data number `idx`."""
        return self._val_path if idx is None else f"{self._val_path}.{idx}"

    def get_test_data_path(self, idx: int | str | None = None) -> str:
        """Return the folder of test data number `idx`."""
        return self._test_path if idx is None else f"{self._test_path}.{idx}"

    def saving_runs(self) -> bool:
        """Return whether checkpoints and logs are kept."""
        return self._save_runs

    def get_runs_path(self) -> str:
        """Return the folder of all runs."""
        return self._runs_path

    def get_run_path(self, run_id: str) -> str:
        """Return the folder of a run."""
        return f"{self._runs_path}/{run_id}"

    def get_checkpoint_path(self, run_id: str) -> str:
        """Return the path of a run's checkpoint."""
        return f"{self.get_run_path(run_id)}/{self.get_checkpoint_filename()}"

    def get_checkpoints(self, run_id: str, suffix: str = ".ckpt") -> list[str]:
        """Return the files of a run whose names end with `suffix`, sorted."""
        return self._files(self.get_run_path(run_id), suffix)

    def get_checkpoint_filename(self) -> str:
        """Return the name of a checkpoint in its run's folder."""
        return self.checkpoint_filename

    def get_logs_path(self, run_id: str) -> str:
        """Return the folder of a run's logs."""
        return f"{self.get_run_path(run_id)}/{self.get_logs_subdir()}"

    def get_logs_subdir(self) -> str:
        """Return the name of the folder for logs in a run's folder."""
        return "logs"

    def exists(self, path: str) -> bool:
        """Return whether there is a file or a folder at `path`."""
        return bool(self.fs.exists(self.get_localized_path(path)))

    def read(self, path: str) -> bytes:
        """Return the contents of a file."""
        with self.fs.open(self.get_localized_path(path), "rb") as file:
            return bytes(file.read())

    def write_bytes(self, path: str, contents: bytes) -> None:
        """Write a file, and create its folder. The file is either complete or not there.

        Raises:
            OSError: the store is full, or cannot be written to. An existing file stays.
        """
        target = self.get_localized_path(path)
        partial = f"{target}{PARTIAL}"
        self.fs.makedirs(os.path.dirname(target), exist_ok=True)
        try:
            with self.fs.open(partial, "wb") as file:
                file.write(contents)
                if LocalStore.matches(self.prefix_path):
                    file.flush()
                    os.fsync(file.fileno())  # otherwise, a crash of the host could leave an empty file
            self.fs.mv(partial, target)
        except BaseException:
            with contextlib.suppress(OSError):
                self.fs.rm(partial)
            raise

    def write_text(self, path: str, text: str) -> None:
        """Write a text file in UTF-8, like `write_bytes`."""
        self.write_bytes(path, text.encode())

    def delete(self, path: str) -> None:
        """Remove a file or a folder, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm(self.get_localized_path(path), recursive=True)

    def is_parquet_dataset(self, path: str) -> bool:
        """Return whether a folder contains Parquet files."""
        return self.exists(path) and bool(self._files(path, ".parquet"))

    def get_parquet_dataset(self, path: str) -> Any:
        """Return the Parquet files of a folder as a dataset of pyarrow."""
        import pyarrow.dataset

        return pyarrow.dataset.dataset(self._files(path, ".parquet"), format="parquet", filesystem=self.fs)

    def _files(self, path: str, suffix: str) -> list[str]:
        return sorted(each for each in self.fs.find(self.get_localized_path(path)) if each.endswith(suffix))

    def get_local_output_dir_fn(self, run_id: str) -> Callable[[], contextlib.AbstractContextManager[str]]:
        """A function that makes a local folder, which is gone after its block, for what callbacks write."""
        return lambda: tempfile.TemporaryDirectory(prefix="farandole-run-")

    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        """A function that copies the contents of a local folder into that of a run."""
        target = self.get_localized_path(self.get_run_path(run_id))
        return lambda folder: self.fs.put(f"{folder}/", f"{target}/", recursive=True)

    def _below(self, path: str | None, name: str) -> str:
        return self.get_full_path(path) if path else f"{self.prefix_path.rstrip('/')}/{name}"


class FilesystemStore(Store):
    """A store on any file system that fsspec supports, given by its URL."""


class LocalStore(FilesystemStore):
    """A store in a folder that has the same path on the driver and all executors."""

    _begin = rf"file://|(?!{_PROTOCOL.pattern})"


class S3Store(FilesystemStore):
    """A store in a bucket of S3 or a compatible service. It needs the package s3fs."""

    _begin = "s3[an]?://"


class HDFSStore(Store):
    """A store in HDFS, through pyarrow and Hadoop's libhdfs.

    The path is `hdfs://host:port/path`, or a path of the default file system. `user`, `kerb_ticket` (path of Kerberos'
    ticket cache) and `extra_conf` (settings of Hadoop) are passed to pyarrow. For the other arguments see `Store`.
    """

    _begin = "hdfs://"

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

    def get_full_path(self, path: str) -> str:
        """Return the path as a URL."""
        return path if path.startswith("hdfs://") else f"hdfs://{path}"

    def get_localized_path(self, path: str) -> str:
        """Return the path without the name node."""
        return re.sub("^hdfs://[^/]*", "", path)


class DBFSLocalStore(LocalStore):
    """A store in Databricks' file system, which all nodes see below /dbfs."""

    _begin = "(dbfs:/|(file:(//)?)?/dbfs(/|$))"

    def get_full_path(self, path: str) -> str:
        """Return the path below /dbfs. Raises ArgumentError for a path that is not one of DBFS."""
        if not self.matches(path):
            raise farandole.ArgumentError(f"{path!r} is no path of DBFS; begin it with dbfs:/ or /dbfs/.")
        below = re.sub(r"^(dbfs:/+|(file:(//)?)?/dbfs/?)", "", path)
        return f"/dbfs/{below}".rstrip("/")
