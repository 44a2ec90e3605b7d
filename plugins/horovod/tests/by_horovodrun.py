"""Runs a program's text as two ranks."""

import subprocess
import sys


def run_by_two(script, text):
    """The sorted lines of both ranks, and the text of stderr. `script` is the file to write."""
    script.write_text(text)
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", "2", "-H", "localhost:2", sys.executable, script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines()), done.stderr
