"""`tamis inspect`: what one Parquet file says of itself, and how well it is laid out for skipping."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click
import pyarrow as pa

from tamis.cli.errors import debug_option
from tamis.cli.export import STDOUT, new_file, refuse_to_overwrite
from tamis.cli.options import json_option, storage_option
from tamis.cli.output import (
    ROWS_OF_A_TABLE,
    aligned,
    explained_writing,
    flush,
    is_terminal,
    json_array,
    json_rows,
    note,
    write,
    write_all,
)
from tamis.cli.text import cell_texts, printable
from tamis.errors import InvalidArgument
from tamis.parquet.inspection import ColumnInspection, FileInspection
from tamis.parquet.inspection import inspect as inspect_file
from tamis.report.page_ranges_svg import page_ranges_svg, percent
from tamis.scan.funnel import format_bytes
from tamis.types import is_number

if TYPE_CHECKING:
    from rich.console import Console

ROW_GROUPS_ON_A_TERMINAL = 20
_MOST_NAMES = 20
_LONGEST_VALUE = 32
_LONGEST_NAME = 60
_LONGEST_WORD = 12
_FOLDED = ("type", "encodings", "dictionary", "Bloom filter")
_WHOLE = ("min", "max", "overlap")

_MARKED = "≥ ≤ a bound that was cut short, and no value;  ? the file does not say whether it was"
_OVERLAP = "overlap: the share of pages, or else row groups, whose range holds a typical value; 100 % without any order"
_CUT = "min and max of pages are bounds: those of texts and bytes may be cut short"


def _one_name(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> str | None:
    if len(values) > 1:
        raise click.BadParameter(f"{', '.join(values)}: name one column, or leave it away for all")
    return values[0] if values else None


@click.command(
    short_help="Show what a Parquet file says of itself, down to its pages.",
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
    callback=_one_name,
    help="Only this column; a field of a struct is a.b.  [default: all]",
)
@click.option("--pages", "with_pages", is_flag=True, help="List the pages too.")
@json_option("One JSON object.")
@click.option(
    "--svg",
    metavar="PICTURE",
    help="Write a picture of the column along the file, min to max of each page; - is stdout.",
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
    """Show row groups, how each column is stored, its bounds, its indexes and filters, and how clustered it is.

    FILE is one Parquet file: a local path or s3://, gs://, abfss://, hdfs://. Nothing but metadata is read.
    """
    if svg is not None and column is None:
        raise click.UsageError("--svg draws one column: name it with --column")
    if svg == STDOUT and as_json:
        raise click.UsageError("--json and --svg - both write to stdout: name a file for the picture")
    found = inspect_file(file, column, storage_options=storage_options)
    if svg is not None:
        picture = page_ranges_svg(found, _only_column(found, column)).encode()
        if svg == STDOUT:
            write(picture)
            return
        refuse_to_overwrite(found.place, svg, "--svg")
        with new_file(svg, "--svg") as target, explained_writing(f"'{svg}'"):
            write_all(target, picture)
    if as_json:
        _write_json(found, with_pages)
    elif is_terminal():
        _show(found, with_pages, is_narrowed=column is not None)
    else:
        _write_text(found, with_pages, is_narrowed=column is not None)
    if svg is not None:
        flush()
        note(f"picture written to {svg}")


def _only_column(found: FileInspection, name: str | None) -> ColumnInspection:
    if len(found.columns) > 1:
        names = ", ".join(column.name for column in found.columns[:_MOST_NAMES])
        raise InvalidArgument(f"--svg draws one column, and {name!r} has several inside: name one of {names}")
    return found.columns[0]


# --- JSON ------------------------------------------------------------------------------------------------------------


def _write_json(found: FileInspection, with_pages: bool) -> None:
    head = json.dumps(found.facts, indent=2, ensure_ascii=False).removesuffix("\n}")
    columns = ",\n".join(_column_json(column, with_pages) for column in found.columns)
    write(f'{head},\n  "row_groups": {json_array(found.row_groups)},\n  "columns": [{columns}]\n}}\n')


def _column_json(column: ColumnInspection, with_pages: bool) -> str:
    # Values as everywhere on the command line, decimals with all their digits: Arrow's rows become the text.
    facts = json_rows(column.summary)[0].as_py().removesuffix("}")
    remarks = json.dumps(list(column.remarks), ensure_ascii=False)
    pages = f',\n"pages": {json_array(column.pages)}' if with_pages else ""
    return f'{facts}, "remarks": {remarks},\n"row_groups": {json_array(column.row_groups)}{pages}}}'


# --- Tables, for a terminal and for a pipe ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Section:
    """A table: columns of texts, with headings; numbers are aligned at the right."""

    headings: tuple[str, ...]
    columns: tuple[list[str], ...]
    are_numbers: tuple[bool, ...]
    title: str | None = None
    shown: int | None = None
    """How many rows a terminal shows; None is all."""

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return list(zip(*self.columns, strict=True))


def _section(title: str | None, *columns: tuple[str, list[str], bool], shown: int | None = None) -> _Section:
    headings, cells, are_numbers = zip(*columns, strict=True)
    return _Section(headings, tuple([printable(cell) for cell in each] for each in cells), are_numbers, title, shown)


def _write_text(found: FileInspection, with_pages: bool, is_narrowed: bool) -> None:
    write("".join(f"{printable(line)}\n" for line in _head(found)))
    for section in _sections(found, with_pages, is_narrowed):
        rows = [section.headings, *section.rows]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        title = f"{printable(section.title)}\n" if section.title else ""
        write(f"\n{title}" + "".join(aligned(row, widths, section.are_numbers) for row in rows))
    remarks = list(_remarks(found, with_pages))
    write("".join(f"{printable(line)}\n" for line in ["", *remarks] if remarks))


def _show(found: FileInspection, with_pages: bool, is_narrowed: bool) -> None:
    from rich.text import Text

    from tamis.cli.terminal import terminal

    console = terminal()
    first, *others = _head(found)
    console.print(Text(printable(first), style="bold"))
    for line in others:
        console.print(Text(printable(line)))
    for section in _sections(found, with_pages, is_narrowed):
        console.print()
        if section.title:
            console.print(Text(printable(section.title), style="bold"))
        rows = section.rows
        shown = rows[: section.shown]
        for start in range(0, max(1, len(shown)), ROWS_OF_A_TABLE):
            _show_rows(console, section, shown[start : start + ROWS_OF_A_TABLE])
        if len(shown) < len(rows):
            console.print(Text(f"… {len(rows) - len(shown):,} more, in a pipe or with --json", style="dim"))
    remarks = list(_remarks(found, with_pages))
    for line in ["", *remarks] if remarks else ():
        console.print(Text(printable(line), style="dim"))


def _show_rows(console: Console, section: _Section, rows: Sequence[tuple[str, ...]]) -> None:
    """Show rows, in several tables below each other where not all columns fit: a number is never cut."""
    from rich.cells import cell_len
    from rich.text import Text

    from tamis.cli.terminal import plain_table, split_columns

    texts = [[heading, *cells] for heading, *cells in zip(section.headings, *rows, strict=True)]
    whole = [max(map(cell_len, each)) for each in texts]
    least = [
        # Words may take several lines on a narrow terminal, other texts may be cut.
        min(_LONGEST_WORD, max(cell_len(word) for text in each for word in text.split()))
        if heading in _FOLDED
        else width if is_number or heading in _WHOLE else min(_LONGEST_WORD, width)
        for heading, is_number, each, width in zip(section.headings, section.are_numbers, texts, whole, strict=True)
    ]  # fmt: skip
    keys = 2 if section.headings[1] == "page" else 1
    for chosen in split_columns(least, keys, console.width):
        table = plain_table([section.headings[at] for at in chosen], [section.are_numbers[at] for at in chosen])
        for row in rows:
            table.add_row(*(Text(row[at]) for at in chosen))
        for column, at in zip(table.columns, chosen, strict=True):
            column.min_width = least[at]
            is_alone = len(chosen) == keys + 1 and at == chosen[-1]
            # What may wrap is made narrower than it need be: other columns may not, unless they fit nowhere.
            if section.headings[at] in _FOLDED or is_alone:
                column.min_width = min(least[at], console.width // 2)
                column.no_wrap = False
                column.overflow = "fold"
        console.print(table)


# --- What is shown ---------------------------------------------------------------------------------------------------


def _head(found: FileInspection) -> list[str]:
    groups = found.row_groups.num_rows
    lines = [
        f"{found.place}: {found.rows:,} rows in {_counted(groups, 'row group')}, {format_bytes(found.size)}",
        f"written by {found.created_by or 'nobody knows whom'}, format {found.format_version}, "
        f"footer of {format_bytes(found.footer_size)}",
    ]
    names = found.key_value_metadata
    if names:
        more = f", … {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        shown = ", ".join(_shortened(name, _LONGEST_NAME) for name in names[:_MOST_NAMES])
        lines.append(f"key-value metadata: {shown}{more}")
    return lines


def _sections(found: FileInspection, with_pages: bool, is_narrowed: bool) -> Iterator[_Section]:
    if not is_narrowed:
        yield _row_groups(found.row_groups)
    if found.columns:
        yield from _columns(found)
    for column in found.columns if is_narrowed else ():
        yield from _row_groups_of(column)
    for column in found.columns if with_pages else ():
        yield _pages_of(column)


def _row_groups(groups: pa.Table) -> _Section:
    return _section(
        None,
        ("row group", _counts(groups["row_group"]), True),
        ("first row", _counts(groups["first_row"]), True),
        ("rows", _counts(groups["rows"]), True),
        ("compressed", _sizes(groups["compressed"]), True),
        ("unpacked", _sizes(groups["uncompressed"]), True),
        shown=ROW_GROUPS_ON_A_TERMINAL,
    )


def _columns(found: FileInspection) -> Iterator[_Section]:
    """Three tables: how columns are stored, what is in them, and what helps to find something in them."""
    summaries = [column.summary for column in found.columns]
    table = pa.Table.from_batches([each.drop_columns(["min", "max"]) for each in summaries])
    name = ("column", [_shortened(column.name, _LONGEST_NAME) for column in found.columns], False)
    kinds = [" ".join(filter(None, (column.physical, column.logical))) for column in found.columns]
    ratios = ["–" if ratio is None else f"{ratio:.1f}×" for ratio in table["ratio"].to_pylist()]
    yield _section(
        None,
        name,
        ("type", kinds, False),
        ("codec", _joined(table["codecs"]), False),
        ("encodings", _joined(table["encodings"]), False),
        ("compressed", _sizes(table["compressed"]), True),
        ("unpacked", _sizes(table["uncompressed"]), True),
        ("ratio", ratios, True),
    )
    bounds = {
        kind: [_bounds(each[kind], each[f"{kind}_exact"], kind)[0] for each in summaries] for kind in ("min", "max")
    }
    yield _section(
        None,
        name,
        ("nulls", _counts(table["nulls"]), True),
        ("min", bounds["min"], False),
        ("max", bounds["max"], False),
    )
    filters = [_how_many(number, found.row_groups.num_rows) for number in table["bloom_filters"].to_pylist()]
    yield _section(
        None,
        name,
        ("page index", table["page_index"].to_pylist(), False),
        ("pages", _counts(table["page_count"]), True),
        ("dictionary", _with_sizes(table["dictionary"].to_pylist(), table["dictionary_bytes"]), False),
        ("Bloom filter", _with_sizes(filters, table["bloom_filter_bytes"]), False),
        ("overlap", list(map(_overlap, found.columns)), False),
    )


def _row_groups_of(column: ColumnInspection) -> Iterator[_Section]:
    groups = column.row_groups
    number = ("row group", _counts(groups["row_group"]), True)
    filters = ["yes" if has_filter else "no" for has_filter in groups["bloom_filter"].to_pylist()]
    yield _section(
        f"row groups of {_shortened(column.name, _LONGEST_NAME)}",
        number,
        ("rows", _counts(groups["rows"]), True),
        ("nulls", _counts(groups["nulls"]), True),
        ("min", _bounds(groups["min"], groups["min_exact"], "min"), False),
        ("max", _bounds(groups["max"], groups["max_exact"], "max"), False),
        shown=ROW_GROUPS_ON_A_TERMINAL,
    )
    yield _section(
        None,
        number,
        ("compressed", _sizes(groups["compressed"]), True),
        ("pages", _counts(groups["page_count"]), True),
        ("dictionary", _with_sizes(groups["dictionary"].to_pylist(), groups["dictionary_bytes"]), False),
        ("Bloom filter", _with_sizes(filters, groups["bloom_filter_bytes"]), False),
        shown=ROW_GROUPS_ON_A_TERMINAL,
    )


def _pages_of(column: ColumnInspection) -> _Section:
    pages = column.pages
    missing = "" if pages.num_rows else ": not known, there is no page index"
    return _section(
        f"pages of {_shortened(column.name, _LONGEST_NAME)}{missing}",
        ("row group", _counts(pages["row_group"]), True),
        ("page", _counts(pages["page"]), True),
        ("first row", _counts(pages["first_row"]), True),
        ("rows", _counts(pages["rows"]), True),
        ("offset", _counts(pages["offset"]), True),
        ("bytes", _counts(pages["bytes"]), True),
        ("nulls", _counts(pages["nulls"]), True),
        ("min", _values(pages["min"]), False),
        ("max", _values(pages["max"]), False),
    )


def _remarks(found: FileInspection, with_pages: bool) -> Iterator[str]:
    bounds = [column.summary for column in found.columns]
    flags = [
        batch[f"{kind}_exact"][0].as_py() for batch in bounds for kind in ("min", "max") if batch[kind][0].is_valid
    ]
    if not all(flags):
        yield _MARKED
    if any(column.clustering is not None for column in found.columns):
        yield _OVERLAP
    if with_pages and any(_may_be_cut(column.pages["min"].type) for column in found.columns):
        yield _CUT
    for column in found.columns:
        yield from (f"not believed: {remark}" for remark in column.remarks)


# --- Words -----------------------------------------------------------------------------------------------------------


def _counted(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def _counts(column: pa.ChunkedArray) -> list[str]:
    return ["–" if number is None else f"{number:,}" for number in column.to_pylist()]


def _sizes(column: pa.ChunkedArray) -> list[str]:
    return list(map(format_bytes, column.to_pylist()))


def _joined(lists: pa.ChunkedArray) -> list[str]:
    return [", ".join(names) or "–" for names in lists.to_pylist()]


def _with_sizes(answers: Sequence[str], sizes: pa.ChunkedArray) -> list[str]:
    return [
        f"{answer}, {format_bytes(size)}" if answer != "no" and size else answer
        for answer, size in zip(answers, sizes.to_pylist(), strict=True)
    ]


def _how_many(number: int, row_groups: int) -> str:
    return "no" if not number else "yes" if number == row_groups else f"in {number:,} of {row_groups:,} row groups"


def _overlap(column: ColumnInspection) -> str:
    found = column.clustering
    if found is None:
        return "–"
    unit = "page" if found.unit == "pages" else "row group"
    return f"{percent(found.overlap)} of {_counted(found.units, unit)}"


def _bounds(values: pa.Array | pa.ChunkedArray, exact: pa.Array | pa.ChunkedArray, kind: str) -> list[str]:
    sign = "≥" if kind == "min" else "≤"
    return [
        text if flag or text == "–" else f"{sign} {text}" if flag is False else f"{text} ?"
        for text, flag in zip(_values(values), exact.to_pylist(), strict=True)
    ]


def _values(values: pa.Array | pa.ChunkedArray) -> list[str]:
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    # A number that is cut short would be another one.
    shorten = str if is_number(array.type) else partial(_shortened, longest=_LONGEST_VALUE)
    return ["–" if text is None else shorten(printable(text)) or "''" for text in cell_texts(array).to_pylist()]


def _may_be_cut(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_binary(data_type))


def _shortened(text: str, longest: int) -> str:
    """A text cut short to fit a terminal; a pipe gets all of it."""
    return text if len(text) <= longest or not is_terminal() else text[: longest - 1] + "…"
