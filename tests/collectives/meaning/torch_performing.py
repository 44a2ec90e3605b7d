"""A rank performs random windows through farandole_torch, and reports what is wrong."""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from dataclasses import dataclass
from typing import Any

import farandole
import farandole_torch as hvd
import living
import meanings
import numpy as np
import torch
from meanings import Expected
from operations import OPERATIONS
from performing import describe, has_no_root, join_and_judge, sent_splits
from torch_cases import TorchCase
from torch_device import DEVICE
from torch_tensors import COMPRESSIONS, Placed, place, to_numpy, to_sparse, to_torch
from windows import Window, order_for

_MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}


@dataclass
class Call:
    """A case that this rank has begun."""

    case: TorchCase
    given: list[Placed]
    result: Any  # a handle, the result, or an error that may be
    losses: list[torch.Tensor]

    @property
    def member(self) -> int:
        return self.case.members.index(farandole.rank())


def perform_torch_window(window: Window) -> list[str]:
    rank = farandole.rank()
    if DEVICE != "cpu":  # NCCL must know a rank's GPU before the rank joins
        hvd.allreduce(torch.ones(1, device=DEVICE))
    mine = [case for case in window.cases if rank in case.members and rank not in case.joined]
    in_order = window.stops is not None or bool(mine and mine[0].in_order)
    if window.stops is not None and mine and mine[0].in_order:  # each is done with before the next one begins
        failures = [text for case in mine for text in _perform([case], in_order)]
    else:
        failures = _perform(mine if in_order else order_for(mine, rank), in_order)
    return failures + (join_and_judge(window) if window.stops is not None else [])


def _perform(cases: list[TorchCase], in_order: bool) -> list[str]:
    if not cases:
        return []
    draw = random.Random(repr((tuple(cases[0].key), "pauses", farandole.rank())))
    pending = []
    for case in cases:
        if draw.random() < 0.02:
            time.sleep(draw.random() * 0.003)
        pending.append(_begin(case))
    if not in_order:
        draw.shuffle(pending)
    failures = [text for call in pending for text in _judge(call)]
    if failures and any(case.differentiates for case in cases):  # the others wait for this rank's backward
        raise AssertionError("\n".join(failures))
    # The order of what backward does is the same on all ranks: of the calls, or of what each has recorded.
    pending.sort(key=lambda call: call.case.position)
    losses = [call.losses for call in pending if call.losses]
    for each in [[*itertools.chain(*losses)]] if in_order and losses else losses:
        torch.autograd.backward(each)
    return failures + [text for call in pending if call.losses for text in _judge_gradients(call)]


def _begin(case: TorchCase) -> Call:
    member = case.members.index(farandole.rank())
    given = []
    for tensor, layouts in enumerate(case.layouts):
        if case.sparse_dims:
            given.append(Placed(to_sparse(case.data(tensor, member), case.sparse_dims, case.doubled)))
            continue
        placed = place(case.data(tensor, member), layouts[member])
        if case.differentiates or case.leaves:
            placed.tensor.requires_grad_()
        given.append(placed)
    with _MODES[case.mode]():
        return Call(case, given, _start(case, [placed.tensor for placed in given]), [])


def _start(case: TorchCase, tensors: list[torch.Tensor]) -> Any:
    words: dict[str, Any] = {"name": case.name} if case.name else {}
    if not case.whole:
        words["process_set"] = living.sets[case.members]
    if case.sends:
        words["compression"] = COMPRESSIONS[case.sends]
    if case.operation == "sparse":
        finish = hvd.sparse_allreduce_async(tensors[0], op=getattr(hvd, case.op), **words)
        return finish() if case.blocking else finish
    try:
        return OPERATIONS[case.operation].start(hvd, case, tensors, words)
    except farandole.FarandoleError as error:
        if has_no_root(case):
            return error
        raise


def _judge(call: Call) -> list[str]:
    case, result = call.case, call.result
    error = None
    try:
        if not case.blocking:
            with torch.no_grad() if case.position % 2 else contextlib.nullcontext():  # means nothing to the result
                result = result() if case.operation == "sparse" else hvd.synchronize(result)
    except farandole.FarandoleError as caught:
        if not has_no_root(case):
            raise
        error = caught
    if has_no_root(case):
        right = f"rank {case.root}" in str(error or result)
        return [] if right else [f"{case.key}: {error or result!r}\n{describe([case])}"]
    results = result if isinstance(result, list) else [result]
    found = []
    for tensor, placed in enumerate(call.given):
        if wrong := _compare(call, tensor, placed, results[tensor]):
            found.append(_text(call, tensor, wrong))
    return found


def _text(call: Call, tensor: int, wrong: str) -> str:
    return f"{call.case.key}: rank {farandole.rank()}, tensor {tensor}: {wrong}\n{describe([call.case])}"


def _compare(call: Call, tensor: int, placed: Placed, got: Any) -> str:
    """The fault of one result, or ""; begins the loss where a gradient is asked for."""
    case, member = call.case, call.member
    if isinstance(got, tuple):
        got, received = got
        if received.tolist() != [splits[member] for splits in sent_splits(case)]:
            return f"the rows received from each member are said to be {received}"
        if str(received.dtype) != f"torch.{'int64' if case.splits_as == 'list' else case.splits_as}":
            return f"the rows received from each member are of dtype {received.dtype}"
    if got.requires_grad != (case.differentiates or (case.in_place and case.leaves)):
        return f"requires_grad is {got.requires_grad}"
    if got.dtype != placed.tensor.dtype:
        return f"the dtype is {got.dtype}"
    dense = got.to_dense() if case.sparse_dims else got
    if wrong := meanings.difference(to_numpy(dense), case.expect(tensor, member)):
        return wrong
    if case.in_place and got is not placed.tensor:
        return "the result of the form in place is not the tensor that was given"
    if not placed.is_whole():
        return "memory beside the tensor was written to"
    if not case.in_place:
        kept = placed.tensor.to_dense() if case.sparse_dims else placed.tensor
        if not _is_as_given(to_numpy(kept), case.data(tensor, member)):
            return "the input was written to"
        if got.numel() and not case.sparse_dims and got.data_ptr() == placed.tensor.data_ptr():
            return "the result is the input's memory"
    if case.differentiates:
        weights = case.weights(tensor, member)
        call.losses.append(_loss(got, weights, case.weighted, member))
    return ""


def _is_as_given(kept: np.ndarray, given: np.ndarray) -> bool:
    if DEVICE == "cpu":
        return kept.tobytes() == given.tobytes()
    return meanings.difference(kept, Expected(given)) == ""  # a GPU that negates a NaN gives another


def _loss(result: torch.Tensor, weights: Any, weighted: bool, member: int) -> torch.Tensor:
    return (result * to_torch(weights)).sum() if weighted else result.sum() * (0.5 * (member + 1))


def _judge_gradients(call: Call) -> list[str]:
    found = []
    for tensor, placed in enumerate(call.given):
        gradient, want = placed.tensor.grad, call.case.expect_gradient(tensor, call.member)
        if gradient is None or gradient.dtype != placed.tensor.dtype:
            found.append(_text(call, tensor, f"the gradient is {gradient}"))
        elif wrong := meanings.difference(to_numpy(gradient), _wide(want, call.case)):
            found.append(_text(call, tensor, f"of the gradient {wrong}"))
    return found


def _wide(want: Expected, case: TorchCase) -> Expected:
    """A result that was compressed in transit has the given dtype again."""
    return Expected(want.values.astype(meanings.DTYPES[case.dtype])) if want.slack is None and case.sends else want
