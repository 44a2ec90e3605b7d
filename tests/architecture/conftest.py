"""Lets a test lay out a small tree of its own and judge that: a rule that cannot fail proves nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tree import ROOT, Plant, Source, sources

sys.path.insert(0, str(ROOT / ".ci" / "site"))  # for test_site.py


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """Write the files (path -> text) below tmp_path and read them back as the rules see them."""

    def write(files: dict[str, str]) -> list[Source]:
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return sources(tmp_path, *files)

    return write
