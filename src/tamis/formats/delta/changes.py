"""The change data feed of a Delta table: the rows that a range of versions inserted, updated and deleted.

A commit that records changed rows in files of its own (`cdc` actions) has its changes there, with a column
`_change_type`. For any other commit, all rows of a file that it adds were inserted, and all rows of one that it removes
were deleted. If it removes and adds the same file, it changed the deletion vector: the rows that only the new vector
deletes were deleted, and those that only the old one deletes were inserted again.

| action                       | rows                                    | `_change_type` |
|------------------------------|-----------------------------------------|----------------|
| `cdc`                        | all                                     | in the file    |
| `add`                        | all but those of its vector             | `insert`       |
| `remove`                     | all but those of its vector             | `delete`       |
| `remove` and `add`, one path | those of the new vector, not of the old | `delete`       |
| `remove` and `add`, one path | those of the old vector, not of the new | `insert`       |

The kind of change, the version and the timestamp of the commit are constants of each file, as partition values are, and
so prune files. A file with recorded changes is listed once for each kind, and rows of other kinds are left out by their
positions. Data files may have a column `_change_type` too: Delta on Spark writes it, and it is NULL. It is not read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tamis import types
from tamis.errors import CorruptFile, InvalidArgument, UnsupportedFeature
from tamis.formats.constants import add_partitions, read_partitions
from tamis.formats.delta.log.actions import decode_changes
from tamis.formats.delta.log.commits import ActionLines
from tamis.formats.delta.planning.checkpoint_job import VectorReader
from tamis.formats.delta.planning.partition_values import encode_partition_values, make_unreadable_value_error
from tamis.formats.delta.planning.prune_files import resolve_files
from tamis.formats.delta.snapshot import Snapshot, get_physical_partition_names
from tamis.formats.delta.table import DeltaTable
from tamis.formats.file_funnel import FileMetrics, Sizes, mark_data_conjuncts
from tamis.formats.file_rows import DELETION_VECTOR
from tamis.formats.files.data_files import DataFile
from tamis.formats.source import PARQUET, FileListing, FilteredFiles, IndexSupport, to_single_array
from tamis.io.storage import Storage
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.footer import load_footer
from tamis.skipping.metadata import ROW_COUNT, make_partition_bounds
from tamis.skipping.metrics import SWITCHED_OFF
from tamis.skipping.predicate import Predicate
from tamis.skipping.prune import Pruned, prune
from tamis.tuning import Tuning

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
CHANGE_COLUMNS = pa.schema(
    [
        (CHANGE_TYPE, types.STRING),
        (COMMIT_VERSION, types.LONG),
        (COMMIT_TIMESTAMP, pa.timestamp("us", "UTC")),
    ]
)
"""The columns beside those of the table: the kind of a change, such as `insert`, and its commit."""

_ENABLED = "delta.enableChangeDataFeed"
KINDS = ("insert", "delete", "update_preimage", "update_postimage")

_OTHER_VECTOR, _CHOSEN, _DIFFERENCE = "other_vector", "chosen", "difference"
"""`chosen` is `difference` for the rows of a vector that another lacks, or the kind of recorded changes, or null."""


def open_changes(table: DeltaTable, changes: object) -> DeltaChanges:
    """Return the changes of a range of versions, both ends included; the table is at any version."""
    match changes:
        case (int() as first, int() | None as last) if not {type(first), type(last)} & {bool}:
            pass
        case _:
            raise InvalidArgument(
                f"changes must be the first and the last version, as in (3, 7), or (3, None), found {changes!r}"
            )
    newest = table if last is None else replace(table, snapshot=Snapshot.load(table.storage, last))
    if not 0 <= first <= newest.version:
        raise InvalidArgument(
            f"changes must go from an older version to a newer one, found {first} to {newest.version}"
        )
    return DeltaChanges(newest, first)


@dataclass(frozen=True)
class DeltaChanges:
    """The changes of the versions from `first` to that of a table, in its schema."""

    table: DeltaTable
    first: int

    planning: None = None
    index: None = None
    partition_texts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def format(self) -> str:
        return self.table.format

    @property
    def storage(self) -> Storage:
        return self.table.storage

    @property
    def version(self) -> int:
        return self.table.version

    @property
    def index_support(self) -> IndexSupport:
        return IndexSupport("is a change data feed: index the table itself")

    @cached_property
    def schema(self) -> pa.Schema:
        columns = self.table.schema
        for name in CHANGE_COLUMNS.names:
            if name in columns.names:
                raise UnsupportedFeature(
                    f"the Delta table {self.storage.uri} has a column {name!r}, as its change data feed has: rename it"
                )
        return pa.schema([*columns, *CHANGE_COLUMNS])

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return (*self.table.partition_columns, *CHANGE_COLUMNS.names)

    @property
    def field_names(self) -> ColumnMapping | None:
        return self.table.field_names

    def with_tuning(self, tuning: Tuning) -> DeltaChanges:
        return replace(self, table=self.table.with_tuning(tuning))

    def refresh(self) -> DeltaChanges:
        """Return the same changes: the range of versions is fixed."""
        return self

    def list_files(
        self, predicate: Predicate, levels: Collection[str], limit: int | None = None, *, with_rows: bool = False
    ) -> FileListing:
        """Return the files with changes that may hold a matching row, pruned by partition values and commits."""
        is_on, conjuncts = "partitions" in levels, predicate.partition_conjuncts
        pruned = self._prune(predicate, levels)
        files = self._files.filter(pruned.selection)
        outcomes = mark_data_conjuncts(pruned.outcomes, conjuncts, {(name,) for name in self.partition_columns})
        before, after = Sizes.of(self._files["size"]), Sizes.of(files["size"])
        metrics = FileMetrics(before, after, after, outcomes)
        notes = [None if "files" in levels else SWITCHED_OFF, "the log has no statistics of changes"]
        return FileListing(files, (metrics.describe_partitions(enabled=is_on), metrics.describe_files(notes)))

    def filter_files(
        self, predicate: Predicate, levels: Collection[str], limit: int | None = None
    ) -> Iterator[FilteredFiles]:
        yield FilteredFiles(self._files, np.asarray(self._prune(predicate, levels).selection))

    def _prune(self, predicate: Predicate, levels: Collection[str]) -> Pruned:
        one_row = pa.repeat(pa.scalar(1, types.LONG), len(self._files))
        bounds = make_partition_bounds(read_partitions(self._files), self.partition_columns, one_row)
        units = pa.record_batch({ROW_COUNT.name: one_row} | bounds)
        conjuncts = predicate.partition_conjuncts if "partitions" in levels else ()
        return prune(units, conjuncts, handler=predicate.handler, with_matches=False)

    def read_deleted_rows(
        self, storage: Storage, files: pa.Table, row_groups: Sequence[Collection[int]] | None = None
    ) -> Mapping[int, BitMap64]:
        """Return the rows of files that are not among the changes."""
        chosen = files[_CHOSEN].to_pylist()
        is_vector = np.array([kind in (None, _DIFFERENCE) for kind in chosen], bool)
        reader, own = VectorReader(self.table.allow_outside), files.filter(pa.array(is_vector))
        places = np.flatnonzero(is_vector).tolist()
        found = {places[index]: rows for index, rows in reader.read_deleted_rows(storage, own).items()}
        compared = reader.read_deleted_rows(storage, _set_vectors(own, own[_OTHER_VECTOR]))
        others = {places[index]: rows for index, rows in compared.items()}
        listed = files.select(["path", "size", "modified_ns"]).to_pylist()
        kinds = lru_cache(maxsize=None)(partial(_read_kinds, storage))
        for index, kind in enumerate(chosen):
            if kind == _DIFFERENCE:
                footer, _ = load_footer(storage, *listed[index].values())
                changed = found[index] - others.get(index, BitMap64())
                found[index] = BitMap64(range(footer.metadata.num_rows)) - changed
            elif kind is not None:
                is_other = pc.not_equal(kinds(listed[index]["path"], listed[index]["size"]), kind)
                found[index] = BitMap64(np.flatnonzero(np.asarray(is_other)).astype(np.uint64))
        return found

    @cached_property
    def _files(self) -> pa.Table:
        """The files of all commits, as a listing has them."""
        snapshot = self.table.snapshot
        lines = snapshot.read_commits(self.first, snapshot.version)
        _check_enabled(snapshot, self.first, lines)
        names = get_physical_partition_names(snapshot.metadata)
        actions = _choose_actions(decode_changes(lines, names))
        values = encode_partition_values(actions["partition_values"].combine_chunks(), None, snapshot.metadata).expand()
        for name, texts in values.wrong.items():
            wrong = texts.drop_null()
            if len(wrong):
                raise make_unreadable_value_error(wrong[0].as_py(), name, snapshot.metadata)
        return self._make_listing(actions, values.values)

    def _make_listing(self, actions: pa.Table, values: pa.Table) -> pa.Table:
        rows = len(actions)
        given = actions.select(["path", "size", "deletion_vector"])
        given = given.append_column("modified", pa.nulls(rows, pa.timestamp("us", "UTC")))
        given = given.append_column("num_records", pa.nulls(rows, types.LONG))
        files, _ = resolve_files(self.storage, given, self.table.mark, allow_outside=self.table.allow_outside)
        versions = pc.add(actions["origin"].cast(types.LONG), self.first)
        times = {version: self.table.snapshot.find_timestamp(version) for version in pc.unique(versions).to_pylist()}
        constants = {
            **dict(zip(values.column_names, values.columns, strict=True)),
            CHANGE_TYPE: actions[CHANGE_TYPE],
            COMMIT_VERSION: versions,
            COMMIT_TIMESTAMP: pa.array([times[each] for each in versions.to_pylist()], CHANGE_COLUMNS.field(2).type),
        }
        files = add_partitions(files, pa.table(constants))
        return files.append_column(_OTHER_VECTOR, actions[_OTHER_VECTOR]).append_column(_CHOSEN, actions[_CHOSEN])


def _read_kinds(storage: Storage, path: str, size: int) -> pa.ChunkedArray:
    """Return the kind of change of each row of a file with recorded changes."""
    schema = pa.schema([CHANGE_COLUMNS.field(CHANGE_TYPE)])
    file = DataFile(storage, path, size, PARQUET)
    found = pa.Table.from_batches(file.read(schema, None, must_have_all=True), schema)[CHANGE_TYPE]
    for kind in pc.unique(found).to_pylist():
        # Its rows would be in none of the listings of the file.
        if kind not in KINDS:
            raise CorruptFile(
                f"'{file.location}' has a change of the kind {kind!r}, expected {', '.join(KINDS)}: read versions "
                "without it, or write the file again"
            )
    return found


def _check_enabled(snapshot: Snapshot, first: int, lines: ActionLines) -> None:
    """Raise if a version of the range does not record changes, or has other partition columns."""
    start = Snapshot.load(snapshot.storage, first).metadata
    given: list[tuple[Mapping[str, object], Sequence[str]]] = [(start.configuration, start.partition_columns)]
    given += [(each.get("configuration") or {}, each.get("partitionColumns") or ()) for each in lines.all("metaData")]
    for configuration, partition_columns in given:
        if str(configuration.get(_ENABLED)).lower() != "true":
            raise UnsupportedFeature(
                f"the Delta table {snapshot.storage.uri} has no change data feed for all versions from {first} to "
                f"{snapshot.version}: set the table property {_ENABLED}=true, and read versions since then"
            )
        if sorted(partition_columns) != sorted(snapshot.metadata.partition_columns):
            raise UnsupportedFeature(
                f"the Delta table {snapshot.storage.uri} changed its partition columns between version {first} and "
                f"{snapshot.version}: read the changes before and after apart"
            )


def _choose_actions(actions: pa.Table) -> pa.Table:
    """Return the files with changes, as the table above has them, and which of their rows are `chosen`."""
    is_recorded = pc.equal(actions["action"], "cdc")
    recorded = pc.is_in(actions["origin"], value_set=pc.unique(actions["origin"].filter(is_recorded)))
    changes = actions.filter(pc.and_(pc.and_not(actions["data_change"], recorded), pc.invert(is_recorded)))
    # The position of the other action on the same file in the same commit.
    numbered = changes.select(["origin", "path", "action"]).append_column("row", pa.array(np.arange(len(changes))))
    pairs = numbered.filter(pc.equal(changes["action"], "add")).join(
        numbered.filter(pc.equal(changes["action"], "remove")), ["origin", "path"], join_type="inner", right_suffix="_2"
    )
    added, removed = pairs["row"].to_numpy(), pairs["row_2"].to_numpy()
    other = np.arange(len(changes))
    other[added], other[removed] = removed, added
    is_pair = pa.array(other != np.arange(len(changes)))
    vectors = to_single_array(changes["deletion_vector"])
    # Rows that were deleted are in the new vector, of the added file, and those inserted again in the old one.
    own = vectors.take(pa.array(other))
    compared = pc.if_else(is_pair, vectors, pa.scalar(None, vectors.type))
    kinds = pc.if_else(pc.equal(changes["action"], "add"), "insert", "delete")
    chosen = pc.if_else(is_pair, _DIFFERENCE, pa.scalar(None, types.STRING))
    left = _describe(_set_vectors(changes, own), kinds, compared, chosen)
    recorded_files = actions.filter(is_recorded)
    each = [_describe_recorded(recorded_files, kind) for kind in KINDS]
    found = pa.concat_tables([left.filter(pc.or_(pc.invert(is_pair), own.is_valid())), *each])
    return found.sort_by([("origin", "ascending"), ("path", "ascending")]).combine_chunks()


def _describe_recorded(files: pa.Table, kind: str) -> pa.Table:
    """Return files with recorded changes, for the rows of one kind."""
    rows = len(files)
    # Files with a vector have rows to leave out; this one names no file.
    vector = dict.fromkeys(DELETION_VECTOR.names) | {"storage_type": "cdc", "path_or_inline": ""}
    vectors = pa.array([vector] * rows, DELETION_VECTOR)
    kinds = pa.repeat(kind, rows).cast(types.STRING)
    return _describe(_set_vectors(files, vectors), kinds, pa.nulls(rows, DELETION_VECTOR), kinds)


def _describe(files: pa.Table, kinds: pa.Array, compared: pa.Array, chosen: pa.Array) -> pa.Table:
    found = files.append_column(CHANGE_TYPE, kinds).append_column(_OTHER_VECTOR, compared)
    return found.append_column(_CHOSEN, chosen)


def _set_vectors(files: pa.Table, vectors: pa.Array | pa.ChunkedArray) -> pa.Table:
    return files.set_column(files.column_names.index("deletion_vector"), "deletion_vector", vectors)
