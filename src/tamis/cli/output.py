"""What goes to stdout in a pipe: tab-separated lines, plain text or JSON. For a terminal see `tamis.cli.terminal`.

Tab-separated lines are those of PostgreSQL's COPY: a line of names, then a line a row; NULL is `\\N`, and a backslash,
a tab or a line break inside a value is written `\\\\`, `\\t`, `\\n`, `\\r`. A pipe gets UTF-8 and no colours.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import IO, Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from tamis.cli.text import cell_texts, json_objects, lines, printable
from tamis.errors import StorageError, UnknownColumn, counted
from tamis.scan.coalesce import coalesce_batches

NULL_IN_LINES = "\\N"
ROWS_OF_A_TABLE = 1_000
ROWS_ON_A_TERMINAL = 20

_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


def is_terminal() -> bool:
    """Whether people read stdout. Asked of stdout itself: settings that force colours must not reach a pipe."""
    return sys.stdout.isatty()


def write(content: str | bytes | pa.Buffer) -> None:
    """Write to stdout as UTF-8, whatever the locale says."""
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    with explained_writing("stdout"):
        write_all(sys.stdout.buffer, data)


def write_all(stream: IO[bytes], data: bytes | pa.Buffer) -> None:
    """Write until all is written: a stream without a buffer, such as stdout under `python -u`, may stop before."""
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]


def flush() -> None:
    """Write what is still waiting: an error shows here, where it is handled, and not while Python ends."""
    with explained_writing("stdout"):
        sys.stdout.flush()


@contextmanager
def explained_writing(place: str) -> Iterator[None]:
    """Errors of the system in the words of Tamis. A reader that went away is none: it had enough."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(f"cannot write to {place}: {error.strerror or error}") from error


def note(text: str) -> None:
    """A remark for people, on stderr so that it is in no result."""
    click.echo(printable(text), err=True)


def note_shown(rows: int, hidden: Sequence[str], columns: int, *, has_more: bool, way_out: str) -> None:
    """Say how much of a result a terminal was shown, and how to see the rest."""
    count = counted(rows, "row")
    note(f"the first {count}; --limit N shows more, --limit all shows all" if has_more else count)
    if hidden:
        fit = f"{columns - len(hidden)} of {columns} columns fit"
        note(f"{fit}; {way_out}, --json shows all. Not shown: {', '.join(hidden)}")


def write_json(value: Any) -> None:
    """One JSON document."""
    write(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_json_lines(batches: Iterable[pa.RecordBatch]) -> None:
    """One JSON object a row, each on its line."""
    for batch in _batches_to_write(batches):
        write(lines(batch, json_rows(batch)))


def json_rows(batch: pa.RecordBatch) -> pa.Array:
    return json_objects(batch.schema.names, batch.columns, batch.num_rows)


def json_array(table: pa.Table) -> str:
    """The rows of a table as a JSON array, an object on each line."""
    rows = [text for batch in table.to_batches() for text in json_rows(batch).to_pylist()]
    return "[\n" + ",\n".join(rows) + "\n]" if rows else "[]"


def select_columns(rows: pa.Table, names: Sequence[str], of: str) -> pa.Table:
    """Some columns of a list that a command prints, which messages call `of`."""
    for name in names:
        if name not in rows.column_names:
            near = difflib.get_close_matches(name.casefold(), rows.column_names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UnknownColumn(f"{of} has no column {name!r}.{hint} Columns: {', '.join(rows.column_names)}")
    return rows.select(list(names))


def write_lines(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """A line of names, then tab-separated lines."""
    joined = _batches_to_write(batches)
    # A scan that fails at once writes nothing at all.
    first = next(joined, None)
    write("\t".join(_escaped(pa.array(schema.names, pa.string())).to_pylist()) + "\n")
    for batch in chain([] if first is None else [first], joined):
        cells = [_escaped(cell_texts(column)).fill_null(NULL_IN_LINES) for column in batch.columns]
        write(lines(batch, pc.binary_join_element_wise(*cells, "\t")))


def _batches_to_write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # Few bytes at a time: text is larger than columns, and a reader such as `head` wants little.
    return coalesce_batches(batches, enough_rows=8 * 1024, enough_bytes=1024 * 1024)


def _escaped(texts: pa.Array) -> pa.Array:
    for sign, escape in _ESCAPES:
        texts = pc.replace_substring(texts, sign, escape)
    return texts


def aligned(cells: Sequence[str], widths: Sequence[int], are_numbers: Sequence[bool]) -> str:
    """A plain line with columns of the given widths, numbers at the right."""
    padded = (
        cell.rjust(width) if is_number else cell.ljust(width)
        for cell, width, is_number in zip(cells, widths, are_numbers, strict=True)
    )
    return "   ".join(padded).rstrip() + "\n"
