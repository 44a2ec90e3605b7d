"""The parts of noxfile.py, the entry point for every developer action."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MADE = ROOT / ".nox"
