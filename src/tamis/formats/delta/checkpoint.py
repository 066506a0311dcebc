"""Rows of the Parquet files of checkpoints: selected columns of selected row groups, batch by batch.

A part is read by a plain function of its path and of the requested columns, so that it can run in any process. Memory
use follows the batch: only one row group is fetched at a time, and only the requested columns of it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import to_one_line
from tamis.expr.nodes import Column, find_columns
from tamis.formats.delta.log.actions import ADD, LOGGED_NAMES, extract_deletion_vectors, get_field_or_nulls
from tamis.formats.delta.log.commits import ActionLines, read_actions
from tamis.formats.delta.log.log_segment import LOG_DIRECTORY, Checkpoint, LogFile
from tamis.formats.delta.log.replay import is_untouched, make_action_keys
from tamis.formats.delta.schema import TableMetadata
from tamis.formats.errors import make_corrupt_log_error, make_missing_log_file_error
from tamis.io.listing import find_file, list_directory
from tamis.io.storage import Storage
from tamis.io.threads import LOCAL_SOLO_SECONDS, run_in_threads
from tamis.parquet.footer.footer import Footer, load_footer
from tamis.parquet.footer.leaves import FieldPath, find_leaf_indices
from tamis.parquet.footer.statistics import read_row_group_metadata
from tamis.parquet.reading.row_group_reader import read_row_group
from tamis.skipping.handler import ExpressionHandler
from tamis.skipping.metadata import ROW_COUNT, metadata_name
from tamis.skipping.predicate import is_partition_text
from tamis.skipping.prune import prune
from tamis.skipping.rewrite import Conjunct
from tamis.types import is_text

KeepRowGroup = Callable[[Footer, int], bool]
"""A function that says whether a row group of a checkpoint may hold a file that the filter keeps."""

FileColumn = str | FieldPath
"""A column of live files, or the path of a field inside one: `("stats_parsed", "minValues", "id")`."""

PARSED_COLUMNS = ("partition_values_parsed", "stats_parsed")
"""Columns in the table's own types, which only some checkpoints have."""

_KEY_COLUMNS = ("path", "deletion_vector")

_PATH = ("add", "path")
"""The field that is not null exactly in rows with an `add` action."""


def read_checkpoint_part(
    storage: Storage,
    path: str,
    columns: Collection[FileColumn] = tuple(ADD.names),
    *,
    size: int | None = None,
    modified_ns: int | None = None,
    touched: pa.Array | None = None,
    keep_row_group: KeepRowGroup | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the files that a Parquet part of a checkpoint, or a sidecar, adds.

    The requested columns come in the order of `ADD`, followed by the parsed ones, if the part has them. `touched` holds
    the keys of files that newer commits add or remove: see `tamis.formats.delta.log.replay`. If `size` is not given, it
    is looked up.
    """
    if size is None:
        found = find_file(storage, path)
        if found is None:
            raise make_missing_log_file_error(f"the checkpoint part '{storage.format_path(path)}' is gone")
        size, modified_ns = found.size, found.modified_ns
    footer, content = load_footer(storage, path, size, modified_ns)
    check_columns(footer.schema.arrow, storage.format_path(path))
    wanted = [(column,) if isinstance(column, str) else tuple(column) for column in columns]
    needed = {*wanted, *([(name,) for name in _KEY_COLUMNS] if touched is not None else [])}
    logged = [("add", LOGGED_NAMES[name], *rest) for name, *rest in needed]
    names = {name for name, *_ in wanted}
    adds = _read_adds(storage, path, size, footer, logged, content, keep_row_group)
    with translate_cast_errors(storage.format_path(path)):
        for add in adds if touched is None or not len(touched) else _drop_touched(adds, touched):
            yield extract_live_columns(add, names)


def _read_adds(
    storage: Storage,
    path: str,
    size: int,
    footer: Footer,
    columns: Sequence[FieldPath],
    content: pa.Buffer | None,
    keep_row_group: KeepRowGroup | None,
) -> Iterator[pa.StructArray]:
    for row_group in range(footer.metadata.num_row_groups):
        if is_all_null(footer, row_group, _PATH):
            continue
        if keep_row_group is not None and not keep_row_group(footer, row_group):
            continue
        adds_only = _has_no_null(footer, row_group, _PATH) and bool(find_leaf_indices(footer.schema.arrow, columns))
        needed = columns if adds_only else [*columns, _PATH]
        for batch in read_row_group(storage, path, size, footer, row_group, needed, content):
            add = batch.column("add")
            if not adds_only:
                is_add = pc.struct_field(add, "path").is_valid()
                add = add if is_add.true_count == len(add) else add.filter(is_add)
            if len(add):
                yield add


_MAX_LOOK_UP = 128 * 1024
"""The number of actions from which on one look-up filters them."""


def _drop_touched(adds: Iterator[pa.StructArray], touched: pa.Array) -> Iterator[pa.StructArray]:
    """Yield the actions of files that no newer commit adds or removes.

    Each look-up builds a hash table of all touched keys. So the more keys are touched, the more actions are collected
    for one look-up.
    """
    waiting: list[pa.StructArray] = []
    for add in adds:
        waiting.append(add)
        if sum(map(len, waiting)) >= min(_MAX_LOOK_UP, len(touched) // 4):
            yield from _filter_touched(waiting, touched)
            waiting = []
    if waiting:
        yield from _filter_touched(waiting, touched)


def _filter_touched(adds: list[pa.StructArray], touched: pa.Array) -> Iterator[pa.StructArray]:
    keys = [
        make_action_keys(get_field_or_nulls(add, "path", pa.string()), extract_deletion_vectors(add)) for add in adds
    ]
    holds = is_untouched(pa.chunked_array(keys), touched)
    start = 0
    for add in adds:
        mask = holds.slice(start, len(add)).combine_chunks()
        start += len(add)
        found = add if mask.true_count == len(add) else add.filter(mask)
        if len(found):
            yield found


def extract_live_columns(add: pa.StructArray, names: Collection[str]) -> pa.RecordBatch:
    """Return columns of live files from their `add` actions."""
    arrays: dict[str, pa.Array] = {}
    for field in ADD:
        if field.name not in names:
            continue
        if field.name == "deletion_vector":
            arrays[field.name] = extract_deletion_vectors(add)
        else:
            arrays[field.name] = get_field_or_nulls(add, LOGGED_NAMES[field.name], field.type)
    for name in PARSED_COLUMNS:
        if name in names and add.type.get_field_index(LOGGED_NAMES[name]) >= 0:
            arrays[name] = pc.struct_field(add, LOGGED_NAMES[name])
    if not arrays:
        # A batch without columns would lose its row count.
        return pa.record_batch({"path": get_field_or_nulls(add, "path", pa.string())})
    return pa.record_batch(arrays)


def is_all_null(footer: Footer, row_group: int, path: FieldPath) -> bool:
    """Return whether a row group's statistics prove that a column is null in every row."""
    leaf = footer.schema.leaves.get(path)
    if leaf is None:
        return footer.schema.lacks(path)
    chunk = footer.metadata.row_group(row_group).column(leaf.index)
    statistics = chunk.statistics
    return bool(
        statistics is not None
        and statistics.has_null_count
        and statistics.null_count == chunk.num_values
        and not statistics.has_min_max
    )


def _has_no_null(footer: Footer, row_group: int, path: FieldPath) -> bool:
    """Return whether a row group's statistics prove that a column is not null in any row."""
    leaf = footer.schema.leaves.get(path)
    statistics = None if leaf is None else footer.metadata.row_group(row_group).column(leaf.index).statistics
    return bool(
        leaf is not None
        # For dictionary columns, Arrow's writer counts only the nulls of the dictionary, not the rows without an
        # action.
        and not pa.types.is_dictionary(leaf.arrow_type)
        and statistics is not None
        and statistics.has_null_count
        and statistics.null_count == 0
    )


# --- Validation of a checkpoint's schema, so that its rows can be read as actions -------------------------------------
#
# Writers use different types for numbers and strings, which are cast while reading. That actions are structs cannot be
# fixed by a cast, so it is checked before any row is read.

_KINDS: dict[FieldPath, tuple[str, Callable[[pa.DataType], bool]]] = {
    **{(action,): ("struct", pa.types.is_struct) for action in ("add", "protocol", "metaData", "sidecar")},
    **{
        ("add", name): ("struct", pa.types.is_struct)
        for name in ("deletionVector", "partitionValues_parsed", "stats_parsed")
    },
    ("add", "partitionValues"): ("map", pa.types.is_map),
}
"""The nested columns with their kinds, parents before children."""


def check_columns(schema: pa.Schema, location: str) -> None:
    """Raise CorruptFile where a nested column of a checkpoint is not of its kind, struct or map."""
    for path, (kind, is_kind) in _KINDS.items():
        found = _find_type(schema, path)
        if found is not None and not is_kind(found):
            raise make_corrupt_log_error(
                f"the checkpoint '{location}' has the column {'.'.join(path)} of type {types.type_name(found)}, "
                f"expected a {kind}"
            )


@contextmanager
def translate_cast_errors(location: str) -> Iterator[None]:
    """Turn Arrow's cast errors into a CorruptFile that names the checkpoint."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise make_corrupt_log_error(
            f"the checkpoint '{location}' has values that do not convert to the type of an action: {to_one_line(error)}"
        ) from error


def _find_type(schema: pa.Schema, path: FieldPath) -> pa.DataType | None:
    parent: pa.Schema | pa.DataType = schema
    for name in path:
        index = parent.get_field_index(name)
        if index < 0:
            return None
        parent = parent.field(index).type
    return parent


# --- Row group skipping ---------------------------------------------------------------------------------------------
#
# Row group skipping in checkpoints: the Parquet statistics of a row group may rule out all files that it lists.
#
# Some checkpoints also have typed partition values and statistics of files (`partitionValues_parsed`, `stats_parsed`),
# and Parquet has min/max bounds of these columns for each row group. They are reliable only for:
#
# - Partition values that are integers, dates or strings, where every file of the row group has one that is not NULL.
#   Timestamps are not reliable, because the checkpoint's writer may have parsed them in another time zone.
# - Statistics of integers and dates, where every file of the row group has them. Statistics of other types are rounded,
#   truncated, or ignore NaN.


_PARTITIONS = ("add", "partitionValues_parsed")
_MIN_VALUES = ("add", "stats_parsed", "minValues")
_MAX_VALUES = ("add", "stats_parsed", "maxValues")


class RowGroupSkipper:
    """Decides which row groups of one checkpoint part to read, and records the skipped ones."""

    def __init__(
        self,
        metadata: TableMetadata,
        conjuncts: Sequence[Conjunct],
        handler: ExpressionHandler,
        *,
        by_partitions: bool,
        by_statistics: bool,
    ) -> None:
        self._metadata = metadata
        self._conjuncts = conjuncts
        self._handler = handler
        self._by_partitions = by_partitions
        self._by_statistics = by_statistics
        self._columns = list(dict.fromkeys(column for each in conjuncts for column in find_columns(each.predicate)))
        self._keeps: npt.NDArray[np.bool_] | None = None
        self._skipped_by: tuple[npt.NDArray[np.bool_], ...] = ()
        self.skipped: set[int] = set()

    def keeps(self, footer: Footer, row_group: int) -> bool:
        """Return whether a row group may hold a file that the filter keeps."""
        if self._keeps is None:
            self._prune(footer)
        assert self._keeps is not None
        if not self._keeps[row_group]:
            self.skipped.add(row_group)
        return bool(self._keeps[row_group])

    def list_skipped_by_conjunct(self) -> list[tuple[str, set[int]]]:
        """Return the text of each conjunct with the skipped row groups that are attributed to it."""
        return [
            (conjunct.text, self.skipped & set(np.flatnonzero(groups).tolist()))
            for conjunct, groups in zip(self._conjuncts, self._skipped_by, strict=True)
        ]

    def _prune(self, footer: Footer) -> None:
        groups = footer.metadata.num_row_groups
        bounds = self._collect_bounds(footer)
        if not bounds:
            self._keeps = np.ones(groups, bool)
            return
        pruned = prune(pa.record_batch(bounds), self._conjuncts, handler=self._handler, with_matches=False)
        self._skipped_by = tuple(np.asarray(each) for each in pruned.skipped_by)
        self._keeps = np.asarray(pruned.selection)

    def _collect_bounds(self, footer: Footer) -> dict[str, pa.Array]:
        """Return bounds of columns in all row groups, without row counts: rows of a checkpoint are actions, not rows of
        the table."""
        found: dict[str, pa.Array] = {}
        for column in self._columns:
            if column.type is None or is_partition_text(column.path[0]):
                continue
            physical = self._metadata.to_physical_path(column.path)
            if column.path[0] in self._metadata.partition_columns:
                path = (*_PARTITIONS, *physical)
                is_safe = is_text(column.type) or _is_integer_or_date(column.type)
                if self._by_partitions and is_safe and _have_all_files(footer, path):
                    found |= _read_bounds(footer, column, path, ("lower", "upper"))
            elif self._by_statistics and _is_integer_or_date(column.type):
                for path, kind in (((*_MIN_VALUES, *physical), "lower"), ((*_MAX_VALUES, *physical), "upper")):
                    if _have_all_files(footer, path):
                        found |= _read_bounds(footer, column, path, (kind,))
        return found


def _is_integer_or_date(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_date(data_type))


def _read_bounds(footer: Footer, column: Column, path: FieldPath, kinds: Iterable[str]) -> dict[str, pa.Array]:
    if path not in footer.schema.leaves:
        return {}
    units = read_row_group_metadata(footer.metadata, [column], names={column.path: path})
    names = [metadata_name(kind, column.path) for kind in kinds]
    return {name: units.column(name) for name in names if name in units.schema.names and name != ROW_COUNT.name}


def _have_all_files(footer: Footer, path: FieldPath) -> bool:
    """Return whether a column is NULL only in rows without an `add` action."""
    nulls, others = _read_null_counts(footer, path), _read_null_counts(footer, ("add", "path"))
    return nulls is not None and others is not None and None not in nulls and nulls == others


def _read_null_counts(footer: Footer, path: FieldPath) -> list[int | None] | None:
    leaf = footer.schema.leaves.get(path)
    if leaf is None:
        return None
    found = []
    for group in range(footer.metadata.num_row_groups):
        statistics = footer.metadata.row_group(group).column(leaf.index).statistics
        has_count = statistics is not None and statistics.has_null_count
        found.append(statistics.null_count if has_count else None)
    return found


# --- Checkpoints: their parts, their protocol and their metadata ------------------------------------------------------
#
# A classic checkpoint is one Parquet file or several. A V2 checkpoint has a top file, JSON or Parquet, that lists the
# sidecars, which hold the `add` actions. Whether a single Parquet file is a classic or a V2 checkpoint shows in its
# content. An incomplete checkpoint is unusable, but older checkpoints and commits hold the same actions.

SIDECAR_DIRECTORY = "_sidecars"

_REQUIRED = {"protocol": "minReaderVersion", "metaData": "id", "sidecar": "path", "domainMetadata": "domain"}
"""The actions that are read whole when a checkpoint is opened, with a field of each that is never null."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenedCheckpoint:
    """A complete checkpoint."""

    checkpoint: Checkpoint
    protocol: dict[str, Any] | None
    metadata: dict[str, Any] | None
    parts: tuple[LogFile, ...]
    """The Parquet files with `add` actions: files of the checkpoint itself, or sidecars."""
    lines: ActionLines | None
    """The lines of a JSON top file, which may hold `add` actions too."""
    domains: tuple[dict[str, Any], ...] = ()
    note: str | None = None
    """A note for the report, on an irregularity that does not change any row."""


def open_checkpoint(storage: Storage, checkpoint: Checkpoint) -> OpenedCheckpoint:
    """Read a checkpoint's schema, protocol, metadata and list of parts.

    A damaged checkpoint raises CorruptFile, one that lacks a file raises MissingFile.
    """
    if checkpoint.files[0].path.endswith(".json"):
        return _open_json(storage, checkpoint)
    footers = run_in_threads(
        lambda file: load_footer(storage, file.path, file.size, file.modified_ns),
        checkpoint.files,
        storage.threads,
        patience=LOCAL_SOLO_SECONDS if storage.is_local else 0.0,
    )
    files = [_OpenedFile(storage, file, *loaded) for file, loaded in zip(checkpoint.files, footers, strict=True)]
    for file in files:
        check_columns(file.footer.schema.arrow, file.location)
    own = tuple(file.file for file in files if file.may_have_adds)
    found = [file.get_small_actions() for file in files]
    sidecars, note = find_sidecars(storage, [row for actions in found for row in actions["sidecar"]], checkpoint)
    protocol, metadata = (_get_only(name, found, files[0].location) for name in ("protocol", "metaData"))
    domains = tuple(row for actions in found for row in actions["domainMetadata"])
    return OpenedCheckpoint(checkpoint, protocol, metadata, (*own, *sidecars), None, domains, note)


def _open_json(storage: Storage, checkpoint: Checkpoint) -> OpenedCheckpoint:
    lines = read_actions(storage, checkpoint.files)
    sidecars, note = find_sidecars(storage, list(lines.all("sidecar")), checkpoint)
    protocol, metadata = lines.get_newest("protocol"), lines.get_newest("metaData")
    return OpenedCheckpoint(checkpoint, protocol, metadata, sidecars, lines, tuple(lines.all("domainMetadata")), note)


@dataclass(frozen=True, slots=True)
class _OpenedFile:
    storage: Storage
    file: LogFile
    footer: Footer
    content: pa.Buffer | None

    @property
    def location(self) -> str:
        return self.storage.format_path(self.file.path)

    @property
    def may_have_adds(self) -> bool:
        schema = self.footer.schema.arrow
        if "add" in schema.names and self.footer.schema.lacks(("add", "path")):
            raise make_corrupt_log_error(f"the checkpoint '{self.location}' has no column add.path")
        groups = range(self.footer.metadata.num_row_groups)
        return any(not is_all_null(self.footer, group, ("add", "path")) for group in groups)

    def get_small_actions(self) -> Mapping[str, Sequence[dict[str, Any]]]:
        """Return the actions of `_REQUIRED` by name, as in JSON; cached with the footer."""
        return self.footer.get_cached("small actions", self._read_small_actions)

    def _read_small_actions(self) -> Mapping[str, Sequence[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {action: [] for action in _REQUIRED}
        for group in range(self.footer.metadata.num_row_groups):
            present = [pair for pair in _REQUIRED.items() if not is_all_null(self.footer, group, pair)]
            if not present:
                continue
            columns = [(action,) for action, _ in present]
            file = self.file
            for batch in read_row_group(self.storage, file.path, file.size, self.footer, group, columns, self.content):
                for action, required in present:
                    rows = batch.column(action)
                    rows = rows.filter(pc.struct_field(rows, required).is_valid())
                    try:
                        found[action] += map(drop_null_fields, rows.to_pylist(maps_as_pydicts="lossy"))
                    except (ValueError, OverflowError) as error:  # invalid UTF-8, or a time out of Python's range
                        if action == "domainMetadata":
                            continue  # it only describes the table
                        raise make_corrupt_log_error(
                            f"the checkpoint '{self.location}' has a damaged {action} action: {error}"
                        ) from error
        return found


def drop_null_fields(action: dict[str, Any]) -> dict[str, Any]:
    """Remove null fields from a checkpoint's action: a commit leaves them out."""
    return {
        name: drop_null_fields(value) if name == "format" and isinstance(value, dict) else value
        for name, value in action.items()
        if value is not None
    }


def _get_only(
    action: str, found: Sequence[Mapping[str, Sequence[dict[str, Any]]]], location: str
) -> dict[str, Any] | None:
    rows = [row for actions in found for row in actions[action]]
    if any(row != rows[0] for row in rows):
        raise make_corrupt_log_error(
            f"the checkpoint '{location}' has {len(rows)} different {action} actions, expected one"
        )
    return rows[0] if rows else None


def find_sidecars(
    storage: Storage, actions: Sequence[dict[str, Any]], checkpoint: Checkpoint
) -> tuple[tuple[LogFile, ...], str | None]:
    """Return the sidecars that `sidecar` actions list, and a note where one is listed twice: it is read once.

    All sidecars are in one directory, so only the last part of each path matters.
    """
    if not actions:
        return (), None
    note = None
    location = storage.format_path(checkpoint.files[0].path)
    folder = f"{storage.root}/{LOG_DIRECTORY}/{SIDECAR_DIRECTORY}"
    known = {posixpath.basename(file.path): file for file in list_directory(storage, folder).list_entries()}
    found: dict[str, LogFile] = {}
    for action in actions:
        name, size = action.get("path"), action.get("sizeInBytes")
        if not isinstance(name, str):
            raise make_corrupt_log_error(f"the checkpoint '{location}' has a sidecar action without a path")
        file = known.get(posixpath.basename(unquote(name)))
        if file is None:
            raise make_missing_log_file_error(
                f"the sidecar '{storage.format_path(folder)}/{name}' of the checkpoint '{location}' is gone"
            )
        if size is not None and size != file.size:
            raise make_corrupt_log_error(
                f"the sidecar '{storage.format_path(file.path)}' has {file.size} bytes, expected {size} by the "
                f"checkpoint '{location}'"
            )
        if file.path in found:
            sidecar = storage.format_path(file.path)
            note = f"the checkpoint '{location}' lists the sidecar '{sidecar}' twice: it is read once"
        version = checkpoint.version
        found[file.path] = LogFile(file.path, file.size, file.modified_ns, version, version)
    return tuple(found.values()), note
