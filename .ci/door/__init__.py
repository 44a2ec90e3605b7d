"""What noxfile.py, the only door for every developer action, is made of. Nobody else imports it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MADE = ROOT / ".nox"
