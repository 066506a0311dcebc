"""File actions (`add` and `remove`) of the JSON log as Arrow columns.

One row is one action. All lines go through pyarrow's JSON reader at once, with a schema that holds only the fields that
are needed and that occur in the bytes. pyarrow rejects a number where the schema has a string, and a string where it
has a number, but some writers mix them: Python parses the files on which pyarrow fails, line by line. This is slow and
rare.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from tamis.formats.delta.log.commits import KNOWN_NAMES, ActionLines, load_json
from tamis.formats.errors import make_corrupt_log_error
from tamis.formats.file_rows import DELETION_VECTOR

ADD = pa.schema(
    [
        ("path", pa.string()),
        ("partition_values", pa.map_(pa.string(), pa.string())),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("stats", pa.string()),
        ("deletion_vector", DELETION_VECTOR),
    ]
)
"""The columns of a live file. `path` is percent-encoded, as in the log."""

LOGGED_NAMES = {
    "path": "path",
    "partition_values": "partitionValues",
    "size": "size",
    "modification_time": "modificationTime",
    "stats": "stats",
    "deletion_vector": "deletionVector",
    "partition_values_parsed": "partitionValues_parsed",
    "stats_parsed": "stats_parsed",
}
"""Column name to field name in the log."""

FILE_ACTIONS = pa.schema([*ADD, ("is_add", pa.bool_()), ("origin", pa.int32())])
"""`origin` is the position of the log file among the log files that were read."""

_VECTOR_NAMES = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
_LOGGED_DELETION_VECTOR = pa.struct(
    [field.with_name(name) for name, field in zip(_VECTOR_NAMES, DELETION_VECTOR, strict=True)]
)

_NON_FILE_ACTIONS = tuple(sorted(KNOWN_NAMES - {"add", "remove"}))
"""Actions that must not share a line with a file action; their content is not parsed."""

BLOCK = 1024 * 1024
"""The number of bytes that one thread parses at a time, unless a line is longer."""


def decode_file_actions(lines: ActionLines, partition_names: Sequence[str]) -> pa.Table:
    """Return one row for each line that adds or removes a file, in order, with the columns of `FILE_ACTIONS`.

    `partition_names` are the physical names of the partition columns, the keys of `partitionValues` in the log. Other
    keys are not read.
    """
    schema = _build_log_schema(lines.mentioned, partition_names)
    batches = [
        _to_file_actions(batch, partition_names, origins, lines)
        for decoded, origins in _decode(lines, schema)
        for batch, origins in _pair_with_origins(decoded, origins)
    ]
    return pa.Table.from_batches(batches, FILE_ACTIONS)


CHANGES = pa.schema(
    [
        ("path", pa.string()),
        ("partition_values", pa.map_(pa.string(), pa.string())),
        ("size", pa.int64()),
        ("deletion_vector", DELETION_VECTOR),
        ("data_change", pa.bool_()),
        ("action", pa.string()),
        ("origin", pa.int32()),
    ]
)
"""`action` is `add`, `remove` or `cdc`."""


def decode_changes(lines: ActionLines, partition_names: Sequence[str]) -> pa.Table:
    """Return one row for each line that adds, removes or records changed rows, in the order of the commits.

    The columns are those of `CHANGES`; `partition_names` as for `decode_file_actions`.
    """
    names = list(dict.fromkeys(partition_names))
    file = pa.struct(
        [
            ("path", pa.string()),
            *([("partitionValues", pa.struct([(name, pa.string()) for name in names]))] if names else []),
            ("size", pa.int64()),
            ("deletionVector", _LOGGED_DELETION_VECTOR),
            ("dataChange", pa.bool_()),
        ]
    )
    actions = ("add", "remove", "cdc")
    recorded = lines.other_actions.select(np.asarray(pc.equal(lines.other_names, "cdc")))
    every = replace(lines, file_actions=(*lines.file_actions, *([recorded] if len(recorded.origins) else [])))
    found = [CHANGES.empty_table()]
    for decoded, origins in _decode(every, pa.schema([(name, file) for name in actions])):
        for batch, own in _pair_with_origins(decoded, origins):
            given = {name: batch.column(name) for name in actions}
            path = pc.coalesce(*(get_field_or_nulls(each, "path", pa.string()) for each in given.values()))
            _raise_if_any(path.is_null(), "a file action without a path", own, lines)
            is_action = [each.is_valid() for each in given.values()]
            action = pc.case_when(pc.make_struct(*is_action), *(pa.scalar(name) for name in actions))
            chosen = pc.if_else(is_action[0], given["add"], pc.if_else(is_action[1], given["remove"], given["cdc"]))
            columns = [
                path,
                _build_partition_maps(chosen, partition_names),
                get_field_or_nulls(chosen, "size", pa.int64()),
                extract_deletion_vectors(chosen),
                # The protocol requires the field, but some writers leave it out where it is true.
                pc.fill_null(get_field_or_nulls(chosen, "dataChange", pa.bool_()), True),
                action,
                pa.array(own),
            ]
            found.append(pa.table(columns, schema=CHANGES))
    return pa.concat_tables(found).combine_chunks()


def _build_log_schema(mentioned: Collection[str], partition_names: Sequence[str]) -> pa.Schema:
    """Return the fields to parse. Optional fields that occur nowhere are left out: to fill a column with nulls takes as
    long as to parse it."""
    names = list(dict.fromkeys(partition_names))
    vector = [("deletionVector", _LOGGED_DELETION_VECTOR)] if "deletionVector" in mentioned else []
    add = [
        ("path", pa.string()),
        *([("partitionValues", pa.struct([(name, pa.string()) for name in names]))] if names else []),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        *([("stats", pa.string())] if "stats" in mentioned else []),
        *vector,
    ]
    remove = [("remove", pa.struct([("path", pa.string()), *vector]))] if "remove" in mentioned else []
    return pa.schema([("add", pa.struct(add)), *remove, *((name, pa.struct([])) for name in _NON_FILE_ACTIONS)])


def _decode(lines: ActionLines, schema: pa.Schema) -> Iterator[tuple[pa.Table, npt.NDArray[np.int32]]]:
    """Yield the decoded lines as tables, in order. Where the fast decoder fails, retry it on each half of the files."""
    for run in lines.file_actions:
        waiting = _split_into_slices(run.texts, lines.storage.tuning.max_action_bytes_together)[::-1]
        while waiting:
            start, stop = waiting.pop()
            some, origins = run.texts.slice(start, stop - start), run.origins[start:stop]
            decoded = _decode_fast(some, schema)
            if decoded is None and origins[0] != origins[-1]:
                # Split between two files, near the middle.
                middle = int(origins[len(origins) // 2])
                split = int(np.searchsorted(origins, middle if middle != origins[0] else middle + 1))
                waiting += [(start + split, stop), (start, start + split)]
                continue
            if decoded is None:
                decoded = _decode_slowly(some, schema, lines.location(int(origins[0])))
            yield decoded, origins


def _split_into_slices(lines: pa.LargeStringArray, most_bytes: int) -> list[tuple[int, int]]:
    """Return ranges of lines of about `most_bytes` bytes, so that not all lines are in memory both as JSON and
    decoded."""
    offsets = _get_offsets(lines)
    cuts = np.searchsorted(offsets, np.arange(offsets[0] + most_bytes, offsets[-1], most_bytes))
    bounds = np.unique(np.concatenate([[0], cuts, [len(lines)]])).tolist()
    return list(pairwise(bounds))


def _get_offsets(lines: pa.LargeStringArray) -> npt.NDArray[np.int64]:
    if not len(lines):
        return np.zeros(1, np.int64)
    return np.frombuffer(lines.buffers()[1], np.int64)[lines.offset : lines.offset + len(lines) + 1]


def _decode_fast(lines: pa.LargeStringArray, schema: pa.Schema) -> pa.Table | None:
    """Return the lines as a table; None if pyarrow cannot parse them, or finds another number of objects."""
    offsets = _get_offsets(lines)
    source = pa.BufferReader(lines.buffers()[2].slice(offsets[0], offsets[-1] - offsets[0]))
    longest = int(np.diff(offsets).max())
    # Waking other threads takes longer than parsing a single block.
    read = pajson.ReadOptions(block_size=max(BLOCK, longest + 1), use_threads=source.size() > BLOCK)
    parse = pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        table = pajson.read_json(source, read_options=read, parse_options=parse)
    except pa.ArrowInvalid:
        return None
    return table if table.num_rows == len(lines) else None


def _decode_slowly(lines: pa.LargeStringArray, schema: pa.Schema, location: str) -> pa.Table:
    rows = []
    for line in lines.to_pylist():
        try:
            parsed = load_json(line)
            rows.append({field.name: _coerce(parsed.get(field.name), field.type) for field in schema})
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            raise make_corrupt_log_error(
                f"'{location}' has a damaged action: {' '.join(str(error).split())}"
            ) from error
    try:
        return pa.Table.from_pylist(rows, schema)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise make_corrupt_log_error(f"'{location}' has a damaged action: {' '.join(str(error).split())}") from error


def _coerce(value: Any, data_type: pa.DataType) -> Any:
    """Convert a JSON value to a type, accepting numbers written as strings and strings written as numbers.

    The recursion is only as deep as the schema, which this module defines.
    """
    if value is None:
        return None
    if pa.types.is_struct(data_type):
        if not isinstance(value, dict):
            raise TypeError(f"expected a JSON object, found {value!r:.80}")
        return {field.name: _coerce(value.get(field.name), field.type) for field in data_type}
    if pa.types.is_integer(data_type):
        number = float(value) if isinstance(value, str) and not value.strip("+-").isdigit() else value
        if isinstance(number, float) and not number.is_integer():
            raise ValueError(f"expected an integer, found {value!r:.80}")
        return int(number)
    if pa.types.is_boolean(data_type) and isinstance(value, bool):
        return value
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _pair_with_origins(
    table: pa.Table, origins: npt.NDArray[np.int32]
) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.int32]]]:
    start = 0
    for batch in table.to_batches():
        yield batch, origins[start : start + batch.num_rows]
        start += batch.num_rows


def _to_file_actions(
    batch: pa.RecordBatch, partition_names: Sequence[str], origins: npt.NDArray[np.int32], lines: ActionLines
) -> pa.RecordBatch:
    add = batch.column("add")
    is_add = add.is_valid()
    path = get_field_or_nulls(add, "path", pa.string())
    vector = extract_deletion_vectors(add)
    if "remove" in batch.schema.names:
        remove = batch.column("remove")
        _raise_if_any(pc.and_(is_add, remove.is_valid()), "a line with both an add and a remove action", origins, lines)
        path = pc.coalesce(path, get_field_or_nulls(remove, "path", pa.string()))
        vector = pc.if_else(is_add, vector, extract_deletion_vectors(remove))
    _raise_if_any(path.is_null(), "a file action without a path", origins, lines)
    for name in _NON_FILE_ACTIONS:
        _raise_if_any(
            batch.column(name).is_valid(),
            f"a line with both a file action and a {name} action: expected one action per line",
            origins,
            lines,
        )
    columns = [
        path,
        _build_partition_maps(add, partition_names),
        get_field_or_nulls(add, "size", pa.int64()),
        get_field_or_nulls(add, "modificationTime", pa.int64()),
        get_field_or_nulls(add, "stats", pa.string()),
        vector,
        is_add,
        pa.array(origins),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=FILE_ACTIONS)


def _raise_if_any(is_wrong: pa.BooleanArray, problem: str, origins: npt.NDArray[np.int32], lines: ActionLines) -> None:
    found = is_wrong.index(pa.scalar(True)).as_py()
    if found >= 0:
        raise make_corrupt_log_error(f"'{lines.location(int(origins[found]))}' has {problem}")


def get_field_or_nulls(values: pa.StructArray, name: str, data_type: pa.DataType) -> pa.Array:
    """Return a field of a struct, cast to a type: null where the struct is null, all nulls where it has no such
    field."""
    if values.type.get_field_index(name) < 0:
        return pa.nulls(len(values), data_type)
    found = pc.struct_field(values, [name])
    return found if found.type == data_type else found.cast(data_type)


def extract_deletion_vectors(actions: pa.StructArray) -> pa.StructArray:
    """Return the deletion vectors of actions, renamed and cast from the log's fields to `DELETION_VECTOR`."""
    position = actions.type.get_field_index("deletionVector")
    if position < 0:
        return pa.nulls(len(actions), DELETION_VECTOR)
    logged = pc.struct_field(actions, "deletionVector")
    if logged.null_count == len(logged):
        return pa.nulls(len(actions), DELETION_VECTOR)
    pairs = zip(_LOGGED_DELETION_VECTOR, DELETION_VECTOR, strict=True)
    children = [get_field_or_nulls(logged, source.name, target.type) for source, target in pairs]
    return pa.StructArray.from_arrays(children, fields=list(DELETION_VECTOR), mask=logged.is_null())


def _build_partition_maps(add: pa.StructArray, names: Sequence[str]) -> pa.MapArray:
    """Return the partition values as maps that all have the same keys: an absent JSON value equals null."""
    rows, keys = len(add), list(dict.fromkeys(names))
    if not keys:
        offsets = pa.array(np.zeros(rows + 1, np.int32))
        return pa.MapArray.from_arrays(offsets, pa.array([], pa.string()), pa.array([], pa.string()))
    logged = pc.struct_field(add, "partitionValues")
    columns = pa.concat_arrays([pc.struct_field(logged, [name]) for name in keys])
    # The values are column by column; the map needs them row by row.
    by_row = np.arange(rows * len(keys)).reshape(len(keys), rows).T.ravel()
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * len(keys))
    all_keys = pa.array(keys, pa.string()).take(pa.array(np.tile(np.arange(len(keys)), rows)))
    return pa.MapArray.from_arrays(offsets, all_keys, columns.take(pa.array(by_row)) if len(keys) > 1 else columns)
