"""Scans of one file by pages, each compared with the oracle over a full read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import tamis
from builders.answers.oracle import evaluate_predicate
from builders.answers.same_rows import has_same_rows
from builders.parquet.files import read_file
from builders.parquet.probes import list_leaf_paths, make_probes
from builders.parquet.tuning import BY_PAGES
from builders.values.predicates import OraclePredicate, to_oracle_literal
from tamis import types
from tamis.expr.evaluate import to_physical_value
from tamis.expr.nodes import Call, Literal, Name, Unbound, find_columns, not_


def check_by_pages(
    path: Path, names: Collection[str] | None = None, every: int = 1, columns: list[str] | None = None
) -> Counter[str]:
    """Compare rows and counts for the probes of some columns, and return the number of skipped units of each level.

    One in `every` probes is tried, since there are many. All columns are read, unless some are named.
    """
    full = read_file(path)
    table = tamis.open(path, tuning=BY_PAGES)
    assert has_same_rows(table.scan().to_arrow(), full), path
    wanted = columns or full.column_names
    oracle_rows = select_oracle_columns(full)
    skipped: Counter[str] = Counter()
    for number, predicate in enumerate([*make_probes(full, names), *make_probes_beside(full, names)]):
        if number % every:
            continue
        is_true = pa.array([answer is True for answer in evaluate_predicate(oracle_rows, predicate.sql)], pa.bool_())
        tested = find_columns(predicate.expr)[0].path[0]
        read = list(dict.fromkeys([*wanted, tested]))
        scan = table.scan(predicate.expr, columns=[f"`{name}`" for name in read])
        assert has_same_rows(scan.to_arrow(), full.select(read).filter(is_true)), predicate.sql
        assert table.scan(predicate.expr).count() == is_true.true_count, predicate.sql
        assert scan.report is not None
        for level in scan.report.to_dict()["levels"]:
            skipped[level["level"]] += level["total"] - level["kept"]
    return skipped


def make_probes_beside(rows: pa.Table, names: Collection[str] | None = None) -> Iterator[OraclePredicate]:
    """Yield probes for absent values between and above those of a column, and for prefixes of texts."""
    for path, data_type in list_leaf_paths(rows.schema):
        if pa.types.is_nested(data_type) or (names is not None and path[0] not in names):
            continue
        found = _list_values(rows, path)
        if not found:
            continue
        column, name = Name(path), ".".join(f'"{part}"' for part in path)
        middle = found[len(found) // 2]
        absent = _make_absent_values(found, data_type)
        for value in absent:
            literal, text = Literal(value, data_type), to_oracle_literal(value, data_type)
            yield OraclePredicate(Call("=", (column, literal)), f"{name} = {text}")
            yield OraclePredicate(not_(Call("=", (column, literal))), f"NOT ({name} = {text})")
        if absent:
            for items in (absent, [*absent, middle]):
                texts = ", ".join(to_oracle_literal(value, data_type) for value in items)
                yield OraclePredicate(
                    Call("in", (column, *(Literal(value, data_type) for value in items))), f"{name} IN ({texts})"
                )
        if types.is_text(data_type):
            for prefix in dict.fromkeys((middle[:1], middle[:-1], middle + "\x01")):
                text = to_oracle_literal(prefix, types.STRING)
                starts: Unbound = Call("startswith", (column, Literal(prefix, types.STRING)))
                yield OraclePredicate(starts, f"starts_with({name}, {text})")
                yield OraclePredicate(not_(starts), f"NOT starts_with({name}, {text})")


def _list_values(rows: pa.Table, path: tuple[str, ...]) -> list[Any]:
    """Return the distinct values of a column in order, if absent values of its type can be made."""
    values = rows[path[0]].combine_chunks()
    for part in path[1:]:
        values = pc.struct_field(values, part)
    data_type = values.type
    if not (
        pa.types.is_integer(data_type)
        or pa.types.is_decimal(data_type)
        or pa.types.is_timestamp(data_type)
        or pa.types.is_date32(data_type)
        or types.is_text(data_type)
        or types.is_bytes(data_type)
    ):
        return []
    return sorted({to_physical_value(value) for value in values.drop_null()})


def _make_absent_values(found: list[Any], data_type: pa.DataType) -> list[Any]:
    """Return an absent value between those of a column, and one above them."""
    seen = set(found)
    middle, largest = found[len(found) // 2], found[-1]
    if types.is_text(data_type):
        between, beyond = middle + "\x00", largest + "z"
    elif types.is_bytes(data_type):
        if pa.types.is_fixed_size_binary(data_type):
            return []
        between, beyond = middle + b"\x00", largest + b"z"
    else:
        between = next((value + 1 for value in found if value + 1 not in seen and value < largest), None)
        beyond = largest + 1
    return [value for value in (between, beyond) if value is not None and _fits(value, data_type)]


def _fits(value: Any, data_type: pa.DataType) -> bool:
    try:
        pa.array([value], pa.int32() if pa.types.is_date(data_type) else data_type)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


def select_oracle_columns(rows: pa.Table) -> pa.Table:
    """Return columns that the oracle can read: booleans stand for types that only have NULL tests."""
    kept = {}
    for field in rows.schema:
        column = rows[field.name].combine_chunks()
        if pa.types.is_time(field.type) or pa.types.is_duration(field.type) or pa.types.is_null(field.type):
            column = pc.if_else(pc.is_valid(column), True, pa.scalar(None, pa.bool_()))
        elif pa.types.is_nested(field.type) and not pa.types.is_struct(field.type):
            continue
        kept[field.name] = column
    return pa.table(kept)
