"""Plants planted_faults.py, one by one, into a copy of the tree, and checks that the default run finds each.

    python3 tests/planted/plant.py                  all that have no result yet
    python3 tests/planted/plant.py --anew           all
    python3 tests/planted/plant.py ring fence       those with one of these words in their name, again

A fault's own finder runs first; where it finds nothing, the default run; then the long forms. A fault that
the default run does not find is a failure: the default run needs a test. The copy, of what is committed, lies in
.nox/planted/tree with environments of its own. Results are kept in .nox/planted/results.json, so a run that was
interrupted goes on.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from planted_faults import FAULTS, Fault

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".nox" / "planted"
TREE, RESULTS = PLACE / "tree", PLACE / "results.json"
LIMIT_S = 3600
DEFAULT = ["-s", "tests"]
LONG = (["-s", "simulation"], ["-s", "soak"])
# ctest and pytest end with such a line when a test has failed; a build that fails does not.
_FAILED = re.compile(r"^\d+% tests passed, [1-9]\d* tests? failed|^=+ .*\b\d+ (?:failed|errors?)\b", re.MULTILINE)
_NAMES = re.compile(
    r"^\s+\d+ - (\S.*) \((?:Failed|Timeout|SEGFAULT|Subprocess.*)\)|^(?:FAILED|ERROR) (\S+)", re.MULTILINE
)


def main(arguments: list[str]) -> int:
    """Judge the faults that the arguments choose. 0: all were found by the default run."""
    results = read_results()
    if "--anew" in arguments:
        results.clear()
    words = [word for word in arguments if not word.startswith("--")]
    chosen = [fault for fault in FAULTS if any(word in fault.name for word in words) or not words]
    left = [fault for fault in chosen if words or results.get(fault.name, {}).get("fault") != repr(fault)]
    copy_tree()
    if left and not without_faults(left):
        return 1
    for number, fault in enumerate(left, 1):
        print(f"==> {number} of {len(left)}: {fault.name} ({fault.path})", flush=True)
        began = time.monotonic()
        result = judge(fault)
        results[fault.name] = {**result, "fault": repr(fault), "seconds": round(time.monotonic() - began)}
        RESULTS.write_text(json.dumps(results, indent=1))
        print(f"    {result['run']}: {result['test']} ({results[fault.name]['seconds']} s)", flush=True)
    wrong = [fault.name for fault in chosen if results[fault.name]["run"] not in ("its finder", "the default run")]
    print(f"{len(chosen) - len(wrong)} passed, {len(wrong)} failed", *wrong, sep="\n    ", flush=True)
    return 1 if wrong else 0


def read_results() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    return found


def copy_tree() -> None:
    """Bring the copy to what is committed here; what is built there stays."""
    PLACE.mkdir(parents=True, exist_ok=True)
    if not TREE.exists():
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(TREE)], check=True)
    for command in (["fetch", "--quiet", str(ROOT), "HEAD"], ["reset", "--quiet", "--hard", "FETCH_HEAD"]):
        subprocess.run(["git", "-C", str(TREE), *command], check=True)


def without_faults(faults: list[Fault]) -> bool:
    """Run the finders on the copy without any fault. Returns whether all of their tests pass."""
    print("==> Without any fault", flush=True)
    regexes = [fault.found_by.removeprefix("cpp ") for fault in faults if fault.found_by.startswith("cpp ")]
    paths = sorted({fault.found_by for fault in faults if not fault.found_by.startswith("cpp ")})
    commands = [finder(f"cpp {'|'.join(regexes)}")] if regexes else []
    for command in [*commands, *([finder(" ".join(paths))] if paths else [])]:
        code, output = run(command)
        if code != 0:
            print(output[-4000:], f"`{shlex.join(command)}` fails without any fault, in {TREE}", sep="\n", flush=True)
            return False
    return True


def finder(found_by: str) -> list[str]:
    """The arguments of noxfile.py that run the tests which should find a fault."""
    if found_by.startswith("cpp "):
        return ["-s", "cpp", "--", "-R", found_by.removeprefix("cpp "), "--stop-on-failure"]
    return ["-s", "python", "--", *found_by.split(), "-x"]


def judge(fault: Fault) -> dict[str, str]:
    """Which run finds the fault, and by which test."""
    file = TREE / fault.path
    text = file.read_text()
    if text.count(fault.before) != 1:
        return {"run": "no place", "test": f"`before` is {text.count(fault.before)} times in {fault.path}"}
    file.write_text(text.replace(fault.before, fault.after))
    runs = {"its finder": finder(fault.found_by), "the default run": DEFAULT}
    runs |= {f"the long form {command[1]}": command for command in LONG}
    try:
        for name, command in runs.items():
            code, output = run(command)
            if code != 0:
                tests = [first or second for first, second in _NAMES.findall(output)]
                if not tests and not _FAILED.search(output):
                    return {"run": "no test", "test": f"`{shlex.join(command)}` ended before any: {output[-1500:]}"}
                return {"run": name, "test": tests[0] if tests else "(a test that is not named)"}
        return {"run": "nothing", "test": "no test fails"}
    finally:
        file.write_text(text)


def run(arguments: list[str]) -> tuple[int, str]:
    """Exit code and output of noxfile.py in the copy, which stops at the first failure."""
    command = [sys.executable, "noxfile.py", *arguments]
    environment = {**os.environ, "STOP_AT_FAILURE": "1", "PYTEST_ADDOPTS": "-x"}
    environment.pop("PYTHONPATH", None)
    try:
        done = subprocess.run(
            command, cwd=TREE, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        return 1, f"FAILED {shlex.join(arguments)}: did not end within {LIMIT_S} s\n{error.stdout!r}"
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
