"""Pruning the data files of manifests: by partition values, then by statistics, one partition spec at a time.

A group is some manifests of one spec. Its entries are read as columns, and the bounds of files that partition values
rule out are never decoded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile, TamisError
from tamis.expr.nodes import Column, find_columns
from tamis.formats.constants import make_absent_type, make_absent_values, name_absent, name_partition
from tamis.formats.errors import make_corrupt_snapshot_error
from tamis.formats.file_funnel import Bits, FileMetrics, Outcomes, PrunedFiles, Sizes, mark_data_conjuncts
from tamis.formats.iceberg.manifests.manifest_entries import Entries, read_manifest
from tamis.formats.iceberg.partitioning.partition_bounds import (
    Metadata,
    compute_partition_bounds,
    compute_summary_bounds,
    decode_bounds,
    read_counts,
    tighten_bounds,
)
from tamis.formats.iceberg.partitioning.partition_keys import (
    PartitionTexts,
    encode_dropped_keys,
    encode_partition_keys,
    name_partition_field,
)
from tamis.formats.iceberg.partitioning.specs import Spec, find_field_name
from tamis.formats.iceberg.planning.file_request import Layout, Request
from tamis.formats.source import to_single_array
from tamis.io.storage import Storage
from tamis.parquet.footer.leaves import FieldPath
from tamis.skipping.metadata import ROW_COUNT, make_constant_bounds, metadata_name
from tamis.skipping.metrics import LevelReport, merge_outcomes
from tamis.skipping.predicate import get_partition_name
from tamis.skipping.prune import ConjunctOutcome, prune
from tamis.skipping.rewrite import Conjunct

# --- Pruning manifests by the partition field summaries in the manifest list, before any manifest is read -------------


_NOTHING = Sizes()


@dataclass(frozen=True, slots=True)
class ManifestMetrics:
    """The pruning metrics of manifests."""

    total: Sizes = _NOTHING
    kept: Sizes = _NOTHING
    skipped_files: int = 0
    """The number of files in the skipped manifests, as far as the manifest list records it."""
    outcomes: Outcomes = ()
    outcomes_in_files: Outcomes = ()
    """`outcomes`, counted in files instead of manifests."""

    def __add__(self, other: ManifestMetrics) -> ManifestMetrics:
        return ManifestMetrics(
            self.total + other.total,
            self.kept + other.kept,
            self.skipped_files + other.skipped_files,
            merge_outcomes(self.outcomes, other.outcomes),
            merge_outcomes(self.outcomes_in_files, other.outcomes_in_files),
        )

    def describe(self, notes: Sequence[str | None]) -> LevelReport:
        """Return the report of the level of manifests."""
        sizes = (self.total.files, self.kept.files, self.total.bytes, self.kept.bytes)
        return LevelReport("manifests", *sizes, self.outcomes, "; ".join(filter(None, notes)) or None)


@dataclass(frozen=True)
class KeptManifests:
    """The kept and the skipped manifests, and the metrics of all."""

    table: pa.Table
    metrics: ManifestMetrics
    skipped: pa.Table


def prune_manifests(manifests: pa.Table, request: Request, location: str) -> KeptManifests:
    """Return the manifests that may hold a file with a matching row, each evaluated under its own partition spec."""
    total = Sizes.of(manifests["length"])
    if not request.by_manifests or not request.predicate.conjuncts or not manifests.num_rows:
        return KeptManifests(manifests, ManifestMetrics(total, total), manifests.slice(0, 0))
    keep = np.ones(manifests.num_rows, bool)
    spec_ids = manifests["spec_id"].to_numpy()
    metrics = ManifestMetrics()
    for spec_id in np.unique(spec_ids).tolist():
        own = np.flatnonzero(spec_ids == spec_id)
        selection, found = _prune_under_spec(
            manifests.take(pa.array(own)), get_spec(request.layout.specs, spec_id, location), request
        )
        keep[own] = selection
        metrics += found
    return KeptManifests(manifests.filter(pa.array(keep)), metrics, manifests.filter(pa.array(~keep)))


def get_spec(specs: Mapping[int, Spec], spec_id: int, location: str) -> Spec:
    """Return the partition spec with an id."""
    found = specs.get(spec_id)
    if found is None:
        raise make_corrupt_snapshot_error(
            f"{location} was written with the partition spec {spec_id}, which the table metadata lacks"
        )
    return found


def _prune_under_spec(manifests: pa.Table, spec: Spec, request: Request) -> tuple[Bits, ManifestMetrics]:
    summaries = manifests["summaries"].combine_chunks()
    units = pa.record_batch(compute_summary_bounds(spec, summaries))
    conjuncts = request.get_conjuncts(spec)
    pruned = prune(units, conjuncts, handler=request.predicate.handler, with_matches=False)
    selection = np.asarray(pruned.selection)
    outcomes = explain_unused_conjuncts(pruned.outcomes, spec, request)
    counts = pc.fill_null(manifests["files"], 0).to_numpy()
    in_files = tuple(
        ConjunctOutcome(outcome.predicate, int(counts[np.asarray(skipped)].sum()), None) if outcome.skipped else outcome
        for outcome, skipped in zip(outcomes, pruned.skipped_by, strict=True)
    )
    lengths = manifests["length"]
    return selection, ManifestMetrics(
        Sizes.of(lengths),
        Sizes.of(lengths.filter(pa.array(selection))),
        int(counts[~selection].sum()),
        outcomes,
        in_files,
    )


def explain_unused_conjuncts(outcomes: Outcomes, spec: Spec, request: Request) -> Outcomes:
    """Return the outcomes, with a reason for the conjuncts that refer to no partition source column."""
    own = {field.source.path for field in spec.prunable_fields if field.source is not None}
    own.update(column.path for column in request.predicate.partition_texts)
    return mark_data_conjuncts(outcomes, request.predicate.conjuncts, own)


# --- Pruning the data files of manifests: by partition values, then by statistics, one partition spec at a time -------

MAX_FILES_PER_GROUP = 16 * 1024
"""The largest number of files in a group, unless one manifest has more: small arrays have a high overhead."""

WRONG_LENGTHS = "wrong lengths"
"""The count of manifests whose length differs from the one in the manifest list."""

STATISTICS_PREFIX = "statistics:"
"""The prefix of columns with statistics that are returned with files on request."""


@dataclass(frozen=True)
class Manifest:
    """An entry of a manifest list: a manifest to read."""

    path: str
    length: int
    spec_id: int
    sequence_number: int
    snapshot_id: int | None
    files: int | None

    @staticmethod
    def from_table(table: pa.Table) -> list[Manifest]:
        columns = (table[name].to_pylist() for name in
                   ("path", "length", "spec_id", "sequence_number", "added_snapshot_id", "files"))  # fmt: skip
        return [Manifest(*each) for each in zip(*columns, strict=True)]


def group_manifests(manifests: Sequence[Manifest]) -> list[list[Manifest]]:
    """Group manifests by spec, so that each group has enough files."""
    found: list[list[Manifest]] = []
    for spec_id in dict.fromkeys(manifest.spec_id for manifest in manifests):
        pending: list[Manifest] = []
        files = 0
        for manifest in (each for each in manifests if each.spec_id == spec_id):
            own = manifest.files if manifest.files is not None else MAX_FILES_PER_GROUP
            if pending and files + own > MAX_FILES_PER_GROUP:
                found.append(pending)
                pending, files = [], 0
            pending.append(manifest)
            files += own
        if pending:
            found.append(pending)
    return found


def make_file_schema(layout: Layout, more: Collection[int], texts: Collection[Column] = ()) -> pa.Schema:
    """Return the schema of the kept files; `more` are field ids whose undecoded statistics are returned too, and
    `texts` partition values that are returned as text."""
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
    ]
    if any(spec.dropped for spec in layout.specs.values()):
        fields.append(("dropped_key", types.BINARY))
    fields += [(name_absent(column.path), make_absent_type(column.type)) for column in layout.absent_columns]
    computed = [field for spec in layout.specs.values() for field in spec.computed]
    fields += {name_partition_field(field): field.result_type for field in computed}.items()
    for field_id in more:
        fields += [(f"{kind}:{field_id}", types.BINARY) for kind in ("lower", "upper")]
        fields += [(f"{kind}:{field_id}", types.LONG) for kind in ("nulls", "values")]
    return pa.schema([*fields, *((name_partition(column.name), column.type) for column in texts)])


class FilePruner:
    """The pruner of the data files in manifests. It is thread-safe."""

    def __init__(self, request: Request, more: Collection[int] = ()) -> None:
        self._request = request
        self._more = tuple(more)
        self.schema = make_file_schema(request.layout, more, request.predicate.partition_texts)

    @property
    def _needs_nan_counts(self) -> bool:
        """Return whether NaN counts are read: only floats have them, and they are rarely needed."""
        of_filter = (*self._request.tested.values(), *self._request.statistics_ids.values())
        return bool(self._more) or any(each.type is None or pa.types.is_floating(each.type) for each in of_filter)

    def make_empty(self) -> PrunedFiles:
        none = np.zeros((0, len(self._request.predicate.conjuncts)), bool)
        return PrunedFiles(self.schema.empty_table(), none)

    def prune(self, storage: Storage, group: Sequence[Manifest]) -> PrunedFiles:
        """Return the kept files of a group of manifests, and the metrics of all its files."""
        spec = get_spec(self._request.layout.specs, group[0].spec_id, f"'{storage.format_path(group[0].path)}'")
        tested = self._request.tested if self._request.by_statistics else ()
        wanted = (*self._more, *tested, *self._request.statistics_ids)
        entries = [read_entries(storage, each, wanted, with_nans=self._needs_nan_counts) for each in group]
        tuples = join_entries(spec, entries, storage.format_path(group[0].path))
        _check_data_files(tuples.files, storage.format_path(group[0].path))
        found = self._prune_entries(spec, tuples)
        counts = {WRONG_LENGTHS: sum(own.is_length_wrong for own in entries)}
        return replace(found, metrics=replace(found.metrics, counts=counts))

    def _prune_entries(self, spec: Spec, given: PartitionedFiles) -> PrunedFiles:
        request = self._request
        conjuncts = request.get_conjuncts(spec)
        files, typed = given.files, given.typed
        self._check_filter_values(spec, given)
        if "dropped_key" in self.schema.names:
            files = files.append_column("dropped_key", given.dropped_keys)
        total = Sizes.of(files["size"])
        texts = given.format_texts(request.predicate.partition_texts)
        for name, values in texts.items():
            files = files.append_column(name_partition(name), values)
        matched = np.zeros((files.num_rows, len(conjuncts)), bool)
        chosen = np.arange(files.num_rows)
        of_partitions: Outcomes = ()
        known: Metadata = {}
        if request.by_partitions and conjuncts and (spec.fields or texts):
            rows = to_single_array(files["record_count"])
            # A field with unknown values keeps every file.
            right = {field_id: values for field_id, values in typed.items() if field_id not in given.wrong}
            known = compute_partition_bounds(spec, right, rows, request.predicate.columns)
            for column in request.predicate.partition_texts:
                known |= make_constant_bounds(column, texts[column.name], rows)
            pruned = prune(
                pa.record_batch({ROW_COUNT.name: rows, **known}), conjuncts, handler=request.predicate.handler
            )
            of_partitions = explain_unused_conjuncts(pruned.outcomes, spec, request)
            left = np.asarray(pruned.selection)
            chosen, matched = chosen[left], pruned.matched
            known = {name: values.filter(pruned.selection) for name, values in known.items()}
        everything = files
        files = files if len(chosen) == files.num_rows else files.take(pa.array(chosen))
        after_partitions = Sizes.of(files["size"])
        of_statistics: Outcomes = ()
        if request.by_statistics:
            rows = to_single_array(files["record_count"])
            units = {ROW_COUNT.name: rows, **compute_statistics_bounds(files, request.tested, rows)}
            bounds = pa.record_batch(tighten_bounds(units, known, tuple(request.tested.values())))
            pruned = prune(bounds, conjuncts, handler=request.predicate.handler)
            of_statistics = pruned.outcomes
            left = np.asarray(pruned.selection)
            chosen, matched = chosen[left], matched[left] | pruned.matched
            files = files.filter(pruned.selection)
        matched = self._drop_unconfirmed(spec, files, conjuncts, matched)
        if request.asked.with_skipped:
            selection = np.zeros(everything.num_rows, bool)
            selection[chosen] = True
            found = self._describe_files(spec, everything, given, np.arange(len(selection)))
            return PrunedFiles.with_skipped(found, selection, matched)
        metrics = FileMetrics(total, after_partitions, Sizes.of(files["size"]), of_partitions, of_statistics)
        found = self._describe_files(spec, files, given, chosen)
        if self._request.asked.statistics_columns:
            rows = to_single_array(files["record_count"])
            for name, values in compute_statistics_bounds(files, self._request.statistics_ids, rows).items():
                found = found.append_column(STATISTICS_PREFIX + name, values)
        return PrunedFiles(
            found,
            matched,
            metrics,
            {
                column.path[0]: _make_value_error(column, given.location)
                for field, column in spec.identity
                if field.field_id in given.wrong and np.asarray(given.wrong[field.field_id])[chosen].any()
            },
        )

    def _drop_unconfirmed(
        self, spec: Spec, files: pa.Table, conjuncts: Sequence[Conjunct], matched: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Return which files are fully matched, without what only an identity partition value proves.

        A file may store such a column with other values than its partition has. Then its rows decide.
        """
        stored = {column.path for _, column in spec.identity}
        mentions = [any(column.path in stored for column in find_columns(each.predicate)) for each in conjuncts]
        unconfirmed: npt.NDArray[np.bool_] = matched & np.array(mentions, bool)
        if not unconfirmed.any():
            return matched
        confirmed = np.zeros_like(matched)
        if self._request.by_statistics:
            rows = to_single_array(files["record_count"])
            units = {ROW_COUNT.name: rows, **compute_statistics_bounds(files, self._request.tested, rows)}
            found = prune(pa.record_batch(units), conjuncts, handler=self._request.predicate.handler)
            confirmed[np.asarray(found.selection)] = found.matched
        kept: npt.NDArray[np.bool_] = matched & (confirmed | ~unconfirmed)
        return kept

    def _describe_files(
        self,
        spec: Spec,
        files: pa.Table,
        given: PartitionedFiles,
        chosen: npt.NDArray[np.int64],
    ) -> pa.Table:
        if not len(chosen):
            return self.schema.empty_table()
        indices = pa.array(chosen)
        own = {field_id: values.take(indices) for field_id, values in given.typed.items()}
        keys = given.keys.take(indices)
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            "spec_id": pa.repeat(pa.scalar(spec.spec_id, pa.int32()), len(chosen)),
            "partition_key": keys,
            **{name_partition_field(field): own[field.field_id] for field in spec.computed},
        }
        wrong = {field_id: is_wrong.take(indices) for field_id, is_wrong in given.wrong.items()}
        for field, column in spec.identity:
            values = make_absent_values(own[field.field_id], wrong.get(field.field_id))
            columns[name_absent(column.path)] = values
        columns |= {name_absent(path): values.take(indices) for path, values in given.former.items()}
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

    def _check_filter_values(self, spec: Spec, given: PartitionedFiles) -> None:
        """Raise if the filter needs a partition value that is invalid for its type."""
        predicate = self._request.predicate
        mentioned = {column.path[0] for column in predicate.mentioned}
        for field, column in spec.identity:
            if field.field_id in given.wrong and column.path[0] in mentioned:
                raise _make_value_error(column, given.location)
        if predicate.partition_texts:
            given.check_texts()


def _make_value_error(column: Column, location: str) -> CorruptFile:
    kind = "value" if column.type is None else types.type_name(column.type)
    return CorruptFile(
        f"'{location}' has a partition value of column {column.name!r} that is not a valid {kind}. Queries that do not "
        "need the column still work"
    )


def read_entries(
    storage: Storage,
    manifest: Manifest,
    statistics: Collection[int],
    *,
    of_compared: bool = False,
    with_nans: bool = True,
) -> Entries:
    """Read the live entries of a manifest, with statistics of some columns."""
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
class PartitionedFiles:
    """Files of one spec with their partition tuples. Rarely needed properties are computed lazily."""

    files: pa.Table
    typed: Mapping[int, pa.Array]
    """The values of partition fields, by field id."""
    wrong: Mapping[int, pa.BooleanArray]
    """Masks of the values that are invalid for their types, for the fields that have any: see `Spec.wrong`."""
    location: str
    _spec: Spec
    _parts: Sequence[tuple[Mapping[int, pa.Array], Entries]]
    """The typed values and entries of each manifest: raw values may have other types in each."""

    def check_texts(self) -> None:
        """Raise if a partition filter would compare a value that is invalid for its type."""
        for error in self.find_errors().values():
            raise error

    def find_errors(self) -> dict[int, TamisError]:
        """Return the errors of files with a partition value that is invalid for its type, by position."""
        return {
            int(file): _make_value_error(field.source, self.location)
            for field in self._spec.prunable_fields
            if field.field_id in self.wrong and field.source is not None
            for file in np.flatnonzero(np.asarray(self.wrong[field.field_id]))
        }

    def format_texts(self, texts: Collection[Column]) -> dict[str, pa.StringArray]:
        """Return the texts of partition values, by the names of their columns."""
        if not texts:
            return {}
        found = PartitionTexts.of(self._spec, self.typed, self.keys)
        return {text.name: found.get_texts(find_field_name(self._spec, get_partition_name(text))) for text in texts}

    @cached_property
    def keys(self) -> pa.Array:
        """The tuples as bytes: see `partition_keys`."""
        return pa.concat_arrays(
            [encode_partition_keys(self._spec, typed, own.partition, own.files.num_rows) for typed, own in self._parts]
        )

    @cached_property
    def dropped_keys(self) -> pa.Array:
        return pa.concat_arrays(
            [encode_dropped_keys(self._spec, own.partition, own.files.num_rows) for _, own in self._parts]
        )

    @cached_property
    def former(self) -> Mapping[FieldPath, pa.StructArray]:
        """The identity partition values of dropped columns: see `Spec.read_former_values`."""
        each = [self._spec.read_former_values(own.partition, self.location) for _, own in self._parts]
        return {
            column.path: pa.concat_arrays([own[column.path] for own in each])
            for _, column in self._spec.former_identity
        }


def join_entries(spec: Spec, entries: Sequence[Entries], location: str) -> PartitionedFiles:
    """Join the entries of manifests of one spec. Partition value types may differ, because columns were promoted."""
    typed = [spec.convert_values(own.partition, location) for own in entries]
    wrong = [spec.find_invalid(own.partition, values) for own, values in zip(entries, typed, strict=True)]
    return PartitionedFiles(
        pa.concat_tables([own.files for own in entries], promote_options="permissive"),
        {field.field_id: pa.concat_arrays([own[field.field_id] for own in typed]) for field in spec.prunable_fields},
        {
            field_id: pa.concat_arrays(
                [
                    each[field_id] if field_id in each else pa.repeat(False, own.files.num_rows)
                    for each, own in zip(wrong, entries, strict=True)
                ]
            )
            for field_id in dict.fromkeys(field_id for each in wrong for field_id in each)
        },
        location,
        spec,
        list(zip(typed, entries, strict=True)),
    )


def _check_data_files(files: pa.Table, location: str) -> None:
    if pc.any(pc.not_equal(files["content"], 0), min_count=0).as_py():
        raise make_corrupt_snapshot_error(f"'{location}' is a data manifest, but contains delete files")


# --- File statistics as metadata of units: bounds and counts of the columns of a filter -------------------------------
#
# Bounds may be inexact: strings and bytes are truncated to 16 by default, and upper bounds are then rounded up. Missing
# counts are unknown. So are impossible statistics, which some writers produce:
#
# | statistics                                | unknown                                                            |
# |-------------------------------------------|--------------------------------------------------------------------|
# | a negative count                          | the count                                                          |
# | more NULLs and NaN than rows              | both counts                                                        |
# | a value count that is not the row count   | the null count, except for a struct field whose values are all     |
# |                                           | NULL: where the struct is NULL, so is the field                    |
# | NULL or NaN in all rows, and bounds       | the counts and the bounds, because one of them is wrong            |


def compute_statistics_bounds(
    files: pa.Table, columns: Mapping[int, Column], row_count: pa.Array
) -> dict[str, pa.Array]:
    """Return the bounds and counts of columns, given by field id, from the statistics of files."""
    found: dict[str, pa.Array] = {}
    for field_id, column in columns.items():
        if column.type is None or pa.types.is_nested(column.type):
            continue
        low, high = decode_bounds(files, field_id, column.type)
        is_float = pa.types.is_floating(column.type)
        each = (read_counts(files, kind, field_id) for kind in ("nulls", "nans", "values"))
        nulls, nans, values = (_set_null_where(pc.less(counts, 0), counts) for counts in each)
        if len(column.path) > 1:
            # With fewer values than rows, the others are NULL because a struct around them is. Bounds imply that there
            # is a non-null value.
            has_none = pc.and_kleene(pc.equal(nulls, values), pc.less(values, row_count))
            has_none = pc.and_(pc.fill_null(has_none, False), pc.and_(low.is_null(), high.is_null()))
            nulls, values = (pc.if_else(has_none, row_count, each) for each in (nulls, values))
        nulls = _set_null_where(pc.not_equal(values, row_count), nulls)
        nulls, nans = (_set_null_where(pc.greater(each, row_count), each) for each in (nulls, nans))
        others = pc.add(pc.fill_null(nulls, 0), pc.fill_null(nans, 0) if is_float else 0)
        nulls, nans = (_set_null_where(pc.greater(others, row_count), each) for each in (nulls, nans))
        is_contradictory = pc.and_kleene(pc.or_(low.is_valid(), high.is_valid()), pc.equal(others, row_count))
        low, high, nulls, nans = (_set_null_where(is_contradictory, each) for each in (low, high, nulls, nans))
        found |= {
            metadata_name("lower", column.path): low,
            metadata_name("upper", column.path): high,
            metadata_name("null_count", column.path): nulls,
        }
        if is_float:
            found[metadata_name("nan_count", column.path)] = nans
    return found


def _set_null_where(is_wrong: pa.Array, values: pa.Array) -> pa.Array:
    """Replace wrong values by null. A value whose check is unknown is kept."""
    if not pc.any(is_wrong, min_count=0).as_py():
        return values
    return pc.if_else(pc.fill_null(is_wrong, False), pa.scalar(None, values.type), values)
