"""The launcher answers settings of Horovod in one sentence."""

from __future__ import annotations

from collections.abc import Callable


def test_settings_are_translated_once(run: Callable) -> None:
    env = {"HOROVOD_FUSION_THRESHOLD": "1", "HOROVOD_TIMELINE": "/tmp/t.json", "HOROVOD_RANK": "0"}
    env |= {"HOROVOD_LOG_LEVEL": "trace", "FARANDOLE_LOG_LEVEL": "debug"}  # ours is there: nothing to say
    result = run("-np", 2, "true", env=env)
    assert result.code == 0
    assert result.err.splitlines() == [
        "farandole: only programs that import horovod read Horovod's settings; here they are in brackets: "
        "HOROVOD_FUSION_THRESHOLD (FARANDOLE_FUSION_THRESHOLD, in bytes); "
        "HOROVOD_TIMELINE (farandole run --timeline-filename FILE)."
    ]


def test_the_number_of_ranks_may_follow_at_once(run: Callable) -> None:
    assert run("-np3", "sh", "-c", "echo $FARANDOLE_SIZE").out.split("\n")[0].endswith("3")
    assert "must be a positive whole number, not 'p'" in run("-np", "p", "true").err
