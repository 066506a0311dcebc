"""Random predicates, said twice: as an expression of ours, and as SQL for the judge (DuckDB).

The judge sees each column in a plain form (`judge_column`): timestamps as nanoseconds since the epoch, floats as
doubles. So its answers depend neither on its own types and casts nor on our binding and coercion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from tamis import types
from tamis.expr.nodes import Call, Column, Expr, Literal

DAY = 86_400 * 10**9
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True)
class Said:
    """One predicate in two languages."""

    expr: Expr
    sql: str


INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
FLOATS = (pa.float32(), pa.float64())
DECIMALS = (pa.decimal128(5, 2), pa.decimal128(18, 4), pa.decimal128(38, 10))
TIMESTAMPS = tuple(pa.timestamp(unit, tz) for unit in NANOSECONDS for tz in (None, "UTC"))
PRIMITIVES = (
    *INTEGERS, *FLOATS, *DECIMALS, *TIMESTAMPS, pa.string(), pa.large_string(), pa.binary(), pa.bool_(), pa.date32(),
)  # fmt: skip


def values(data_type: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type in the physical form of literals: few distinct ones, so that they meet, and the extremes."""
    if pa.types.is_boolean(data_type):
        return st.booleans()
    if pa.types.is_integer(data_type):
        smallest, largest = types.integer_range(data_type)
        return st.one_of(
            st.integers(max(smallest, -5), min(largest, 20)),
            st.sampled_from([smallest, largest, largest - 1, smallest + 1, largest // 2 + 1]),
        )
    if pa.types.is_floating(data_type):
        return st.sampled_from(
            [0.0, -0.0, 1.0, -1.0, 2.5, 3.0, 0.5, 1e30, -1e30, math.inf, -math.inf, math.nan, 16777216.0]
        )
    if pa.types.is_decimal(data_type):
        limit = 10**data_type.precision - 1
        return st.one_of(st.integers(-300, 300), st.sampled_from([limit, -limit])).map(
            lambda unscaled: Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -data_type.scale))
        )
    if pa.types.is_date(data_type):
        return st.one_of(st.integers(-40, 40), st.sampled_from([-25567, 19785, 2932896, -719162]))
    if pa.types.is_timestamp(data_type):
        per_day = 86_400 * 10**9 // NANOSECONDS[data_type.unit]
        return st.one_of(
            st.integers(-5, 5),
            st.builds(lambda days, rest: days * per_day + rest, st.integers(-400, 20000), st.integers(-1, 1)),
        )
    if pa.types.is_binary(data_type):
        return st.sampled_from([b"", b"a", b"a\x00", b"ab", b"\xff", b"\xff\xff", b"b", b"\x80", b"ac"])
    return st.sampled_from(TEXTS)


TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "abd",
    "b",
    "a%",
    "a_c",
    "é",
    "éa",
    "zz",
    "Z",
    "\U0010ffff",
    "a\U0010ffff",
    "日本",
    "a\nb",
]
PATTERNS = [
    "a%",
    "ab%",
    "abc",
    "%",
    "%b",
    "a_c",
    "a_%",
    "_",
    "",
    "a\\%",
    "a\\%%",
    "é%",
    "\U0010ffff%",
    "%b%",
    "a%c",
    "日%",
]


def array_of(data_type: pa.DataType, physical: list[Any]) -> pa.Array:
    if pa.types.is_date(data_type):
        return pa.array(physical, pa.int32()).cast(data_type)
    return pa.array(physical, data_type)


def judge_column(values: pa.Array) -> pa.Array:
    """A column as the judge sees it."""
    data_type = values.type
    if pa.types.is_timestamp(data_type):
        counts = values.cast(pa.int64())
        return pc.multiply_checked(counts, pa.scalar(NANOSECONDS[data_type.unit], pa.int64())).cast(
            pa.decimal128(38, 0)
        )
    if pa.types.is_floating(data_type):
        return values.cast(pa.float64())
    if pa.types.is_large_string(data_type):
        return values.cast(pa.string())
    return values


def judge_literal(value: Any, data_type: pa.DataType) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        text = "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf") if math.isinf(value) else repr(value)
        return f"CAST('{text}' AS DOUBLE)"
    if isinstance(value, Decimal):
        return f"CAST('{value:f}' AS DECIMAL(38, {max(0, -value.as_tuple().exponent)}))"
    if isinstance(value, bytes):
        return "CAST('" + "".join(f"\\x{byte:02x}" for byte in value) + "' AS BLOB)"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if pa.types.is_timestamp(data_type):
        return f"CAST({value * NANOSECONDS[data_type.unit]} AS DECIMAL(38, 0))"
    if pa.types.is_date(data_type):
        return f"(DATE '1970-01-01' + {value})"
    return f"CAST({value} AS HUGEINT)"


def _name(path: tuple[str, ...]) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in path)


OPERATORS = {"=": "=", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "<=>": "IS NOT DISTINCT FROM"}


@st.composite
def comparisons(draw: st.DrawFn, columns: dict[tuple[str, ...], pa.DataType]) -> Said:
    path = draw(st.sampled_from(sorted(columns)))
    data_type = columns[path]
    operator = draw(st.sampled_from(sorted(OPERATORS)))
    value = draw(values(data_type))
    expr: Expr = Call(operator, (Column(path), Literal(value, data_type)))
    sql = f"{_name(path)} {OPERATORS[operator]} {judge_literal(value, data_type)}"
    if draw(st.booleans()) and operator != "<=>":
        mirrored = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}[operator]
        expr = Call(mirrored, (Literal(value, data_type), Column(path)))
    return Said(expr, sql)


@st.composite
def odd_literals(draw: st.DrawFn, columns: dict[tuple[str, ...], pa.DataType]) -> Said:
    """A number that the column's type may not have: a fraction, or one beyond its range."""
    path = draw(st.sampled_from(sorted(path for path, each in columns.items() if pa.types.is_integer(each))))
    operator = draw(st.sampled_from(sorted(OPERATORS)))
    value = draw(
        st.sampled_from([Decimal("2.5"), Decimal("-0.5"), Decimal("300.25"), Decimal(2**63), Decimal(-(2**40))])
    )
    digits = len(value.as_tuple().digits)
    literal = Literal(value, pa.decimal128(max(digits, 3), max(0, -value.as_tuple().exponent)))
    return Said(
        Call(operator, (Column(path), literal)),
        f"CAST({_name(path)} AS DECIMAL(38, 2)) {OPERATORS[operator]} CAST('{value}' AS DECIMAL(38, 2))",
    )


@st.composite
def memberships(draw: st.DrawFn, columns: dict[tuple[str, ...], pa.DataType]) -> Said:
    path = draw(st.sampled_from(sorted(columns)))
    data_type = columns[path]
    items = draw(st.lists(st.one_of(values(data_type), st.none()), min_size=1, max_size=4))
    literals = tuple(Literal(item, data_type if item is not None else types.NULL) for item in items)
    texts = ", ".join(judge_literal(item, data_type) for item in items)
    return Said(Call("in", (Column(path), *literals)), f"{_name(path)} IN ({texts})")


@st.composite
def null_tests(draw: st.DrawFn, columns: dict[tuple[str, ...], pa.DataType]) -> Said:
    path = draw(st.sampled_from(sorted(columns)))
    is_null = draw(st.booleans())
    return Said(
        Call("is_null" if is_null else "is_not_null", (Column(path),)),
        f"{_name(path)} IS {'' if is_null else 'NOT '}NULL",
    )


@st.composite
def betweens(draw: st.DrawFn, columns: dict[tuple[str, ...], pa.DataType]) -> Said:
    path = draw(st.sampled_from(sorted(columns)))
    data_type = columns[path]
    low, high = draw(values(data_type)), draw(values(data_type))
    expr = Call(
        "and",
        (
            Call(">=", (Column(path), Literal(low, data_type))),
            Call("<=", (Column(path), Literal(high, data_type))),
        ),
    )
    return Said(
        expr,
        f"({_name(path)} >= {judge_literal(low, data_type)} AND {_name(path)} <= {judge_literal(high, data_type)})",
    )


@st.composite
def patterns(draw: st.DrawFn, columns: dict[tuple[str, ...], pa.DataType]) -> Said:
    path = draw(st.sampled_from(sorted(path for path, each in columns.items() if types.is_text(each))))
    if draw(st.booleans()):
        prefix = draw(st.sampled_from(TEXTS))
        return Said(
            Call("startswith", (Column(path), Literal(prefix, types.STRING))),
            f"starts_with({_name(path)}, {judge_literal(prefix, types.STRING)})",
        )
    pattern = draw(st.sampled_from(PATTERNS))
    return Said(
        Call("like", (Column(path), Literal(pattern, types.STRING))),
        f"{_name(path)} LIKE {judge_literal(pattern, types.STRING)} ESCAPE '\\'",
    )


@st.composite
def column_pairs(draw: st.DrawFn, columns: dict[tuple[str, ...], pa.DataType]) -> Said:
    """Two columns of one type, or of two integer types."""
    left = draw(st.sampled_from(sorted(columns)))
    same = [
        path
        for path, each in columns.items()
        if each == columns[left] or (pa.types.is_integer(each) and pa.types.is_integer(columns[left]))
    ]
    right = draw(st.sampled_from(sorted(same)))
    operator = draw(st.sampled_from(sorted(OPERATORS)))
    sides = [_name(path) for path in (left, right)]
    if pa.types.is_integer(columns[left]):
        sides = [f"CAST({side} AS HUGEINT)" for side in sides]
    return Said(Call(operator, (Column(left), Column(right))), f"{sides[0]} {OPERATORS[operator]} {sides[1]}")


@st.composite
def functions(draw: st.DrawFn, columns: dict[tuple[str, ...], pa.DataType]) -> Said:
    """Monotone functions of a column, and some that are not."""
    path = draw(st.sampled_from(sorted(columns)))
    data_type, column, name = columns[path], Column(path), _name(path)
    operator = draw(st.sampled_from(sorted(OPERATORS)))
    made: tuple[Expr, str]
    if pa.types.is_integer(data_type) and not pa.types.is_uint64(data_type):
        if data_type.bit_width == 64:
            # Sums near the end of the range overflow, which is an error and not a row.
            return draw(comparisons({path: data_type}))
        number = draw(st.integers(-3, 3))
        constant = Literal(number, types.LONG)
        made = draw(
            st.sampled_from(
                [
                    (Call("+", (column, constant)), f"{name}::HUGEINT + {number}"),
                    (Call("-", (column, constant)), f"{name}::HUGEINT - {number}"),
                    (Call("-", (constant, column)), f"{number} - {name}::HUGEINT"),
                    (Call("*", (column, constant)), f"{name}::HUGEINT * {number}"),
                    (Call("negate", (column,)), f"-({name}::HUGEINT)"),
                    (Call("abs", (column,)), f"abs({name}::HUGEINT)"),
                    (Call("coalesce", (column, Literal(number, data_type))), f"coalesce({name}::HUGEINT, {number})")
                    if number >= 0
                    else (Call("negate", (column,)), f"-({name}::HUGEINT)"),
                    (
                        Call("case", (Call(">", (column, constant)), constant, Literal(7, types.LONG))),
                        f"CASE WHEN {name}::HUGEINT > {number} THEN {number} ELSE 7 END",
                    ),
                    (Call("cast", (column, Literal("double", types.STRING))), f"CAST({name} AS HUGEINT)"),
                ]
            )
        )
        value = draw(st.integers(-10, 20))
        return Said(
            Call(operator, (made[0], Literal(value, types.LONG))),
            f"({made[1]}) {OPERATORS[operator]} {value}",
        )
    if pa.types.is_floating(data_type):
        number = draw(st.sampled_from([0.5, -2.0, 3.0]))
        constant = Literal(number, types.DOUBLE)
        made = draw(
            st.sampled_from(
                [
                    (Call("+", (column, constant)), f"{name} + CAST({number} AS DOUBLE)"),
                    (Call("-", (constant, column)), f"CAST({number} AS DOUBLE) - {name}"),
                    (Call("*", (column, constant)), f"{name} * CAST({number} AS DOUBLE)"),
                ]
            )
        )
        value = draw(values(types.DOUBLE))
        return Said(
            Call(operator, (made[0], Literal(value, types.DOUBLE))),
            f"({made[1]}) {OPERATORS[operator]} {judge_literal(value, types.DOUBLE)}",
        )
    if pa.types.is_date(data_type) and draw(st.booleans()):
        unit = draw(st.sampled_from(["year", "quarter", "month", "week"]))
        moved = draw(st.sampled_from([0, 1, -31]))
        day = draw(st.integers(-40, 40))
        truncated = Call("trunc", (Call("+", (column, Literal(moved, types.LONG))), Literal(unit, types.STRING)))
        return Said(
            Call(operator, (truncated, Literal(day, types.DATE))),
            f"CAST(date_trunc('{unit}', {name} + {moved}) AS DATE) "
            f"{OPERATORS[operator]} {judge_literal(day, types.DATE)}",
        )
    if pa.types.is_date(data_type):
        made = draw(
            st.sampled_from(
                [
                    (Call("year", (column,)), f"year({name})"),
                    (Call("month", (column,)), f"month({name})"),
                    (Call("day", (column,)), f"day({name})"),
                ]
            )
        )
        value = draw(st.sampled_from([1969, 1970, 1, 2, 12, 31, 2024]))
        return Said(Call(operator, (made[0], Literal(value, types.LONG))), f"({made[1]}) {OPERATORS[operator]} {value}")
    if pa.types.is_timestamp(data_type) and draw(st.booleans()):
        days = draw(st.sampled_from([0, 1, -3]))
        sign = draw(st.sampled_from(["+", "-"]))
        interval = Literal((0, days, 3_600 * 10**9), types.INTERVAL)
        step = (days * DAY + 3_600 * 10**9) * (1 if sign == "+" else -1)
        value = draw(values(data_type))
        return Said(
            Call(operator, (Call(sign, (column, interval)), Literal(value, data_type))),
            f"({name} + {step}) {OPERATORS[operator]} {judge_literal(value, data_type)}",
        )
    if pa.types.is_timestamp(data_type):
        count = f"CAST({name} AS HUGEINT)"
        moment = f"(DATE '1970-01-01' + CAST(({count} - ((({count} % {DAY}) + {DAY}) % {DAY})) // {DAY} AS INTEGER))"
        made = draw(
            st.sampled_from(
                [
                    (Call("year", (column,)), f"year({moment})"),
                    (Call("month", (column,)), f"month({moment})"),
                    (Call("year", (Call("cast", (column, Literal("date", types.STRING))),)), f"year({moment})"),
                    (Call("year", (Call("date_trunc", (Literal("month", types.STRING), column)),)), f"year({moment})"),
                ]
            )
        )
        value = draw(st.sampled_from([1968, 1969, 1970, 1971, 2024, 1, 12]))
        return Said(Call(operator, (made[0], Literal(value, types.LONG))), f"({made[1]}) {OPERATORS[operator]} {value}")
    if types.is_text(data_type):
        length = draw(st.integers(0, 3))
        made = draw(
            st.sampled_from(
                [
                    (
                        Call("substring", (column, Literal(1, types.LONG), Literal(length, types.LONG))),
                        f"substring({name}, 1, {length})",
                    ),
                    (Call("lower", (column,)), f"lower({name})"),
                ]
            )
        )
        text = draw(st.sampled_from(TEXTS))
        return Said(
            Call(operator, (made[0], Literal(text, types.STRING))),
            f"({made[1]}) {OPERATORS[operator]} {judge_literal(text, types.STRING)}",
        )
    if pa.types.is_boolean(data_type):
        return Said(column, name)
    return draw(comparisons({path: data_type}))


def leaves(columns: dict[tuple[str, ...], pa.DataType]) -> st.SearchStrategy[Said]:
    kinds = [comparisons(columns), comparisons(columns), memberships(columns), null_tests(columns), betweens(columns),
             column_pairs(columns), functions(columns)]  # fmt: skip
    if any(types.is_text(each) for each in columns.values()):
        kinds.append(patterns(columns))
    if any(pa.types.is_integer(each) for each in columns.values()):
        kinds.append(odd_literals(columns))
    return st.one_of(kinds)


def predicates(columns: dict[tuple[str, ...], pa.DataType], depth: int = 5) -> st.SearchStrategy[Said]:
    """Nested AND, OR, NOT and IS NULL over the leaves, at most `depth` deep."""

    def nested(inner: st.SearchStrategy[Said]) -> st.SearchStrategy[Said]:
        several = st.lists(inner, min_size=2, max_size=3)
        return st.one_of(
            several.map(lambda parts: _joined("and", parts)),
            several.map(lambda parts: _joined("or", parts)),
            inner.map(lambda part: Said(Call("not", (part.expr,)), f"(NOT ({part.sql}))")),
            inner.map(lambda part: Said(Call("is_null", (part.expr,)), f"(({part.sql}) IS NULL)")),
        )

    found = leaves(columns)
    for _ in range(depth):
        found = st.one_of(leaves(columns), nested(found))
    return found


def _joined(operator: str, parts: list[Said]) -> Said:
    return Said(
        Call(operator, tuple(part.expr for part in parts)),
        "(" + f" {operator.upper()} ".join(f"({part.sql})" for part in parts) + ")",
    )
