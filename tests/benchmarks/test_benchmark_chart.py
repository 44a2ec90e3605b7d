"""The chart of the README is drawn from the figures beside it."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

from chart import FIGURES, draw, spread


def test_the_chart_shows_the_published_figures() -> None:
    assert (FIGURES / "chart.svg").read_text() == draw(), "run: python3 core/benchmarks/chart.py"


def test_a_longer_time_makes_a_longer_bar_and_another_line(tmp_path: Path) -> None:
    for name in ("allreduce.json", "torch.json"):
        shutil.copy(FIGURES / name, tmp_path)
    step = json.loads((tmp_path / "torch.json").read_text())
    step["ways"]["DDP, farandole"]["min_ms"] = step["ways"]["compute only"]["min_ms"] + 35
    (tmp_path / "torch.json").write_text(json.dumps(step))
    chart = draw(tmp_path)
    ET.fromstring(chart)
    assert "+35.0 ms" in chart and "+35.0 ms" not in draw()


def test_no_label_covers_another() -> None:
    assert spread({"a": 80, "b": 10, "c": 12}, 15) == {"b": 2.5, "c": 17.5, "a": 72.5}
