"""`tamis verify`: check that pruning returns the right rows of a table."""

from __future__ import annotations

import click

from tamis.cli.errors import debug_option
from tamis.cli.options import Request, json_option, request_options
from tamis.cli.output import align_cells, flush, is_terminal, write, write_json
from tamis.cli.progress import Meter, is_interactive, show_progress
from tamis.errors import format_count
from tamis.formats.source import LEVELS, TABLE_FORMATS
from tamis.scan.report.report import format_bytes
from tamis.scan.verify import VerifyResult, assert_same_rows, list_level_subsets, name_levels, verify_each

_UNITS = ("files", "row_groups")
_HEADINGS = ("levels", "rows", *_UNITS, "bytes read", "result")
_ARE_NUMBERS = (False, True, True, True, True, False)
# Each line is printed when its run ends, so the widths cannot depend on all lines.
_WIDTHS = (max(len(name_levels((level,))) for level in LEVELS), 13, 9, 10, 10, 9)


@click.command(
    short_help="Check that pruning does not lose rows of a table.",
    epilog="Example: tamis verify orders --where \"region = 'eu' AND id BETWEEN 2800 AND 2850\"",
)
@request_options("where", "columns", columns="Compare only these columns.  [default: all]")
@json_option("One JSON object with all runs.")
@debug_option
def verify(request: Request, as_json: bool) -> None:
    """Scan with each combination of pruning levels, and compare the rows.

    The first run has all levels switched off: it reads everything and tests every row. The others must return the same
    number of rows with the same checksum, and count() must agree. The output shows each level alone, all levels
    together, and each combination that differs. The exit code is 1 if one does.
    """
    table = request.open()
    is_plain = not as_json and not is_terminal()
    results: list[VerifyResult] = []
    meter = Meter("verifying", lambda: len(results), str)
    meter.total = len(list_level_subsets(TABLE_FORMATS[table.format].levels))
    with show_progress(meter, is_wanted=is_interactive()):
        for result in verify_each(table, request.filter, request.columns):
            results.append(result)
            if is_plain and _is_shown(result):
                _write_line(result, is_first=len(results) == 1)
    if as_json:
        runs = [result.to_dict() for result in results]
        write_json({"table": table.name, "same": all(result.same for result in results), "runs": runs})
    elif is_terminal():
        _show(results)
    assert_same_rows(results)
    if not as_json:
        write(f"\n{len(results)} runs return the same {format_count(results[0].rows, 'row')}\n")


def _is_shown(result: VerifyResult) -> bool:
    """Return whether to show a result: most combinations of levels add nothing to the single levels."""
    return not result.same or len(result.levels) < 2 or result.has_every_level


def _write_line(result: VerifyResult, *, is_first: bool) -> None:
    if is_first:
        write(align_cells(_HEADINGS, _WIDTHS, _ARE_NUMBERS))
    write(align_cells(_format_cells(result), _WIDTHS, _ARE_NUMBERS))
    flush()


def _format_cells(result: VerifyResult) -> tuple[str, ...]:
    kept = (f"{result.kept.get(unit, 0):,}" for unit in _UNITS)
    outcome = "same" if result.same else "DIFFERENT"
    return (result.name, f"{result.rows:,}", *kept, format_bytes(result.bytes_read), outcome)


def _show(results: list[VerifyResult]) -> None:
    from rich.text import Text

    from tamis.cli.terminal import make_plain_table, open_console

    table = make_plain_table(_HEADINGS, _ARE_NUMBERS)
    for result in filter(_is_shown, results):
        *cells, outcome = _format_cells(result)
        table.add_row(*cells, Text(outcome, style="green" if result.same else "bold red"))
    open_console().print(table)
