"""`tamis plan`: show what a scan would read, and what it would skip and why."""

from __future__ import annotations

import json

import click

from tamis.cli.errors import debug_option
from tamis.cli.options import Request, json_option, request_options
from tamis.cli.output import format_json_array, is_terminal, write
from tamis.cli.progress import is_interactive, make_bytes_meter, show_progress
from tamis.cli.text import escape_control_characters
from tamis.scan.planning.plan import DEPTHS, ScanPlan
from tamis.scan.report.report import Report, describe_outcome, format_bytes
from tamis.skipping.metrics import is_not_needed
from tamis.skipping.prune import ConjunctOutcome


@click.command(
    short_help="Show what a scan would read, and what it would skip and why.",
    epilog="Example: tamis plan orders --where \"day = DATE '2024-03-03' AND amount > 40\"",
)
@request_options(
    limit="As in scan. A plan lists all files, regardless of the limit.",
)
@click.option(
    "--depth",
    type=click.Choice(DEPTHS),
    default="pages",
    show_default=True,
    help="The finest level to plan; with files, no file is opened.",
)
@json_option("One JSON object: the report and the files to read.")
@debug_option
def plan(request: Request, depth: str, as_json: bool) -> None:
    """Show how much each level of pruning keeps, and what each predicate of the filter skipped."""
    scan = request.scan()
    with show_progress(make_bytes_meter("planning", scan), is_wanted=is_interactive()):
        planned = scan.plan(depth)
    if as_json:
        write(_format_json(planned))
    elif is_terminal():
        _show(planned.report)
    else:
        write(f"{planned}\n")


def _format_json(planned: ScanPlan) -> str:
    head = {"depth": planned.depth, **planned.report.to_dict()}
    text = json.dumps(head, indent=2, ensure_ascii=False, allow_nan=False)
    return f'{text.removesuffix("}").rstrip()},\n  "files": {format_json_array(planned.files)}\n}}\n'


def _show(report: Report) -> None:
    from rich.text import Text

    from tamis.cli.terminal import make_plain_table, open_console

    console = open_console()
    title = (escape_control_characters(f"{report.table} ({report.format})"), "bold")
    console.print(
        Text.assemble(title, escape_control_characters(f" where {report.where}" if report.where else ", all rows"))
    )
    console.print()
    if report.note is not None:
        console.print(escape_control_characters(report.note))
        return
    funnel = make_plain_table(("level", "total", "kept", "bytes", "kept bytes"), (False, True, True, True, True))
    for level in report.levels:
        sizes = (format_bytes(level.bytes_total), format_bytes(level.bytes_kept))
        funnel.add_row(level.level, f"{level.total:,}", f"{level.kept:,}", *sizes)
    console.print(funnel)
    details = make_plain_table(("level", "predicate", "result"), (False, False, False))
    for level in report.levels:
        rows = [
            (
                Text(escape_control_characters(outcome.predicate)),
                Text(escape_control_characters(describe_outcome(outcome)), style=_choose_style(outcome)),
            )
            for outcome in level.by_predicate
        ]
        if level.note:
            rows.append((Text(""), Text(escape_control_characters(level.note), style="dim")))
        for index, (predicate, outcome) in enumerate(rows):
            details.add_row("" if index else level.level, predicate, outcome)
    # Predicates may wrap; the level and the result must stay readable.
    details.columns[0].min_width = max((len(level.level) for level in report.levels), default=0)
    details.columns[1].overflow = "fold"
    details.columns[1].no_wrap = False
    details.columns[1].ratio = 1
    details.columns[2].overflow = "fold"
    details.columns[2].no_wrap = False
    if details.row_count:
        console.print()
        console.print(details)


def _choose_style(outcome: ConjunctOutcome) -> str:
    if outcome.skipped:
        return "green"
    return "dim" if outcome.unused_because is None or is_not_needed(outcome) else "yellow"
