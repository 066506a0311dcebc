"""Output to stdout on a terminal: aligned tables. Commands import it only there: a pipe does not need rich."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import chain, islice

import pyarrow as pa
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tamis import types
from tamis.cli.output import ROWS_ON_A_TERMINAL, ROWS_PER_TABLE, flush, print_note, write_json_lines
from tamis.cli.text import escape_control_characters, format_cells
from tamis.errors import format_count
from tamis.scan.reading.pipeline import coalesce_batches

MAX_CELL_WIDTH = 60
_BETWEEN_COLUMNS = 3


def open_console() -> Console:
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


def make_plain_table(headings: Sequence[str], are_numbers: Sequence[bool]) -> Table:
    """Return an empty table in the common style."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for heading, is_number in zip(headings, are_numbers, strict=True):
        table.add_column(Text(escape_control_characters(heading)), justify="right" if is_number else "left",
        overflow="ellipsis", no_wrap=True)  # fmt: skip
    return table


def show_rows(rows: pa.Table) -> list[str]:
    """Show rows as tables with as many columns as fit, and return the names of those that do not fit."""
    console = open_console()
    hidden: list[str] = []
    for start in range(0, max(rows.num_rows, 1), ROWS_PER_TABLE):
        hidden = _show_table(console, rows.slice(start, ROWS_PER_TABLE))
    return hidden


def show_result(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    is_default: bool,
    as_json: bool,
    way_out: str,
    reading: AbstractContextManager[object],
) -> None:
    """Show rows as tables or JSON, then a note about how much is shown; `way_out` says how to see other columns.

    With `is_default`, at most `ROWS_ON_A_TERMINAL` are shown: `batches` have one more where there are more. The first
    rows are read inside of `reading`.
    """
    coalesced = coalesce_batches(batches, enough_rows=ROWS_PER_TABLE)
    with reading:
        first = pa.Table.from_batches([*islice(coalesced, 1)], schema)
    has_more = is_default and first.num_rows > ROWS_ON_A_TERMINAL
    head = first.slice(0, ROWS_ON_A_TERMINAL) if is_default else first
    shown = 0
    hidden: list[str] = []
    for rows in chain([head], (pa.Table.from_batches([batch]) for batch in coalesced)):
        if as_json:
            write_json_lines(rows.to_batches())
        else:
            hidden = show_rows(rows)
        shown += rows.num_rows
    # Flush, so that the notes on stderr appear after the rows.
    flush()
    count = format_count(shown, "row")
    print_note(f"the first {count}; --limit N shows more, --limit all shows all" if has_more else count)
    if hidden:
        fit = f"{len(schema) - len(hidden)} of {len(schema)} columns fit"
        print_note(f"{fit}; {way_out}, --json shows all. Not shown: {', '.join(hidden)}")


def _show_table(console: Console, rows: pa.Table) -> list[str]:
    columns = [format_cells(column.combine_chunks()).to_pylist() for column in rows.columns]
    shown = count_fitting_columns(rows.column_names, columns, console.width)
    fields = [rows.schema.field(index) for index in range(shown)]
    table = make_plain_table([field.name for field in fields], [types.is_number(field.type) for field in fields])
    are_numbers = [types.is_number(field.type) for field in fields]
    for column, is_number in zip(table.columns, are_numbers, strict=True):
        if is_number:
            # A truncated number would be a different number.
            column.no_wrap, column.overflow = False, "fold"
    for cells in zip(*columns[:shown], strict=True):
        table.add_row(*(_make_cell(cell, is_number) for cell, is_number in zip(cells, are_numbers, strict=True)))
    console.print(table)
    return list(rows.column_names[shown:])


def count_fitting_columns(names: Sequence[str], columns: Sequence[Sequence[str | None]], width: int) -> int:
    """Return how many columns, from the left, fit side by side. The first always counts: it is truncated if needed."""
    used = -_BETWEEN_COLUMNS
    for index, (name, cells) in enumerate(zip(names, columns, strict=True)):
        longest = max((cell_len(cell) for cell in cells if cell is not None), default=4)
        used += _BETWEEN_COLUMNS + min(max(cell_len(name), longest, 4), MAX_CELL_WIDTH)
        if used > width and index > 0:
            return index
    return len(names)


def split_columns(widths: Sequence[int], keys: int, width: int) -> list[list[int]]:
    """Split columns into tables that fit a width. Each has the key columns, which come first and identify its rows.

    >>> split_columns([4, 10, 10, 10], 1, 50), split_columns([4, 10, 10, 10], 1, 30)
    ([[0, 1, 2, 3]], [[0, 1, 2], [0, 3]])
    """
    first = list(range(keys))
    tables = [first]
    for position in range(keys, len(widths)):
        wider = [*tables[-1], position]
        used = sum(widths[each] + _BETWEEN_COLUMNS for each in wider) - _BETWEEN_COLUMNS
        if used > width and len(tables[-1]) > keys:
            tables.append([*first, position])
        else:
            tables[-1] = wider
    return tables


def _make_cell(text: str | None, is_number: bool) -> Text:
    if text is None:
        return Text("NULL", style="dim italic")
    shown = escape_control_characters(text)
    return Text(shown if is_number or cell_len(shown) <= MAX_CELL_WIDTH else shown[: MAX_CELL_WIDTH - 1] + "…")
