"""Tables under policies on Spark: executors read them, and apply the policy before Spark sees a row.

    tasks ─▶ raw rows ─▶ row filter ─▶ masks ─▶ a DataFrame
    └────────────── in a Python worker ─────────────┘

Spark moves no condition of a query below such a step, and knows only the columns of its result. What Spark shows must
not depend on hidden rows either: there are always `spark.sql.shuffle.partitions` tasks, some of them without work, and
errors are redacted. The driver reads aggregates from metadata, top-n rows and limits: there are few of them.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis.engines.spark.spark_types import convert_rows, to_row_schema, to_spark_schema
from tamis.engines.spark.worker import INPUT, make_worker_function, pack_tasks, read_tasks, serialize_tasks
from tamis.expr.nodes import split_conjuncts
from tamis.expr.wire.expression_json import expression_from_json, expression_to_json
from tamis.formats.jobs import Arguments, read_table
from tamis.query.connectors.connector import Connector
from tamis.query.connectors.lake_connector import LakeConnector
from tamis.query.connectors.lake_handle import LakeHandle
from tamis.query.plan.nodes import Filter, Named, Node, Project, TableScan
from tamis.query.policies.protected_reading import Projection, make_protected_schema, redact_errors, redact_errors_of
from tamis.scan.planning.scan_planner import ScanPlanner
from tamis.scan.planning.task_data import reader_from_json, reader_to_json, tasks_from_table
from tamis.scan.reading.residual import Residual
from tamis.scan.scan import get_planner

Step = Callable[[pa.RecordBatch], pa.RecordBatch]


def make_protected_frame(spark: Any, node: Node, connectors: Mapping[str, Connector]) -> Any | None:
    """Return the visible rows of a protected scan as a lazy DataFrame; None if the driver has to read them."""
    steps: list[Filter | Project] = []
    below = node
    while isinstance(below, Filter | Project):
        steps.append(below)
        below = below.source
    if not isinstance(below, TableScan) or not below.columns:
        return None
    connector, handle = connectors[below.connector], below.handle
    if not isinstance(connector, LakeConnector) or not isinstance(handle, LakeHandle) or handle.limit is not None:
        return None
    with redact_errors():
        scan = connector.to_scan(handle)
        if scan is None:
            return None
        paths = [(output.name, each.path) for output, each in zip(below.columns, handle.columns, strict=True)]
        schema = make_protected_schema(node, connectors)
        planner = get_planner(scan)
        reader = reader_to_json(planner.reader)
        more = {
            "columns": paths,
            "steps": [_step_to_json(each, connectors) for each in reversed(steps)],
            "output": _schema_to_text(schema),
        }
        given = _assign_tasks(planner, int(spark.conf.get("spark.sql.shuffle.partitions")))
    title = re.sub(r"\W+", "_", f"tamis: read {planner.source.name}")
    runner = make_worker_function(
        __name__, read_visible_rows.__name__, json.dumps({**reader, **more}, allow_nan=False), title
    )
    return (
        spark.createDataFrame(given, to_spark_schema(INPUT))
        .repartitionById(given.num_rows, "task")
        .mapInArrow(runner, to_spark_schema(to_row_schema(schema)))
    )


def _assign_tasks(planner: ScanPlanner, count: int) -> pa.Table:
    """Return the tasks of a scan in `count` groups. Some groups may be empty."""
    groups = pack_tasks(planner.plan_listing(planner.listing).tasks())
    shares = [[task for group in groups[number::count] for task in group] for number in range(count)]
    texts = [serialize_tasks(planner.reader, share) if share else b"" for share in shares]
    return pa.table([pa.array(range(count), pa.int32()), pa.array(texts, pa.binary())], schema=INPUT)


def _step_to_json(step: Filter | Project, connectors: Mapping[str, Connector]) -> dict[str, Any]:
    """Return a step of a policy as JSON values."""
    if isinstance(step, Filter):
        return {"filter": expression_to_json(step.predicate)}
    outputs = [[output.name, expression_to_json(output.expr)] for output in step.outputs]
    return {"outputs": outputs, "schema": _schema_to_text(make_protected_schema(step, connectors))}


def _schema_to_text(schema: pa.Schema) -> str:
    return b64encode(schema.serialize()).decode()


def _schema_from_text(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.BufferReader(b64decode(text)))


# --- On workers -------------------------------------------------------------------------------------------------------


def read_visible_rows(arguments: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the visible rows of one Spark task."""
    yield from redact_errors_of(_read_visible(Arguments(arguments), batches))


def _read_visible(arguments: Arguments, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    reader = reader_from_json(arguments)
    columns = [(name, tuple(path)) for name, path in arguments["columns"]]
    steps = [_make_step(given) for given in arguments["steps"]]
    schema = to_row_schema(_schema_from_text(arguments["output"]))
    shares = (share for batch in batches for share in batch.column("tasks").to_pylist() if share)
    for share in shares:
        for batch in read_tasks(reader, tasks_from_table(read_table(share))):
            visible = _rename_columns(batch, columns)
            for step in steps:
                visible = step(visible)
            yield convert_rows(visible, schema)


def _make_step(given: Mapping[str, Any]) -> Step:
    if "filter" in given:
        return Residual(split_conjuncts(expression_from_json(given["filter"]))).filter
    outputs = [Named(name, expression_from_json(expr)) for name, expr in given["outputs"]]
    return Projection(outputs, _schema_from_text(given["schema"]))


def _rename_columns(batch: pa.RecordBatch, columns: Sequence[tuple[str, tuple[str, ...]]]) -> pa.RecordBatch:
    """Return the columns of a scan under their names in the plan; some are fields inside structs."""
    arrays = [
        pc.struct_field(batch.column(first), list(inner)) if inner else batch.column(first)
        for _, (first, *inner) in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in columns])
