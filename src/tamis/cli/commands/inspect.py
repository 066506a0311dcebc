"""`tamis inspect`: show the metadata of a Parquet file, and how well its layout supports data skipping."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click
import pyarrow as pa

from tamis.cli.errors import debug_option
from tamis.cli.export import STDOUT, check_no_overwrite, open_new_file
from tamis.cli.options import json_option, storage_option
from tamis.cli.output import (
    ROWS_PER_TABLE,
    align_cells,
    explain_write_errors,
    flush,
    format_json_array,
    format_json_rows,
    is_terminal,
    print_note,
    write,
    write_all,
)
from tamis.cli.text import escape_control_characters, format_cells
from tamis.errors import InvalidArgument, format_count
from tamis.parquet.inspection.inspect_file import ColumnInspection, FileInspection
from tamis.parquet.inspection.inspect_file import inspect as inspect_file
from tamis.scan.report.page_ranges_svg import draw_page_ranges, format_percent
from tamis.scan.report.report import format_bytes
from tamis.types import is_number

if TYPE_CHECKING:
    from rich.console import Console

ROW_GROUPS_ON_A_TERMINAL = 20
_MAX_NAMES = 20
_LONGEST_VALUE = 32
_LONGEST_NAME = 60
_LONGEST_WORD = 12
_WRAPPED = ("type", "encodings", "dictionary", "Bloom filter")
_WHOLE = ("min", "max", "overlap")

_BOUNDS_NOTE = "≥ ≤ a truncated bound, not a value;  ? the file does not say whether the bound is truncated"
_OVERLAP_NOTE = "overlap: the share of pages (or row groups) whose range holds a typical value; 100 % if unsorted"
_PAGES_NOTE = "min and max of pages are bounds: those of strings and binary values may be truncated"


def _require_one_name(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> str | None:
    if len(values) > 1:
        raise click.BadParameter(f"{', '.join(values)}: name one column, or omit the option for all columns")
    return values[0] if values else None


@click.command(
    short_help="Show the metadata of a Parquet file, down to its pages.",
    epilog="""\b
Examples:
  tamis inspect orders/part-0.parquet
  tamis inspect orders/part-0.parquet --column id --pages
  tamis inspect orders/part-0.parquet --column id --svg id.svg
""",
)
@click.argument("file", metavar="FILE")
@click.option(
    "--column",
    metavar="NAME",
    multiple=True,
    callback=_require_one_name,
    help="Only this column; a field of a struct is a.b.  [default: all]",
)
@click.option("--pages", "with_pages", is_flag=True, help="List pages too.")
@json_option("One JSON object.")
@click.option(
    "--svg",
    metavar="FILE",
    help="Write a chart of the column as SVG: min to max of each page along the file; - is stdout.",
)
@storage_option
@debug_option
def inspect(
    file: str,
    column: str | None,
    with_pages: bool,
    as_json: bool,
    svg: str | None,
    storage_options: Mapping[str, str] | None,
) -> None:
    """Show the row groups, and for each column its storage, bounds, page index, Bloom filters and clustering.

    FILE is one Parquet file: a local path or s3://, gs://, abfss://, hdfs://. Only metadata is read.
    """
    if svg is not None and column is None:
        raise click.UsageError("--svg draws one column: name it with --column")
    if svg == STDOUT and as_json:
        raise click.UsageError("--json and --svg - both write to stdout: name a file for the chart")
    found = inspect_file(file, column, storage_options=storage_options)
    if svg is not None:
        chart = draw_page_ranges(found, _find_single_column(found, column)).encode()
        if svg == STDOUT:
            write(chart)
            return
        check_no_overwrite(found.location, svg, "--svg")
        with open_new_file(svg, "--svg") as target, explain_write_errors(f"'{svg}'"):
            write_all(target, chart)
    if as_json:
        _write_json(found, with_pages)
    elif is_terminal():
        _show(found, with_pages, is_narrowed=column is not None)
    else:
        _write_text(found, with_pages, is_narrowed=column is not None)
    if svg is not None:
        flush()
        print_note(f"chart written to {svg}")


def _find_single_column(found: FileInspection, name: str | None) -> ColumnInspection:
    if len(found.columns) > 1:
        names = ", ".join(column.name for column in found.columns[:_MAX_NAMES])
        raise InvalidArgument(f"--svg draws one column, but {name!r} has several fields: name one of {names}")
    return found.columns[0]


# --- JSON ------------------------------------------------------------------------------------------------------------


def _write_json(found: FileInspection, with_pages: bool) -> None:
    head = json.dumps(found.facts, indent=2, ensure_ascii=False).removesuffix("\n}")
    columns = ",\n".join(_format_column_json(column, with_pages) for column in found.columns)
    write(f'{head},\n  "row_groups": {format_json_array(found.row_groups)},\n  "columns": [{columns}]\n}}\n')


def _format_column_json(column: ColumnInspection, with_pages: bool) -> str:
    # Format values as everywhere on the command line, decimals with all their digits.
    facts = format_json_rows(column.summary)[0].as_py().removesuffix("}")
    remarks = json.dumps(list(column.remarks), ensure_ascii=False)
    pages = f',\n"pages": {format_json_array(column.pages)}' if with_pages else ""
    return f'{facts}, "remarks": {remarks},\n"row_groups": {format_json_array(column.row_groups)}{pages}}}'


# --- Tables, for a terminal and for a pipe ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Section:
    """A table: columns of strings, with headings; numbers are right-aligned."""

    headings: tuple[str, ...]
    columns: tuple[list[str], ...]
    are_numbers: tuple[bool, ...]
    title: str | None = None
    shown: int | None = None
    """The number of rows that a terminal shows; None for all."""

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return list(zip(*self.columns, strict=True))


def _make_section(title: str | None, *columns: tuple[str, list[str], bool], shown: int | None = None) -> _Section:
    headings, cells, are_numbers = zip(*columns, strict=True)
    return _Section(
        headings, tuple([escape_control_characters(cell) for cell in each] for each in cells), are_numbers, title, shown
    )


def _write_text(found: FileInspection, with_pages: bool, is_narrowed: bool) -> None:
    write("".join(f"{escape_control_characters(line)}\n" for line in _describe_file(found)))
    for section in _build_sections(found, with_pages, is_narrowed):
        rows = [section.headings, *section.rows]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        title = f"{escape_control_characters(section.title)}\n" if section.title else ""
        write(f"\n{title}" + "".join(align_cells(row, widths, section.are_numbers) for row in rows))
    remarks = list(_find_remarks(found, with_pages))
    write("".join(f"{escape_control_characters(line)}\n" for line in ["", *remarks] if remarks))


def _show(found: FileInspection, with_pages: bool, is_narrowed: bool) -> None:
    from rich.text import Text

    from tamis.cli.terminal import open_console

    console = open_console()
    first, *others = _describe_file(found)
    console.print(Text(escape_control_characters(first), style="bold"))
    for line in others:
        console.print(Text(escape_control_characters(line)))
    for section in _build_sections(found, with_pages, is_narrowed):
        console.print()
        if section.title:
            console.print(Text(escape_control_characters(section.title), style="bold"))
        rows = section.rows
        shown = rows[: section.shown]
        for start in range(0, max(1, len(shown)), ROWS_PER_TABLE):
            _show_rows(console, section, shown[start : start + ROWS_PER_TABLE])
        if len(shown) < len(rows):
            console.print(Text(f"… {len(rows) - len(shown):,} more: use a pipe or --json to see all", style="dim"))
    remarks = list(_find_remarks(found, with_pages))
    for line in ["", *remarks] if remarks else ():
        console.print(Text(escape_control_characters(line), style="dim"))


def _show_rows(console: Console, section: _Section, rows: Sequence[tuple[str, ...]]) -> None:
    """Show rows, in several tables if not all columns fit side by side: a number is never truncated."""
    from rich.cells import cell_len
    from rich.text import Text

    from tamis.cli.terminal import make_plain_table, split_columns

    texts = [[heading, *cells] for heading, *cells in zip(section.headings, *rows, strict=True)]
    whole = [max(map(cell_len, each)) for each in texts]
    least = [
        # Words may wrap on a narrow terminal; other strings may be truncated.
        min(_LONGEST_WORD, max(cell_len(word) for text in each for word in text.split()))
        if heading in _WRAPPED
        else width if is_number or heading in _WHOLE else min(_LONGEST_WORD, width)
        for heading, is_number, each, width in zip(section.headings, section.are_numbers, texts, whole, strict=True)
    ]  # fmt: skip
    keys = 2 if section.headings[1] == "page" else 1
    for chosen in split_columns(least, keys, console.width):
        table = make_plain_table([section.headings[at] for at in chosen], [section.are_numbers[at] for at in chosen])
        for row in rows:
            table.add_row(*(Text(row[at]) for at in chosen))
        for column, at in zip(table.columns, chosen, strict=True):
            column.min_width = least[at]
            is_alone = len(chosen) == keys + 1 and at == chosen[-1]
            # Only columns that may wrap become narrower; others do only if they do not fit at all.
            if section.headings[at] in _WRAPPED or is_alone:
                column.min_width = min(least[at], console.width // 2)
                column.no_wrap = False
                column.overflow = "fold"
        console.print(table)


# --- What is shown ---------------------------------------------------------------------------------------------------


def _describe_file(found: FileInspection) -> list[str]:
    groups = found.row_groups.num_rows
    lines = [
        f"{found.location}: {found.rows:,} rows in {format_count(groups, 'row group')}, {format_bytes(found.size)}",
        f"written by {found.created_by or 'an unknown writer'}, format {found.format_version}, "
        f"footer of {format_bytes(found.footer_size)}",
    ]
    names = found.key_value_metadata
    if names:
        more = f", … {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        shown = ", ".join(_shorten(name, _LONGEST_NAME) for name in names[:_MAX_NAMES])
        lines.append(f"key-value metadata: {shown}{more}")
    return lines


def _build_sections(found: FileInspection, with_pages: bool, is_narrowed: bool) -> Iterator[_Section]:
    if not is_narrowed:
        groups = found.row_groups
        yield _make_section(
            None,
            *_list_counts(groups, "row group", "first row", "rows"),
            ("compressed", _format_sizes(groups["compressed"]), True),
            ("unpacked", _format_sizes(groups["uncompressed"]), True),
            shown=ROW_GROUPS_ON_A_TERMINAL,
        )
    if found.columns:
        yield from _build_columns(found)
    for column in found.columns if is_narrowed else ():
        yield from _build_column_row_groups(column)
    for column in found.columns if with_pages else ():
        yield _build_pages(column)


def _build_columns(found: FileInspection) -> Iterator[_Section]:
    """Yield three tables: the storage of columns, their null counts and bounds, and their indexes and clustering."""
    summaries = [column.summary for column in found.columns]
    table = pa.Table.from_batches([each.drop_columns(["min", "max"]) for each in summaries])
    name = ("column", [_shorten(column.name, _LONGEST_NAME) for column in found.columns], False)
    kinds = [" ".join(filter(None, (column.physical, column.logical))) for column in found.columns]
    ratios = ["–" if ratio is None else f"{ratio:.1f}×" for ratio in table["ratio"].to_pylist()]
    yield _make_section(
        None,
        name,
        ("type", kinds, False),
        ("codec", _join_names(table["codecs"]), False),
        ("encodings", _join_names(table["encodings"]), False),
        ("compressed", _format_sizes(table["compressed"]), True),
        ("unpacked", _format_sizes(table["uncompressed"]), True),
        ("ratio", ratios, True),
    )
    bounds = {
        kind: [_format_bounds(each[kind], each[f"{kind}_exact"], kind)[0] for each in summaries]
        for kind in ("min", "max")
    }
    yield _make_section(
        None,
        name,
        ("nulls", _format_counts(table["nulls"]), True),
        *_format_distinct("most distinct", table["max_distinct_count"]),
        ("min", bounds["min"], False),
        ("max", bounds["max"], False),
    )
    groups = found.row_groups.num_rows
    filters = [
        "no" if not number else "yes" if number == groups else f"in {number:,} of {groups:,} row groups"
        for number in table["bloom_filters"].to_pylist()
    ]
    yield _make_section(
        None,
        name,
        ("page index", table["page_index"].to_pylist(), False),
        ("pages", _format_counts(table["page_count"]), True),
        ("dictionary", _append_sizes(table["dictionary"].to_pylist(), table["dictionary_bytes"]), False),
        ("Bloom filter", _append_sizes(filters, table["bloom_filter_bytes"]), False),
        ("overlap", list(map(_format_overlap, found.columns)), False),
    )


def _format_distinct(title: str, counts: pa.ChunkedArray) -> list[tuple[str, list[str], bool]]:
    """Return the column of distinct counts if some are known: few writers count them."""
    return [(title, _format_counts(counts), True)] if counts.null_count < len(counts) else []


def _build_column_row_groups(column: ColumnInspection) -> Iterator[_Section]:
    groups = column.row_groups
    number = ("row group", _format_counts(groups["row_group"]), True)
    filters = ["yes" if has_filter else "no" for has_filter in groups["bloom_filter"].to_pylist()]
    yield _make_section(
        f"row groups of {_shorten(column.name, _LONGEST_NAME)}",
        number,
        *_list_counts(groups, "rows", "nulls"),
        *_format_distinct("distinct", groups["distinct_count"]),
        ("min", _format_bounds(groups["min"], groups["min_exact"], "min"), False),
        ("max", _format_bounds(groups["max"], groups["max_exact"], "max"), False),
        shown=ROW_GROUPS_ON_A_TERMINAL,
    )
    yield _make_section(
        None,
        number,
        ("compressed", _format_sizes(groups["compressed"]), True),
        ("pages", _format_counts(groups["page_count"]), True),
        ("dictionary", _append_sizes(groups["dictionary"].to_pylist(), groups["dictionary_bytes"]), False),
        ("Bloom filter", _append_sizes(filters, groups["bloom_filter_bytes"]), False),
        shown=ROW_GROUPS_ON_A_TERMINAL,
    )


def _build_pages(column: ColumnInspection) -> _Section:
    pages = column.pages
    missing = "" if pages.num_rows else ": unknown, the file has no page index"
    return _make_section(
        f"pages of {_shorten(column.name, _LONGEST_NAME)}{missing}",
        *_list_counts(pages, "row group", "page", "first row", "rows", "offset", "bytes", "nulls"),
        ("min", _format_values(pages["min"]), False),
        ("max", _format_values(pages["max"]), False),
    )


def _find_remarks(found: FileInspection, with_pages: bool) -> Iterator[str]:
    bounds = [column.summary for column in found.columns]
    flags = [
        batch[f"{kind}_exact"][0].as_py() for batch in bounds for kind in ("min", "max") if batch[kind][0].is_valid
    ]
    if not all(flags):
        yield _BOUNDS_NOTE
    if any(column.clustering is not None for column in found.columns):
        yield _OVERLAP_NOTE
    if with_pages and any(column.pages["min"].type in (pa.string(), pa.binary()) for column in found.columns):
        yield _PAGES_NOTE
    for column in found.columns:
        yield from (f"ignored: {remark}" for remark in column.remarks)


# --- Formatting ------------------------------------------------------------------------------------------------------


def _format_counts(column: pa.ChunkedArray) -> list[str]:
    return ["–" if number is None else f"{number:,}" for number in column.to_pylist()]


def _list_counts(table: pa.Table, *headings: str) -> list[tuple[str, list[str], bool]]:
    return [(heading, _format_counts(table[heading.replace(" ", "_")]), True) for heading in headings]


def _format_sizes(column: pa.ChunkedArray) -> list[str]:
    return list(map(format_bytes, column.to_pylist()))


def _join_names(lists: pa.ChunkedArray) -> list[str]:
    return [", ".join(names) or "–" for names in lists.to_pylist()]


def _append_sizes(answers: Sequence[str], sizes: pa.ChunkedArray) -> list[str]:
    return [
        f"{answer}, {format_bytes(size)}" if answer != "no" and size else answer
        for answer, size in zip(answers, sizes.to_pylist(), strict=True)
    ]


def _format_overlap(column: ColumnInspection) -> str:
    found = column.clustering
    if found is None:
        return "–"
    unit = "page" if found.unit == "pages" else "row group"
    return f"{format_percent(found.overlap)} of {format_count(found.units, unit)}"


def _format_bounds(values: pa.Array | pa.ChunkedArray, exact: pa.Array | pa.ChunkedArray, kind: str) -> list[str]:
    sign = "≥" if kind == "min" else "≤"
    return [
        text if flag or text == "–" else f"{sign} {text}" if flag is False else f"{text} ?"
        for text, flag in zip(_format_values(values), exact.to_pylist(), strict=True)
    ]


def _format_values(values: pa.Array | pa.ChunkedArray) -> list[str]:
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    # A truncated number would be a different number.
    shorten = str if is_number(array.type) else partial(_shorten, longest=_LONGEST_VALUE)
    return [
        "–" if text is None else shorten(escape_control_characters(text)) or "''"
        for text in format_cells(array).to_pylist()
    ]


def _shorten(text: str, longest: int) -> str:
    """Return a text truncated for a terminal; a pipe gets all of it."""
    return text if len(text) <= longest or not is_terminal() else text[: longest - 1] + "…"
