"""An ExpressionHandler that evaluates with DuckDB: the same contract as the Arrow handler, and nothing of its code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from functools import cache

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import EvaluationError
from tamis.expr.functions.table import type_of
from tamis.expr.nodes import Call, Column, Expr, Literal, fold, get_operands


class DuckdbHandler:
    """Evaluates predicates with DuckDB, and counts its evaluators."""

    def __init__(self) -> None:
        self.compiled: list[Expr] = []

    def create_selection_vector(self, booleans: Sequence[bool] | pa.BooleanArray) -> pa.BooleanArray:
        return pa.array(booleans, pa.bool_())

    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> DuckdbEvaluator:
        self.compiled.append(predicate)
        return DuckdbEvaluator(schema, predicate)


class DuckdbEvaluator:
    def __init__(self, schema: pa.Schema, predicate: Expr) -> None:
        self._sql = to_duckdb(predicate, schema)

    def eval(self, batch: pa.RecordBatch, selection: pa.BooleanArray | None = None) -> pa.BooleanArray:
        if not batch.num_rows:
            return pa.array([], pa.bool_())
        rows = pa.array(range(batch.num_rows), pa.int64())
        given = pa.table([*batch.columns, rows], names=[*batch.schema.names, "__row"])
        # Pages of several files are planned in several threads.
        with _connect().cursor() as connection:
            connection.register("given", given)
            try:
                found = connection.execute(f"SELECT coalesce({self._sql}, FALSE) FROM given ORDER BY __row").fetchall()
            except (duckdb.OutOfRangeException, duckdb.ConversionException, duckdb.InvalidInputException) as error:
                raise EvaluationError(str(error)) from error
        is_true = pa.array([value for (value,) in found], pa.bool_())
        return is_true if selection is None else pc.and_(selection, is_true)


@cache
def _connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    # Strings over the same sub-expression are long, and DuckDB 2.0 turns -x < NaN into FALSE when it optimises.
    connection.execute("PRAGMA disable_optimizer")
    connection.execute("SET max_expression_depth TO 100000")
    return connection


_SQL_TYPES = {
    "tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT", "float": "FLOAT",
    "double": "DOUBLE", "string": "VARCHAR", "date": "DATE", "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP",
    "boolean": "BOOLEAN", "binary": "BLOB"
}  # fmt: skip


def _to_sql_type(data_type: pa.DataType) -> str:
    name = types.type_name(data_type)
    return name.upper() if name.startswith("decimal") else _SQL_TYPES[name]


def _to_literal(literal: Literal) -> str:
    value, data_type = literal.value, literal.type
    if pa.types.is_null(data_type):
        return "NULL"
    if value is None:
        return f"CAST(NULL AS {_to_sql_type(data_type)})"
    if pa.types.is_interval(data_type):
        months, days, nanoseconds = value
        return f"(to_months({months}) + to_days({days}) + to_microseconds({nanoseconds // 1000}))"
    if isinstance(value, float):
        text = "nan" if math.isnan(value) else repr(value)
        return f"CAST('{text}' AS {_to_sql_type(data_type)})"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return "CAST('" + "".join(f"\\x{byte:02x}" for byte in value) + "' AS BLOB)"
    if pa.types.is_date(data_type):
        return f"CAST(DATE '1970-01-01' + CAST({value} AS INTEGER) AS DATE)"
    if pa.types.is_timestamp(data_type):
        micros = value * 1_000_000 // types.UNITS_PER_SECOND[data_type.unit]
        return f"make_timestamp(CAST({micros} AS BIGINT))" + ("::TIMESTAMPTZ" if data_type.tz else "")
    if isinstance(value, Decimal):
        return f"CAST('{value:f}' AS {_to_sql_type(data_type)})"
    return f"CAST('{value}' AS {_to_sql_type(data_type)})"


def to_duckdb(predicate: Expr, schema: pa.Schema) -> str:
    """Return a predicate over batches of a schema as SQL of DuckDB. A column that the schema lacks is NULL."""

    def combine(node: Expr, args: tuple[str, ...]) -> str:
        match node:
            case Column(path=path, type=data_type):
                if path[0] not in schema.names:
                    return _to_literal(Literal(None, data_type or types.NULL))
                return ".".join('"' + part.replace('"', '""') + '"' for part in path)
            case Literal():
                return _to_literal(node)
            case Call():
                return f"({_call(node, args)})"

    return fold(predicate, combine)


def _call(call: Call, args: tuple[str, ...]) -> str:
    match call.function:
        case "and" | "or":
            return f" {call.function.upper()} ".join(args)
        case "not":
            return f"NOT {args[0]}"
        case "=" | "<>" | "<" | "<=" | ">" | ">=":
            return f"{args[0]} {call.function} {args[1]}"
        case "<=>":
            return f"{args[0]} IS NOT DISTINCT FROM {args[1]}"
        case "is_null":
            return f"{args[0]} IS NULL"
        case "is_not_null":
            return f"{args[0]} IS NOT NULL"
        case "coalesce":
            return f"coalesce({', '.join(args)})"
        case "case":
            pairs = zip(args[:-1:2], args[1::2], strict=True)
            return "CASE " + " ".join(f"WHEN {when} THEN {then}" for when, then in pairs) + f" ELSE {args[-1]} END"
        case "in":
            items = [_to_literal(item) for item in _literals(call, 1)]
            return " OR ".join(f"{args[0]} = {item}" for item in items)
        case "any_between":
            items = [_to_literal(item) for item in _literals(call, 2)]
            inside = " OR ".join(f"({args[0]} <= {item} AND {args[1]} >= {item})" for item in items)
            return f"CASE WHEN {args[0]} IS NOT NULL AND {args[1]} IS NOT NULL THEN {inside} END"
        case "startswith" | "endswith" | "contains" if types.is_bytes(type_of(call.args[0]) or types.NULL):
            value, fragment = (f"hex({each})" for each in args)
            return f"{_TEXT_TESTS[call.function]}({value}, {fragment})"
        case "startswith" | "endswith" | "contains":
            return f"{_TEXT_TESTS[call.function]}({args[0]}, {args[1]})"
        case "like":
            return f"{args[0]} LIKE {args[1]} ESCAPE {args[2] if len(args) > 2 else chr(39) + chr(92) + chr(39)}"
        case "substring" | "lower" | "upper":
            return f"{call.function}({', '.join(args)})"
        case "length":
            return f"CAST(length({args[0]}) AS BIGINT)"
        case "+" | "-" | "*":
            return _calculate(call, args)
        case "negate":
            return f"-({_widen(call, args[0])})"
        case "abs":
            return f"abs({_widen(call, args[0])})"
        case "year" | "month" | "day" | "hour" | "minute":
            return f"CAST({call.function}({args[0]}) AS BIGINT)"
        case "date_trunc":
            return f"CAST(date_trunc({args[0]}, {args[1]}) AS TIMESTAMP)"
        case "trunc":
            return f"CAST(date_trunc({args[1]}, {args[0]}) AS DATE)"
        case "cast":
            return f"CAST({args[0]} AS {_to_sql_type(_known_type(call))})"
        case "try_cast":
            return f"TRY_CAST({args[0]} AS {_to_sql_type(_known_type(call))})"
        case "element_at":
            return f"{args[0]}[{args[1]}]"
        case "partition_value":
            return f"CAST(nullif({args[0]}, '') AS {_to_sql_type(_known_type(call))})"
        case other:
            raise NotImplementedError(f"{other} of {call}")


_TEXT_TESTS = {"startswith": "starts_with", "endswith": "ends_with", "contains": "contains"}


def _literals(call: Call, start: int) -> list[Literal]:
    assert len(get_operands(call)) == start
    return [item for item in call.args[start:] if isinstance(item, Literal)]


def _known_type(call: Call) -> pa.DataType:
    found = type_of(call)
    assert found is not None, call
    return found


def _widen(call: Call, value: str) -> str:
    data_type = _known_type(call)
    if pa.types.is_decimal(data_type):
        return value
    return f"CAST({value} AS {'DOUBLE' if pa.types.is_floating(data_type) else 'BIGINT'})"


def _calculate(call: Call, args: tuple[str, ...]) -> str:
    data_type = _known_type(call)
    if any(pa.types.is_interval(type_of(arg) or types.NULL) for arg in call.args):
        return f"CAST({args[0]} {call.function} {args[1]} AS {_to_sql_type(data_type)})"
    if pa.types.is_date(data_type):
        return f"CAST({args[0]} {call.function} CAST({args[1]} AS INTEGER) AS DATE)"
    if pa.types.is_decimal(data_type):
        return f"CAST({args[0]} {call.function} {args[1]} AS {_to_sql_type(data_type)})"
    left, right = (_widen(call, each) for each in args)
    return f"{left} {call.function} {right}"
