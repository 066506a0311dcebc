"""Units of metadata written by hand, and their outcome for a predicate in SQL."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from tamis.expr.evaluate import Evaluator
from tamis.skipping.metadata import metadata_name
from tamis.skipping.predicate import make_predicate
from tamis.skipping.prune import prune

SKIPPED, KEPT, FULLY_MATCHED = "skipped", "kept", "fully matched"

BIG = pa.int64()
INT = pa.int32()
DOUBLE = pa.float64()
TEXT = pa.string()
DATE = pa.date32()
TIMESTAMP = pa.timestamp("us", "UTC")
WALL_CLOCK = pa.timestamp("us")


class Unit(NamedTuple):
    """The statistics of a column in a unit; None is unknown."""

    lower: Any = None
    upper: Any = None
    null_count: int | None = 0
    nan_count: int | None = None
    row_count: int | None = 10


ALL_NULL = Unit(None, None, 10)


def make_batch(columns: dict[str, tuple[pa.DataType, list[Unit]]]) -> pa.RecordBatch:
    """Return the metadata batch of units with several columns; the first column has the row counts."""
    first = next(iter(columns.values()))[1]
    arrays = {"row_count": pa.array([unit.row_count for unit in first], pa.int64())}
    for name, (data_type, units) in columns.items():
        for kind, kind_type in (("lower", data_type), ("upper", data_type), ("null_count", BIG), ("nan_count", BIG)):
            if kind != "nan_count" or pa.types.is_floating(data_type):
                values = [getattr(unit, kind) for unit in units]
                arrays[metadata_name(kind, (name,))] = pa.array(values, kind_type)
    return pa.record_batch(arrays)


def find_outcomes(where: str, columns: dict[str, tuple[pa.DataType, list[Unit]]]) -> list[str]:
    """Return the outcome for each unit: skipped, kept or fully matched."""
    schema = pa.schema([(name, data_type) for name, (data_type, _) in columns.items()])
    batch = make_batch(columns)
    conjuncts = make_predicate(where, schema, "t").conjuncts
    found = []
    answers = [
        [Evaluator(expr, absent_as_null=True)(batch).to_pylist() for expr in (each.keeps, each.fully_matches)]
        for each in conjuncts
    ]
    for index in range(batch.num_rows):
        kept = all(keeps[index] for keeps, _ in answers)
        fully_matched = all(matches[index] for _, matches in answers)
        found.append(SKIPPED if not kept else FULLY_MATCHED if fully_matched else KEPT)
    assert prune(batch, conjuncts).selection.to_pylist() == [each != SKIPPED for each in found]
    return found


def find_outcome(where: str, data_type: pa.DataType, unit: Unit) -> str:
    """Return the outcome for one unit whose only column is `x`."""
    (found,) = find_outcomes(where, {"x": (data_type, [unit])})
    return found


def explain_unused(where: str, data_type: pa.DataType, *units: Unit) -> str | None:
    """Return the reason in the metrics of the first conjunct why it skipped nothing."""
    schema = pa.schema([("x", data_type)])
    pruned = prune(make_batch({"x": (data_type, list(units))}), make_predicate(where, schema, "t").conjuncts)
    first = pruned.outcomes[0]
    assert first.skipped == 0
    return first.unused_because
