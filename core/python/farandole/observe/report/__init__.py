"""`farandole report`: one page about a run from its timeline.

trace reads events, analysis draws conclusions, and page makes the HTML. All three are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from farandole.observe import timeline
from farandole.observe.report.analysis import analyse
from farandole.observe.report.page import as_html
from farandole.observe.report.trace import TraceError, read

_STYLE = Path(__file__).with_name("page.css")


def report(runs: Sequence[Sequence[Path]]) -> tuple[str, list[str]]:
    """Return the page about one or two runs, and sentences for the user. Raises TimelineError, TraceError, OSError."""
    analyses, notes = [], []
    for given in runs:
        files, about_others = timeline.of_one_run(timeline.find(given))
        notes += [about_others] if about_others else []
        try:
            analyses.append((given[0].name, analyse(read(timeline.events(files)))))
        except TraceError as error:
            raise TraceError(f"{given[0]} {error}.") from error
    return as_html(analyses, _STYLE.read_text()), notes
