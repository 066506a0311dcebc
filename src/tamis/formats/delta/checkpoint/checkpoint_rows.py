"""Rows of the Parquet files of checkpoints: selected columns of selected row groups, batch by batch.

A part is read by a plain function of its path and of the requested columns, so that it can run in any process. Memory
use follows the batch: only one row group is fetched at a time, and only the requested columns of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import to_one_line
from tamis.formats.delta.log.actions import ADD, LOGGED_NAMES, extract_deletion_vectors, get_field_or_nulls
from tamis.formats.delta.log.replay import is_untouched, make_action_keys
from tamis.formats.errors import make_corrupt_log_error, make_missing_log_file_error
from tamis.io.listing import find_file
from tamis.io.storage import Storage
from tamis.parquet.footer.footer import Footer, load_footer
from tamis.parquet.footer.leaves import FieldPath, find_leaf_indices
from tamis.parquet.reading.row_group_reader import read_row_group

KeepRowGroup = Callable[[Footer, int], bool]
"""A function that says whether a row group of a checkpoint may hold a file that the filter keeps."""

Column = str | FieldPath
"""A column of live files, or the path of a field inside one: `("stats_parsed", "minValues", "id")`."""

PARSED_COLUMNS = ("partition_values_parsed", "stats_parsed")
"""Columns in the table's own types, which only some checkpoints have."""

_KEY_COLUMNS = ("path", "deletion_vector")

_PATH = ("add", "path")
"""The field that is not null exactly in rows with an `add` action."""


def read_checkpoint_part(
    storage: Storage,
    path: str,
    columns: Collection[Column] = tuple(ADD.names),
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
    """Yield the `add` actions, batch by batch."""
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
    """Whether a row group's statistics prove that a column is null in every row."""
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
    """Whether a row group's statistics prove that a column is not null in any row."""
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
