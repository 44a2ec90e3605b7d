"""A rank with bad input in process sets, and while another rank has joined. It judges nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import badinput
import farandole.numpy as fnp
import numpy as np
from attempts import Told, attempt, attempt_alone, clash, together
from badinput import Mismatch
from living import Settings


def cases_among(ranks: Sequence[int]) -> list[Mismatch]:
    """The mismatches that can be tried in a set of these ranks: those without a root, which is a rank of the world."""
    return [
        case
        for case in badinput.mismatches(ranks)
        if "broadcast" not in (case.difference.left.kind, case.difference.right.kind)
    ]


def disagree_in_a_set(settings: list[Settings], members: list[int]) -> list[Told]:
    """Every mismatch in turn among the members of a process set; the others do nothing."""
    together(settings)
    process_set = fnp.add_process_set(members)
    told = [
        attempt(lambda case=case: clash(case, process_set) if process_set.included() else None)
        for case in cases_among(members)
    ]
    fnp.remove_process_set(process_set)
    return told


def disagree_beside_a_joined_rank(settings: list[Settings], members: list[int]) -> list[tuple[str, str]]:
    """Every mismatch in turn among the members, while the others have joined; what each was told, and then a sum."""
    together(settings)
    told = []
    if fnp.rank() in members:
        for case in cases_among(members):
            told.append(attempt_alone(lambda case=case: clash(case)))
            if fnp.allreduce(np.ones(9), op=fnp.Sum).tolist() != [len(members)] * 9:
                told.append(("", "it does not go on"))
        for root in range(fnp.size()):
            told.append(attempt_alone(lambda root=root: fnp.broadcast(np.ones(3), root)))
    fnp.join()
    return told


@dataclass(frozen=True)
class SetCase:
    """Two calls about process sets that do not fit; all ranks make the first, rank 1 the second."""

    first: Callable[[], object]
    second: Callable[[], object]
    words: tuple[str, str]


SET_CASES = (
    SetCase(lambda: fnp.add_process_set([0]), lambda: fnp.add_process_set([1]), ("(0,)", "(1,)")),
    SetCase(lambda: fnp.add_process_set([0]), lambda: fnp.add_process_set([0, 2]), ("(0,)", "(0, 2)")),
    SetCase(lambda: fnp.add_process_set([0]), lambda: fnp.add_process_set([0, 1, 2]), ("(0,)", "(0, 1, 2)")),  # there
    SetCase(
        lambda: fnp.add_process_set([0]),
        lambda: fnp.remove_process_set(fnp.ProcessSet([0, 1])),
        ("add_process_set", "remove_process_set"),
    ),
    SetCase(
        lambda: fnp.remove_process_set(fnp.ProcessSet([0, 1])),
        lambda: fnp.remove_process_set(fnp.ProcessSet([1, 2])),
        ("(1,)", "(2,)"),  # their numbers
    ),
)


def disagree_about_sets(settings: list[Settings]) -> list[Told]:
    """Every case of a world of three."""
    together(settings)
    sets = [fnp.add_process_set(ranks) for ranks in ([0, 1], [1, 2])]
    before = fnp.get_process_set_ids_and_ranks()
    told = [attempt(case.second if fnp.rank() == 1 else case.first) for case in SET_CASES]
    if fnp.get_process_set_ids_and_ranks() != before:
        raise AssertionError("sets have come or gone")
    for each in sets:
        fnp.remove_process_set(each)
    return told
