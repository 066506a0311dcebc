"""Which delete files are for which data files, without a loop over either.

| delete                | is for data files                                                                            |
|-----------------------|----------------------------------------------------------------------------------------------|
| deletion vector       | of its path, no newer than it; then no position deletes are for the file besides             |
| position deletes      | of its path where it names one, no newer than it; else those of its spec and partition whose |
|                       | path lies within the bounds of the paths that it names                                       |
| equality deletes      | older than it, of its spec and partition, or of all where its spec has one partition only;   |
|                       | those whose bounds of the compared columns overlap with its own                              |

Newer and older are by sequence numbers. One side is put into an order in which those that belong to one of the other
stand side by side: data files by partition and path for position deletes, equality deletes by partition and sequence
number for data files. Two binary searches find where they begin and end, so what is looked at grows with what is found.

That may be many: an upsert stream has an equality delete with each commit, for all files before it. So a pair is a
number of four bytes, and what there is to know of a delete is kept once.
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
from tamis.tables.arrays import one_array
from tamis.tables.iceberg.delete_overlap import Overlap
from tamis.tables.iceberg.manifests import EQUALITY_DELETES, POSITION_DELETES, VECTORS
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

DELETES = pa.list_(pa.dictionary(pa.int32(), DELETE))
"""The deletes of a data file, of which each is described once for all files."""

MOST_PAIRS = 4 * 1024 * 1024
"""How many pairs of a data file and a delete are looked at together."""

_MOST_AT_ALL = 2**31 - 1

_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")

Numbers = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Assigned:
    """The deletes of data files."""

    deletes: pa.Array
    """`DELETES` of each data file, null where there is none."""
    deleted: pa.Array
    """How many rows are deleted of each; null where nobody knows without reading them."""


def assign_deletes(
    data: pa.Table, deletes: pa.Table, resolved: pa.Array, columns: Mapping[int, Column], is_global: Mapping[int, bool]
) -> Assigned:
    """The deletes of each data file.

    Both have `location`, `sequence_number`, `spec_id`, `partition_key`, `gone_key` where some column that was
    partitioned by is gone, and statistics of the compared columns as manifests have them. `resolved` are the paths of
    deletes in the file system, `columns` those of the table by their ids, and `is_global` tells whether a spec has one
    partition only.
    """
    if not deletes.num_rows or not data.num_rows:
        none = pa.nulls(data.num_rows, DELETES)
        return Assigned(none, pa.repeat(pa.scalar(0, types.LONG), data.num_rows))
    content = deletes["content"].to_numpy()
    is_vector = (content == POSITION_DELETES) & np.asarray(pc.equal(deletes["file_format"], VECTORS))
    groups = _Groups.of(data, deletes)
    by_vector = _of_vectors(data, deletes, _places(is_vector))
    by_position = _of_positions(data, deletes, _places((content == POSITION_DELETES) & ~is_vector), groups)
    # A deletion vector has taken in all position deletes before it.
    has_vector = np.zeros(data.num_rows, bool)
    has_vector[by_vector.files] = True
    by_position = by_position.where(~has_vector[by_position.files])
    globally = np.array([is_global.get(spec_id, False) for spec_id in deletes["spec_id"].to_pylist()], bool)
    equality = _places(content == EQUALITY_DELETES)
    by_equality = _of_equality(data, deletes, equality, globally, groups, columns)
    lists = _Lists.joined([by_vector.by_files(data.num_rows), by_position.by_files(data.num_rows), *by_equality])
    counts = one_array(deletes["record_count"]).take(pa.array(by_vector.deletes))
    is_exact = np.ones(data.num_rows, bool)
    is_exact[by_position.files] = False
    is_exact[by_vector.files[np.asarray(counts.is_null())]] = False
    for each in by_equality:
        is_exact[each.counts > 0] = False
    deleted = np.zeros(data.num_rows, np.int64)
    deleted[by_vector.files] = pc.fill_null(counts, 0).to_numpy()
    described = _described(deletes, resolved, is_vector)
    return Assigned(lists.to_arrow(described), pa.array(deleted, mask=~is_exact))


def _places(is_chosen: Bits) -> Indices:
    return np.flatnonzero(is_chosen).astype(np.int32)


def _described(deletes: pa.Table, resolved: pa.Array, is_vector: Bits) -> pa.StructArray:
    is_other = pa.array(~is_vector)
    nothing = pa.scalar(None, types.LONG)
    return pa.StructArray.from_arrays(
        [
            resolved,
            one_array(deletes["size"]),
            one_array(deletes["content"]).cast(pa.int8()),
            one_array(deletes["file_format"]),
            pc.if_else(is_other, nothing, one_array(deletes["offset"])),
            pc.if_else(is_other, nothing, one_array(deletes["length"])),
            one_array(deletes["record_count"]),
            one_array(deletes["equality_ids"]),
        ],
        fields=list(DELETE),
    )


@dataclass(frozen=True)
class _Pairs:
    """A data file and a delete each, by their indices."""

    files: Indices
    deletes: Indices

    def where(self, chosen: Bits) -> _Pairs:
        return _Pairs(self.files[chosen], self.deletes[chosen])

    @staticmethod
    def joined(parts: list[_Pairs]) -> _Pairs:
        nothing = np.zeros(0, np.int32)
        return _Pairs(
            np.concatenate([nothing, *(part.files for part in parts)]),
            np.concatenate([nothing, *(part.deletes for part in parts)]),
        )

    def by_files(self, rows: int) -> _Lists:
        """The same in the order of the files."""
        order = np.argsort(self.files, kind="stable")
        return _Lists(np.bincount(self.files, minlength=rows), self.deletes[order])


@dataclass(frozen=True)
class _Lists:
    """The deletes of each data file, one list after the other."""

    counts: Numbers
    deletes: Indices

    @staticmethod
    def joined(parts: list[_Lists]) -> _Lists:
        """What all say together of the same files."""
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

    def to_arrow(self, described: pa.StructArray) -> pa.Array:
        if len(self.deletes) > _MOST_AT_ALL:
            raise UnsupportedFeature(
                f"{len(self.deletes):,} pairs of a data file and a file of deletes, more than a plan holds: compact "
                "the table, or ask for fewer partitions"
            )
        offsets = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int32)
        values = pa.DictionaryArray.from_arrays(pa.array(self.deletes), described)
        return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(self.counts == 0))


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


def _by_path(data: pa.Table, deletes: pa.Table, chosen: Indices, paths: pa.Array) -> _Pairs:
    """Deletes that name one data file, no newer than they are."""
    locations = one_array(data["location"])
    distinct = pc.unique(locations)
    codes = pc.index_in(locations, value_set=distinct).to_numpy()
    order = np.argsort(codes, kind="stable").astype(np.int32)
    wanted = pc.fill_null(pc.index_in(paths, value_set=distinct), -1).to_numpy()
    begins, ends = (np.searchsorted(codes[order], wanted, side=side) for side in _SIDES)
    found = [_Pairs(files, own) for own, files in _spread(chosen, order, begins, ends)]
    return _no_newer(data, deletes, _Pairs.joined(found))


def _no_newer(data: pa.Table, deletes: pa.Table, pairs: _Pairs) -> _Pairs:
    of_data, of_deletes = data["sequence_number"].to_numpy(), deletes["sequence_number"].to_numpy()
    return pairs.where(of_data[pairs.files] <= of_deletes[pairs.deletes])


def _of_vectors(data: pa.Table, deletes: pa.Table, chosen: Indices) -> _Pairs:
    if not len(chosen):
        return _Pairs(chosen, chosen)
    pairs = _by_path(data, deletes, chosen, one_array(deletes["referenced"]).take(pa.array(chosen)))
    # There is one for a file; were there several, the newest holds.
    order = np.lexsort((deletes["sequence_number"].to_numpy()[pairs.deletes], pairs.files))
    files, own = pairs.files[order], pairs.deletes[order]
    is_last = np.append(files[1:] != files[:-1], True) if len(files) else np.zeros(0, bool)
    return _Pairs(files[is_last], own[is_last])


def _of_positions(data: pa.Table, deletes: pa.Table, chosen: Indices, groups: _Groups) -> _Pairs:
    if not len(chosen):
        return _Pairs(chosen, chosen)
    taken = pa.array(chosen)
    low, high = (_paths(deletes, f"{kind}:{PATH_ID}", taken) for kind in ("lower", "upper"))
    named = one_array(deletes["referenced"]).take(taken)
    # Bounds that are cut off differ: the upper one is rounded up.
    one = pc.if_else(pc.fill_null(pc.equal(low, high), False), low, pa.scalar(None, types.STRING))
    paths = pc.coalesce(named, one)
    is_named = np.asarray(paths.is_valid())
    by_path = _by_path(data, deletes, chosen[is_named], paths.filter(pa.array(is_named)))
    others = np.flatnonzero(~is_named)
    if not len(others):
        return by_path
    taken = pa.array(others)
    within = _within(data, chosen[others], low.take(taken), high.take(taken), groups)
    return _Pairs.joined([by_path, *(_no_newer(data, deletes, pairs) for pairs in within)])


def _paths(deletes: pa.Table, name: str, rows: pa.Array) -> pa.Array:
    if name not in deletes.column_names:
        return pa.nulls(len(rows), types.STRING)
    return decode_values(one_array(deletes[name]).take(rows), types.STRING)


def _within(data: pa.Table, chosen: Indices, low: pa.Array, high: pa.Array, groups: _Groups) -> Iterator[_Pairs]:
    """The data files of the partition whose path is within bounds, unknown ones being none."""
    locations = one_array(data["location"])
    # Numbers in the order of the paths stand for them: those of bounds are found among them.
    distinct = pc.unique(locations)
    ordered = distinct.take(pc.sort_indices(distinct))
    ranks = pc.index_in(locations, value_set=ordered).to_numpy().astype(np.int64)
    texts = ordered.cast(types.BINARY).to_numpy(zero_copy_only=False)
    first = _searched(texts, low, 0, "left")
    behind = _searched(texts, high, len(texts), "right")
    order = np.lexsort((ranks, groups.of_data)).astype(np.int32)
    # A partition and a rank as one number, ascending in this order.
    keys = groups.of_data[order] * (len(texts) + 1) + ranks[order]
    start = groups.of_deletes[chosen] * (len(texts) + 1)
    begins, ends = np.searchsorted(keys, start + first), np.searchsorted(keys, start + behind)
    for own, files in _spread(chosen, order, begins, ends):
        yield _Pairs(files, own)


def _searched(texts: npt.NDArray[np.object_], bounds: pa.Array, otherwise: int, side: str) -> Numbers:
    is_known = np.asarray(bounds.is_valid())
    found = np.full(len(bounds), otherwise, np.int64)
    known = bounds.filter(pa.array(is_known)).cast(types.BINARY).to_numpy(zero_copy_only=False)
    found[is_known] = np.searchsorted(texts, known, side=side)  # type: ignore[call-overload]
    return found


def _spread(owners: Indices, order: Indices, begins: Numbers, ends: Numbers) -> Iterator[tuple[Indices, Indices]]:
    """Every owner with each of those between its two places in an order, a bounded number of them at a time."""
    counts = np.maximum(ends - begins, 0)
    first = 0
    totals = np.cumsum(counts)
    while first < len(counts):
        before = int(totals[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(totals, before + MOST_PAIRS, side="right")))
        own = counts[first:last]
        steps = np.arange(int(own.sum())) - np.repeat(np.cumsum(own) - own, own)
        yield np.repeat(owners[first:last], own), order[np.repeat(begins[first:last], own) + steps]
        first = last


# --- By values --------------------------------------------------------------------------------------------------------


def _of_equality(
    data: pa.Table,
    deletes: pa.Table,
    chosen: Indices,
    is_global: Bits,
    groups: _Groups,
    columns: Mapping[int, Column],
) -> list[_Lists]:
    """Those for the files of all partitions, and those for the files of their own."""
    if not len(chosen):
        return []
    files = np.arange(data.num_rows, dtype=np.int32)
    of_data = data["sequence_number"].to_numpy()
    of_deletes = deletes["sequence_number"].to_numpy()
    overlap = Overlap(data, deletes, chosen, columns)
    found = []
    for anywhere in (True, False):
        own = chosen[is_global[chosen] == anywhere]
        if not len(own):
            continue
        partition = np.zeros(data.num_rows, np.int64) if anywhere else groups.of_data
        of_own = np.zeros(len(own), np.int64) if anywhere else groups.of_deletes[own]
        order = np.lexsort((of_deletes[own], of_own))
        begins = _first_newer(of_own[order], of_deletes[own][order], partition, of_data)
        ends = np.searchsorted(of_own[order], partition, side="right")
        counts = np.zeros(data.num_rows, np.int64)
        parts = [np.zeros(0, np.int32)]
        for pair_files, pair_deletes in _spread(files, own[order], begins, ends):
            may_meet = overlap.of(pair_files, pair_deletes, across_partitions=anywhere)
            counts += np.bincount(pair_files[may_meet], minlength=data.num_rows)
            parts.append(pair_deletes[may_meet])
        found.append(_Lists(counts, np.concatenate(parts)))
    return found


def _first_newer(partitions: Numbers, sequences: Numbers, wanted: Numbers, of_data: Numbers) -> Numbers:
    """Where, in the order of partitions and sequence numbers of deletes, the first stands that is newer than a file."""
    ranks, codes = np.unique(np.concatenate([sequences, of_data]), return_inverse=True)
    # A partition and a rank as one number compare like the pair.
    keys = partitions * len(ranks) + codes[: len(sequences)]
    return np.searchsorted(keys, wanted * len(ranks) + codes[len(sequences) :], side="right")
