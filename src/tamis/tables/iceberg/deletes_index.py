"""Which delete files are for which data files, without a loop over either.

| delete                | is for data files                                                                            |
|-----------------------|----------------------------------------------------------------------------------------------|
| deletion vector       | of its path, no newer than it; then no position deletes are for the file besides             |
| position deletes      | of its spec and partition, no newer than it; of its path where it names one, else those      |
|                       | whose path lies within the bounds of the paths that it names                                 |
| equality deletes      | older than it, of its spec and partition, or of all where its spec has one partition only;   |
|                       | those whose bounds of the compared columns overlap with its own                              |

Newer and older are by sequence numbers. Data files are put into an order in which those that a delete may be for stand
side by side: by partition and path for position deletes, by partition and sequence number for equality deletes. Two
binary searches find where they begin and end, so what is looked at grows with what is found.
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
from tamis.expr.nodes import Column
from tamis.tables.iceberg.manifests import EQUALITY_DELETES, POSITION_DELETES
from tamis.tables.iceberg.partition_bounds import in_order, ordered_floats
from tamis.tables.iceberg.single_values import decode_values

PATH_ID = 2147483546
"""The id of the column of position deletes that has the paths of data files."""

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
"""A delete, as a listing of files has it. `offset` and `length` are of deletion vectors, the place of the vector."""

MOST_PAIRS = 4 * 1024 * 1024
"""How many pairs of a data file and a delete are looked at together."""

_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")

Numbers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Assigned:
    """The deletes of data files."""

    deletes: pa.Array
    """A list of `DELETE` for each data file, null where there is none."""
    deleted: pa.Array
    """How many rows are deleted of each; null where nobody knows without reading them."""


def assign_deletes(
    data: pa.Table, deletes: pa.Table, resolved: pa.Array, columns: Mapping[int, Column], is_global: Mapping[int, bool]
) -> Assigned:
    """The deletes of each data file.

    Both have `location`, `sequence_number`, `spec_id`, `partition_key`, and statistics of the compared columns as
    manifests have them. `resolved` are the paths of deletes in the file system, `columns` those of the table by their
    ids, and `is_global` tells whether a spec has one partition only.
    """
    if not deletes.num_rows or not data.num_rows:
        none = pa.nulls(data.num_rows, pa.list_(DELETE))
        return Assigned(none, pa.repeat(pa.scalar(0, types.LONG), data.num_rows))
    content = deletes["content"].to_numpy()
    is_vector = (content == POSITION_DELETES) & np.asarray(pc.equal(deletes["file_format"], "puffin"))
    groups = _Groups.of(data, deletes)
    by_vector = _of_vectors(data, deletes, np.flatnonzero(is_vector))
    by_position = _of_positions(data, deletes, np.flatnonzero((content == POSITION_DELETES) & ~is_vector), groups)
    # A deletion vector has taken in all position deletes before it.
    has_vector = np.zeros(data.num_rows, bool)
    has_vector[by_vector.files] = True
    by_position = by_position.where(~has_vector[by_position.files])
    globally = np.array([is_global.get(spec_id, False) for spec_id in deletes["spec_id"].to_pylist()], bool)
    equality = np.flatnonzero(content == EQUALITY_DELETES)
    by_equality = _of_equality(data, deletes, equality, globally, groups, columns)
    pairs = _Pairs.joined([by_vector, by_position, by_equality])
    is_exact = np.ones(data.num_rows, bool)
    is_exact[by_position.files] = False
    is_exact[by_equality.files] = False
    deleted = np.zeros(data.num_rows, np.int64)
    counts = deletes["record_count"].to_numpy()
    np.add.at(deleted, by_vector.files, counts[by_vector.deletes])
    return Assigned(_lists(data.num_rows, pairs, deletes, resolved, is_vector), pa.array(deleted, mask=~is_exact))


@dataclass(frozen=True)
class _Pairs:
    """A data file and a delete each, by their indices."""

    files: Numbers
    deletes: Numbers

    def where(self, chosen: Bits) -> _Pairs:
        return _Pairs(self.files[chosen], self.deletes[chosen])

    @staticmethod
    def joined(parts: list[_Pairs]) -> _Pairs:
        nothing = np.zeros(0, np.int64)
        return _Pairs(
            np.concatenate([nothing, *(part.files for part in parts)]),
            np.concatenate([nothing, *(part.deletes for part in parts)]),
        )


@dataclass(frozen=True)
class _Groups:
    """Partitions by numbers: the same spec and tuple have the same."""

    of_data: Numbers
    of_deletes: Numbers

    @staticmethod
    def of(data: pa.Table, deletes: pa.Table) -> _Groups:
        both = [
            pc.binary_join_element_wise(
                each["spec_id"].cast(types.STRING).cast(types.BINARY), each["partition_key"].cast(types.BINARY), b"/"
            )
            for each in (data, deletes)
        ]
        chunks = [chunk for each in both for chunk in (each.chunks if isinstance(each, pa.ChunkedArray) else [each])]
        codes = pc.dictionary_encode(pa.concat_arrays(chunks)).indices.to_numpy().astype(np.int64)
        return _Groups(codes[: data.num_rows], codes[data.num_rows :])


# --- By path ----------------------------------------------------------------------------------------------------------


def _by_path(data: pa.Table, deletes: pa.Table, chosen: Numbers, paths: pa.Array) -> _Pairs:
    """Deletes that name one data file, no newer than they are."""
    locations = data["location"].combine_chunks()
    distinct = pc.unique(locations)
    codes = pc.index_in(locations, value_set=distinct).to_numpy()
    order = np.argsort(codes, kind="stable")
    wanted = pc.fill_null(pc.index_in(paths, value_set=distinct), -1).to_numpy()
    begins, ends = (np.searchsorted(codes[order], wanted, side=side) for side in _SIDES)
    pairs = _Pairs.joined(list(_spread(order, chosen, begins, ends)))
    return _no_newer(data, deletes, pairs)


def _no_newer(data: pa.Table, deletes: pa.Table, pairs: _Pairs) -> _Pairs:
    of_data, of_deletes = data["sequence_number"].to_numpy(), deletes["sequence_number"].to_numpy()
    return pairs.where(of_data[pairs.files] <= of_deletes[pairs.deletes])


def _of_vectors(data: pa.Table, deletes: pa.Table, chosen: Numbers) -> _Pairs:
    if not len(chosen):
        return _Pairs(chosen, chosen)
    pairs = _by_path(data, deletes, chosen, deletes["referenced"].combine_chunks().take(pa.array(chosen)))
    # There is one for a file; were there several, the newest holds.
    order = np.lexsort((deletes["sequence_number"].to_numpy()[pairs.deletes], pairs.files))
    files, own = pairs.files[order], pairs.deletes[order]
    is_last = np.append(files[1:] != files[:-1], True) if len(files) else np.zeros(0, bool)
    return _Pairs(files[is_last], own[is_last])


def _of_positions(data: pa.Table, deletes: pa.Table, chosen: Numbers, groups: _Groups) -> _Pairs:
    if not len(chosen):
        return _Pairs(chosen, chosen)
    taken = pa.array(chosen)
    low, high = (_paths(deletes, f"{kind}:{PATH_ID}", taken) for kind in ("lower", "upper"))
    named = deletes["referenced"].combine_chunks().take(taken)
    # Bounds that are cut off differ: the upper one is rounded up.
    one = pc.if_else(pc.fill_null(pc.equal(low, high), False), low, pa.scalar(None, types.STRING))
    paths = pc.coalesce(named, one)
    is_named = np.asarray(paths.is_valid())
    by_path = _by_path(data, deletes, chosen[is_named], paths.filter(pa.array(is_named)))
    by_path = by_path.where(groups.of_data[by_path.files] == groups.of_deletes[by_path.deletes])
    others = np.flatnonzero(~is_named)
    if not len(others):
        return by_path
    taken = pa.array(others)
    within = _within(data, chosen[others], low.take(taken), high.take(taken), groups)
    return _Pairs.joined([by_path, *(_no_newer(data, deletes, pairs) for pairs in within)])


def _paths(deletes: pa.Table, name: str, rows: pa.Array) -> pa.Array:
    if name not in deletes.column_names:
        return pa.nulls(len(rows), types.STRING)
    return decode_values(deletes[name].combine_chunks().take(rows), types.STRING)


def _within(data: pa.Table, chosen: Numbers, low: pa.Array, high: pa.Array, groups: _Groups) -> Iterator[_Pairs]:
    """The data files of the partition whose path is within bounds, unknown ones being none."""
    locations = data["location"].combine_chunks()
    # Numbers in the order of the paths stand for them: those of bounds are found among them.
    distinct = pc.unique(locations)
    ordered = distinct.take(pc.sort_indices(distinct))
    ranks = pc.index_in(locations, value_set=ordered).to_numpy().astype(np.int64)
    texts = ordered.cast(types.BINARY).to_numpy(zero_copy_only=False)
    first = _searched(texts, low, 0, "left")
    behind = _searched(texts, high, len(texts), "right")
    order = np.lexsort((ranks, groups.of_data))
    # A partition and a rank as one number, ascending in this order.
    keys = groups.of_data[order] * (len(texts) + 1) + ranks[order]
    start = groups.of_deletes[chosen] * (len(texts) + 1)
    begins, ends = np.searchsorted(keys, start + first), np.searchsorted(keys, start + behind)
    yield from _spread(order, chosen, begins, ends)


def _searched(texts: npt.NDArray[np.object_], bounds: pa.Array, otherwise: int, side: str) -> Numbers:
    is_known = np.asarray(bounds.is_valid())
    found = np.full(len(bounds), otherwise, np.int64)
    known = bounds.filter(pa.array(is_known)).cast(types.BINARY).to_numpy(zero_copy_only=False)
    found[is_known] = np.searchsorted(texts, known, side=side)  # type: ignore[call-overload]
    return found


def _spread(order: Numbers, deletes: Numbers, begins: Numbers, ends: Numbers) -> Iterator[_Pairs]:
    """Every delete with the data files between its two places in an order, a bounded number of them at a time."""
    counts = np.maximum(ends - begins, 0)
    first = 0
    totals = np.cumsum(counts)
    while first < len(counts):
        before = int(totals[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(totals, before + MOST_PAIRS, side="right")))
        own = counts[first:last]
        steps = np.arange(int(own.sum())) - np.repeat(np.cumsum(own) - own, own)
        yield _Pairs(order[np.repeat(begins[first:last], own) + steps], np.repeat(deletes[first:last], own))
        first = last


# --- By values --------------------------------------------------------------------------------------------------------


def _of_equality(
    data: pa.Table,
    deletes: pa.Table,
    chosen: Numbers,
    is_global: Bits,
    groups: _Groups,
    columns: Mapping[int, Column],
) -> _Pairs:
    if not len(chosen):
        return _Pairs(chosen, chosen)
    of_data = data["sequence_number"].to_numpy()
    of_deletes = deletes["sequence_number"].to_numpy()
    overlap = _Overlap(data, deletes, chosen, columns)
    found: list[_Pairs] = []
    for anywhere in (True, False):
        own = chosen[is_global[chosen] == anywhere]
        if not len(own):
            continue
        partition = np.zeros(data.num_rows, np.int64) if anywhere else groups.of_data
        wanted = np.zeros(len(own), np.int64) if anywhere else groups.of_deletes[own]
        order = np.lexsort((of_data, partition))
        begins = np.searchsorted(partition[order], wanted)
        ends = _first_no_older(partition[order], of_data[order], wanted, of_deletes[own])
        found += [overlap.of(pairs) for pairs in _spread(order, own, begins, ends)]
    return _Pairs.joined(found)


def _first_no_older(partitions: Numbers, sequences: Numbers, wanted: Numbers, of_deletes: Numbers) -> Numbers:
    """Where, in the order of partitions and sequence numbers, the first stands that is no older than a delete."""
    ranks, codes = np.unique(np.concatenate([sequences, of_deletes]), return_inverse=True)
    # A partition and a rank as one number compare like the pair.
    keys = partitions * len(ranks) + codes[: len(sequences)]
    return np.searchsorted(keys, wanted * len(ranks) + codes[len(sequences) :])


class _Overlap:
    """Whether a data file may hold a row that an equality delete has: their bounds overlap, or both may have NULL."""

    def __init__(self, data: pa.Table, deletes: pa.Table, chosen: Numbers, columns: Mapping[int, Column]) -> None:
        ids = deletes["equality_ids"].combine_chunks().take(pa.array(chosen))
        self._ids = [each for each in pc.unique(ids.flatten()).to_pylist() if each in columns]
        self._facts = [
            (_Facts.of(data, each, columns[each]), _Facts.of(deletes, each, columns[each])) for each in self._ids
        ]
        is_compared = np.zeros((deletes.num_rows, len(self._ids)), bool)
        every = deletes["equality_ids"].combine_chunks()
        owners = pc.list_parent_indices(every).to_numpy()
        values = every.flatten().to_numpy(zero_copy_only=False)
        for position, each in enumerate(self._ids):
            is_compared[owners[values == each], position] = True
        self._is_compared = is_compared

    def of(self, pairs: _Pairs) -> _Pairs:
        for position, (of_data, of_deletes) in enumerate(self._facts):
            apart = of_data.is_apart(pairs.files, of_deletes, pairs.deletes)
            pairs = pairs.where(~(apart & self._is_compared[pairs.deletes, position]))
        return pairs


@dataclass(frozen=True)
class _Facts:
    """Bounds of a column, as numbers in their order, and what is known of NULL."""

    lower: pa.Array
    upper: pa.Array
    has_bounds: Bits
    may_be_null: Bits

    @staticmethod
    def of(files: pa.Table, field_id: int, column: Column) -> _Facts:
        rows = files.num_rows
        data_type = column.type
        assert data_type is not None
        bounds = [
            decode_values(files[name].combine_chunks(), data_type)
            if (name := f"{kind}:{field_id}") in files.column_names
            else pa.nulls(rows, data_type)
            for kind in ("lower", "upper")
        ]
        low, high = ordered_floats(*bounds) if pa.types.is_floating(data_type) else (bounds[0], bounds[1])
        low, high = in_order(low, high)
        name = f"nulls:{field_id}"
        nulls = files[name].combine_chunks() if name in files.column_names else pa.nulls(rows, types.LONG)
        may_be_null = np.asarray(pc.fill_null(pc.not_equal(nulls, 0), True))
        # NaN is in no bounds.
        has_bounds = np.asarray(pc.and_(low.is_valid(), high.is_valid())) & (not pa.types.is_floating(data_type))
        return _Facts(low, high, has_bounds, may_be_null)

    def is_apart(self, rows: Numbers, other: _Facts, of_other: Numbers) -> Bits:
        """Whether no value of the one, NULL included, can be one of the other."""
        known = self.has_bounds[rows] & other.has_bounds[of_other]
        known &= ~(self.may_be_null[rows] & other.may_be_null[of_other])
        found = np.zeros(len(rows), bool)
        asked = np.flatnonzero(known)
        if not len(asked):
            return found
        own, others = pa.array(rows[asked]), pa.array(of_other[asked])
        apart = pc.or_(
            pc.less(self.upper.take(own), other.lower.take(others)),
            pc.greater(self.lower.take(own), other.upper.take(others)),
        )
        found[asked] = np.asarray(apart)
        return found


# --- As a column ------------------------------------------------------------------------------------------------------


def _lists(rows: int, pairs: _Pairs, deletes: pa.Table, resolved: pa.Array, is_vector: Bits) -> pa.Array:
    order = np.lexsort((pairs.deletes, pairs.files))
    counts = np.bincount(pairs.files, minlength=rows)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    not_a_vector = pa.array(~is_vector)
    nothing = pa.scalar(None, types.LONG)
    described = pa.StructArray.from_arrays(
        [
            resolved,
            deletes["size"].combine_chunks(),
            deletes["content"].combine_chunks().cast(pa.int8()),
            deletes["file_format"].combine_chunks(),
            pc.if_else(not_a_vector, nothing, deletes["offset"].combine_chunks()),
            pc.if_else(not_a_vector, nothing, deletes["length"].combine_chunks()),
            deletes["record_count"].combine_chunks(),
            deletes["equality_ids"].combine_chunks(),
        ],
        fields=list(DELETE),
    )
    values = described.take(pa.array(pairs.deletes[order]))
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(counts == 0))
