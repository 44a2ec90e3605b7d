"""The program of a rank in a task of a cluster: that of `farandole.run`, with the import path of the executor."""

from __future__ import annotations

from farandole._cluster import commit_client
from farandole._elastic import copies
from farandole._functions.rank import main
from farandole._start import task_environment

if __name__ == "__main__":
    if file := task_environment.commit_target():
        copies.install(commit_client.writer_of(file))
    main(has_path=True)
