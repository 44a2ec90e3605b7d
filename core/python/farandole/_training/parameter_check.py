"""A warning where ranks begin to train from different parameters, most often because nobody broadcast them.

How a plugin uses it, in the first step of an optimizer, before the parameters change:

    checksum of each trained parameter --exchanged over the ranks--> warn_about_differences, on all ranks

PyTorch's optimizers exchange their plan in the first step anyway, and the checksums travel with it. A plugin without
such an exchange calls `compare_parameters` instead, which is collective; `world_number` says whether the ranks have
changed since, so that survivors and newcomers of an elastic job compare together. Rules for the caller:

1. Every rank of the process set compares at the same point of its program, whatever FARANDOLE_CHECK_PARAMETERS is: the
   variable only makes a rank send NOT_COMPARED, so that ranks with different settings do not wait for each other.
2. What is meant to differ is left out, or has NOT_COMPARED: local layers, and what the optimizer does not reduce.
3. Programs of TensorFlow may broadcast after their first step, so there the second reduction of the same gradients
   compares. The ranks count from where they began together: from the start of their world, as survivors and newcomers
   do, or the end of a `join`, before which some take more steps than others. Nobody counts before a broadcast that a
   callback has put off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farandole._api.calls import plain
from farandole._api.process_sets import ProcessSet
from farandole._runtime import clock
from farandole._runtime.fingerprint import fingerprint
from farandole._start import environment, world

COMPARISON = "parameters.compared."  # before the name of an optimizer's operations, for its exchange of checksums
NOT_COMPARED = 0  # in place of a checksum

_awaits_broadcast_in = -1  # the number of a world


def checks_parameters() -> bool:
    """Return whether this rank wants its parameters compared: FARANDOLE_CHECK_PARAMETERS."""
    return environment.checks_parameters()


def checksum(content: memoryview) -> int:
    """Of the flat bytes of one parameter in the host's memory; never NOT_COMPARED. On a device, compute a sum there."""
    return fingerprint(content) or 1


def compare_parameters(
    operation: str, names: Sequence[str], sums: Sequence[int], remedy: str, process_set: ProcessSet | None = None
) -> None:
    """Exchange the checksums of this rank's parameters and warn where the ranks' differ. Collective; blocks.

    Args:
        operation: the name of the exchange, alike on all ranks and different for optimizers that step at one time.
        names: of the parameters, in the same order on all ranks.
        sums: their checksums, each of 64 bits.
        remedy: see `warn_about_differences`.
        process_set: the ranks whose gradients are reduced with each other.
    """
    number = plain(operation, process_set)[-1]
    rows = clock.allgather(row_of(sums), operation, number)
    warn_about_differences(names, sums_by_rank(rows), remedy)


def row_of(sums: Sequence[int]) -> list[int]:
    """The row that this rank contributes to an allgather of the ranks' checksums."""
    return [world.rank(), len(sums), *sums]


def sums_by_rank(rows: Sequence[int]) -> dict[int, Sequence[int]]:
    """The checksums of each rank, from what the allgather returns: one rank's row after the other's."""
    of_ranks, begin = {}, 0
    while begin < len(rows):
        rank, count = rows[begin : begin + 2]
        of_ranks[rank], begin = rows[begin + 2 : begin + 2 + count], begin + 2 + count
    return of_ranks


def await_broadcast(is_awaited: bool) -> None:
    """Whether a callback broadcasts the parameters after some steps, before which they may differ. Alike on all ranks.

    A world that ends meanwhile takes the callback's promise with it.
    """
    global _awaits_broadcast_in
    _awaits_broadcast_in = world.world_number() if is_awaited else -1


def awaits_broadcast() -> bool:
    """Return whether `await_broadcast` said so in this world."""
    return _awaits_broadcast_in == world.world_number()


def warn_about_differences(names: Sequence[str], of_ranks: Mapping[int, Sequence[int]], remedy: str) -> None:
    """Log a warning, on the lowest of the ranks, that names the first parameter whose checksums differ.

    Args:
        names: of the parameters.
        of_ranks: the checksums of each rank, in the order of the names. Ranks with another number of them have another
            model, which other checks report.
        remedy: the call that makes the parameters equal, as the user writes it.
    """
    comparable = {rank: sums for rank, sums in of_ranks.items() if len(sums) == len(names)}
    if world.rank() != min(of_ranks):
        return
    found = [(name, _disagreement(i, comparable)) for i, name in enumerate(names)]
    differing = [(name, ranks) for name, ranks in found if len(ranks) > 1]
    if differing:
        from farandole._start import log  # with logging, which `import farandole` does without

        log.logger.warning(_sentence(differing, remedy))


def _disagreement(index: int, of_ranks: Mapping[int, Sequence[int]]) -> list[int]:
    """The lowest rank that compares the parameter of this index, and those where it is another one."""
    ranks = sorted(rank for rank, sums in of_ranks.items() if sums[index] != NOT_COMPARED)
    return [rank for rank in ranks if rank == ranks[0] or of_ranks[rank][index] != of_ranks[ranks[0]][index]]


def _sentence(differing: Sequence[tuple[str, Sequence[int]]], remedy: str) -> str:
    name, (first, *ranks) = differing[0]
    listed = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:5]))}"
    listed += " and more" if len(ranks) > 5 else ""
    more = f" ({len(differing)} parameters differ in all)" if len(differing) > 1 else ""
    return (
        f"the ranks start training with different parameters: {name!r} on {listed} is not that of rank {first}{more}. "
        f"Call {remedy} before the first step. FARANDOLE_CHECK_PARAMETERS=0 turns this check off"
    )
