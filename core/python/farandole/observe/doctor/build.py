"""The installed copies of Farandole; what the compiled core does, tried in processes of its own within a time limit."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from farandole.launch import environment, local, placement
from farandole.observe.doctor.finding import Finding, fail, ok, warn

EXPECTED_ABI = 1
_MOMENT_S = 2.0
_REINSTALL = "Reinstall it for this interpreter: python -m pip install --force-reinstall farandole"
_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from farandole._runtime import selftest; selftest.main()"
)


@dataclass(frozen=True)
class Trial:
    """The answer of one child process or several; `error` is "" where all ended well."""

    answers: tuple[dict[str, Any], ...] = ()
    error: str = ""
    took_s: float = 0.0


@dataclass(frozen=True)
class Facts:
    """The installed builds and the results of trials."""

    distribution: str  # version of the installed distribution; "" where there is none
    copies: tuple[str, ...]  # folders `farandole` on sys.path that hold a compiled core, the one in use first
    load: Trial
    backends: Trial
    alone: Trial
    together: Trial


def gather(base: Mapping[str, str], limit_s: float) -> Facts:
    """Ask this machine; `base` is the environment of the ranks that are tried. Four times `limit_s` at most."""
    # Which library carries what is judged by itself, and some work under their own launcher only.
    by_us = {name: value for name, value in base.items() if name != "FARANDOLE_BACKEND"}
    load = _try(["describe"], [environment.without_outer_job(base)], limit_s)
    skipped = Trial(error="not tried, since the core cannot be loaded")
    return Facts(
        distribution=_distribution(),
        copies=copies(sys.path),
        load=load,
        backends=skipped if load.error else _try(["backends"], [environment.without_outer_job(base)], limit_s),
        alone=skipped if load.error else _try(["exercise"], [environment.without_outer_job(by_us)], limit_s),
        together=skipped if load.error else _try_world(by_us, 2, limit_s),
    )


def _distribution() -> str:
    try:
        return metadata.version("farandole")
    except metadata.PackageNotFoundError:
        return ""


def copies(paths: Sequence[str]) -> tuple[str, ...]:
    """Folders `farandole` with a compiled core below `paths`, in the order in which Python looks."""
    folders = [Path(path or ".", "farandole").resolve() for path in paths]
    return tuple(dict.fromkeys(str(folder) for folder in folders if any(folder.glob("_core*.so"))))


def _try_world(base: Mapping[str, str], size: int, limit_s: float) -> Trial:
    try:
        key = local.make_key()
    except OSError as error:
        return Trial(error=f"the job's key cannot be made: {error.strerror}")
    places = placement.plan(str(size), None, environment.local_names())
    store, key_file, cores = local.make_store(), local.path_for_ranks(key), environment.available_cores()
    environments = [
        environment.for_rank(base, place, store=store, key_file=key_file, cores=cores, start_timeout_s=limit_s)
        for place in places
    ]
    return _try(["exercise"], environments, limit_s)


def _try(words: Sequence[str], environments: Sequence[Mapping[str, str]], limit_s: float) -> Trial:
    """Run the child once in each environment, at the same time; all are gone when this returns."""
    begin = time.monotonic()
    command = [sys.executable, "-c", _CHILD, json.dumps([path or "." for path in sys.path]), *words]
    children: list[subprocess.Popen[str]] = []
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        for child_environment in environments:
            children.append(subprocess.Popen(command, env=child_environment, text=True, errors="replace", **pipes))
        answers, failures = _answers(children, begin + limit_s, limit_s)
    except OSError as error:
        return Trial(error=f"a process cannot be started: {error.strerror}")
    finally:
        for child in children:
            child.kill()
            child.communicate()
    return Trial(tuple(answers), "; ".join(failures), time.monotonic() - begin)


def _answers(
    children: Sequence[subprocess.Popen[str]], deadline: float, limit_s: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """The children's answers, and how silent ones ended. After a failure the others have a moment only."""
    answers: list[dict[str, Any]] = []
    failures: list[str] = []
    for number, child in enumerate(children):
        remaining_s = deadline - time.monotonic()
        try:
            answers.append(_answer(child, min(remaining_s, _MOMENT_S) if failures else remaining_s, limit_s))
        except _Failed as failure:
            failures.append(str(failure) if len(children) == 1 else f"rank {number}: {failure}")
    return answers, failures


class _Failed(Exception):
    """A child did not answer; the message says how it ended."""


def _answer(child: subprocess.Popen[str], remaining_s: float, limit_s: float) -> dict[str, Any]:
    try:
        out, err = child.communicate(timeout=max(0.1, remaining_s))
    except subprocess.TimeoutExpired:
        raise _Failed(f"no answer within {limit_s:g} s") from None
    if child.returncode != 0:
        raise _Failed(how_it_ended(child.returncode, err))
    try:
        answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        raise _Failed(f"it answered {out[-200:]!r}") from None
    return answer


def how_it_ended(code: int, stderr: str) -> str:
    """Exit code and stderr of a child -> its error in one line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else "it printed no error"
    if code >= 0:
        return last if lines else f"it ended with {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"it was killed by {name}" + (f" ({signal.strsignal(-code)})" if name.startswith("SIG") else "")


def judge(facts: Facts) -> list[Finding]:
    """The installed builds and the results of trials -> findings."""
    return [*_copies(facts), _load(facts), *_backends(facts), *_trials(facts)]


def _copies(facts: Facts) -> list[Finding]:
    if len(facts.copies) < 2:
        return []
    return [
        warn(
            "copies",
            f"{len(facts.copies)} copies of farandole are on sys.path: {', '.join(facts.copies)}; the first is used, "
            "and a second in one process is refused",
            "Keep one: python -m pip uninstall farandole, or take the other folder from PYTHONPATH.",
        )
    ]


def _load(facts: Facts) -> Finding:
    if facts.load.error:
        return fail("core", f"the compiled core cannot be loaded: {facts.load.error}", _REINSTALL)
    (answer,) = facts.load.answers
    text = f"farandole {answer['version']}, ABI {answer['abi']}, {answer['path']}"
    if answer["abi"] != EXPECTED_ABI:
        return fail("core", f"{text}: this command is of ABI {EXPECTED_ABI}", _REINSTALL)
    if facts.distribution and facts.distribution != answer["version"]:
        return warn("core", f"{text}; but the installed distribution says {facts.distribution}", _REINSTALL)
    return ok("core", text)


def _backends(facts: Facts) -> list[Finding]:
    """Those that need a library: which it is, or that there is none, which who asks for it has to mend."""
    if facts.backends.error:
        return [warn("backends", f"cannot be looked for: {facts.backends.error}", "Look at its last line.")]
    answer = facts.backends.answers[0]
    asked_for, names = answer.get("asked_for", []), [name for name, _, _ in answer["found"]]
    found = [
        fail("backends", f"FARANDOLE_BACKEND asks for {name!r}, which is none of this version", _known(names))
        for name in asked_for
        if name not in names
    ]
    for name, library, missing in answer["found"]:
        if missing and name in asked_for:
            found.append(fail(f"backend {name}", missing, "Do that, or take it out of FARANDOLE_BACKEND."))
        elif missing:
            found.append(ok(f"backend {name}", f"not here; needed with FARANDOLE_BACKEND={name} only: {missing}"))
        elif library:
            found.append(ok(f"backend {name}", f"{library}; the job's key does not guard its sockets"))
    return found


def _known(names: Sequence[str]) -> str:
    return f"Name some of these, with commas between them: {', '.join(names)}."


def _trials(facts: Facts) -> list[Finding]:
    return [
        _trial(
            "one rank",
            facts.alone,
            "Its last line says why; start it alone: python -c 'import farandole as f; f.init()'",
        ),
        _trial(
            "two ranks",
            facts.together,
            "Mend what is marked above first; then see what they say: farandole run -np 2 python -c "
            "'import farandole as f; f.init()'",
        ),
    ]


def _trial(check: str, trial: Trial, mend: str) -> Finding:
    if trial.error:
        return fail(check, f"init and sums do not work: {trial.error}", mend)
    first = trial.answers[0]
    text = f"init and sums are right in {trial.took_s:.1f} s, instruction set {first['isa']}"
    if len(trial.answers) == 1:
        return ok(check, text)
    if len(first["nodes"]) == 1:
        return ok(check, f"{text}, through shared memory")
    return warn(
        check,
        f"{text}, but by TCP: the ranks of this machine share no memory",
        "Unset FARANDOLE_ARENAS if it is 0, else see memfd and pidfd above.",
    )
