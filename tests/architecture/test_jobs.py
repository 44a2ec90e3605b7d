"""The default run's jobs: what needs what, what is left out after a failure, and which failure is told."""

import json
import subprocess
from pathlib import Path

import pytest
from tree import ROOT

PYTHON = ROOT / ".nox" / "bootstrap" / "bin" / "python"  # which has nox
PROGRAM = """
import json, pathlib, sys, threading, time
sys.path.insert(0, sys.argv[1])
import nox
from dev import jobs
from dev.jobs import Job

jobs.MADE = pathlib.Path(sys.argv[2])
jobs.MEASURED, jobs.SHIPPED = jobs.MADE / "measured.json", jobs.MADE / "shipped.json"
jobs.SHIPPED.write_text(json.dumps({"long": 50, "last": 1}))
done, lock = [], threading.Lock()

def does(name, fails=False):
    def action():
        if jobs.log():
            print(f"inside {name}", file=jobs.log(), flush=True)
        with lock:
            done.append(name)
        if fails:
            raise nox.command.CommandFailed("said why")
    return action

class Session:
    def error(self, text):
        print(json.dumps({"done": done, "error": text, "measured": json.loads(jobs.MEASURED.read_text())}))
        raise SystemExit(3)

"""


@pytest.fixture
def run(tmp_path: Path):
    def start(text: str) -> tuple[int, str]:
        assert PYTHON.exists(), "start these tests with noxfile.py, which makes .nox/bootstrap"
        command = [str(PYTHON), "-c", PROGRAM + text, str(ROOT / ".ci"), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    return start


def test_what_needs_a_failed_job_is_left_out_and_the_others_run(run) -> None:
    code, output = run(
        'jobs.run_jobs(Session(), {"made": Job(does("made")), "bad": Job(does("bad", True), ("made",)),'
        ' "user": Job(does("user"), ("bad",)), "other": Job(does("other"), ("made", "not in this run"))}, most=3)'
    )
    assert code == 3, output
    told = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    assert sorted(told["done"]) == ["bad", "made", "other"] and told["done"][0] == "made"
    assert told["error"] == "failed: bad, user"
    assert {"made", "other"} <= {*told["measured"]} and "bad" not in told["measured"]
    assert "bad FAILED: said why\ninside bad\n" in output
    assert "user FAILED: not run: needs bad" in output


def test_those_on_which_most_time_depends_come_first_and_one_at_a_time_prints_here(run) -> None:
    code, output = run(
        'jobs.run_jobs(Session(), {"last": Job(does("last")), "first": Job(does("first")), "long": Job(does("long"),'
        ' ("first",))}, most=1); print(done, jobs.log())'
    )
    assert code == 0, output
    assert "['first', 'long', 'last'] None" in output
    assert "==> long (usually 50 s)" in output and "[0 to go; ]" in output
