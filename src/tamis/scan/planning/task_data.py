"""Serialised tasks and readers for other processes: Arrow for the tasks, JSON for the reader."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.expr.wire.expression_json import schema_from_text, schema_to_text
from tamis.formats.jobs import Arguments, storage_to_arguments
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.selection.row_selection import RowSelection
from tamis.scan.planning.tasks import ScanTask
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


def tasks_to_table(tasks: Sequence[ScanTask]) -> pa.Table:
    """Return tasks of a scan as rows. The contents of small files are left out: the reader reads the files again."""
    known = {json.dumps(path): value.type for task in tasks for path, value in task.constants.items()}
    # As lists, so that NULL differs from a missing value.
    constants = pa.struct([pa.field(name, pa.list_(data_type)) for name, data_type in known.items()])
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
            "constants": {json.dumps(path): [value] for path, value in task.constants.items()},
        }
        for task in tasks
    ]
    return pa.Table.from_pylist(rows, pa.schema([*_FIELDS, ("constants", constants)]))


def tasks_from_table(table: pa.Table) -> list[ScanTask]:
    return [
        ScanTask(
            **{
                **row,
                "constants": {
                    tuple(json.loads(name)): value.values[0] for name, value in constants.items() if value.is_valid
                },
                "residual": tuple(row["residual"]),
                "selection": None if row["selection"] is None else _selection_from_dict(row["selection"]),
            }
        )
        for row, constants in zip(
            table.drop_columns(["constants"]).to_pylist(), table["constants"].combine_chunks(), strict=True
        )
    ]


def _selection_to_dict(selection: RowSelection) -> dict[str, Any]:
    return {"starts": selection.starts, "ends": selection.ends, "total": selection.total}


def _selection_from_dict(given: dict[str, Any]) -> RowSelection:
    return RowSelection(np.array(given["starts"], np.int64), np.array(given["ends"], np.int64), given["total"])


def get_task_reader(scan: Scan) -> TaskReader:
    return get_planner(scan).reader


def reader_to_json(reader: TaskReader) -> dict[str, Any]:
    """Return what another process needs to read tasks of a scan, as JSON values."""
    return {
        **storage_to_arguments(reader.storage),
        "schema": schema_to_text(reader.schema),
        "predicate": predicate_to_json(reader.predicate),
        "projection": [list(path) for path in reader.projection],
        "partition_columns": list(reader.partition_columns),
        "names": None if reader.names is None else reader.names.to_json(),
        "may_filter_first": reader.may_filter_first,
    }


def reader_from_json(arguments: Arguments) -> TaskReader:
    return TaskReader(
        arguments.storage,
        schema_from_text(arguments["schema"]),
        predicate_from_json(arguments["predicate"]),
        tuple(tuple(path) for path in arguments["projection"]),
        tuple(arguments["partition_columns"]),
        None if arguments["names"] is None else ColumnMapping.from_json(arguments["names"]),
        arguments["may_filter_first"],
    )
