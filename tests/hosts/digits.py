"""The digits examples on several hosts, by each launcher, and on one host: the same parameters."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import launchers
import numpy as np
from lab import Lab

ROOT = Path(__file__).resolve().parents[2]
LONG = bool(os.environ.get("FARANDOLE_LONG"))


def train_alike(lab: Lab, launch: Callable, tmp_path: Path, framework: str, example: str) -> None:
    """Two ranks on each of two hosts (and of four, in the long form), and the same number on one host."""
    for count in (2, 4) if LONG else (2,):
        hosts = lab.hosts(count)
        places = {"many": ",".join(f"{host.name}:2" for host in hosts), "one": f"h0:{2 * count}"}
        found = {}
        for name, spec in places.items():
            output = tmp_path / f"{name}{count}.npz"
            script, example_path = ROOT / "tests" / "hosts" / "training.py", ROOT / "examples" / framework / example
            job = launch(hosts, "-H", spec, "python", script, framework, example_path, output, "--epochs", 2)
            code, out, err = job.finish(200)
            assert code == 0, err
            assert f"equal on all {2 * count} ranks of {len(hosts) if name == 'many' else 1} hosts" in out
            found[name] = np.load(output)
        for part in found["many"].files:
            assert np.allclose(found["many"][part], found["one"][part], rtol=1e-6, atol=1e-7), part


def train_by(launcher: str, lab: Lab, tmp_path: Path, framework: str, example: str) -> None:
    """Two ranks on each of two hosts, started by a launcher, end with equal parameters."""
    output = tmp_path / "trained.npz"
    script, example_path = ROOT / "tests" / "hosts" / "training.py", ROOT / "examples" / framework / example
    ended = launchers.run(launcher, lab, tmp_path, [script, framework, example_path, output, "--epochs", "2"])
    assert [each.code for each in ended] == [0] * len(ended), ended
    assert sum(each.out.count("equal on all 4 ranks of 2 hosts") for each in ended) == 1, ended
