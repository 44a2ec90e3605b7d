"""Warnings of the Python layer go through logging, and to stderr where the program has set up nothing."""

import logging
import os
import subprocess
import sys

import pytest
from farandole._start import environment, key_exchange, log
from farandole._start.environment import without_launchers


@pytest.fixture(autouse=True)
def restored():
    level = log.logger.level
    yield
    log.logger.setLevel(level)


def forget(monkeypatch):
    """Make logging that of a program that has set up nothing; pytest does so after all fixtures."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    log.logger.setLevel(logging.NOTSET)


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def test_without_a_handler_a_warning_has_the_form_of_the_cores_lines(capsys, monkeypatch):
    forget(monkeypatch)
    log.logger.warning("rank 1 is late")
    log.logger.error("it is lost")
    assert capsys.readouterr().err == "farandole warning: rank 1 is late\nfarandole error: it is lost\n"


@pytest.mark.parametrize("where", ["", "farandole"])
def test_a_handler_of_the_program_gets_it_instead(capsys, monkeypatch, where):
    forget(monkeypatch)
    kept, of = Kept(), logging.getLogger(where)
    monkeypatch.setattr(of, "handlers", [*of.handlers, kept])
    log.logger.warning("rank 1 is late")
    assert kept.lines == ["rank 1 is late"] and capsys.readouterr().err == ""


@pytest.mark.parametrize(("text", "shown"), [("", 1), ("warning", 1), ("ERROR", 0), ("debug", 2), ("nonsense", 1)])
def test_the_level_is_that_of_the_setting(capsys, monkeypatch, text, shown):
    forget(monkeypatch)
    monkeypatch.setenv("FARANDOLE_LOG_LEVEL", text)
    log.configure()
    log.logger.warning("a")
    log.logger.info("b")
    assert len(capsys.readouterr().err.splitlines()) == shown
    assert environment.shows_details() == (text == "debug")


def test_a_level_that_the_program_has_chosen_stays(monkeypatch):
    forget(monkeypatch)
    monkeypatch.setenv("FARANDOLE_LOG_LEVEL", "debug")
    log.logger.setLevel(logging.ERROR)
    log.configure()
    assert log.logger.level == logging.ERROR


def test_a_rank_that_waits_in_init_says_so_once(capsys, monkeypatch):
    forget(monkeypatch)
    monkeypatch.setattr(key_exchange, "_WARN_AFTER_S", -1.0)
    reminder = key_exchange.Reminder()
    for _ in range(2):
        reminder.look(float("inf"), lambda: "rank 0 waits in init() for rank 1")
    assert capsys.readouterr().err == "farandole warning: rank 0 waits in init() for rank 1\n"


def test_a_program_that_logs_gets_the_warnings_of_init():
    program = "import logging; logging.basicConfig(); import farandole; farandole.init(); farandole.shutdown()"
    environ = {**without_launchers(), "JOB_COMPLETION_INDEX": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr.count("WARNING:farandole:JOB_COMPLETION_INDEX=0 is set")) == (0, 1), (
        done.stderr
    )
    assert "farandole warning" not in done.stderr
