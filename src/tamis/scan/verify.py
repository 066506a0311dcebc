"""Verification on the user's own data: pruning changes what is read, never what is returned.

A scan runs once without pruning, which reads everything and tests every row, and then once with every subset of the
levels. All runs must return and count the same rows. `RowChecksum` compares rows regardless of their order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from typing import Any, Protocol, runtime_checkable

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import InvalidArgument, UnsupportedFeature, VerificationFailed, format_count
from tamis.expr.functions.table import find_nondeterministic_function
from tamis.expr.interop.from_any import to_expr
from tamis.expr.nodes import AnyExpr
from tamis.formats.source import LEVELS, TABLE_FORMATS, TableSource
from tamis.scan.reading.pipeline import coalesce_batches
from tamis.scan.scan import LazyScan, Scan

MAX_LEVELS_FOR_ALL_SUBSETS = 7
"""With more levels than this (more than 128 runs), only the subsets with no level, one level, all but one, and all
levels run."""


@runtime_checkable
class Scannable(Protocol):
    """A table that can be scanned."""

    def scan(
        self,
        where: object = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        *,
        levels: Collection[str] = LEVELS,
    ) -> LazyScan: ...


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The result of one run: its levels, rows and costs."""

    levels: tuple[str, ...]
    rows: int
    count: int
    """The result of `count()`, which may come from metadata alone."""
    checksum: int
    kept: dict[str, int]
    """The number of units that each level kept: partitions, files, row groups."""
    bytes_read: int
    """The bytes of column data. Footers are read once, before the first run."""
    requests: int
    same: bool
    """Whether the run returned the same rows as the run without pruning."""
    has_every_level: bool
    """Whether all levels of the format were on."""

    @property
    def name(self) -> str:
        """The levels as text."""
        return "all levels" if self.has_every_level else name_levels(self.levels)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as `--json` prints them."""
        return {
            "levels": list(self.levels),
            "rows": self.rows,
            "counted": self.count,
            # As text: many JSON readers have only doubles.
            "checksum": f"{self.checksum:016x}",
            "kept": dict(self.kept),
            "bytes_read": self.bytes_read,
            "requests": self.requests,
            "same": self.same,
        }


def verify(
    table: Scannable | TableSource, where: object = None, columns: Sequence[str] | None = None
) -> list[VerifyResult]:
    """Scan with every subset of the levels, first without pruning, and return all results.

    A difference is reported in the results; `assert_same_rows` raises an error for it.
    """
    return list(verify_each(table, where, columns))


def verify_each(
    table: Scannable | TableSource, where: object = None, columns: Sequence[str] | None = None
) -> Iterator[VerifyResult]:
    """Yield the results of `verify`, each after its run."""

    # One filter for all runs, so that current_timestamp() is the same in each.
    given = to_expr(where)
    _refuse_nondeterministic(given)

    def scan(levels: Collection[str]) -> LazyScan:
        if isinstance(table, Scannable):
            return table.scan(given, columns, levels=levels)
        return Scan(table, given, columns, levels=levels)

    # Footers are cached. Reading them now makes the costs of the runs comparable.
    plan = scan(()).plan()
    full: VerifyResult | None = None
    every = TABLE_FORMATS[plan.report.format].levels
    for levels in list_level_subsets(every):
        result = _run(scan, levels, full, is_every=levels == every)
        full = full or result
        yield result


def _refuse_nondeterministic(where: AnyExpr | None) -> None:
    """Raise an error for a nondeterministic filter: a difference would not be caused by pruning."""
    name = None if where is None else find_nondeterministic_function(where)
    if name is not None:
        raise InvalidArgument(
            f"the filter is not deterministic: {name}() may keep other rows in each run, so that runs cannot be "
            "compared. Verify without it"
        )


def assert_same_rows(results: Iterable[VerifyResult]) -> None:
    """Raise an error if a run returned other rows than the first run, which is without pruning."""
    full: VerifyResult | None = None
    for result in results:
        full = full or result
        if not result.same:
            raise VerificationFailed(f"the scan with {result.name} on {_describe_difference(result, full)}")


def list_level_subsets(levels: Sequence[str], max_for_all: int = MAX_LEVELS_FOR_ALL_SUBSETS) -> list[tuple[str, ...]]:
    """Return the combinations of levels to run, from none to all.

    >>> list_level_subsets(("files", "pages"))
    [(), ('files',), ('pages',), ('files', 'pages')]
    """
    count = len(levels)
    sizes = range(count + 1) if count <= max_for_all else (0, 1, count - 1, count)
    return [subset for size in sizes for subset in combinations(levels, size)]


def name_levels(subset: Sequence[str]) -> str:
    """Return the name of a combination of levels.

    >>> name_levels(()), name_levels(("partitions", "row_groups"))
    ('no level', 'partitions + row_groups')
    """
    return " + ".join(subset) or "no level"


def _run(
    make_scan: Callable[[Collection[str]], LazyScan],
    levels: tuple[str, ...],
    full: VerifyResult | None,
    *,
    is_every: bool,
) -> VerifyResult:
    scan = make_scan(levels)
    checksum = RowChecksum()
    checksum.add_all(scan.to_batches())
    report = scan.report
    assert report is not None
    # Another scan, since count() would replace the report of this one.
    counted = make_scan(levels).count()
    rows = full.rows if full is not None else checksum.rows
    value = full.checksum if full is not None else checksum.value
    return VerifyResult(
        levels,
        checksum.rows,
        counted,
        checksum.value,
        {level.level: level.kept for level in report.levels if level.level in LEVELS},
        report.bytes_read or 0,
        report.requests or 0,
        (checksum.rows, counted, checksum.value) == (rows, rows, value),
        is_every,
    )


def _describe_difference(result: VerifyResult, full: VerifyResult) -> str:
    if result.rows != full.rows:
        what = f"returned {format_count(result.rows, 'row')}, expected {full.rows:,} (without pruning)"
    elif result.count != full.rows:
        what = f"counts {format_count(result.count, 'row')}, but {full.rows:,} match"
    else:
        what = f"returned other rows than without pruning ({result.rows:,} each)"
    return f"{what}. This is a defect of Tamis: please report it, and scan without these levels until it is fixed"


# --- A checksum of rows, independent of their order -------------------------------------------------------------------
#
# Every row is hashed to 64 bits, and the checksum is the sum of the hashes modulo 2^64. The sum does not depend on the
# order, but it changes with a missing row, a duplicate row, and a value that moved to another row or column.
#
# The hash of a row depends on the bits of its values: NaNs with different bits differ, and so do -0.0 and 0.0. NULL,
# the empty string, the empty list and a list of NULLs all differ. DuckDB hashes strings and binary values; it does not
# hash whole rows because its hashes of `[]` and NULL, or of `[0]` and `[0, 0]`, are the same. Its hashes may change
# with its version, so a checksum is valid in one process only.

Hashes = npt.NDArray[np.uint64]

_NULL = np.uint64(0x9E3779B97F4A7C15)
_VALID = np.uint64(0xD6E8FEB86659FD93)
_COLUMN = np.uint64(0xFF51AFD7ED558CCD)
_WORD = 8


class RowChecksum:
    """The number of rows and their checksum, updated batch by batch."""

    def __init__(self) -> None:
        self.rows = 0
        self.value = 0

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        # One engine per process: its threads do not survive a fork.
        return _get_engine(os.getpid()).cursor()

    def add_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in coalesce_batches(batches):
            self.add(batch)

    def add(self, batch: pa.RecordBatch) -> None:
        total = int(self.hash_rows(batch).sum(dtype=np.uint64))
        self.rows += batch.num_rows
        self.value = (self.value + total) % 2**64

    def hash_rows(self, batch: pa.RecordBatch) -> Hashes:
        """Return the hash of each row. Columns count by position, not by name."""
        hashes = np.zeros(batch.num_rows, dtype=np.uint64)
        for column in batch.columns:
            hashes = _combine_hashes(hashes, self._hash_values(column))
        return hashes

    def _hash_values(self, array: pa.Array) -> Hashes:
        array = _to_plain_layout(array)
        hashes = self._hash_valid(array)
        if array.null_count:
            hashes = np.where(np.asarray(array.is_valid()), hashes, _NULL)
        return hashes

    def _hash_valid(self, array: pa.Array) -> Hashes:
        """Return the hash of each value; any number for NULL."""
        data_type = array.type
        if pa.types.is_null(data_type):
            return np.full(len(array), _NULL)
        if pa.types.is_struct(data_type):
            hashes = np.full(len(array), _VALID)
            for child in array.flatten():
                hashes = _combine_hashes(hashes, self._hash_values(child))
            return hashes
        if pa.types.is_nested(data_type):
            return self._hash_lists(array)
        if types.is_text(data_type) or types.is_bytes(data_type):
            return self._hash_strings(array)
        if pa.types.is_boolean(data_type):
            array = array.cast(pa.uint8())
        return _hash_fixed_width(array)

    def _hash_lists(self, array: pa.Array) -> Hashes:
        """Return the hash of each list: elements are mixed with their position, and summed by differences of running
        sums."""
        lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.uint64)
        elements = self._hash_values(array.flatten())
        ends = np.cumsum(lengths, dtype=np.uint64)
        starts = ends - lengths
        positions = np.arange(len(elements), dtype=np.uint64) - np.repeat(starts, lengths.astype(np.int64))
        running = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(_combine_hashes(positions, elements))])
        return _mix(running[ends] - running[starts] + _mix(lengths))

    def _hash_strings(self, array: pa.Array) -> Hashes:
        if pa.types.is_fixed_size_binary(array.type):
            array = array.cast(pa.binary())
        # DuckDB finds the variable by its name in the query.
        values = pa.table({"value": array})  # noqa: F841
        relation = self._connection.sql("SELECT hash(value) AS hash FROM values")
        return np.asarray(relation.to_arrow_table()["hash"].combine_chunks())


@cache
def _get_engine(process: int) -> duckdb.DuckDBPyConnection:
    """Return the engine for all checksums: starting one takes longer than scanning a small table."""
    # One thread: the scan that feeds it uses the others.
    return duckdb.connect(":memory:", config={"threads": 1})


def _to_plain_layout(array: pa.Array) -> pa.Array:
    """Return the same values without extension types, dictionaries, run-end encoding and maps."""
    while True:
        data_type = array.type
        if isinstance(data_type, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_dictionary(data_type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(data_type):
            array = pc.run_end_decode(array)
        elif pa.types.is_map(data_type):
            array = array.cast(pa.list_(pa.struct([data_type.key_field, data_type.item_field])))
        else:
            return array


def _hash_fixed_width(array: pa.Array) -> Hashes:
    """Return hashes of the bytes of the values, word by word."""
    try:
        width = array.type.bit_width // 8
    except ValueError as error:
        raise UnsupportedFeature(f"rows with values of type {types.type_name(array.type)} have no checksum") from error
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array), dtype=np.uint64)
    start, stop = array.offset * width, (array.offset + len(array)) * width
    stored = np.frombuffer(buffer, dtype=np.uint8)[start:stop]
    hashes = np.full(len(array), _VALID)
    for word in _split_into_words(stored, width):
        hashes = _combine_hashes(hashes, word.astype(np.uint64))
    return hashes


def _split_into_words(stored: npt.NDArray[np.uint8], width: int) -> Iterator[npt.NDArray[Any]]:
    if width < _WORD:
        yield stored.view(f"u{width}")
    else:
        yield from stored.view(np.uint64).reshape(-1, width // _WORD).T


def _combine_hashes(hashes: Hashes, values: Hashes) -> Hashes:
    """Return the hash of a sequence from the hash of its beginning and its next value; the order matters."""
    return _mix(hashes * _COLUMN + values)


def _mix(values: Hashes) -> Hashes:
    """Mix the bits of values, so that each bit depends on all input bits (the finaliser of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
