"""Timelines at a URL of fsspec, fetched to be read."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from farandole.launch.timeline import TimelineError, belongs_to


def is_url(given: str) -> bool:
    """Returns whether fsspec has to read it."""
    return "://" in given


@contextlib.contextmanager
def local(given: Sequence[str]) -> Iterator[list[Path]]:
    """The files that were given; those of URLs are in a folder of their own until the end. Raises TimelineError."""
    with contextlib.ExitStack() as folders:
        found = []
        for each in given:
            if is_url(each):
                folder = folders.enter_context(tempfile.TemporaryDirectory(prefix="farandole-"))
                found.append(_fetch(each, Path(folder)))
            else:
                found.append(Path(each))
        yield found


def _fetch(url: str, folder: Path) -> Path:
    """All that a job has put to this URL. Returns the name that the URL has in the folder."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise TimelineError(f"{url} needs fsspec: {sys.executable} -m pip install fsspec") from error
    try:
        system, path = url_to_fs(url)
        above, _, name = str(path).rpartition("/")
        for each in system.ls(above, detail=False):
            of_it = str(each).rpartition("/")[2]
            if of_it == name or belongs_to(Path(of_it), Path(name)):
                system.get_file(each, str(folder / of_it))
    except Exception as error:  # each file system has errors of its own
        raise TimelineError(f"{url} cannot be read: {type(error).__name__}: {' '.join(str(error).split())}") from error
    return folder / name
