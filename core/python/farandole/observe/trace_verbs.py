"""The commands of `farandole` for recorded jobs: report, timeline."""

from __future__ import annotations

from pathlib import Path

import click

from farandole.launch.shared_options import CONTEXT, print_error


@click.command(context_settings=CONTEXT, short_help="Write a page about a run: where its time went.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--beside", type=click.Path(path_type=Path), metavar="FILE", help="A run to compare with.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="File to write; report.html by default."
)
def report(files: tuple[Path, ...], beside: Path | None, output: Path | None) -> int:
    """Write one HTML page about a run that `farandole run --timeline-filename FILE` has recorded.

    FILE is that name, or the files of the ranks, or a trace that was saved from the live page.

    \b
        farandole run -np 4 --timeline-filename trace.json train.py
        farandole report trace.json
    """  # noqa: D301  (click wants the character)
    from farandole.observe import timeline as traces
    from farandole.observe.report import report as page_about
    from farandole.observe.report.trace import TraceError

    target = output or Path("report.html")
    try:
        text, notes = page_about([files] if beside is None else [[beside], files])
        target.write_text(text, encoding="utf-8")
    except (traces.TimelineError, TraceError, OSError) as error:
        print_error(str(error))
        return 1
    for sentence in notes:
        print_error(sentence)
    click.echo(f"{target}: open it in a browser.")
    return 0


@click.command(context_settings=CONTEXT, short_help="Make one trace of the traces of all ranks.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="File to write; by default beside them."
)
def timeline(files: tuple[Path, ...], output: Path | None) -> int:
    """Merge what `farandole run --timeline-filename FILE` has recorded.

    FILE is that name, or the files of the ranks. https://ui.perfetto.dev opens the result.

    \b
        farandole run -np 4 --timeline-filename trace.json train.py
        farandole timeline trace.json
    """  # noqa: D301  (click wants the character)
    from farandole.observe import timeline as traces

    try:
        found, about_others = traces.of_one_run(traces.find(files))
        target = output or traces.default_output(found)
        if target in found:
            raise traces.TimelineError(f"--output {target} is one of the files to be merged")
        count = traces.merge(target, found)
    except (traces.TimelineError, OSError) as error:
        print_error(str(error))
        return 1
    if about_others:
        print_error(about_others)
    click.echo(f"{target}: {count} events of {traces.ranks_of(found)} ranks. Open it in https://ui.perfetto.dev")
    return 0
