"""Random aggregates over random tables, for Tamis and for the oracle (DuckDB)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from builders.values.by_type import to_oracle_column
from builders.values.choices import Choices
from builders.values.predicates import to_sql_name
from tamis.expr.nodes import Column
from tamis.scan.aggregation.measures import Measure, can_compare, can_group, can_sum


@dataclass(frozen=True)
class AggregateQuery:
    """An aggregation of measures by keys, with its SQL."""

    keys: tuple[Column, ...]
    measures: tuple[Measure, ...]

    @property
    def sql(self) -> str:
        keys = [to_sql_name(key.path) for key in self.keys]
        calls = [
            f"{each.function}({to_sql_name(each.column.path) if each.column is not None else '*'})"
            for each in self.measures
        ]
        grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
        return f"SELECT {', '.join([*keys, *calls])} FROM rows{grouped}"


def draw_aggregates(
    choices: Choices, schema: pa.Schema, key_names: list[str], *, only_extremes: bool
) -> AggregateQuery:
    columns = [Column((field.name,), type=field.type) for field in schema if not pa.types.is_struct(field.type)]
    for field in schema:
        if pa.types.is_struct(field.type):
            columns += [Column((field.name, each.name), type=each.type) for each in field.type]
    keys = [column for column in columns if column.name in key_names and can_group(column.type)]
    chosen = tuple(dict.fromkeys(choices.some_of(keys, 0, 2))) if keys and not only_extremes else ()
    measures: list[Measure] = [] if only_extremes or choices.flag(3) else [Measure("count")]
    for _ in range(choices.number(1, 3)):
        function = choices.one_of(("min", "max") if only_extremes else ("min", "max", "count", "sum"))
        column = choices.one_of(columns)
        if function == "count" or (can_compare(column.type) if function != "sum" else _has_exact_sum(column.type)):
            measures.append(Measure(function, column))
    return AggregateQuery(chosen, tuple(measures or [Measure("count")]))


def _has_exact_sum(data_type: pa.DataType | None) -> bool:
    """Return whether a sum does not depend on the order of rows."""
    return can_sum(data_type) and not pa.types.is_floating(data_type)


def aggregate_with_duckdb(rows: pa.Table, query: AggregateQuery) -> list[str]:
    """Return the result of the oracle, as sorted texts."""
    connection = _connect()
    connection.register("rows", pa.table({name: _to_plain(rows[name]) for name in rows.column_names}))
    try:
        return format_rows(connection.sql(query.sql).to_arrow_table())
    finally:
        connection.unregister("rows")


@cache
def _connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def format_rows(table: pa.Table) -> list[str]:
    """Return rows as sorted texts. Equal rows have equal texts: the zeros are equal, and so are NaNs."""
    columns = []
    for column in table.columns:
        values = _to_plain(column)
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.equal(values, 0.0), pa.scalar(0.0, values.type), values)
        if pa.types.is_integer(values.type) and not pa.types.is_uint64(values.type):
            values = values.cast(pa.int64())
        columns.append(values)
    return sorted(repr([values[row].as_py() if _has_value(values[row]) else None for values in columns])
                  for row in range(table.num_rows))  # fmt: skip


def _has_value(value: pa.Scalar) -> bool:
    return bool(value.is_valid)


def _to_plain(column: pa.ChunkedArray) -> pa.Array:
    values = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_struct(values.type):
        children = [_to_plain(pa.chunked_array([child])) for child in values.flatten()]
        return pa.StructArray.from_arrays(children, names=[field.name for field in values.type], mask=values.is_null())
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    return to_oracle_column(values)
