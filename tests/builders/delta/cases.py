"""Random Delta tables of few rows, with their history and the rows of every version.

Columns of files have physical names or ids, older types, or are missing. Statistics are those of several writers,
with gaps. Rows are deleted by deletion vectors. Logs have checkpoints of every form.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from builders.delta.log import Action, DeltaLog, commit_info, remove
from builders.delta.statistics import WRITERS, mapping
from builders.delta.statistics import field as log_field
from builders.delta.tables import (
    compute_column_statistics,
    data_file,
    format_json_object,
    make_inline_vector,
    write_vector,
)
from builders.values.by_type import is_extreme, list_special_values, list_values, make_array
from builders.values.choices import Choices
from builders.values.predicates import OraclePredicate, Subject, draw_predicate
from builders.values.random_rows import draw_column, make_subject
from tamis import types
from tamis.expr.evaluate import to_physical_value

ROW = "row_id"
FEATURES = ("columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint")

COLUMN_TYPES: tuple[pa.DataType, ...] = (
    types.DOUBLE, pa.string(), types.TIMESTAMP, types.TIMESTAMP_NTZ, pa.decimal128(5, 2), pa.decimal128(19, 2),
    pa.float32(), pa.int8(), pa.int32(), pa.int64(), pa.date32(), pa.bool_(), pa.binary(),
)  # fmt: skip
OLDER_TYPES: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    types.DOUBLE: (pa.float32(), pa.int32()),
    pa.int64(): (pa.int8(), pa.int32()),
    pa.int32(): (pa.int8(), pa.int16()),
    types.TIMESTAMP_NTZ: (pa.date32(),),
    pa.decimal128(19, 2): (pa.decimal128(5, 2), pa.int32()),
}
"""The types that files may have from before the table widened the type of a column."""

PARTITION_TEXTS: dict[pa.DataType, dict[str | None, Any]] = {
    pa.string(): {"eu": "eu", "null": "null", "a=b/c d": "a=b/c d", "é%20": "é%20", "": None, None: None},
    pa.int32(): {"1": 1, "-7": -7, "10": 10, "": None, None: None},
    pa.date32(): {"1970-01-02": 1, "1969-12-31": -1, "2024-03-01": 19783, None: None},
    types.TIMESTAMP: {
        "1970-01-01 00:00:01": 1_000_000,
        "1969-12-31T23:59:59.999999Z": -1,
        "1970-01-01 00:00:00.5": 500_000,
        None: None,
    },
    pa.bool_(): {"true": True, "false": False, None: None},
    pa.decimal128(5, 2): {"1.50": "1.50", "-2": "-2.00", None: None},
}
"""Partition values: their text in the log, and the value."""

_LONG = "0123456789" * 3
LONG_TEXTS = (_LONG + "01", _LONG + "01a", _LONG + "01é", _LONG + "01\U0010ffff", _LONG + "02", "😀" * 20, "é" * 33)
FINE_TIMESTAMPS = (1_700_000_000_123_999, 1_700_000_000_124_000, -1_700_000_000_123_001)
"""Values that statistics truncate."""


@dataclass(frozen=True)
class StoredFile:
    """A data file: its rows as the table returns them, and the action that adds it."""

    path: str
    rows: pa.Table
    deleted: tuple[int, ...]
    action: Action
    texts: dict[str, str | None]
    """The partition values in the log, by logical column name."""

    @property
    def live_rows(self) -> pa.Table:
        gone = set(self.deleted)
        return self.rows.take(pa.array([row for row in range(len(self.rows)) if row not in gone], pa.int64()))


@dataclass
class DeltaCase:
    """A table in a folder, its rows at every version, and predicates about the newest."""

    folder: Path
    schema: pa.Schema
    versions: list[dict[str, StoredFile]]
    choices: Choices
    predicates: list[OraclePredicate] = field(default_factory=list)

    def rows(self, version: int = -1) -> pa.Table:
        parts = [stored.live_rows for stored in self.versions[version].values()]
        return pa.concat_tables([self.schema.empty_table(), *parts]).sort_by(ROW)


@dataclass(frozen=True)
class _Shape:
    """The column mapping of a table: names of columns in the log and in files."""

    mode: str
    fields: list[pa.Field]
    partitions: list[pa.Field]

    def number(self, *path: str) -> int:
        paths = [each for one in [*self.fields, *self.partitions] for each in [(one.name,), *_list_inner_paths(one)]]
        return paths.index(path) + 1

    def get_physical_name(self, *path: str) -> str:
        return path[-1] if self.mode == "none" else f"col-{self.number(*path)}"

    def make_schema_fields(self) -> list[dict[str, Any]]:
        """Return the fields of the schema in the log."""
        return [self._make_schema_field((one.name,), one.type) for one in [*self.fields, *self.partitions]]

    def _make_schema_field(self, path: tuple[str, ...], data_type: pa.DataType) -> dict[str, Any]:
        kind: Any = data_type
        if pa.types.is_struct(data_type):
            kind = {
                "type": "struct",
                "fields": [self._make_schema_field((*path, each.name), each.type) for each in data_type],
            }
        changes = [
            {"fromType": log_field("", older)["type"], "toType": log_field("", data_type)["type"]}
            for older in OLDER_TYPES.get(data_type, ())
        ]
        names = {} if self.mode == "none" else mapping(self.number(*path), self.get_physical_name(*path))
        return log_field(path[-1], kind, **names, **({"delta.typeChanges": changes} if changes else {}))

    def rename_columns(self, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """Return columns by their physical names, as statistics have them."""
        return {
            each.name: array
            for each, array in (self._store_column((name,), array, False) for name, array in columns.items())
        }

    def store_columns(self, choices: Choices, columns: dict[str, pa.Array]) -> pa.Table:
        """Return columns as a file has them: with physical names, or with field ids and any names."""
        fields, arrays = [], []
        odd = self.mode == "id" and choices.flag()
        for name, array in columns.items():
            made, stored = self._store_column((name,), array, odd)
            fields.append(made)
            arrays.append(stored)
        return pa.table(arrays, schema=pa.schema(fields))

    def _store_column(self, path: tuple[str, ...], array: pa.Array, odd: bool) -> tuple[pa.Field, pa.Array]:
        if pa.types.is_struct(array.type):
            inner = [
                self._store_column((*path, each.name), child, odd)
                for each, child in zip(array.type, array.flatten(), strict=True)
            ]
            array = pa.StructArray.from_arrays(
                [child for _, child in inner], fields=[each for each, _ in inner], mask=array.is_null()
            )
        number = {} if self.mode == "none" else {"PARQUET:field_id": str(self.number(*path))}
        name = f"odd {self.number(*path)}" if odd else self.get_physical_name(*path)
        return pa.field(name, array.type, metadata=number or None), array


def _list_inner_paths(one: pa.Field) -> list[tuple[str, ...]]:
    return [(one.name, each.name) for each in one.type] if pa.types.is_struct(one.type) else []


def draw_delta_case(choices: Choices, folder: Path, predicates: int) -> DeltaCase:
    shape = _draw_shape(choices)
    schema = pa.schema([*shape.fields, *shape.partitions])
    mode = {} if shape.mode == "none" else {"delta.columnMapping.mode": shape.mode}
    log = DeltaLog(
        folder,
        shape.make_schema_fields(),
        partition_columns=[each.name for each in shape.partitions],
        configuration=mode,
        features=FEATURES,
    )
    values = {each.name: _draw_values(choices, each.type) for each in shape.fields}
    live: dict[str, StoredFile] = {}
    versions: list[dict[str, StoredFile]] = []
    for version in range(choices.number(1, 4)):
        actions: list[Action] = []
        touched: set[str] = set()
        for path in list(live):
            match choices.number(0, 7):
                case 6 if version:
                    actions.append(_make_remove(live.pop(path)))
                    touched.add(path)
                case 7 if version:
                    actions += _delete_more_rows(choices, log, live, path)
                    touched.add(path)
        for number in range(choices.number(0 if version else 1, 2)):
            stored = _draw_file(
                choices, shape, log, values, f"v{version} {number}%.parquet", len(versions) * 2 + number
            )
            live[stored.path] = stored
            actions.append(stored.action)
        log.commit(*(actions or [commit_info()]))
        versions.append(dict(live))
    _draw_checkpoint(choices, log)
    case = DeltaCase(folder, schema, versions, choices)
    subjects = list_subjects(case.rows())
    case.predicates = [draw_predicate(choices, subjects) for _ in range(predicates)]
    return case


def _draw_shape(choices: Choices) -> _Shape:
    kinds = [choices.one_of(COLUMN_TYPES)]
    for _ in range(choices.number(0, 2)):
        kinds.append(kinds[0] if choices.flag() else choices.one_of(COLUMN_TYPES))
    fields = [pa.field(f"c{index}", kind) for index, kind in enumerate(kinds)]
    if choices.flag(3):
        fields.append(pa.field("st", pa.struct([("x", choices.one_of(COLUMN_TYPES)), ("y", pa.string())])))
    partitions = [
        pa.field(name, choices.one_of(list(PARTITION_TEXTS))) for name in ("p", "q")[: choices.one_of([0, 0, 1, 1, 2])]
    ]
    return _Shape(choices.one_of(["none", "name", "id"]), [*fields, pa.field(ROW, pa.int64())], partitions)


def _draw_values(choices: Choices, data_type: pa.DataType) -> Any:
    if pa.types.is_struct(data_type):
        return [_draw_values(choices, each.type) for each in data_type]
    return choices.some_of((*_list_values(data_type), *list_special_values(data_type) * 2), 1, 4)


def _list_values(data_type: pa.DataType) -> tuple[Any, ...]:
    found = list_values(data_type)
    if types.is_text(data_type):
        return (*found, *LONG_TEXTS)
    if pa.types.is_timestamp(data_type):
        return (*(each for each in found if not is_extreme(each, data_type)), *FINE_TIMESTAMPS)
    return found


def _draw_file(
    choices: Choices, shape: _Shape, log: DeltaLog, values: dict[str, Any], path: str, number: int
) -> StoredFile:
    count = choices.one_of([*range(1, 9), 0])
    written: dict[str, pa.Array] = {}
    shown: dict[str, pa.Array] = {}
    for each in shape.fields[:-1]:
        if choices.flag(8):
            shown[each.name] = pa.nulls(count, each.type)
            continue
        written[each.name], shown[each.name] = _draw_columns(choices, each.type, values[each.name], count)
    written[ROW] = shown[ROW] = pa.array(range(number * 100, number * 100 + count), pa.int64())
    texts = {each.name: choices.one_of(list(PARTITION_TEXTS[each.type])) for each in shape.partitions}
    for each in shape.partitions:
        shown[each.name] = _make_partition_column(each.type, texts[each.name], count)
    stored = shape.store_columns(choices, written)
    # Statistics use physical names, even if the names in the file differ.
    deleted = tuple(row for row in range(count) if choices.flag(4)) if choices.flag(3) else ()
    action = data_file(
        log,
        path,
        stored,
        {shape.get_physical_name(name): text for name, text in texts.items()},
        stats=_draw_statistics(choices, shape.rename_columns(written), count, is_tight=not deleted),
        options=_draw_options(choices),
    )
    if deleted:
        action["add"]["deletionVector"] = _draw_vector(choices, log, deleted)
    return StoredFile(path, pa.table(shown), deleted, action, texts)


def _draw_columns(choices: Choices, data_type: pa.DataType, values: Any, count: int) -> tuple[pa.Array, pa.Array]:
    """Return a column as a file has it, perhaps of an older type, and as the table returns it."""
    if pa.types.is_struct(data_type):
        absent = pa.array([choices.flag(4) for _ in range(count)], pa.bool_())
        pairs = [_draw_columns(choices, each.type, own, count) for each, own in zip(data_type, values, strict=True)]
        # The fields of a NULL struct are NULL too.
        stored, shown = (
            pa.StructArray.from_arrays(
                [pc.if_else(absent, pa.scalar(None, pair[side].type), pair[side]) for pair in pairs],
                names=[each.name for each in data_type],
                mask=absent,
            )
            for side in (0, 1)
        )
        return stored, shown
    if (older := OLDER_TYPES.get(data_type)) and choices.flag(3):
        narrow = choices.one_of(older)
        stored = make_array(narrow, draw_column(choices, choices.some_of(list_values(narrow), 1, 3), count))
        try:
            return stored, stored.cast(data_type)
        except pa.ArrowInvalid:
            # The day is out of range for a timestamp in microseconds.
            pass
    made = make_array(data_type, draw_column(choices, values, count))
    return made, made


def _make_partition_column(data_type: pa.DataType, text: str | None, count: int) -> pa.Array:
    value = PARTITION_TEXTS[data_type][text]
    if pa.types.is_decimal(data_type):
        return pa.array([value] * count, pa.string()).cast(data_type)
    return make_array(data_type, [value] * count)


def _draw_statistics(choices: Choices, columns: dict[str, pa.Array], count: int, *, is_tight: bool) -> str | None:
    if choices.flag(8):
        # Invalid or empty JSON and NULL mean that there are no statistics.
        return choices.one_of([None, "", "{}", '{"numRecords":', "null"])
    writer = choices.one_of(WRITERS)
    kinds: dict[str, dict[str, str]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for name, column in columns.items():
        for kind, text in zip(kinds, compute_column_statistics(column, writer), strict=True):
            if text is not None and not choices.flag(8):
                kinds[kind][name] = text
    statistics = {} if is_tight and choices.flag(8) else {"numRecords": str(count)}
    statistics |= {kind: format_json_object(texts) for kind, texts in kinds.items()}
    # Wide bounds (tightBounds = false) may still be tight.
    return format_json_object(statistics if is_tight and not choices.flag(8) else statistics | {"tightBounds": "false"})


def _draw_options(choices: Choices) -> dict[str, Any]:
    return {
        "row_group_size": choices.number(1, 6),
        "use_dictionary": choices.flag(),
        "write_statistics": choices.flag(5) is False,
        "write_page_index": choices.flag(),
        "max_rows_per_page": choices.one_of([1, 2, 1000]),
        "write_batch_size": 1,
    }


def _draw_vector(choices: Choices, log: DeltaLog, deleted: tuple[int, ...]) -> dict[str, Any]:
    return (
        make_inline_vector(deleted)
        if choices.flag()
        else write_vector(log.table, deleted, b"\0" * choices.number(0, 3))
    )


def _make_remove(stored: StoredFile) -> Action:
    vector = stored.action["add"].get("deletionVector")
    return remove(stored.action["add"]["path"], **({} if vector is None else {"deletionVector": vector}))


def _delete_more_rows(choices: Choices, log: DeltaLog, live: dict[str, StoredFile], path: str) -> list[Action]:
    """Delete some rows of a file: return its remove, and its add with another deletion vector."""
    before = live[path]
    deleted = tuple(sorted({*before.deleted, *(row for row in range(len(before.rows)) if choices.flag(3))}))
    if deleted == before.deleted:
        return []
    added = dict(before.action["add"]) | {"deletionVector": _draw_vector(choices, log, deleted)}
    if (stats := added.get("stats")) and stats.endswith("}") and "tightBounds" not in stats and len(stats) > 2:
        added["stats"] = stats[:-1] + ',"tightBounds":false}'
    live[path] = replace(before, deleted=deleted, action={"add": added})
    return [_make_remove(before), live[path].action]


def _draw_checkpoint(choices: Choices, log: DeltaLog) -> None:
    version = choices.number(0, log.version)
    match choices.number(0, 5):
        case 1:
            log.checkpoint(version, row_group_size=choices.one_of([None, 1, 2]))
        case 2:
            log.checkpoint(version, parts=choices.number(1, 3))
        case 3:
            log.checkpoint(version, sidecars=choices.number(0, 2), top="json")
        case 4:
            log.checkpoint(version, sidecars=choices.number(0, 2), uuid_named=choices.flag())
        case 5 if version:
            log.compact(0, version)


def _is_plain(each: pa.Field) -> bool:
    return not pa.types.is_nested(each.type)


def list_subjects(rows: pa.Table) -> list[Subject]:
    """Return the columns that predicates can test: all but lists and maps."""
    found = []
    for each in rows.schema:
        column = rows[each.name].combine_chunks()
        if pa.types.is_struct(each.type):
            for child in filter(_is_plain, each.type):
                values = map(to_physical_value, pc.struct_field(column, child.name))
                found.append(make_subject((each.name, child.name), child.type, values))
        elif each.name != ROW and _is_plain(each):
            found.append(make_subject((each.name,), each.type, map(to_physical_value, column)))
    return found
