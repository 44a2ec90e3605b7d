"""Messages from one rank of a group to another: a broadcast in the process set of the two."""

from __future__ import annotations

from typing import Any

from farandole import ProcessSet

from farandole_torch._adapter import Tensor, collectives
from farandole_torch._group import Group
from farandole_torch._moves import as_known
from farandole_torch._work import Work

_PASSES = 1024  # from one rank to another with one tag, that are under way at a time


class Messages(Group):
    """send and recv. They have names, for the other ranks do not call them."""

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self._passes: dict[tuple[int, int, int], int] = {}  # (source, target, tag) -> how many there were

    def send(self, tensors: list[Tensor], target: int, tag: int = 0) -> Work:
        return self._passed(tensors, self._rank, target, tag)

    def recv(self, tensors: list[Tensor], source: int, tag: int = 0) -> Work:
        return self._passed(tensors, source, self._rank, tag)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> Work:
        raise ValueError(
            "the backend farandole does not receive from just anyone: say from whom, recv(tensor, src=...)"
        )

    def _passed(self, tensors: list[Tensor], source: int, target: int, tag: int) -> Work:
        """Matched by the tag, and by the order of those that have it."""
        pair = self._pair(source, target)
        count = self._passes[source, target, tag] = self._passes.get((source, target, tag), 0) + 1
        name = f"{self.group_name}.{source}.to.{target}.{tag}.{count % _PASSES}"
        root = self._ranks[source]
        handles = [collectives.broadcast_async_(as_known(each), root, name, pair) for each in tensors]
        title = "send" if source == self._rank else "recv"
        return Work(self, handles, tensors, title=title, inputs=tensors, is_ordered=False)

    def _pair(self, source: int, target: int) -> ProcessSet | None:
        if self.getSize() == 2:
            return self._process_set
        ranks = sorted([self._ranks[source], self._ranks[target]])
        pair = ProcessSet(ranks)
        if pair.process_set_id is None:
            raise ValueError(
                "send and recv of the backend farandole need a process set of the two ranks: call "
                f"farandole_torch.add_process_set({ranks}) on every rank before, or use scatter or all_to_all"
            )
        return pair
