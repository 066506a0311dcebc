"""Predicates made from what a file holds, and scans of it compared with the judge over a full read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tamis
from builders.judge import truth
from builders.predicates import OPERATORS, Said, judge_literal
from tamis import types
from tamis.expr.evaluate import physical_value
from tamis.expr.nodes import Call, Column, Literal, not_

_JUDGED = (
    pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_date32,
    pa.types.is_timestamp, types.is_text, types.is_bytes,
)  # fmt: skip


def leaf_paths(schema: pa.Schema) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """The columns that hold one value a row, fields of structs included."""
    stack = [((field.name,), field.type) for field in reversed(list(schema))]
    while stack:
        path, data_type = stack.pop()
        if pa.types.is_struct(data_type):
            stack.extend(((*path, field.name), field.type) for field in reversed(list(data_type)))
        else:
            yield path, data_type


def probes(rows: pa.Table) -> Iterator[Said]:
    """For every column comparisons with its smallest, middle and largest value, lists of them, and tests for NULL."""
    for path, data_type in leaf_paths(rows.schema):
        column = Column(path)
        name = ".".join(f'"{part}"' for part in path)
        if pa.types.is_nested(data_type):
            continue
        yield Said(Call("is_null", (column,)), f"{name} IS NULL")
        yield Said(Call("is_not_null", (column,)), f"{name} IS NOT NULL")
        if not any(holds(data_type) for holds in _JUDGED):
            continue
        pivots = _pivots(rows, path)
        for value in pivots:
            literal, text = Literal(value, data_type), judge_literal(value, data_type)
            for ours, theirs in OPERATORS.items():
                yield Said(Call(ours, (column, literal)), f"{name} {theirs} {text}")
        if pivots:
            literals = [Literal(value, data_type) for value in pivots]
            listed = ", ".join(judge_literal(value, data_type) for value in pivots)
            yield Said(Call("in", (column, *literals)), f"{name} IN ({listed})")
            yield Said(not_(Call("in", (column, *literals))), f"NOT ({name} IN ({listed}))")
            low, high = literals[0], literals[-1]
            texts = [judge_literal(each.value, data_type) for each in (low, high)]
            yield Said(
                not_(Call("and", (Call(">=", (column, low)), Call("<=", (column, high))))),
                f"NOT ({name} >= {texts[0]} AND {name} <= {texts[1]})",
            )


def _pivots(rows: pa.Table, path: tuple[str, ...]) -> list[Any]:
    values = rows[path[0]].combine_chunks()
    for part in path[1:]:
        values = pc.struct_field(values, part)
    if pa.types.is_float16(values.type):
        values = values.cast(pa.float32())
    values = values.drop_null()
    if not len(values):
        return []
    if pa.types.is_boolean(values.type):
        return [False, True]
    ordered = values if pa.types.is_fixed_size_binary(values.type) else values.take(pc.sort_indices(values))
    picked = [physical_value(ordered[index]) for index in {0, len(ordered) // 2, len(ordered) - 1}]
    return list(dict.fromkeys(picked))


def check_file(path: Path, said: Iterator[Said] | list[Said] | None = None) -> int:
    """Scan a file with every probe and compare rows and counts with the judge's; how many row groups were skipped."""
    full = pq.ParquetFile(path).read()
    table = tamis.open(path)
    skipped = 0
    for each in probes(full) if said is None else said:
        answers = truth(_judged_columns(full), each.sql)
        expected = full.filter(pa.array([answer is True for answer in answers], pa.bool_()))
        scan = table.scan(each.expr)
        found = scan.to_arrow()
        assert repr(found.to_pylist()) == repr(expected.to_pylist()), each.sql
        assert table.scan(each.expr).count() == expected.num_rows, each.sql
        report = scan.report
        assert report is not None
        (level,) = (level for level in report.to_dict()["levels"] if level["level"] == "row_groups")
        skipped += level["total"] - level["kept"]
    return skipped


def _judged_columns(rows: pa.Table) -> pa.Table:
    """The columns that the judge can take; it is not asked for the others but for whether they are NULL."""
    kept = {}
    for field in rows.schema:
        column = rows[field.name].combine_chunks()
        if pa.types.is_time(field.type) or pa.types.is_duration(field.type) or pa.types.is_null(field.type):
            column = pc.if_else(pc.is_valid(column), True, pa.scalar(None, pa.bool_()))
        kept[field.name] = column
    return pa.table(kept)
