"""Output to stdout in a pipe: tab-separated lines, plain text or JSON. For a terminal see `tamis.cli.terminal`.

Tab-separated lines have the format of PostgreSQL's COPY: a line of names, then a line for each row. NULL is `\\N`, and
a backslash, tab or line break inside a value is `\\\\`, `\\t`, `\\n` or `\\r`. A pipe gets UTF-8 without colours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import IO, Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from tamis.cli.text import escape_control_characters, format_cells, format_json_objects, join_lines
from tamis.errors import StorageError, UnknownColumn, suggest_name
from tamis.scan.reading.pipeline import coalesce_batches

NULL_IN_LINES = "\\N"
ROWS_PER_TABLE = 1_000
ROWS_ON_A_TERMINAL = 20

_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


def is_terminal() -> bool:
    """Return whether stdout is a terminal. It ignores settings that force colours, which must not affect a pipe."""
    # A process may be started with a closed stdout.
    return sys.stdout is not None and sys.stdout.isatty()


def write(content: str | bytes | pa.Buffer) -> None:
    """Write to stdout as UTF-8, regardless of the locale."""
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    with explain_write_errors("stdout"):
        if sys.stdout is None:
            raise StorageError("cannot write to stdout: it is closed. Redirect it to a file or a program")
        write_all(sys.stdout.buffer, data)


def write_all(stream: IO[bytes], data: bytes | pa.Buffer) -> None:
    """Write all of the data: an unbuffered stream, such as stdout under `python -u`, may write only a part of it."""
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[stream.write(remaining) :]


def flush() -> None:
    """Flush stdout: an error is raised here, where it is handled, instead of when Python exits."""
    with explain_write_errors("stdout"):
        if sys.stdout is not None:
            sys.stdout.flush()


@contextmanager
def explain_write_errors(location: str) -> Iterator[None]:
    """Raise operating system errors as errors of Tamis, except for a closed pipe: its reader had enough."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(f"cannot write to {location}: {error.strerror or error}") from error


def print_note(text: str) -> None:
    """Print a note to stderr, so that it is not part of the result."""
    click.echo(escape_control_characters(text), err=True)


def write_json(value: Any) -> None:
    write(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_json_lines(batches: Iterable[pa.RecordBatch]) -> None:
    """Write one JSON object for each row, each on its own line."""
    for batch in _coalesce(batches):
        write(join_lines(batch, format_json_rows(batch)))


def format_json_rows(batch: pa.RecordBatch) -> pa.Array:
    return format_json_objects(batch.schema.names, batch.columns, batch.num_rows)


def format_json_array(table: pa.Table) -> str:
    """Return the rows of a table as a JSON array, with an object on each line."""
    rows = [text for batch in table.to_batches() for text in format_json_rows(batch).to_pylist()]
    return "[\n" + ",\n".join(rows) + "\n]" if rows else "[]"


def select_columns(rows: pa.Table, names: Sequence[str], of: str) -> pa.Table:
    """Return some columns of a list that a command prints. `of` names the list in messages."""
    for name in names:
        if name not in rows.column_names:
            hint = suggest_name(name, rows.column_names)
            raise UnknownColumn(f"{of} has no column {name!r}.{hint} Columns: {', '.join(rows.column_names)}")
    return rows.select(list(names))


def write_lines(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a line of names, then a tab-separated line for each row."""
    coalesced = _coalesce(batches)
    # Read the first batch before writing, so that a scan that fails at once writes nothing.
    first = next(coalesced, None)
    write("\t".join(_escape(pa.array(schema.names, pa.string())).to_pylist()) + "\n")
    for batch in chain([] if first is None else [first], coalesced):
        cells = [_escape(format_cells(column)).fill_null(NULL_IN_LINES) for column in batch.columns]
        write(join_lines(batch, pc.binary_join_element_wise(*cells, "\t")))


def _coalesce(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # Small batches: text is larger than columns, and a reader such as `head` needs little.
    return coalesce_batches(batches, enough_rows=8 * 1024, enough_bytes=1024 * 1024)


def _escape(texts: pa.Array) -> pa.Array:
    for character, escape in _ESCAPES:
        texts = pc.replace_substring(texts, character, escape)
    return texts


def align_cells(cells: Sequence[str], widths: Sequence[int], are_numbers: Sequence[bool]) -> str:
    """Return a plain line with columns of the given widths; numbers are right-aligned."""
    padded = (
        cell.rjust(width) if is_number else cell.ljust(width)
        for cell, width, is_number in zip(cells, widths, are_numbers, strict=True)
    )
    return "   ".join(padded).rstrip() + "\n"
