"""Serialised tasks and readers for other processes: Arrow for the tasks, JSON for the reader."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.formats.jobs import Arguments, storage_to_arguments
from tamis.formats.source import format_absent_column, parse_absent_column_name
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.leaves import FieldPath
from tamis.parquet.selection.row_selection import RowSelection
from tamis.scan.planning.tasks import ScanTask, cast_partition_value, read_partition_values
from tamis.scan.reading.task_reader import TaskReader
from tamis.scan.scan import Scan, get_planner
from tamis.skipping.predicate import predicate_from_json, predicate_to_json

_NUMBERS = pa.list_(types.LONG)
_FIELDS = (
    ("path", types.STRING),
    ("size", types.LONG),
    ("modified_ns", types.LONG),
    ("row_group", types.LONG),
    ("row_count", types.LONG),
    ("bytes", types.LONG),
    ("residual", _NUMBERS),
    ("selection", pa.struct([("starts", _NUMBERS), ("ends", _NUMBERS), ("total", types.LONG)])),
    ("file_format", types.STRING),
)


def tasks_to_table(tasks: Sequence[ScanTask], schema: pa.Schema, partition_columns: Sequence[str]) -> pa.Table:
    """Return tasks of a scan as rows. The contents of small files are left out: the reader reads the files again."""
    values = pa.struct([pa.field(name, schema.field(name).type) for name in partition_columns])
    absent = {_format_absent_column(key): value.type for task in tasks for key, value in task.where_absent.items()}
    # As lists, so that NULL differs from a missing value.
    lists = pa.struct([pa.field(name, pa.list_(data_type)) for name, data_type in absent.items()])
    table_schema = pa.schema([*_FIELDS, ("partition_values", values), ("where_absent", lists)])
    rows = [
        {
            "path": task.path,
            "size": task.size,
            "modified_ns": task.modified_ns,
            "row_group": task.row_group,
            "row_count": task.row_count,
            "bytes": task.bytes,
            "residual": list(task.residual),
            "selection": None if task.selection is None else _selection_to_dict(task.selection),
            "file_format": task.file_format,
            "partition_values": {
                each.name: cast_partition_value(task.partition_values[each.name], each.type) for each in values
            },
            "where_absent": {_format_absent_column(key): [value] for key, value in task.where_absent.items()},
        }
        for task in tasks
    ]
    return pa.Table.from_pylist(rows, table_schema)


def tasks_from_table(table: pa.Table) -> list[ScanTask]:
    """Return the tasks in a table of `tasks_to_table`."""
    absent, values = (table[name].combine_chunks() for name in ("where_absent", "partition_values"))
    shared = (
        [{}] * len(table) if not values.type.num_fields else read_partition_values(pa.Table.from_struct_array(values))
    )
    return [
        ScanTask(
            **{
                **row,
                "partition_values": partition_values,
                "where_absent": {
                    parse_absent_column_name(name): value.values[0] for name, value in given.items() if value.is_valid
                },
                "residual": tuple(row["residual"]),
                "selection": None if row["selection"] is None else _selection_from_dict(row["selection"]),
            }
        )
        for row, given, partition_values in zip(
            table.drop_columns(["where_absent", "partition_values"]).to_pylist(), absent, shared, strict=True
        )
    ]


def _format_absent_column(key: str | FieldPath) -> str:
    return format_absent_column((key,) if isinstance(key, str) else key)


def _selection_to_dict(selection: RowSelection) -> dict[str, Any]:
    return {"starts": selection.starts, "ends": selection.ends, "total": selection.total}


def _selection_from_dict(given: dict[str, Any]) -> RowSelection:
    return RowSelection(np.array(given["starts"], np.int64), np.array(given["ends"], np.int64), given["total"])


def get_task_reader(scan: Scan) -> TaskReader:
    """Return the reader of the tasks in a scan's plan."""
    return get_planner(scan).reader


def reader_to_json(reader: TaskReader) -> dict[str, Any]:
    """Return what another process needs to read tasks of a scan, as JSON values."""
    return {
        **storage_to_arguments(reader.storage),
        "schema": b64encode(reader.schema.serialize()).decode(),
        "predicate": predicate_to_json(reader.predicate),
        "projection": [list(path) for path in reader.projection],
        "partition_columns": list(reader.partition_columns),
        "names": None if reader.names is None else reader.names.to_json(),
        "may_filter_first": reader.may_filter_first,
    }


def reader_from_json(arguments: Arguments) -> TaskReader:
    """Return the reader of `reader_to_json`."""
    return TaskReader(
        arguments.storage,
        pa.ipc.read_schema(pa.BufferReader(b64decode(arguments["schema"]))),
        predicate_from_json(arguments["predicate"]),
        tuple(tuple(path) for path in arguments["projection"]),
        tuple(arguments["partition_columns"]),
        None if arguments["names"] is None else ColumnMapping.from_json(arguments["names"]),
        arguments["may_filter_first"],
    )
