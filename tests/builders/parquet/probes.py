"""Predicates made from the values of a file, and scans of it compared with the oracle over a full read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import tamis
from builders.answers.oracle import evaluate_predicate
from builders.answers.same_rows import has_same_rows
from builders.parquet.files import read_file
from builders.values.by_type import to_oracle_literal
from builders.values.predicates import OPERATORS, OraclePredicate
from tamis import types
from tamis.expr.evaluate import to_physical_value
from tamis.expr.nodes import Call, Literal, Name, find_columns, not_

_ORACLE_TYPES = (
    pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_date32,
    pa.types.is_timestamp, types.is_text, types.is_bytes,
)  # fmt: skip


def list_leaf_paths(schema: pa.Schema) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """Yield the columns with one value a row, fields of structs included."""
    stack = [((field.name,), field.type) for field in reversed(list(schema))]
    while stack:
        path, data_type = stack.pop()
        if pa.types.is_struct(data_type):
            stack.extend(((*path, field.name), field.type) for field in reversed(list(data_type)))
        else:
            yield path, data_type


def make_probes(rows: pa.Table, names: Collection[str] | None = None) -> Iterator[OraclePredicate]:
    """Yield for every column comparisons with its middle and largest value, lists of them, and NULL tests."""
    for path, data_type in list_leaf_paths(rows.schema):
        if pa.types.is_nested(data_type) or (names is not None and path[0] not in names):
            continue
        column = Name(path)
        name = ".".join(f'"{part}"' for part in path)
        yield OraclePredicate(Call("is_null", (column,)), f"{name} IS NULL")
        yield OraclePredicate(Call("is_not_null", (column,)), f"{name} IS NOT NULL")
        pivots = _choose_pivots(rows, path) if any(holds(data_type) for holds in _ORACLE_TYPES) else []
        if not pivots:
            continue
        literals = [Literal(value, data_type) for value in pivots]
        texts = [to_oracle_literal(value, data_type) for value in pivots]
        for ours, at in (("=", 0), ("<", 0), (">=", 0), ("<>", -1), ("<=", -1), (">", 0), ("<=>", -1)):
            yield OraclePredicate(Call(ours, (column, literals[at])), f"{name} {OPERATORS[ours]} {texts[at]}")
        listed = Call("in", (column, *literals))
        yield OraclePredicate(listed, f"{name} IN ({', '.join(texts)})")
        yield OraclePredicate(not_(listed), f"NOT ({name} IN ({', '.join(texts)}))")
        yield OraclePredicate(
            Call("and", (Call(">=", (column, literals[0])), Call("<=", (column, literals[-1])))),
            f"{name} >= {texts[0]} AND {name} <= {texts[-1]}",
        )


def _choose_pivots(rows: pa.Table, path: tuple[str, ...]) -> list[Any]:
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
    return [to_physical_value(ordered[index]) for index in (len(ordered) // 2, len(ordered) - 1)]


def check_file(path: Path, names: Collection[str] | None = None) -> int:
    """Scan a file with every probe, compare its rows with the oracle's, and return the number of skipped row groups."""
    full = read_file(path)
    table = tamis.open(path)
    oracle_rows = _select_oracle_columns(full)
    skipped = 0
    for number, predicate in enumerate(make_probes(full, names)):
        answers = pa.array([answer is True for answer in evaluate_predicate(oracle_rows, predicate.sql)], pa.bool_())
        name = find_columns(predicate.expr)[0].path[0]
        scan = table.scan(predicate.expr, columns=[f"`{name}`"])
        assert has_same_rows(scan.to_arrow(), full.select([name]).filter(answers)), predicate.sql
        if number % 5 == 0:
            assert table.scan(predicate.expr).count() == answers.true_count, predicate.sql
        report = scan.report
        assert report is not None
        (level,) = (level for level in report.to_dict()["levels"] if level["level"] == "row_groups")
        skipped += level["total"] - level["kept"]
    return skipped


def _select_oracle_columns(rows: pa.Table) -> pa.Table:
    """Return columns that the oracle can read: booleans stand for types that only have NULL tests."""
    kept = {}
    for field in rows.schema:
        column = rows[field.name].combine_chunks()
        if pa.types.is_time(field.type) or pa.types.is_duration(field.type) or pa.types.is_null(field.type):
            column = pc.if_else(pc.is_valid(column), True, pa.scalar(None, pa.bool_()))
        kept[field.name] = column
    return pa.table(kept)
