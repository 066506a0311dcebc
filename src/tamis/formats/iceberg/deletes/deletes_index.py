"""The assignment of delete files to data files, vectorized over both.

| delete                | applies to data files                                                                        |
|-----------------------|----------------------------------------------------------------------------------------------|
| deletion vector       | with its referenced path, no newer than it; then no position deletes apply to the file       |
| position deletes      | with its referenced path, if any, no newer than it; otherwise those of its spec and          |
|                       | partition whose path is within its path bounds                                               |
| equality deletes      | older than it, of its spec and partition, or of all partitions if its spec is unpartitioned; |
|                       | only those whose bounds of the compared columns overlap with its own                         |

Sequence numbers decide what is newer and older. One side is sorted so that the matches of each element of the other
side are adjacent: data files by partition and path for position deletes, equality deletes by partition and sequence
number for data files. Two binary searches find the range, so the work is proportional to the number of matches.

Matches may be many: an upsert stream writes an equality delete with each commit, which applies to all earlier files. So
a pair is an index of four bytes, and each delete is stored only once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import UnsupportedFeature
from tamis.expr.nodes import Column
from tamis.formats.iceberg.deletes.position_deletes import PATH_ID
from tamis.formats.iceberg.manifests.manifest_entries import EQUALITY_DELETES, POSITION_DELETES, PUFFIN
from tamis.formats.iceberg.manifests.single_values import decode_values
from tamis.formats.iceberg.partitioning.partition_bounds import decode_bounds, read_counts
from tamis.formats.source import to_single_array

DELETE = pa.struct(
    [
        ("path", types.STRING),
        ("size", types.LONG),
        ("content", pa.int8()),
        ("file_format", types.STRING),
        ("offset", types.LONG),
        ("length", types.LONG),
        ("cardinality", types.LONG),
        ("equality_ids", pa.list_(pa.int32())),
    ]
)
"""A delete in a file listing. `offset` and `length` locate the blob of a deletion vector."""

DELETES = pa.list_(pa.dictionary(pa.int32(), DELETE))
"""The deletes of a data file, dictionary-encoded: each delete is stored once for all files."""

MAX_PAIRS_AT_ONCE = 4 * 1024 * 1024

_MAX_PAIRS = 2**31 - 1

_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")

Numbers = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class DeleteAssignment:
    """The deletes that are assigned to data files."""

    deletes: pa.Array
    """`DELETES` of each data file, null if it has none."""
    deleted: pa.Array
    """The number of deleted rows of each data file; null where only reading the deletes would reveal it."""


def assign_deletes(
    data: pa.Table,
    deletes: pa.Table,
    resolved: pa.Array,
    columns: Mapping[int, Column],
    is_global: Mapping[int, bool],
    max_pairs: int = MAX_PAIRS_AT_ONCE,
) -> DeleteAssignment:
    """Assign deletes to data files.

    Both tables have `location`, `sequence_number`, `spec_id`, `partition_key`, `dropped_key` if a partition source
    column was dropped, and undecoded statistics of the compared columns. `resolved` are the paths of deletes in the
    file system, `columns` the columns of the table by field id, and `is_global` whether a spec is unpartitioned.
    """
    if not deletes.num_rows or not data.num_rows:
        none = pa.nulls(data.num_rows, DELETES)
        return DeleteAssignment(none, pa.repeat(pa.scalar(0, types.LONG), data.num_rows))
    content = deletes["content"].to_numpy()
    is_vector = (content == POSITION_DELETES) & np.asarray(pc.equal(deletes["file_format"], PUFFIN))
    groups = _Codes.of(_join_partition_keys(data), _join_partition_keys(deletes))
    by_vector = _match_vectors(data, deletes, _find_indices(is_vector))
    by_position = _match_position_deletes(
        data, deletes, _find_indices((content == POSITION_DELETES) & ~is_vector), groups, max_pairs
    )
    # A deletion vector includes all earlier position deletes.
    has_vector = np.zeros(data.num_rows, bool)
    has_vector[by_vector.files] = True
    by_position = by_position.filter(~has_vector[by_position.files])
    is_global_delete = np.array([is_global.get(spec_id, False) for spec_id in deletes["spec_id"].to_pylist()], bool)
    equality = _find_indices(content == EQUALITY_DELETES)
    by_equality = _match_equality_deletes(data, deletes, equality, is_global_delete, groups, columns, max_pairs)
    lists = _Lists.concatenate(
        [by_vector.group_by_file(data.num_rows), by_position.group_by_file(data.num_rows), *by_equality]
    )
    counts = to_single_array(deletes["record_count"]).take(pa.array(by_vector.deletes))
    is_exact = np.ones(data.num_rows, bool)
    is_exact[by_position.files] = False
    is_exact[by_vector.files[np.asarray(counts.is_null())]] = False
    for each in by_equality:
        is_exact[each.counts > 0] = False
    deleted = np.zeros(data.num_rows, np.int64)
    deleted[by_vector.files] = pc.fill_null(counts, 0).to_numpy()
    descriptions = _describe_deletes(deletes, resolved, is_vector)
    return DeleteAssignment(lists.to_arrow(descriptions), pa.array(deleted, mask=~is_exact))


def _find_indices(is_chosen: Bits) -> Indices:
    return np.flatnonzero(is_chosen).astype(np.int32)


def _describe_deletes(deletes: pa.Table, resolved: pa.Array, is_vector: Bits) -> pa.StructArray:
    is_other = pa.array(~is_vector)
    nothing = pa.scalar(None, types.LONG)
    return pa.StructArray.from_arrays(
        [
            resolved,
            to_single_array(deletes["size"]),
            to_single_array(deletes["content"]).cast(pa.int8()),
            to_single_array(deletes["file_format"]),
            pc.if_else(is_other, nothing, to_single_array(deletes["offset"])),
            pc.if_else(is_other, nothing, to_single_array(deletes["length"])),
            to_single_array(deletes["record_count"]),
            to_single_array(deletes["equality_ids"]),
        ],
        fields=list(DELETE),
    )


@dataclass(frozen=True)
class _Pairs:
    """Pairs of a data file and a delete, by their indices."""

    files: Indices
    deletes: Indices

    def filter(self, chosen: Bits) -> _Pairs:
        return _Pairs(self.files[chosen], self.deletes[chosen])

    @staticmethod
    def concatenate(parts: list[_Pairs]) -> _Pairs:
        nothing = np.zeros(0, np.int32)
        return _Pairs(
            np.concatenate([nothing, *(part.files for part in parts)]),
            np.concatenate([nothing, *(part.deletes for part in parts)]),
        )

    def group_by_file(self, rows: int) -> _Lists:
        """Group the pairs by file."""
        order = np.argsort(self.files, kind="stable")
        return _Lists(np.bincount(self.files, minlength=rows), self.deletes[order])


@dataclass(frozen=True)
class _Lists:
    """The deletes of each data file, as concatenated lists."""

    counts: Numbers
    deletes: Indices

    @staticmethod
    def concatenate(parts: list[_Lists]) -> _Lists:
        """Concatenate the lists of each file."""
        found = [part for part in parts if len(part.deletes)] or parts[:1]
        if len(found) == 1:
            return found[0]
        counts = np.sum([part.counts for part in found], axis=0)
        total = int(counts.sum())
        deletes = np.zeros(total, np.int32)
        starts = np.cumsum(counts) - counts
        for part in found:
            shift = starts - (np.cumsum(part.counts) - part.counts)
            deletes[np.repeat(shift, part.counts) + np.arange(len(part.deletes))] = part.deletes
            starts += part.counts
        return _Lists(counts, deletes)

    def to_arrow(self, descriptions: pa.StructArray) -> pa.Array:
        if len(self.deletes) > _MAX_PAIRS:
            raise UnsupportedFeature(
                f"{len(self.deletes):,} pairs of a data file and a delete file, more than a plan can hold: compact "
                "the table, or read fewer partitions"
            )
        offsets = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int32)
        values = pa.DictionaryArray.from_arrays(pa.array(self.deletes), descriptions)
        return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(self.counts == 0))


@dataclass(frozen=True)
class _Codes:
    """Keys of data files and of deletes as numbers: equal for the same key, -1 for an unknown one."""

    of_data: Numbers
    of_deletes: Numbers

    @staticmethod
    def of(data: pa.ChunkedArray, deletes: pa.ChunkedArray) -> _Codes:
        encoded = pc.dictionary_encode(pa.concat_arrays([to_single_array(data), to_single_array(deletes)]))
        codes = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64)
        return _Codes(codes[: len(data)], codes[len(data) :])

    def may_be_same(self, files: Indices, deletes: Indices) -> Bits:
        """Return whether the files of each pair, given by their indices, may have the same key."""
        one, other = self.of_data[files], self.of_deletes[deletes]
        may_be: Bits = (one == other) | (one < 0) | (other < 0)
        return may_be


def _join_partition_keys(files: pa.Table) -> pa.ChunkedArray:
    """Return keys that are equal for the same spec and partition tuple."""
    specs = files["spec_id"].cast(types.STRING).cast(types.BINARY)
    return pc.binary_join_element_wise(specs, files["partition_key"].cast(types.BINARY), b"/")


# --- By path ----------------------------------------------------------------------------------------------------------


def _match_paths(data: pa.Table, deletes: pa.Table, chosen: Indices, paths: pa.Array) -> _Pairs:
    """Pair each delete that references a data file with that file, unless the file is newer than the delete."""
    locations = to_single_array(data["location"])
    distinct = pc.unique(locations)
    codes = pc.index_in(locations, value_set=distinct).to_numpy()
    order = np.argsort(codes, kind="stable").astype(np.int32)
    codes_of_paths = pc.fill_null(pc.index_in(paths, value_set=distinct), -1).to_numpy()
    begins, ends = (np.searchsorted(codes[order], codes_of_paths, side=side) for side in _SIDES)
    found = [_Pairs(files, own) for own, files in _pair_ranges(chosen, order, begins, ends)]
    return _keep_no_newer(data, deletes, _Pairs.concatenate(found))


def _keep_no_newer(data: pa.Table, deletes: pa.Table, pairs: _Pairs) -> _Pairs:
    of_data, of_deletes = data["sequence_number"].to_numpy(), deletes["sequence_number"].to_numpy()
    return pairs.filter(of_data[pairs.files] <= of_deletes[pairs.deletes])


def _match_vectors(data: pa.Table, deletes: pa.Table, chosen: Indices) -> _Pairs:
    if not len(chosen):
        return _Pairs(chosen, chosen)
    pairs = _match_paths(data, deletes, chosen, to_single_array(deletes["referenced"]).take(pa.array(chosen)))
    # A file has at most one deletion vector; if there are several, the newest applies.
    order = np.lexsort((deletes["sequence_number"].to_numpy()[pairs.deletes], pairs.files))
    files, own = pairs.files[order], pairs.deletes[order]
    is_last = np.append(files[1:] != files[:-1], True) if len(files) else np.zeros(0, bool)
    return _Pairs(files[is_last], own[is_last])


def _match_position_deletes(
    data: pa.Table, deletes: pa.Table, chosen: Indices, groups: _Codes, max_pairs: int
) -> _Pairs:
    if not len(chosen):
        return _Pairs(chosen, chosen)
    indices = pa.array(chosen)
    low, high = (
        decode_values(to_single_array(deletes[name]).take(indices), types.STRING)
        if name in deletes.column_names
        else pa.nulls(len(indices), types.STRING)
        for name in (f"lower:{PATH_ID}", f"upper:{PATH_ID}")
    )
    named = to_single_array(deletes["referenced"]).take(indices)
    # Truncated bounds differ, because the upper bound is rounded up.
    one = pc.if_else(pc.fill_null(pc.equal(low, high), False), low, pa.scalar(None, types.STRING))
    paths = pc.coalesce(named, one)
    is_named = np.asarray(paths.is_valid())
    by_path = _match_paths(data, deletes, chosen[is_named], paths.filter(pa.array(is_named)))
    others = np.flatnonzero(~is_named)
    if not len(others):
        return by_path
    indices = pa.array(others)
    within = _match_path_bounds(data, chosen[others], low.take(indices), high.take(indices), groups, max_pairs)
    return _Pairs.concatenate([by_path, *(_keep_no_newer(data, deletes, pairs) for pairs in within)])


def _match_path_bounds(
    data: pa.Table, chosen: Indices, low: pa.Array, high: pa.Array, groups: _Codes, max_pairs: int
) -> Iterator[_Pairs]:
    """Pair deletes with the data files of their partition whose path is within bounds; unknown bounds are no limit."""
    locations = to_single_array(data["location"])
    # Ranks represent the paths, and bounds are searched among the sorted paths.
    distinct = pc.unique(locations)
    ordered = distinct.take(pc.sort_indices(distinct))
    ranks = pc.index_in(locations, value_set=ordered).to_numpy().astype(np.int64)
    texts = ordered.cast(types.BINARY).to_numpy(zero_copy_only=False)
    first = _search_bounds(texts, low, 0, "left")
    last = _search_bounds(texts, high, len(texts), "right")
    order = np.lexsort((ranks, groups.of_data)).astype(np.int32)
    # One number for partition and rank, ascending in this order.
    keys = groups.of_data[order] * (len(texts) + 1) + ranks[order]
    start = groups.of_deletes[chosen] * (len(texts) + 1)
    begins, ends = np.searchsorted(keys, start + first), np.searchsorted(keys, start + last)
    for own, files in _pair_ranges(chosen, order, begins, ends, max_pairs):
        yield _Pairs(files, own)


def _search_bounds(texts: npt.NDArray[np.object_], bounds: pa.Array, otherwise: int, side: str) -> Numbers:
    is_known = np.asarray(bounds.is_valid())
    found = np.full(len(bounds), otherwise, np.int64)
    known = bounds.filter(pa.array(is_known)).cast(types.BINARY).to_numpy(zero_copy_only=False)
    found[is_known] = np.searchsorted(texts, known, side=side)  # type: ignore[call-overload]
    return found


def _pair_ranges(
    owners: Indices, order: Indices, begins: Numbers, ends: Numbers, max_pairs: int = MAX_PAIRS_AT_ONCE
) -> Iterator[tuple[Indices, Indices]]:
    """Yield each owner paired with the elements between its two positions in an order, in batches of bounded size."""
    counts = np.maximum(ends - begins, 0)
    first = 0
    totals = np.cumsum(counts)
    while first < len(counts):
        before = int(totals[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(totals, before + max_pairs, side="right")))
        own = counts[first:last]
        steps = np.arange(int(own.sum())) - np.repeat(np.cumsum(own) - own, own)
        yield np.repeat(owners[first:last], own), order[np.repeat(begins[first:last], own) + steps]
        first = last


# --- By values --------------------------------------------------------------------------------------------------------


def _match_equality_deletes(
    data: pa.Table,
    deletes: pa.Table,
    chosen: Indices,
    is_global: Bits,
    groups: _Codes,
    columns: Mapping[int, Column],
    max_pairs: int,
) -> list[_Lists]:
    """Find the equality deletes that apply to all partitions, and the ones that apply to their own partition only."""
    if not len(chosen):
        return []
    files = np.arange(data.num_rows, dtype=np.int32)
    of_data = data["sequence_number"].to_numpy()
    of_deletes = deletes["sequence_number"].to_numpy()
    overlap = BoundsOverlap(data, deletes, chosen, columns)
    found = []
    for across_partitions in (True, False):
        own = chosen[is_global[chosen] == across_partitions]
        if not len(own):
            continue
        partition = np.zeros(data.num_rows, np.int64) if across_partitions else groups.of_data
        of_own = np.zeros(len(own), np.int64) if across_partitions else groups.of_deletes[own]
        order = np.lexsort((of_deletes[own], of_own))
        begins = _find_first_newer(of_own[order], of_deletes[own][order], partition, of_data)
        ends = np.searchsorted(of_own[order], partition, side="right")
        counts = np.zeros(data.num_rows, np.int64)
        parts = [np.zeros(0, np.int32)]
        for pair_files, pair_deletes in _pair_ranges(files, own[order], begins, ends, max_pairs):
            may_overlap = overlap.may_overlap(pair_files, pair_deletes, across_partitions=across_partitions)
            counts += np.bincount(pair_files[may_overlap], minlength=data.num_rows)
            parts.append(pair_deletes[may_overlap])
        found.append(_Lists(counts, np.concatenate(parts)))
    return found


def _find_first_newer(
    partitions: Numbers, sequences: Numbers, partitions_of_data: Numbers, of_data: Numbers
) -> Numbers:
    """Return, for each file, the position of the first newer delete in the order of partition and sequence number."""
    ranks, codes = np.unique(np.concatenate([sequences, of_data]), return_inverse=True)
    # One number for partition and rank compares like the pair.
    keys = partitions * len(ranks) + codes[: len(sequences)]
    return np.searchsorted(keys, partitions_of_data * len(ranks) + codes[len(sequences) :], side="right")


# --- The test whether an equality delete file may delete a row of a data file -----------------------------------------
#
# It cannot where the bounds of a compared column are disjoint, and not both files may contain NULL in it.


class BoundsOverlap:
    """The overlap test for pairs of data files and equality delete files."""

    def __init__(self, data: pa.Table, deletes: pa.Table, chosen: Indices, columns: Mapping[int, Column]) -> None:
        """Collect bounds; `chosen` are the indices of the equality deletes among the deletes."""
        every = to_single_array(deletes["equality_ids"])
        ids = pc.unique(every.take(pa.array(chosen)).flatten()).to_pylist()
        # Bounds do not cover NaN.
        kinds = {each: columns[each].type for each in ids if each in columns}
        comparable = [each for each, kind in kinds.items() if types.is_ordered(kind) and not pa.types.is_floating(kind)]
        owners = pc.list_parent_indices(every).to_numpy()
        values = every.flatten().to_numpy(zero_copy_only=False)
        self._columns: list[tuple[Bits, _ColumnBounds, _ColumnBounds]] = []
        for each in comparable:
            of_data, of_deletes = _collect_bounds(data, deletes, each, columns[each])
            is_compared = np.zeros(deletes.num_rows, bool)
            is_compared[owners[values == each]] = True
            is_compared &= of_deletes.has_bounds
            if is_compared.any() and of_data.has_bounds.any():
                self._columns.append((is_compared, of_data, of_deletes))
        # The type of a dropped source column is unknown, and so may its values be: they match any value.
        has_dropped = "dropped_key" in data.column_names
        self._dropped_keys = _Codes.of(data["dropped_key"], deletes["dropped_key"]) if has_dropped else None

    def may_overlap(self, files: Indices, deletes: Indices, *, across_partitions: bool) -> Bits:
        """Return whether the files of each pair, given by their indices, may share a value."""
        may_overlap = np.ones(len(files), bool)
        if self._dropped_keys is not None and not across_partitions:
            may_overlap &= self._dropped_keys.may_be_same(files, deletes)
        for is_compared, of_data, of_deletes in self._columns:
            asked = np.flatnonzero(may_overlap & is_compared[deletes])
            may_overlap[asked] = ~of_data.is_disjoint(files[asked], of_deletes, deletes[asked])
        return may_overlap


@dataclass(frozen=True)
class _ColumnBounds:
    """Bounds of a column as ranks, and whether it may contain NULL."""

    lower: Indices
    upper: Indices
    has_bounds: Bits
    may_be_null: Bits

    def is_disjoint(self, rows: Indices, other: _ColumnBounds, of_other: Indices) -> Bits:
        """Return whether the two cannot share any value, NULL included."""
        is_disjoint = self.upper[rows] < other.lower[of_other]
        is_disjoint |= self.lower[rows] > other.upper[of_other]
        is_disjoint &= self.has_bounds[rows] & other.has_bounds[of_other]
        is_disjoint &= ~(self.may_be_null[rows] & other.may_be_null[of_other])
        return is_disjoint


def _collect_bounds(
    data: pa.Table, deletes: pa.Table, field_id: int, column: Column
) -> tuple[_ColumnBounds, _ColumnBounds]:
    """Collect the bounds of data files and of deletes with common ranks: pairs are many, and bounds may be long."""
    bounds = [decode_bounds(files, field_id, column.type) for files in (data, deletes)]
    values = pa.concat_arrays([each for pair in bounds for each in pair])
    encoded = pc.dictionary_encode(values)
    ranks = np.zeros(len(encoded.dictionary) + 1, np.int32)
    ranks[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(encoded.dictionary))
    numbers = ranks[pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy()]
    ends = np.cumsum([len(each) for pair in bounds for each in pair])
    low, high, low_of_deletes, high_of_deletes = np.split(numbers, ends[:-1])
    has_bounds = [np.asarray(pc.and_(low.is_valid(), high.is_valid())) for low, high in bounds]
    nulls = [_find_nullable(files, field_id, column) for files in (data, deletes)]
    return _ColumnBounds(low, high, has_bounds[0], nulls[0]), _ColumnBounds(
        low_of_deletes, high_of_deletes, has_bounds[1], nulls[1]
    )


def _find_nullable(files: pa.Table, field_id: int, column: Column) -> Bits:
    nulls, values = (read_counts(files, kind, field_id) for kind in ("nulls", "values"))
    may_be: Bits = np.asarray(pc.fill_null(pc.not_equal(nulls, 0), True))
    if len(column.path) == 1:
        return may_be
    # A field of a NULL struct is NULL too, and some writers do not count it.
    is_counted = pc.equal(values, to_single_array(files["record_count"]))
    may_be |= ~np.asarray(pc.fill_null(is_counted, False))
    return may_be
