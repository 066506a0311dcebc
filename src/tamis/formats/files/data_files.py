"""A reader of whole files in any format, in row order: data files that are not Parquet, and delete files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile, UnsupportedFeature, format_count, to_one_line
from tamis.formats.errors import make_corrupt_file_error
from tamis.io.ranges import IMMUTABLE, MIB, BufferedFile, RangedFile, make_prefetched_file, read_ranges
from tamis.io.storage import Storage
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.footer import Footer, load_footer, open_reader
from tamis.parquet.footer.leaves import FieldPath, list_flat_paths
from tamis.parquet.footer.matching import find_path
from tamis.parquet.footer.statistics import find_chunk_ranges
from tamis.parquet.reading.conform import Constants, conform_batch
from tamis.parquet.reading.row_group_reader import choose_batch_rows, decode_row_group, make_dummy_batches
from tamis.tuning import Tuning

if TYPE_CHECKING:
    from pyarrow import orc

_TIMESTAMP_OUT_OF_RANGE = "out of range for nanosecond resolution"
"""Arrow's error message for ORC timestamps that do not fit nanoseconds."""

PositionedBatch = tuple[int, pa.RecordBatch]
"""The position of the first row of a batch, and the batch."""

_READ_AHEAD_BYTES = 4 * MIB
"""The number of bytes of an ORC file that are fetched at a time: its reader makes many small reads in sequence."""


def make_row_count_error(location: str, rows: int, recorded: int) -> CorruptFile:
    """Return the error for a file whose row count differs from the one in the table metadata."""
    return make_corrupt_file_error(
        f"'{location}' has {format_count(rows, 'row')}, but the table metadata says {recorded}: the file was "
        "replaced, or the metadata is wrong"
    )


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file or a delete file; `size` and `rows` are as in the table metadata (rows: None if unknown)."""

    storage: Storage
    path: str
    size: int
    format: str
    rows: int | None = None

    @property
    def location(self) -> str:
        return self.storage.format_path(self.path)

    def read(
        self,
        schema: pa.Schema,
        names: ColumnMapping | None,
        constants: Constants | None = None,
        *,
        must_have_all: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Read all rows with the columns of a schema, by logical names; `names` maps them to the file's columns.

        A column that the file lacks has its value in `constants`, or else its default, or NULL. With `must_have_all` a
        missing column is an error.
        """
        total = 0
        for _, batch in self.read_with_positions(schema, names, constants, must_have_all=must_have_all):
            total += batch.num_rows
            yield batch
        if self.rows is not None and total != self.rows:
            raise make_row_count_error(self.location, total, self.rows)

    def count(self) -> int:
        """Count the rows by reading the file, for a file whose metadata has no row count."""
        return sum(batch.num_rows for _, batch in self.read_with_positions(pa.schema([]), None))

    def read_with_positions(
        self,
        schema: pa.Schema,
        names: ColumnMapping | None,
        constants: Constants | None = None,
        *,
        must_have_all: bool = False,
        row_groups: Collection[int] | None = None,
    ) -> Iterator[PositionedBatch]:
        """Like `read`, with the position of each batch's first row, and a selection of Parquet row groups."""
        wanted = _Projection(schema, names, constants or {}, list_flat_paths(schema) if must_have_all else ())
        match self.format.lower():
            case "parquet":
                footer, _ = load_footer(self.storage, self.path, self.size, IMMUTABLE, names)
                paths = list_flat_paths(schema)
                leaves = {leaf for path in paths for leaf in footer.schema.find_leaves_to_read(path)}
                rows = self._read_row_groups(footer, sorted(leaves), row_groups)
                return wanted.conform(rows, footer.schema.physical_arrow, self.location)
            case "orc":
                return self._read_orc(wanted)
            case "avro":
                return self._read_avro(wanted)
            case other:
                raise UnsupportedFeature(
                    f"'{self.location}' has the unsupported file format {other!r}. Write it as parquet, orc or avro"
                )

    # --- Parquet --------------------------------------------------------------------------------------------------

    def _read_row_groups(
        self, footer: Footer, leaves: list[int], row_groups: Collection[int] | None
    ) -> Iterator[PositionedBatch]:
        metadata = footer.metadata
        start = 0
        for group in range(metadata.num_row_groups):
            count = metadata.row_group(group).num_rows
            if row_groups is None or group in row_groups:
                yield from _add_positions(self._read_row_group(footer, leaves, group, count), start)
            start += count

    def _read_row_group(self, footer: Footer, leaves: list[int], group: int, count: int) -> Iterator[pa.RecordBatch]:
        if not leaves:
            yield from make_dummy_batches(count, self.storage.tuning)
            return
        metadata = footer.metadata
        ranges = find_chunk_ranges(metadata, group, leaves, size=self.size, location=self.location)
        buffers = read_ranges(self.storage, self.path, ranges, size=self.size)
        fetched = [(start, buffer) for (start, _), buffer in zip(ranges, buffers, strict=True)]
        source = make_prefetched_file(fetched, self.size, self.location)
        try:
            reader = open_reader(source, metadata=metadata, pre_buffer=False, page_checksum_verification=True)
            tuning = self.storage.tuning
            yield from decode_row_group(reader, footer, group, leaves, source, self.size, self.location, tuning)
        except (pa.ArrowException, OSError) as error:
            raise make_corrupt_file_error(
                f"row group {group} of '{self.location}' cannot be decoded: {error}"
            ) from error

    # --- ORC ------------------------------------------------------------------------------------------------------

    def _read_orc(self, wanted: _Projection) -> Iterator[PositionedBatch]:
        # The import is slow, and few tables have ORC files.
        from pyarrow import orc

        with RangedFile(self.storage, self.path, self.size) as ranged:
            try:
                file = orc.ORCFile(pa.PythonFile(_ReadAhead(ranged), "r"))
                own = file.schema
                rows = self._read_orc_stripes(file, wanted.rename(own, self.location), wanted)
                yield from wanted.conform(_add_positions(rows), own, self.location)
            except (pa.ArrowException, OSError, ValueError) as error:
                # This includes column names that are not text, and field ids that are not numbers.
                raise make_corrupt_file_error(f"'{self.location}' cannot be decoded: {to_one_line(error)}") from error

    def _read_orc_stripes(self, file: orc.ORCFile, own: pa.Schema, wanted: _Projection) -> Iterator[pa.RecordBatch]:
        columns = [index for index, name in enumerate(own.names) if name in wanted.schema.names]
        if not columns:
            yield from make_dummy_batches(file.nrows, self.storage.tuning)
            return
        for stripe in range(file.nstripes):
            try:
                found = file.read_stripe(stripe, columns)
            except pa.ArrowInvalid as error:
                self._reject_timestamps_out_of_range(
                    file, stripe, [(index, own.names[index]) for index in columns], error
                )
                raise
            yield from _split_batch(found, self.storage.tuning)

    def _reject_timestamps_out_of_range(
        self, file: orc.ORCFile, stripe: int, columns: Sequence[tuple[int, str]], error: pa.ArrowInvalid
    ) -> None:
        """Raise if a timestamp column caused the error: Arrow reads ORC timestamps only as nanoseconds."""
        if _TIMESTAMP_OUT_OF_RANGE not in str(error):
            return
        for index, name in columns:
            try:
                file.read_stripe(stripe, [index])
            except pa.ArrowInvalid:
                raise UnsupportedFeature(
                    f"column {name!r} of '{self.location}' has timestamps outside 1677 to 2262, which are unsupported "
                    "in ORC files: select other columns with columns=…, or rewrite the file as Parquet"
                ) from error

    # --- Avro -----------------------------------------------------------------------------------------------------

    def _read_avro(self, wanted: _Projection) -> Iterator[PositionedBatch]:
        from tamis.formats.files import avro

        (content,) = read_ranges(self.storage, self.path, [(0, self.size)], size=self.size)
        start = 0
        for part in avro.open_avro_parts(content, self.location, self.storage.tuning.max_avro_bytes_together):
            own = part.arrow_schema
            columns = part.read().columns
            arrays = [
                as_type(each.combine_chunks(), own.field(at).type, self.location) for at, each in enumerate(columns)
            ]
            batch = pa.RecordBatch.from_arrays(arrays, schema=own)
            yield from wanted.conform(
                _add_positions(_split_batch(batch, self.storage.tuning), start), own, self.location
            )
            start += batch.num_rows


@dataclass(frozen=True, slots=True)
class _Projection:
    schema: pa.Schema
    names: ColumnMapping | None
    constants: Constants
    must_have: Sequence[FieldPath]

    def rename(self, own: pa.Schema, location: str) -> pa.Schema:
        """Return the file's schema with logical column names."""
        return own if self.names is None else self.names.for_file(own, location).rename_schema(own)

    def conform(self, rows: Iterator[PositionedBatch], own: pa.Schema, location: str) -> Iterator[PositionedBatch]:
        """Convert the rows of a file, which may have only some of its columns, to the wanted schema."""
        known = self.rename(own, location)
        for path in self.must_have:
            if find_path(known, path, exact=self.names is not None) is None:
                raise make_corrupt_file_error(f"'{location}' lacks the required column {'.'.join(path)!r}")
        # Values of fields inside structs are used where the structs lack the fields.
        constants = {
            path: value for path, value in self.constants.items() if len(path) > 1 or path[0] not in known.names
        }
        names = None if self.names is None else self.names.for_file(own, location)
        for start, batch in rows:
            if not self.schema.names:
                # A batch needs a column to have a length.
                yield start, pa.record_batch({"": pa.nulls(batch.num_rows)})
                continue
            renamed = batch if names is None or batch.schema.names == [""] else names.rename_batch(batch)
            typed = restore_time_types(renamed, self.schema)
            yield start, conform_batch(typed, self.schema, constants, f"'{location}'", self.names)


def _add_positions(batches: Iterator[pa.RecordBatch], start: int = 0) -> Iterator[PositionedBatch]:
    """Add the position of the first row to consecutive batches."""
    for batch in batches:
        yield start, batch
        start += batch.num_rows


def _split_batch(batch: pa.RecordBatch, tuning: Tuning) -> Iterator[pa.RecordBatch]:
    rows = choose_batch_rows(batch.num_rows, batch.nbytes, tuning)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


class _ReadAhead(BufferedFile):
    """A Python file over a ranged file, which fetches ahead and caches the last fetched range."""

    def __init__(self, file: RangedFile) -> None:
        super().__init__(file.size)
        self._file = file
        self._start = 0
        self._cached = pa.py_buffer(b"")

    def _fetch_range(self, start: int, end: int) -> pa.Buffer:
        length = max(0, end - start)
        offset = start - self._start
        if not 0 <= offset <= self._cached.size - length:
            self._start, offset = start, 0
            # The reader starts at the end of the file, where the footer is.
            if self._size - start <= _READ_AHEAD_BYTES:
                self._start = max(0, self._size - _READ_AHEAD_BYTES)
                offset = start - self._start
            wanted = min(max(length + offset, _READ_AHEAD_BYTES), self._size - self._start)
            (self._cached,) = self._file.read([(self._start, wanted)])
        return self._cached.slice(offset, length)


# --- Conversion of values that file formats store in simpler types: times as numbers, decimals as bytes, maps as lists

DECIMAL_BYTES = 16


def restore_time_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert numbers in a batch to times where a schema has times, matching columns by name.

    ORC has no type for the time of day.
    """
    wanted = {each.name: each.type for each in schema}
    fields = [
        each.with_type(_restore_times(each.type, wanted[each.name])) if each.name in wanted else each
        for each in batch.schema
    ]
    if all(each.type == before.type for each, before in zip(fields, batch.schema, strict=True)):
        return batch
    # The types differ only in leaves of equal width.
    arrays = [array.view(each.type) for array, each in zip(batch.columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _restore_times(own: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if pa.types.is_time(wanted) and own == types.LONG:
        return types.TIME
    if pa.types.is_struct(own) and pa.types.is_struct(wanted):
        known = {each.name: each.type for each in wanted}
        return pa.struct([each.with_type(_restore_times(each.type, known.get(each.name, each.type))) for each in own])
    if pa.types.is_list(own) and pa.types.is_list(wanted):
        return pa.list_(own.value_field.with_type(_restore_times(own.value_type, wanted.value_type)))
    if pa.types.is_map(own) and pa.types.is_map(wanted):
        key, item = own.key_field, own.item_field
        return pa.map_(
            key.with_type(_restore_times(key.type, wanted.key_type)),
            item.with_type(_restore_times(item.type, wanted.item_type)),
        )
    return own


def as_type(values: pa.Array, target: pa.DataType, location: str) -> pa.Array:
    """Convert values from Avro's physical types to a logical type; the fields of structs are in the same order."""
    if values.type == target:
        return values
    if pa.types.is_struct(target) and pa.types.is_struct(values.type):
        children = [as_type(values.field(index), each.type, location) for index, each in enumerate(target)]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=values.is_null())
    if pa.types.is_list(target) or pa.types.is_map(target):
        return _as_list(values, target, location)
    if pa.types.is_decimal(target):
        return _as_decimal(values, target, location)
    if pa.types.is_null(target):
        return pa.nulls(len(values))
    if values.type in (types.LONG, pa.int32()) and pa.types.is_temporal(target):
        return values.view(target)
    try:
        return values.cast(target)
    except pa.ArrowException as error:
        raise make_corrupt_file_error(
            f"'{location}' has values that are not valid as {target}: {to_one_line(error)}"
        ) from error


def _as_list(values: pa.Array, target: pa.DataType, location: str) -> pa.Array:
    if pa.types.is_large_list(values.type):
        # Decoded values are few enough for 32-bit offsets.
        values = values.cast(pa.list_(values.type.value_field))
    inner = target.field(0).type if pa.types.is_map(target) else target.value_type
    child = as_type(values.values, inner, location)
    validity, offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(values), [validity, offsets], null_count=values.null_count, offset=values.offset, children=[child]
    )


def extend_signs(
    content: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """Return big-endian numbers of 1 to 16 bytes as little-endian rows of 16 bytes; zero for other lengths."""
    whole = np.zeros((len(lengths), DECIMAL_BYTES), np.uint8)
    # There is one step per length, at most 16.
    for length in np.unique(lengths).tolist():
        if 0 < length <= DECIMAL_BYTES:
            own = np.flatnonzero(lengths == length)
            digits = content[starts[own][:, None] + np.arange(length)]
            whole[own] = np.where(digits[:, :1] >= 128, np.uint8(255), np.uint8(0))
            whole[own, :length] = digits[:, ::-1]
    return whole


def _as_decimal(values: pa.Array, target: pa.DataType, location: str) -> pa.Array:
    given = values.cast(pa.large_binary())
    offsets = np.frombuffer(given.buffers()[1], np.int64, len(given) + 1, given.offset * 8)
    starts, lengths = offsets[:-1], offsets[1:] - offsets[:-1]
    data = np.frombuffer(given.buffers()[2] or b"", np.uint8)
    if len(lengths) and int(lengths.max()) > DECIMAL_BYTES:
        raise make_corrupt_file_error(
            f"'{location}' has a decimal of {lengths.max()} bytes, expected at most {DECIMAL_BYTES}"
        )
    buffer = pa.py_buffer(extend_signs(data, starts, lengths))
    mask = pa.array(np.asarray(values.is_valid())).buffers()[1]
    wide = pa.Array.from_buffers(pa.decimal128(38, target.scale), len(given), [mask, buffer])
    try:
        return wide.cast(target)
    except pa.ArrowInvalid as error:
        raise make_corrupt_file_error(f"'{location}' has a decimal that does not fit into {target}: {error}") from error
