"""Export rows to a file, batch by batch, under a temporary name until it is complete."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from tamis import types
from tamis.cli.errors import Command
from tamis.cli.output import explain_write_errors, format_json_rows, is_terminal, print_note, write_all
from tamis.cli.text import format_cells, join_lines
from tamis.errors import InvalidArgument, format_count
from tamis.scan.reading.pipeline import coalesce_batches
from tamis.types import type_name_with_article

STDOUT = "-"

FORMATS_BY_EXTENSION = {
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".arrows": "arrows",
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
OUTPUT_FORMATS = tuple(dict.fromkeys(FORMATS_BY_EXTENSION.values()))
_TEXT_FORMATS = ("csv", "jsonl")


class Writer(Protocol):
    def write_batch(self, batch: pa.RecordBatch) -> None: ...
    def close(self) -> None: ...


class _Sink:
    """An output stream that counts its position (pipes have none) and names its location in errors."""

    def __init__(self, stream: IO[bytes], location: str) -> None:
        self._stream = stream
        self._location = location
        self._position = 0
        self._is_over = False
        self.closed = False

    def write(self, data: Any) -> int:
        if not self._is_over:
            with explain_write_errors(self._location):
                write_all(self._stream, data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        if not self._is_over:
            with explain_write_errors(self._location):
                self._stream.flush()

    def close(self) -> None:
        """Do nothing: the caller that opened the stream closes it."""

    def end(self) -> None:
        """Ignore further writes: after an error, a writer still writes its footer when it is garbage-collected."""
        self._is_over = True


class _JsonLinesWriter:
    def __init__(self, sink: _Sink, schema: pa.Schema) -> None:
        self._sink = sink

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._sink.write(join_lines(batch, format_json_rows(batch)))

    def close(self) -> None:
        """Do nothing: no rows are buffered."""


class _CsvWriter:
    """Writes numbers, booleans and strings as Arrow does, and other types as everywhere on the command line."""

    def __init__(self, sink: _Sink, schema: pa.Schema) -> None:
        for field in schema:
            if pa.types.is_nested(field.type):
                raise InvalidArgument(
                    f"column {field.name!r} is {type_name_with_article(field.type)}, which CSV does not support: "
                    "leave it out, or "
                    "write .parquet, .arrow or .jsonl"
                )
        self._schema = pa.schema([(field.name, self._to_csv_type(field.type)) for field in schema])
        self._writer = pyarrow.csv.CSVWriter(sink, self._schema)

    @staticmethod
    def _to_csv_type(data_type: pa.DataType) -> pa.DataType:
        is_plain = pa.types.is_boolean(data_type) or types.is_number(data_type) or types.is_text(data_type)
        return data_type if is_plain and not pa.types.is_float16(data_type) else pa.string()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        columns = [
            column if column.type == field.type else format_cells(column)
            for column, field in zip(batch.columns, self._schema, strict=True)
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


_WRITERS: dict[str, Callable[[Any, pa.Schema], Writer]] = {
    "arrow": pa.ipc.new_file,
    "arrows": pa.ipc.new_stream,
    "parquet": pq.ParquetWriter,
    "csv": _CsvWriter,
    "jsonl": _JsonLinesWriter,
}


def output_options(command: Command) -> Command:
    """Add the options that choose a file to write, and its format, to a command."""
    to_file = click.option(
        "--output",
        metavar="FILE",
        help="Write the rows to a .parquet, .arrow, .arrows, .csv or .jsonl file; - is stdout.",
    )
    in_format = click.option(
        "--output-format", type=click.Choice(OUTPUT_FORMATS), help="Format to write, regardless of the file extension."
    )
    return to_file(in_format(command))


def check_output_options(output: str | None, output_format: str | None) -> None:
    if output is None and output_format is not None:
        raise click.UsageError("--output-format requires --output; for stdout use --output -")


def choose_output_format(output: str, given: str | None) -> str:
    """Return the format to write: the given one, or the one of the file extension."""
    if output != STDOUT and Path(output).is_dir():
        raise InvalidArgument(f"'{output}' is a directory: name a file in it")
    if given is not None:
        return given
    if output == STDOUT:
        raise InvalidArgument(f"--output - needs --output-format, one of {', '.join(OUTPUT_FORMATS)}")
    ending = Path(output).suffix.lower()
    if ending not in FORMATS_BY_EXTENSION:
        raise InvalidArgument(
            f"cannot find the format from the name {output!r}: use an extension of {', '.join(FORMATS_BY_EXTENSION)}, "
            "or pass --output-format"
        )
    return FORMATS_BY_EXTENSION[ending]


def export(batches: Iterable[pa.RecordBatch], schema: pa.Schema, output: str, format: str) -> int:
    """Write rows to a file, or to stdout for `-`, and return their number. A failed run leaves no file."""
    if output == STDOUT:
        if is_terminal() and format not in _TEXT_FORMATS:
            raise InvalidArgument(f"{format} is a binary format: name a file with --output, or redirect stdout")
        return _write(_Sink(sys.stdout.buffer, "stdout"), batches, schema, format)
    with open_new_file(output) as file:
        return _write(_Sink(file, f"'{output}'"), batches, schema, format)


def print_written_note(rows: int, output: str, format: str) -> None:
    print_note(f"{format_count(rows, 'row')} written to {'stdout' if output == STDOUT else output} as {format}")


def _write(sink: _Sink, batches: Iterable[pa.RecordBatch], schema: pa.Schema, format: str) -> int:
    written = 0
    try:
        with _explain_format_errors(format):
            writer = _WRITERS[format](sink, schema)
        # Each batch becomes a row group in Parquet, and many small row groups would slow down every reader.
        for batch in coalesce_batches(batches):
            with _explain_format_errors(format):
                writer.write_batch(batch)
            written += batch.num_rows
        writer.close()
        sink.flush()
    finally:
        sink.end()
    return written


@contextmanager
def _explain_format_errors(format: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidArgument(f"cannot write these rows as {format}: {error}. Try --output-format arrow") from error


def check_no_overwrite(
    source: str, output: str, option: str = "--output", files: Callable[[], pa.Table] | None = None
) -> None:
    """Raise an error if the output would be inside the table that is read, or would overwrite the file that is read.

    Symbolic and hard links are resolved.
    """
    if "://" in source or "://" in output:
        return
    table, target = Path(os.path.realpath(source)), Path(os.path.realpath(output))
    if target == table:
        raise InvalidArgument(f"{option} '{output}' is the input file: write to another file")
    if table in target.parents or (files is not None and target.is_file() and _is_table_file(target, files())):
        raise InvalidArgument(
            f"{option} '{output}' is inside the table '{source}', and would become part of it: write it elsewhere"
        )


def _is_table_file(target: Path, files: pa.Table) -> bool:
    # Only a file of the same size can be the same file.
    candidates = files.filter(pc.equal(files["size"], target.stat().st_size))["path"].to_pylist()
    return any(Path(path).exists() and target.samefile(path) for path in candidates)


@contextmanager
def open_new_file(output: str, option: str = "--output") -> Iterator[IO[bytes]]:
    """Open a file that gets its name when it is complete, and is removed after an error."""
    if "://" in output:
        raise InvalidArgument(
            f"{option} supports local files only, not {output!r}: write a local file and copy it, or use {option} -"
        )
    # If the name is a symbolic link, its target is replaced.
    target = Path(os.path.realpath(output))
    if not target.parent.is_dir():
        raise InvalidArgument(f"cannot write '{output}': there is no directory '{target.parent}'; create it first")
    # Devices and named pipes are written to, never replaced.
    is_replaced = target.is_file() or not target.exists()
    written = target.with_name(f".{target.name}.{os.getpid()}.partial") if is_replaced else target
    location = f"'{output}'"
    with explain_write_errors(location):
        file = written.open("wb")
    try:
        yield file
        with explain_write_errors(location):
            file.close()
            if is_replaced:
                written.replace(target)
    finally:
        # After an error, closing may fail again because of buffered data.
        with suppress(OSError):
            file.close()
        if is_replaced:
            written.unlink(missing_ok=True)
