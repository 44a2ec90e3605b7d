"""The program of a rank in a task of an engine: that of `farandole.run`, with the import path of the executor."""

from __future__ import annotations

from farandole._elastic import copies
from farandole._engines import keeper
from farandole._functions.rank import main
from farandole._start import engine_environment

_FLUSH_SECONDS = 10.0  # for the last commit, of a rank that ends since another one is lost

if __name__ == "__main__":
    file = engine_environment.commits_file()
    kept = keeper.of_file(file) if file else None
    if kept is not None:
        copies.install(kept)
    try:
        main(has_path=True)
    finally:
        if kept is not None:
            kept.flush(_FLUSH_SECONDS)
