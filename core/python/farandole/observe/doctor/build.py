"""Checks the installed copies of Farandole and the compiled core, which runs in child processes with a time limit."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farandole import launch
from farandole.launch import environment
from farandole.launch.environment import version_of
from farandole.observe.doctor.finding import Finding, fail, ok, warn

EXPECTED_ABI = 1
_REINSTALL = "Reinstall it for this interpreter: python -m pip install --force-reinstall farandole"
_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from farandole._runtime import selftest; selftest.main()"
)


@dataclass(frozen=True)
class Trial:
    """The answer of a child process; `error` is "" if it succeeded."""

    answer: Mapping[str, Any] | None = None
    error: str = ""
    took_s: float = 0.0


_SKIPPED = Trial(error="not tried, since the core cannot be loaded")


@dataclass(frozen=True)
class Trials:
    """The results of the trials of the core."""

    describe: Trial
    backends: Trial = _SKIPPED
    alone: Trial = _SKIPPED
    together: Trial = _SKIPPED


def attempt(base: Mapping[str, str], limit_s: float) -> Trials:
    """Try the core, for up to four times `limit_s`. `base` is the environment of the ranks."""
    # Libraries of backends are assessed separately, and some work only under their own launcher.
    by_us = {name: value for name, value in base.items() if name != "FARANDOLE_BACKEND"}
    describe = attempt_to_describe(base, limit_s)
    if describe.error:
        return Trials(describe)
    alone, by_us = environment.without_outer_job(base), environment.without_outer_job(by_us)
    return Trials(
        describe, _try("backends", alone, limit_s), _try("exercise", by_us, limit_s), _two_ranks(by_us, limit_s)
    )


def attempt_to_describe(base: Mapping[str, str], limit_s: float) -> Trial:
    """Load the core in the environment of this command, which may be that of a rank."""
    return _try("describe", base, limit_s)


def _command(word: str) -> list[str]:
    return [sys.executable, "-c", _CHILD, json.dumps([path or "." for path in sys.path]), word]


def _try(word: str, base: Mapping[str, str], limit_s: float) -> Trial:
    begin = time.monotonic()
    try:
        done = subprocess.run(
            _command(word),
            env=base,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Trial(error=f"no answer within {limit_s:g} s")
    except OSError as error:
        return Trial(error=f"a process cannot be started: {error.strerror}")
    return Trial(error=how_it_ended(done.returncode, done.stderr)) if done.returncode else _read(done.stdout, begin)


def _two_ranks(base: Mapping[str, str], limit_s: float) -> Trial:
    """Run the trial as a job of two ranks."""
    begin, output, stop = time.monotonic(), io.StringIO(), launch.Stop()
    spec = launch.JobSpec.of(_command("exercise"), num_proc="2", prefix=False, start_timeout=limit_s)
    timer = threading.Timer(limit_s, stop.interrupt)
    timer.start()
    try:
        result = launch.run(spec, environment=base, stdout=output, stderr=io.StringIO(), stop=stop)
    except (launch.SpecError, OSError) as error:
        return Trial(error=str(error))
    finally:
        timer.cancel()
    ended = result.ended
    if not result.exit_code:
        return _read(output.getvalue(), begin)
    if ended.culprit is None:
        late = time.monotonic() - begin >= limit_s
        return Trial(error=f"no answer within {limit_s:g} s" if late else " ".join(ended.sentences))
    return Trial(error=": ".join((f"rank {ended.culprit} {ended.reason}", *ended.last_lines[-1:])))


def _read(output: str, begin: float) -> Trial:
    try:
        return Trial(json.loads(output.splitlines()[-1]), took_s=time.monotonic() - begin)
    except (IndexError, ValueError):
        return Trial(error=f"it answered {output[-200:]!r}")


def how_it_ended(code: int, stderr: str) -> str:
    """Return a child's error in one line, from its exit code and stderr."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if code >= 0:
        return lines[-1] if lines else f"it ended with {code}"
    return f"it was killed by {signal.Signals(-code).name} ({signal.strsignal(-code)})"


def copies(paths: Sequence[str]) -> list[str]:
    """Return the folders `farandole` with a compiled core below `paths`, in the order in which Python looks."""
    folders = [Path(path or ".", "farandole").resolve() for path in paths]
    return list(dict.fromkeys(str(folder) for folder in folders if any(folder.glob("_core*.so"))))


def check(trials: Trials) -> list[Finding]:
    """Assess this installation."""
    return [*several_copies(copies(sys.path)), *findings_of(trials, version_of("farandole"))]


def several_copies(found: Sequence[str]) -> list[Finding]:
    """Assess several installed copies, of which the first is in use."""
    if len(found) < 2:
        return []
    return [
        warn(
            "copies",
            f"{len(found)} copies of farandole are on sys.path: {', '.join(found)}; the first is used, and a second in "
            "one process is refused",
            "Keep one: python -m pip uninstall farandole, or take the other folder from PYTHONPATH.",
        )
    ]


def findings_of(trials: Trials, distribution: str) -> list[Finding]:
    """Assess the trials. `distribution` is the installed version, or ""."""
    return [
        _load(trials.describe, distribution),
        *_backends(trials.backends),
        _trial(
            "one rank",
            trials.alone,
            "Its last line says why; start it alone: python -c 'import farandole as f; f.init()'",
        ),
        _trial(
            "two ranks",
            trials.together,
            "Fix what is marked above first; then see what they say: farandole run -np 2 python -c "
            "'import farandole as f; f.init()'",
        ),
    ]


def _load(trial: Trial, distribution: str) -> Finding:
    if trial.answer is None:
        return fail("core", f"the compiled core cannot be loaded: {trial.error}", _REINSTALL)
    text = f"farandole {trial.answer['version']}, ABI {trial.answer['abi']}, {trial.answer['path']}"
    if trial.answer["abi"] != EXPECTED_ABI:
        return fail("core", f"{text}: this command is of ABI {EXPECTED_ABI}", _REINSTALL)
    if distribution and distribution != trial.answer["version"]:
        return warn("core", f"{text}; but the installed distribution says {distribution}", _REINSTALL)
    return ok("core", text)


def _backends(trial: Trial) -> list[Finding]:
    """Assess the backends that need a library: a missing one is a failure only if the user asks for it."""
    if trial.answer is None:
        return [warn("backends", f"cannot be looked for: {trial.error}", "Look at its last line.")]
    asked_for, names = trial.answer.get("asked_for", []), [name for name, _, _ in trial.answer["found"]]
    known = f"Name some of these, with commas between them: {', '.join(names)}."
    found = [
        fail("backends", f"FARANDOLE_BACKEND asks for {name!r}, which is none of this version", known)
        for name in asked_for
        if name not in names
    ]
    for name, library, missing in trial.answer["found"]:
        if missing and name in asked_for:
            found.append(fail(f"backend {name}", missing, "Do that, or take it out of FARANDOLE_BACKEND."))
        elif missing:
            found.append(ok(f"backend {name}", f"no library found; only FARANDOLE_BACKEND={name} needs one"))
        elif library:
            found.append(ok(f"backend {name}", f"{library}; the job's key does not protect its sockets"))
    return found


def _trial(check: str, trial: Trial, fix: str) -> Finding:
    if trial.answer is None:
        return fail(check, f"init and sums do not work: {trial.error}", fix)
    text = f"init and sums are right in {trial.took_s:.1f} s, instruction set {trial.answer['isa']}"
    if trial.answer["size"] == 1:
        return ok(check, text)
    if len(trial.answer["nodes"]) == 1:
        return ok(check, f"{text}, through shared memory")
    return warn(
        check,
        f"{text}, but by TCP: the ranks of this machine share no memory",
        "Unset FARANDOLE_ARENAS if it is 0, else see memfd and pidfd above.",
    )
