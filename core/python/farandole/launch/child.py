"""The launcher as the child of a program that has called `farandole.launch.run`: it ends with that program."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from farandole.launch import environment, files, guard, local, placement
from farandole.launch.events import JobEnded
from farandole.launch.plan import Caller, hints, plan
from farandole.launch.run import run_job
from farandole.launch.shared_options import USAGE, print_error
from farandole.launch.spec import JobSpec, SpecError


def main() -> NoReturn:
    """Run the job. Arguments: the id of the parent, the descriptors that it has handed to us, an engine and its hub."""
    parent, spec, events, outcomes, call = map(int, sys.argv[1:6])
    guard.die_with_parent(parent)  # the inner process then finds its lifeline closed, and ends the ranks
    environment.forget_options()
    text = os.pread(spec, os.fstat(spec).st_size, 0).decode()
    sys.exit(_run(text, Caller(call, outcomes, events, *sys.argv[6:8])))


def _run(text: str, caller: Caller) -> int:
    base = environment.inherited()
    try:
        planned = plan(JobSpec.from_json(text), base, print_error, caller)
    except (placement.JobError, files.FileError, environment.SettingError, SpecError) as error:
        return _refuse(caller, str(error), USAGE, getattr(error, "field", ""))
    except local.CommandError as error:
        return _refuse(caller, str(error), error.exit_code, "command")
    for sentence in [*planned.notes, *hints(planned)]:
        print_error(sentence)
    return run_job(planned)


def _refuse(caller: Caller, sentence: str, exit_code: int, field: str) -> int:
    caller.tell(JobEnded(exit_code, (sentence,), is_refused=True, field=field))
    return exit_code
