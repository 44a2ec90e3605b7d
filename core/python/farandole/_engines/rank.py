"""The program of a rank in a task of an engine: that of `farandole.run`, with the import path of the executor."""

from __future__ import annotations

from farandole._functions.rank import main

if __name__ == "__main__":
    main(has_path=True)
