"""The files of manifests that a scan needs: pruned by partition values, then by statistics, under one spec at a time.

A piece is some manifests of one spec. What is read of it are whole columns; what partition values rule out never has
its bounds decoded.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile
from tamis.expr.nodes import Column
from tamis.io.storage import Storage
from tamis.skipping.metadata import ROW_COUNT
from tamis.skipping.prune import ConjunctOutcome, prune
from tamis.tables.arrays import one_array
from tamis.tables.iceberg.account import Account, Outcomes, Sizes
from tamis.tables.iceberg.file_request import Layout, Request
from tamis.tables.iceberg.manifest_pruning import not_of_partitions, spec_of
from tamis.tables.iceberg.manifests import Entries, read_manifest
from tamis.tables.iceberg.partition_bounds import Metadata, bounds_of_tuples, tightened
from tamis.tables.iceberg.partition_keys import Texts, keys_of, keys_of_gone
from tamis.tables.iceberg.specs import Spec
from tamis.tables.iceberg.statistics import bounds_of_statistics
from tamis.tables.source import IDENTITY_VALUES, absent_name

MOST_FILES_TOGETHER = 16 * 1024
"""How many files make a piece, unless one manifest has more: an array costs more than what is in it."""

FORMER_VALUES = "former_values"
"""Like `identity_values`, of columns that are gone: equality deletes may still compare them."""

UNREADABLE = "unreadable"
"""The columns of a file whose partition value is one that their type cannot represent: see `FileListing.unreadable`."""

DESCRIBED = "described:"
"""Before the names of metadata of columns, which come along with files where somebody asks."""

Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Manifest:
    """A manifest to read."""

    path: str
    length: int
    spec_id: int
    sequence_number: int
    snapshot_id: int | None
    files: int | None

    @staticmethod
    def all_of(table: pa.Table) -> list[Manifest]:
        columns = (table[name].to_pylist() for name in
                   ("path", "length", "spec_id", "sequence_number", "added_snapshot_id", "files"))  # fmt: skip
        return [Manifest(*each) for each in zip(*columns, strict=True)]


def pieces_of(manifests: Sequence[Manifest]) -> list[list[Manifest]]:
    """Manifests of one spec, so many together that there are enough files; in the order of the specs."""
    found: list[list[Manifest]] = []
    for spec_id in dict.fromkeys(manifest.spec_id for manifest in manifests):
        waiting: list[Manifest] = []
        files = 0
        for manifest in (each for each in manifests if each.spec_id == spec_id):
            own = manifest.files if manifest.files is not None else MOST_FILES_TOGETHER
            if waiting and files + own > MOST_FILES_TOGETHER:
                found.append(waiting)
                waiting, files = [], 0
            waiting.append(manifest)
            files += own
        if waiting:
            found.append(waiting)
    return found


def chosen_schema(layout: Layout, more: Collection[int]) -> pa.Schema:
    """Of the files that are left; `more` are the ids of columns whose statistics come along undecoded."""
    fields = [
        ("location", types.STRING),
        ("file_format", types.STRING),
        ("content", pa.int8()),
        ("record_count", types.LONG),
        ("size", types.LONG),
        ("snapshot_id", types.LONG),
        ("sequence_number", types.LONG),
        ("spec_id", pa.int32()),
        ("partition_key", types.BINARY),
        ("partition_values", types.STRING),
        ("matched", types.BOOLEAN),
    ]
    if any(spec.gone for spec in layout.specs.values()):
        fields.append(("gone_key", types.BINARY))
    of_today = {name: column.type for name, column in layout.identity_columns.items()}
    of_past = {name: column.type for name, column in layout.former_columns.items()}
    for name, data_types in ((IDENTITY_VALUES, of_today), (FORMER_VALUES, of_past)):
        if data_types:
            fields.append((name, _struct_of_values(data_types)))
    if of_today:
        fields.append((UNREADABLE, types.STRING))
    for field_id in more:
        fields += [(f"{kind}:{field_id}", types.BINARY) for kind in ("lower", "upper")]
        fields += [(f"{kind}:{field_id}", types.LONG) for kind in ("nulls", "values")]
    return pa.schema(fields)


def _struct_of_values(data_types: Mapping[str, pa.DataType]) -> pa.StructType:
    """Of the values of identity partitions by the names of their columns: null where a file's spec has none."""
    return pa.struct([(name, pa.struct([("value", data_type)])) for name, data_type in data_types.items()])


class FilePruner:
    """Prunes the data files of manifests. Any number of threads may use it."""

    def __init__(self, request: Request, more: Collection[int] = ()) -> None:
        self._request = request
        self._more = tuple(more)
        self.schema = chosen_schema(request.layout, more)

    @property
    def _needs_nans(self) -> bool:
        """Columns without NaN have no counts of them, and those of others are seldom wanted."""
        of_filter = (*self._request.tested.values(), *self._request.described_ids.values())
        return bool(self._more) or any(each.type is None or pa.types.is_floating(each.type) for each in of_filter)

    def prune(self, storage: Storage, piece: Sequence[Manifest]) -> tuple[pa.Table, Account]:
        """The files of a piece that are left, and the account of all of them."""
        spec = spec_of(self._request.layout.specs, piece[0].spec_id, f"'{storage.place(piece[0].path)}'")
        tested = self._request.tested if self._request.by_statistics else ()
        wanted = (*self._more, *tested, *self._request.described_ids)
        entries = [read_entries(storage, each, wanted, with_nans=self._needs_nans) for each in piece]
        tuples = joined_entries(spec, entries, storage.place(piece[0].path))
        _check_data(tuples.files, storage.place(piece[0].path))
        found, account = self._prune(spec, tuples)
        return found, replace(account, wrong_lengths=sum(own.is_length_wrong for own in entries))

    def _prune(self, spec: Spec, given: Tuples) -> tuple[pa.Table, Account]:
        request = self._request
        conjuncts = request.conjuncts(spec)
        files, typed = given.files, given.typed
        self._check_wrong(spec, given)
        if "gone_key" in self.schema.names:
            files = files.append_column("gone_key", given.gone_keys)
        total = Sizes.of(files["size"])
        matched = np.zeros((files.num_rows, len(conjuncts)), bool)
        chosen = np.arange(files.num_rows)
        of_partitions: Outcomes = ()
        known: Metadata = {}
        if request.by_partitions and conjuncts and spec.fields:
            rows = one_array(files["record_count"])
            # What is unknown of a field keeps every file.
            right = {field_id: values for field_id, values in typed.items() if field_id not in given.wrong}
            known = bounds_of_tuples(spec, right, rows, request.predicate.columns)
            pruned = prune(pa.record_batch({ROW_COUNT.name: rows, **known}), conjuncts)
            of_partitions = not_of_partitions(pruned.outcomes, spec, request)
            left = np.asarray(pruned.selection)
            chosen, matched = chosen[left], _columns(pruned.matched, int(left.sum()))
            known = {name: values.filter(pruned.selection) for name, values in known.items()}
        if request.predicate.partition_filter is not None:
            chosen, matched, known, of_filter = self._by_filter(spec, typed, given.keys, chosen, matched, known)
            of_partitions += of_filter
        files = files if len(chosen) == files.num_rows else files.take(pa.array(chosen))
        after_partitions = Sizes.of(files["size"])
        of_statistics: Outcomes = ()
        if request.by_statistics:
            rows = one_array(files["record_count"])
            units = {ROW_COUNT.name: rows, **bounds_of_statistics(files, request.tested, rows)}
            pruned = prune(pa.record_batch(tightened(units, known, tuple(request.tested.values()))), conjuncts)
            of_statistics = pruned.outcomes
            left = np.asarray(pruned.selection)
            chosen, matched = chosen[left], matched[left] | _columns(pruned.matched, int(left.sum()))
            files = files.filter(pruned.selection)
        account = Account(total, after_partitions, Sizes.of(files["size"]), of_partitions, of_statistics)
        found = self._described(spec, files, given, chosen, matched)
        if self._request.described:
            rows = one_array(files["record_count"])
            for name, values in bounds_of_statistics(files, self._request.described_ids, rows).items():
                found = found.append_column(DESCRIBED + name, values)
        return found, account

    def _by_filter(
        self,
        spec: Spec,
        typed: Mapping[int, pa.Array],
        keys: pa.Array,
        chosen: npt.NDArray[np.int64],
        matched: Bits,
        known: Metadata,
    ) -> tuple[npt.NDArray[np.int64], Bits, Metadata, Outcomes]:
        """What a filter of the texts of partition values admits."""
        partition_filter = self._request.partition_filters[spec.spec_id]
        taken = pa.array(chosen)
        own = {field_id: values.take(taken) for field_id, values in typed.items()}
        admitted = Texts.of(spec, own, keys.take(taken)).admitted(partition_filter)
        kept = np.asarray(admitted)
        text = f"partition filter {partition_filter.to_json()}"
        outcome = ConjunctOutcome(text, int((~kept).sum()), None)
        known = {name: values.filter(admitted) for name, values in known.items()}
        return chosen[kept], matched[kept], known, (outcome,)

    def _described(
        self,
        spec: Spec,
        files: pa.Table,
        given: Tuples,
        chosen: npt.NDArray[np.int64],
        matched: Bits,
    ) -> pa.Table:
        if not len(chosen):
            return self.schema.empty_table()
        taken = pa.array(chosen)
        own = {field_id: values.take(taken) for field_id, values in given.typed.items()}
        keys = given.keys.take(taken)
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            "spec_id": pa.repeat(pa.scalar(spec.spec_id, pa.int32()), len(chosen)),
            "partition_key": keys,
            "partition_values": Texts.of(spec, own, keys).to_json(),
            "matched": pa.array(np.all(matched, axis=1)),
        }
        if IDENTITY_VALUES in self.schema.names:
            wrong = {field_id: is_wrong.take(taken) for field_id, is_wrong in given.wrong.items()}
            identity = {
                absent_name(column.path): _as_value(own[field.field_id], wrong.get(field.field_id))
                for field, column in spec.identity
            }
            columns[UNREADABLE] = _unreadable(spec, wrong, given.place, len(chosen))
            columns[IDENTITY_VALUES] = self._values(IDENTITY_VALUES, identity, len(chosen))
        if FORMER_VALUES in self.schema.names:
            former = {name: values.take(taken) for name, values in given.former.items()}
            columns[FORMER_VALUES] = self._values(FORMER_VALUES, former, len(chosen))
        return pa.table(
            [
                columns[field.name]
                if field.name in columns
                else files[field.name].cast(field.type)
                if field.name in files.column_names
                else pa.nulls(len(chosen), field.type)
                for field in self.schema
            ],
            schema=self.schema,
        )

    def _values(self, name: str, found: Mapping[str, pa.StructArray], rows: int) -> pa.StructArray:
        kind = self.schema.field(name).type
        children = [found[child.name] if child.name in found else pa.nulls(rows, child.type) for child in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind))

    def _check_wrong(self, spec: Spec, given: Tuples) -> None:
        """An error for a filter that needs a partition value which its type cannot represent."""
        predicate = self._request.predicate
        mentioned = {column.path[0] for column in predicate.mentioned}
        for field, column in spec.identity:
            if field.field_id in given.wrong and column.path[0] in mentioned:
                raise _wrong_value(column, given.place)
        if predicate.partition_filter is not None:
            given.check_texts()


def _wrong_value(column: Column, place: str) -> CorruptFile:
    kind = "value" if column.type is None else types.type_name(column.type)
    return CorruptFile(
        f"'{place}' has a partition value of column {column.name!r} that is no {kind}. Queries that do not need the "
        "column can be answered"
    )


def _unreadable(spec: Spec, wrong: Mapping[int, pa.BooleanArray], place: str, rows: int) -> pa.Array:
    """The columns that cannot be read of each file, as JSON with the reasons; null where there are none."""
    found: list[dict[str, str]] = [{} for _ in range(rows)] if wrong else []
    for field, column in spec.identity:
        if field.field_id in wrong:
            for row in np.flatnonzero(np.asarray(wrong[field.field_id])).tolist():
                found[row][column.path[0]] = str(_wrong_value(column, place))
    if not found:
        return pa.nulls(rows, types.STRING)
    return pa.array([json.dumps(each) if each else None for each in found], types.STRING)


def _as_value(values: pa.Array, is_wrong: pa.BooleanArray | None) -> pa.StructArray:
    """What is known of a column that a file may lack; null where nothing is."""
    return pa.StructArray.from_arrays([values], ["value"], mask=is_wrong)


def read_entries(
    storage: Storage,
    manifest: Manifest,
    statistics: Collection[int],
    *,
    of_compared: bool = False,
    with_nans: bool = True,
) -> Entries:
    """The live entries of a manifest, with statistics of some columns."""
    return read_manifest(
        storage,
        manifest.path,
        manifest.length,
        manifest.files,
        spec_id=manifest.spec_id,
        sequence_number=manifest.sequence_number,
        snapshot_id=manifest.snapshot_id,
        statistics=statistics,
        of_compared=of_compared,
        with_nans=with_nans,
    )


@dataclass(frozen=True)
class Tuples:
    """Files of one spec with their partition tuples. What few files need is made of them when it is asked for."""

    files: pa.Table
    typed: Mapping[int, pa.Array]
    """The values of partition fields, by their ids."""
    wrong: Mapping[int, pa.BooleanArray]
    """Which of them their types cannot represent, for the fields that have such: see `Spec.wrong`."""
    place: str
    _spec: Spec
    _parts: Sequence[tuple[Mapping[int, pa.Array], Entries]]
    """Typed values and entries of each manifest: raw values may be of other types in each."""

    def check_texts(self) -> None:
        """An error for a filter of texts where a value has none, since its type cannot represent it."""
        for field in self._spec.useful:
            if field.field_id in self.wrong and field.source is not None:
                raise _wrong_value(field.source, self.place)

    @cached_property
    def keys(self) -> pa.Array:
        """Tuples as bytes: see `partition_keys`."""
        return pa.concat_arrays(
            [keys_of(self._spec, typed, own.partition, own.files.num_rows) for typed, own in self._parts]
        )

    @cached_property
    def gone_keys(self) -> pa.Array:
        return pa.concat_arrays([keys_of_gone(self._spec, own.partition, own.files.num_rows) for _, own in self._parts])

    @cached_property
    def former(self) -> Mapping[str, pa.StructArray]:
        """The values of identity partitions by columns that are gone: see `Spec.former_values`."""
        each = [self._spec.former_values(own.partition, self.place) for _, own in self._parts]
        return {
            column.name: pa.concat_arrays([own[column.name] for own in each])
            for _, column in self._spec.former_identity
        }


def joined_entries(spec: Spec, entries: Sequence[Entries], place: str) -> Tuples:
    """The entries of manifests of one spec. Each may have other types for partition values, of promoted columns."""
    typed = [spec.typed(own.partition, place) for own in entries]
    wrong = [spec.wrong(own.partition, values) for own, values in zip(entries, typed, strict=True)]
    return Tuples(
        pa.concat_tables([own.files for own in entries], promote_options="permissive"),
        {field.field_id: pa.concat_arrays([own[field.field_id] for own in typed]) for field in spec.useful},
        {
            field_id: pa.concat_arrays(
                [
                    each[field_id] if field_id in each else pa.repeat(False, own.files.num_rows)
                    for each, own in zip(wrong, entries, strict=True)
                ]
            )
            for field_id in dict.fromkeys(field_id for each in wrong for field_id in each)
        },
        place,
        spec,
        list(zip(typed, entries, strict=True)),
    )


def _columns(matched: Sequence[pa.BooleanArray], rows: int) -> Bits:
    found = np.zeros((rows, len(matched)), bool)
    for position, each in enumerate(matched):
        found[:, position] = np.asarray(each)
    return found


def _check_data(files: pa.Table, place: str) -> None:
    if pc.any(pc.not_equal(files["content"], 0), min_count=0).as_py():
        raise CorruptFile(f"'{place}' is a manifest of data files, and has delete files among them")
