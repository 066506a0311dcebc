"""Columns of whole files, row after row, whatever the format: data files that are not Parquet, and files of deletes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tamis.errors import CorruptFile, UnsupportedFeature, counted, one_line
from tamis.io.ranges import MIB, NEVER_CHANGES, PythonFile, RangedFile, file_of_ranges, read_ranges
from tamis.io.storage import Storage
from tamis.parquet import batches
from tamis.parquet.arrow_reader import open_reader
from tamis.parquet.conform import Constants, conform_batch
from tamis.parquet.field_names import FieldNames
from tamis.parquet.footer import Footer, load_footer
from tamis.parquet.leaves import FieldPath, flat_paths
from tamis.parquet.matching import find_path
from tamis.parquet.row_group_rows import decode_row_group, rows_without_columns
from tamis.parquet.statistics import chunk_ranges
from tamis.tables.iceberg.stored_types import as_type, meant_types

if TYPE_CHECKING:
    from pyarrow import orc

_FAR_TIMES = "out of range for nanosecond resolution"
"""What Arrow says of them."""

Placed = tuple[int, pa.RecordBatch]
"""Rows of a file, and the position of the first of them."""

_READ_AHEAD = 4 * MIB
"""Of an ORC file so much is fetched at a time: its reader asks for many small pieces, one after the other."""


def wrong_count(place: str, rows: int, told: int) -> CorruptFile:
    """The error for a file that has another number of rows than the metadata of its table says."""
    return CorruptFile(
        f"'{place}' has {counted(rows, 'row')}, and the metadata of its table says {told}: another file took its "
        "place, or the metadata is wrong"
    )


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of rows, of a size and a number of rows that the table's metadata tells (rows: if not None)."""

    storage: Storage
    path: str
    size: int
    format: str
    rows: int | None = None

    @property
    def place(self) -> str:
        return self.storage.place(self.path)

    def read(
        self,
        schema: pa.Schema,
        names: FieldNames | None,
        where_absent: Constants | None = None,
        *,
        must_have_all: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """All rows, with the columns of a schema in the words of the table, as `names` tell where the file has them.

        A column that the file lacks has the value that `where_absent` has for it, or else its default, or NULL; with
        `must_have_all` it is an error.
        """
        total = 0
        for _, batch in self.read_places(schema, names, where_absent, must_have_all=must_have_all):
            total += batch.num_rows
            yield batch
        if self.rows is not None and total != self.rows:
            raise wrong_count(self.place, total, self.rows)

    def count(self) -> int:
        """How many rows there are, where the metadata does not tell."""
        return sum(batch.num_rows for _, batch in self.read_places(pa.schema([]), None))

    def read_places(
        self,
        schema: pa.Schema,
        names: FieldNames | None,
        where_absent: Constants | None = None,
        *,
        must_have_all: bool = False,
        row_groups: Collection[int] | None = None,
    ) -> Iterator[Placed]:
        """The same with the position of the first row of each batch; of a Parquet file some `row_groups` may do."""
        wanted = _Wanted(schema, names, where_absent or {}, flat_paths(schema) if must_have_all else ())
        match self.format.lower():
            case "parquet":
                return self._read_parquet(wanted, row_groups)
            case "orc":
                return self._read_orc(wanted)
            case "avro":
                return self._read_avro(wanted)
            case other:
                raise UnsupportedFeature(
                    f"'{self.place}' is a file of the format {other!r}, which is not read. Formats: parquet, orc, avro"
                )

    # --- Parquet --------------------------------------------------------------------------------------------------

    def _read_parquet(self, wanted: _Wanted, row_groups: Collection[int] | None) -> Iterator[Placed]:
        footer, _ = load_footer(self.storage, self.path, self.size, NEVER_CHANGES, wanted.names)
        leaves = {leaf for path in flat_paths(wanted.schema) for leaf in footer.schema.leaves_to_read(path)}
        rows = self._parquet_rows(footer, sorted(leaves), row_groups)
        yield from wanted.shaped(rows, footer.schema.own_arrow, self.place)

    def _parquet_rows(self, footer: Footer, leaves: list[int], row_groups: Collection[int] | None) -> Iterator[Placed]:
        metadata = footer.metadata
        start = 0
        for group in range(metadata.num_row_groups):
            count = metadata.row_group(group).num_rows
            if row_groups is None or group in row_groups:
                yield from _placed(self._row_group(footer, leaves, group, count), start)
            start += count

    def _row_group(self, footer: Footer, leaves: list[int], group: int, count: int) -> Iterator[pa.RecordBatch]:
        if not leaves:
            yield from rows_without_columns(count)
            return
        metadata = footer.metadata
        ranges = chunk_ranges(metadata, group, leaves, size=self.size, place=self.place)
        buffers = read_ranges(self.storage, self.path, ranges, size=self.size)
        fetched = [(start, buffer) for (start, _), buffer in zip(ranges, buffers, strict=True)]
        source = file_of_ranges(fetched, self.size, self.place)
        try:
            reader = open_reader(source, metadata=metadata, pre_buffer=False, page_checksum_verification=True)
            yield from decode_row_group(reader, footer, group, leaves, source, self.size, self.place)
        except (pa.ArrowException, OSError) as error:
            raise CorruptFile(f"row group {group} of '{self.place}' cannot be decoded: {error}") from error

    # --- ORC ------------------------------------------------------------------------------------------------------

    def _read_orc(self, wanted: _Wanted) -> Iterator[Placed]:
        # Importing it takes a while, and few tables have such files.
        from pyarrow import orc

        with RangedFile(self.storage, self.path, self.size) as ranged:
            try:
                file = orc.ORCFile(pa.PythonFile(_ReadAhead(ranged), "r"))
                own = file.schema
                rows = self._orc_rows(file, wanted.renamed(own, self.place), wanted)
                yield from wanted.shaped(_placed(rows), own, self.place)
            except (pa.ArrowException, OSError, ValueError) as error:
                # Also names that are no text, and ids that are no numbers.
                raise CorruptFile(f"'{self.place}' cannot be decoded: {one_line(error)}") from error

    def _orc_rows(self, file: orc.ORCFile, own: pa.Schema, wanted: _Wanted) -> Iterator[pa.RecordBatch]:
        columns = [index for index, name in enumerate(own.names) if name in wanted.schema.names]
        if not columns:
            yield from rows_without_columns(file.nrows)
            return
        for stripe in range(file.nstripes):
            try:
                found = file.read_stripe(stripe, columns)
            except pa.ArrowInvalid as error:
                self._refuse_far_times(file, stripe, [(index, own.names[index]) for index in columns], error)
                raise
            yield from _in_pieces(found)

    def _refuse_far_times(
        self, file: orc.ORCFile, stripe: int, columns: Sequence[tuple[int, str]], error: pa.ArrowInvalid
    ) -> None:
        """An error for a column of times that Arrow cannot hold: it reads those of ORC as nanoseconds only."""
        if _FAR_TIMES not in str(error):
            return
        for index, name in columns:
            try:
                file.read_stripe(stripe, [index])
            except pa.ArrowInvalid:
                raise UnsupportedFeature(
                    f"column {name!r} of '{self.place}' has times outside of 1677 to 2262, which are not read of ORC "
                    "files: leave it out, with columns=… of the others, or write the file again as Parquet"
                ) from error

    # --- Avro -----------------------------------------------------------------------------------------------------

    def _read_avro(self, wanted: _Wanted) -> Iterator[Placed]:
        from tamis.tables.iceberg import avro

        (content,) = read_ranges(self.storage, self.path, [(0, self.size)], size=self.size)
        start = 0
        for part in avro.avro_parts(content, self.place, avro.PART_BYTES):
            own = part.arrow_schema
            columns = part.read().columns
            arrays = [as_type(each.combine_chunks(), own.field(at).type, self.place) for at, each in enumerate(columns)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=own)
            yield from wanted.shaped(_placed(_in_pieces(batch), start), own, self.place)
            start += batch.num_rows


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is asked of a file."""

    schema: pa.Schema
    names: FieldNames | None
    where_absent: Constants
    must_have: Sequence[FieldPath]

    def renamed(self, own: pa.Schema, place: str) -> pa.Schema:
        """The schema of the file in the words of the table."""
        return own if self.names is None else self.names.for_file(own, place).rename_schema(own)

    def shaped(self, rows: Iterator[Placed], own: pa.Schema, place: str) -> Iterator[Placed]:
        """The rows of a file with a schema of its own, of which they may have some columns only, as they are wanted."""
        known = self.renamed(own, place)
        for path in self.must_have:
            if find_path(known, path, exact=self.names is not None) is None:
                raise CorruptFile(f"'{place}' lacks the column {'.'.join(path)!r}, without which it means nothing")
        # Those of fields inside of structs are taken where the structs lack them.
        constants = {
            key: value for key, value in self.where_absent.items() if not isinstance(key, str) or key not in known.names
        }
        good = None if self.names is None else self.names.for_file(own, place)
        for start, batch in rows:
            if not self.schema.names:
                # A batch needs some column to know its length.
                yield start, pa.record_batch({"": pa.nulls(batch.num_rows)})
                continue
            renamed = batch if good is None or batch.schema.names == [""] else good.rename_batch(batch)
            meant = meant_types(renamed, self.schema)
            yield start, conform_batch(meant, self.schema, constants, f"'{place}'", self.names)


def _placed(batches: Iterator[pa.RecordBatch], start: int = 0) -> Iterator[Placed]:
    """Batches one after the other, each with the position of its first row."""
    for batch in batches:
        yield start, batch
        start += batch.num_rows


def _in_pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = batches.rows_of_a_batch(batch.num_rows, batch.nbytes)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


class _ReadAhead(PythonFile):
    """A Python file over a ranged one, which fetches more than it is asked for and keeps what it fetched last."""

    def __init__(self, file: RangedFile) -> None:
        super().__init__(file.size)
        self._file = file
        self._start = 0
        self._kept = pa.py_buffer(b"")

    def _fetched(self, start: int, end: int) -> pa.Buffer:
        length = max(0, end - start)
        offset = start - self._start
        if not 0 <= offset <= self._kept.size - length:
            self._start, offset = start, 0
            # What is asked for first is the end, where the footer is.
            if self._size - start <= _READ_AHEAD:
                self._start = max(0, self._size - _READ_AHEAD)
                offset = start - self._start
            wanted = min(max(length + offset, _READ_AHEAD), self._size - self._start)
            (self._kept,) = self._file.read([(self._start, wanted)])
        return self._kept.slice(offset, length)
