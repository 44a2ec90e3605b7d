"""The program of a rank in a task of a cluster: that of `farandole.run`, with the import path of the executor."""

from __future__ import annotations

from farandole._cluster import commit_writer
from farandole._elastic import copies
from farandole._functions.rank import main
from farandole._start import task_environment

_FLUSH_SECONDS = 10.0  # for the last commit, of a rank that ends since another one is lost

if __name__ == "__main__":
    file = task_environment.commits_file()
    writer = commit_writer.of_file(file) if file else None
    if writer is not None:
        copies.install(writer)
    try:
        main(has_path=True)
    finally:
        if writer is not None:
            writer.flush(_FLUSH_SECONDS)
