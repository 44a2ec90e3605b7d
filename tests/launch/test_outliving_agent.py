"""An agent that outlives its launcher, made in this process and without ranks."""

from __future__ import annotations

import os
import time
from typing import Any
from uuid import uuid4

import pytest
from farandole._start.rank_records import RankRecords, make_memory
from farandole.launch.relay import OutputOptions
from farandole.launch.remote.outliving_agent import OutlivingAgent


class _Sight:
    def message(self, now_ns: int) -> dict[str, Any]:
        return {}


class _HostWatch:
    """Has something to tell in each turn."""

    def look(self, now: float) -> _Sight:
        return _Sight()


def test_an_agent_that_learns_of_its_launchers_death_by_a_broken_pipe_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OutlivingAgent, "_catch_signals", lambda self: None)
    monkeypatch.setattr(OutlivingAgent, "_watch_of_host", _HostWatch())
    (commands, _), (reader, answers), (lifeline, _) = os.pipe(), os.pipe(), os.pipe()
    records = RankRecords(make_memory(1), 1)
    agent = OutlivingAgent(
        OutputOptions(), grace_s=5.0, lifeline=lifeline, records=records, commands=commands, answers=answers
    )
    agent._obey({"kind": "outlive", "seconds": 60, "job": "j", "file": "", "socket": uuid4().hex, "key": "00" * 32})
    os.close(reader)
    agent.act(time.monotonic())
    assert agent._tenure is not None and agent._tenure.is_alone and agent.ending.began_at is None
    assert agent._callers is not None
    agent._callers.close()
