"""Tables under policies on Spark: read by its workers, with the policy applied there before Spark sees a row.

    tasks ─▶ raw rows ─▶ row filter ─▶ masks ─▶ a DataFrame
    └────────────── in a Python worker ─────────────┘

Spark moves no condition of a query below such a step, and knows nothing of it but the columns that come out. What it
shows must not depend on hidden rows either: there are always as many tasks as `spark.sql.shuffle.partitions` says,
some of them with nothing to do, and why one fails is not told. Rows that metadata answers for, first rows by an order
and limits are read by the driver: there are few of them.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis.expr.expression_json import expression_from_json, expression_to_json
from tamis.expr.nodes import conjuncts_of
from tamis.pushdown.connector import Connector
from tamis.pushdown.connectors.lake import LakeConnector
from tamis.pushdown.connectors.lake_handle import LakeHandle
from tamis.pushdown.nodes import Filter, Named, Node, Project, TableScan
from tamis.pushdown.policies.reading import in_silence, protected_schema, silence
from tamis.pushdown.policies.values import Projection
from tamis.scan.residual import Residual
from tamis.scan.scan import planner_of
from tamis.scan.scan_planner import ScanPlanner
from tamis.scan.task_data import reader_from_json, reader_to_json, tasks_from_table
from tamis.spark.on_workers import on_workers
from tamis.spark.task_runner import INPUT, pack, packed, read_tasks
from tamis.spark.types import fit_rows, row_schema, spark_schema
from tamis.tables.jobs import Arguments, read_table

Step = Callable[[pa.RecordBatch], pa.RecordBatch]


def protected_frame(spark: Any, node: Node, connectors: Mapping[str, Connector]) -> Any | None:
    """The rows of a protected scan that may be seen, as a lazy DataFrame; None where the driver is to read them."""
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
    with silence():
        scan = connector.scan_of(handle)
        if scan is None:
            return None
        paths = [(output.name, each.path) for output, each in zip(below.columns, handle.columns, strict=True)]
        schema = protected_schema(node, connectors)
        planner = planner_of(scan)
        reader = reader_to_json(planner.reader)
        said = {
            "columns": paths,
            "steps": [_said(each, connectors) for each in reversed(steps)],
            "output": _text(schema),
        }
        given = _shared_out(planner, int(spark.conf.get("spark.sql.shuffle.partitions")))
    title = re.sub(r"\W+", "_", f"tamis: read {planner.source.name}")
    runner = on_workers(__name__, visible_rows.__name__, json.dumps({**reader, **said}, allow_nan=False), title)
    return (
        spark.createDataFrame(given, spark_schema(INPUT))
        .repartitionById(given.num_rows, "task")
        .mapInArrow(runner, spark_schema(row_schema(schema)))
    )


def _shared_out(planner: ScanPlanner, count: int) -> pa.Table:
    """The tasks of a scan in so many groups, whether there is something to read for all of them or for none."""
    groups = pack(planner.plan_listing(planner.listing).tasks())
    shares = [[task for group in groups[number::count] for task in group] for number in range(count)]
    texts = [packed(planner.reader, share) if share else b"" for share in shares]
    return pa.table([pa.array(range(count), pa.int32()), pa.array(texts, pa.binary())], schema=INPUT)


def _said(step: Filter | Project, connectors: Mapping[str, Connector]) -> dict[str, Any]:
    """What applies a policy as values that `json` takes."""
    if isinstance(step, Filter):
        return {"filter": expression_to_json(step.predicate)}
    outputs = [[output.name, expression_to_json(output.expr)] for output in step.outputs]
    return {"outputs": outputs, "schema": _text(protected_schema(step, connectors))}


def _text(schema: pa.Schema) -> str:
    return b64encode(schema.serialize()).decode()


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.BufferReader(b64decode(text)))


# --- On workers -------------------------------------------------------------------------------------------------------


def visible_rows(arguments: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The visible rows of the tasks of one Spark task."""
    yield from in_silence(_visible(Arguments(arguments), batches))


def _visible(arguments: Arguments, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    reader = reader_from_json(arguments)
    columns = [(name, tuple(path)) for name, path in arguments["columns"]]
    steps = [_step(given) for given in arguments["steps"]]
    schema = row_schema(_schema(arguments["output"]))
    shares = (share for batch in batches for share in batch.column("tasks").to_pylist() if share)
    for share in shares:
        for batch in read_tasks(reader, tasks_from_table(read_table(share))):
            visible = _named(batch, columns)
            for step in steps:
                visible = step(visible)
            yield fit_rows(visible, schema)


def _step(given: Mapping[str, Any]) -> Step:
    if "filter" in given:
        return Residual(conjuncts_of(expression_from_json(given["filter"]))).filter
    outputs = [Named(name, expression_from_json(expr)) for name, expr in given["outputs"]]
    return Projection(outputs, _schema(given["schema"]))


def _named(batch: pa.RecordBatch, columns: Sequence[tuple[str, tuple[str, ...]]]) -> pa.RecordBatch:
    """The columns of a scan under their names in the plan; some are fields inside of those that were read."""
    arrays = [
        pc.struct_field(batch.column(first), list(inner)) if inner else batch.column(first)
        for _, (first, *inner) in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in columns])
