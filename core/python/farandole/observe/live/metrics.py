"""Numbers of this host's ranks for a monitoring system, in the text format of OpenMetrics 1.0. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from farandole.observe.diagnosis import Rank
from farandole.observe.records import Link
from farandole.observe.waits import WINDOW_NS, Arrivals, arrivals_of, measure

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_Value = int | float | None
_MOST_LINKS = 16  # of a rank: those that have sent the most

# name after farandole_ -> type, unit, help
_FAMILIES = {
    "job_ranks": ("gauge", "", "Ranks of the job."),
    "operations": ("counter", "", "Operations that the rank has begun."),
    "operations_in_flight": ("gauge", "", "Operations that have not ended."),
    "oldest_operation_seconds": ("gauge", "seconds", "Age of the oldest operation in flight."),
    "operand_bytes_per_second": ("gauge", "", "Bytes given to operations each second."),
    "in_operations_ratio": ("gauge", "ratio", "Share of the time with an operation in flight."),
    "waiting_ratio": ("gauge", "ratio", "Share of the time waiting for calls of other ranks."),
    "waited_for_ratio": ("gauge", "ratio", "Share of the time in which all others waited for the rank."),
    "step_seconds": ("gauge", "seconds", "Median time between uses of the largest named operation."),
    "resident_memory_bytes": ("gauge", "bytes", "Memory that the process holds."),
    "up": ("gauge", "", "1 while the rank takes part in the job."),
}
# For each rank of another host to which the rank has sent data over TCP.
_OF_LINKS = {
    "link_sent_bytes": ("counter", "bytes", "Bytes sent to the peer, which it has acknowledged."),
    "link_received_bytes": ("counter", "bytes", "Bytes received from the peer."),
    "link_sending_seconds": ("counter", "seconds", "Time with data on their way to the peer."),
    "link_retransmits": ("counter", "", "Packets that were sent again."),
    "link_round_trip_seconds": ("gauge", "seconds", "Time to the peer and back, smoothed."),
}


def arrivals_of_ranks(ranks: Sequence[Rank], now_ns: int) -> Arrivals:
    """Return which ranks came last to the operations of all ranks in the last seconds."""
    used = {rank.number: [each for each in rank.recording.operations if each.process_set == 0] for rank in ranks}
    size = max((rank.recording.size for rank in ranks), default=0)
    return arrivals_of(used, size, now_ns - WINDOW_NS, now_ns)


def as_text(ranks: Sequence[Rank], now_ns: int) -> str:
    """Return all metrics. `ranks` are those of this host, which may be none at the start."""
    arrivals = arrivals_of_ranks(ranks, now_ns)
    values = [(each, numbers(each, arrivals, now_ns)) for each in sorted(ranks, key=lambda each: each.number)]
    samples = [(_labels(each), found) for each, found in values]
    of_links = [
        (f'{_labels(each)},peer="{link.peer}"', _values_of_link(link))
        for each, _ in values
        for link in each.recording.links[:_MOST_LINKS]
    ]
    return "\n".join([*_families(_FAMILIES, samples), *_families(_OF_LINKS, of_links), "# EOF", ""])


def _families(
    families: Mapping[str, tuple[str, str, str]], samples: Sequence[tuple[str, Mapping[str, _Value]]]
) -> Iterator[str]:
    for short, (kind, unit, text) in families.items():
        name = f"farandole_{short}"
        yield from (f"# TYPE {name} {kind}", *([f"# UNIT {name} {unit}"] if unit else []), f"# HELP {name} {text}")
        for labels, values in samples:
            if (value := values[short]) is not None:
                yield f"{name}{'_total' if kind == 'counter' else ''}{{{labels}}} {value}"


def _labels(rank: Rank) -> str:
    return f'job="{_escaped(rank.recording.run)}",rank="{rank.number}"'


def _values_of_link(link: Link) -> dict[str, _Value]:
    return {
        "link_sent_bytes": link.sent_bytes,
        "link_received_bytes": link.received_bytes,
        "link_sending_seconds": link.sending_us / 1e6,
        "link_retransmits": link.retransmits,
        "link_round_trip_seconds": link.round_trip_us / 1e6,
    }


def numbers(rank: Rank, arrivals: Arrivals, now_ns: int) -> dict[str, _Value]:
    """Return the numbers of a rank, which the page and TensorBoard also show."""
    recording = rank.recording
    measured = measure(recording.operations, now_ns, arrivals)
    pending = rank.pending if rank.is_there else []
    oldest = min((each.submitted_ns for each in pending), default=now_ns)
    return {
        "job_ranks": recording.size,
        "operations": recording.begun,
        "operations_in_flight": len(pending),
        "oldest_operation_seconds": max(0, now_ns - oldest) / 1e9,
        "operand_bytes_per_second": round(measured.bytes_per_s, 1),
        "in_operations_ratio": round(measured.in_flight, 6),
        "waiting_ratio": round(measured.waiting, 6),
        "waited_for_ratio": round(arrivals.kept_share(rank.number), 6),
        "step_seconds": None if measured.step_ns is None else measured.step_ns / 1e9,
        "resident_memory_bytes": rank.memory_bytes,
        "up": int(rank.is_there),
    }


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
