"""Predicates in two forms: as an expression of Tamis, and as SQL for the oracle (DuckDB).

The first half builds given predicates, for exhaustive tests; the second half draws random ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, cached_property
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from builders.values.by_type import (
    DAY,
    NANOSECONDS,
    PRIMITIVES,
    TEXTS,
    is_extreme,
    list_neighbours,
    list_special_values,
    list_values,
    make_array,
    to_oracle_literal,
    to_oracle_operands,
)
from builders.values.choices import Choices
from tamis import types
from tamis.expr.functions.table import mirror
from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Literal, Name, Unbound

# Tests that use Hypothesis strategies import all of them from here.
__all__ = ["PRIMITIVES", "OraclePredicate", "make_array", "to_oracle_literal", "predicates", "values"]

Path = tuple[str, ...]


@dataclass(frozen=True)
class OraclePredicate:
    """One predicate as an expression of Tamis and as SQL for the oracle."""

    expr: Unbound
    sql: str


OPERATORS = {"=": "=", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "<=>": "IS NOT DISTINCT FROM"}
PATTERNS = (
    "a%", "ab%", "abc", "%", "%b", "a_c", "a_%", "_", "", "a\\%", "a\\%%", "é%", "\ud7ff%", "\U0010ffff%", "%b%",
    "a%c", "日%", "a%b",
)  # fmt: skip
CONSTANTS = (OraclePredicate(TRUE, "TRUE"), OraclePredicate(FALSE, "FALSE"), OraclePredicate(NULL, "NULL::BOOLEAN"))


def to_sql_name(path: Path) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in path)


def make_comparison(
    path: Path, data_type: pa.DataType, operator: str, value: Any, literal_type: pa.DataType | None = None
) -> OraclePredicate:
    """Compare a column with a literal, of its own type or of another."""
    literal_type = literal_type or data_type
    literal = Literal(value, literal_type if value is not None else types.NULL)
    left, right = to_oracle_operands(to_sql_name(path), data_type, value, literal_type)
    return OraclePredicate(Call(operator, (Name(path), literal)), f"{left} {OPERATORS[operator]} {right}")


def make_list_test(path: Path, data_type: pa.DataType, items: Sequence[tuple[Any, pa.DataType]]) -> OraclePredicate:
    """Test a column against a list of typed literals. The SQL has one `=` for each item."""
    literals = tuple(Literal(item, own if item is not None else types.NULL) for item, own in items)
    if types.is_number(data_type) and any(isinstance(item, float) for item, _ in items):
        # With one double, all items are compared as doubles.
        items = [(item if item is None else float(item), types.DOUBLE) for item, _ in items]
    equal = (" = ".join(to_oracle_operands(to_sql_name(path), data_type, item, own)) for item, own in items)
    return OraclePredicate(Call("in", (Name(path), *literals)), "(" + " OR ".join(f"({each})" for each in equal) + ")")


def make_null_test(path: Path, *, is_null: bool) -> OraclePredicate:
    if is_null:
        return OraclePredicate(Call("is_null", (Name(path),)), f"{to_sql_name(path)} IS NULL")
    return OraclePredicate(Call("is_not_null", (Name(path),)), f"{to_sql_name(path)} IS NOT NULL")


def make_prefix_test(path: Path, prefix: str | bytes) -> OraclePredicate:
    name = to_sql_name(path)
    if isinstance(prefix, bytes):
        # DuckDB has prefix tests only for texts.
        sql = f"starts_with(hex({name}), '{prefix.hex().upper()}')"
        return OraclePredicate(Call("startswith", (Name(path), Literal(prefix, types.BINARY))), sql)
    return OraclePredicate(
        Call("startswith", (Name(path), Literal(prefix, types.STRING))),
        f"starts_with({name}, {to_oracle_literal(prefix, types.STRING)})",
    )


def make_like_test(path: Path, pattern: str, escape: str | None = None) -> OraclePredicate:
    given = [Literal(pattern, types.STRING)]
    if escape is not None:
        given.append(Literal(escape, types.STRING))
    return OraclePredicate(
        Call("like", (Name(path), *given)),
        f"{to_sql_name(path)} LIKE {to_oracle_literal(pattern, types.STRING)} "
        f"ESCAPE {to_oracle_literal(escape or chr(92), types.STRING)}",
    )


def make_column_comparison(left: Path, operator: str, right: Path, *, whole_numbers: bool = False) -> OraclePredicate:
    """Compare a column with another column."""
    sides = [f"CAST({to_sql_name(path)} AS HUGEINT)" if whole_numbers else to_sql_name(path) for path in (left, right)]
    return OraclePredicate(Call(operator, (Name(left), Name(right))), f"{sides[0]} {OPERATORS[operator]} {sides[1]}")


def combine_predicates(operator: str, parts: Sequence[OraclePredicate]) -> OraclePredicate:
    return OraclePredicate(
        Call(operator, tuple(part.expr for part in parts)),
        "(" + f" {operator.upper()} ".join(f"({part.sql})" for part in parts) + ")",
    )


def negate_predicate(part: OraclePredicate) -> OraclePredicate:
    return OraclePredicate(Call("not", (part.expr,)), f"(NOT ({part.sql}))")


def make_unknown_test(part: OraclePredicate) -> OraclePredicate:
    return OraclePredicate(Call("is_null", (part.expr,)), f"(({part.sql}) IS NULL)")


def make_known_test(part: OraclePredicate) -> OraclePredicate:
    return OraclePredicate(Call("is_not_null", (part.expr,)), f"(({part.sql}) IS NOT NULL)")


def compare_with_boolean(part: OraclePredicate, operator: str, value: bool) -> OraclePredicate:
    """Compare a predicate with TRUE or FALSE: `p = TRUE`, `p <> FALSE`, `p <=> TRUE`, …"""
    return OraclePredicate(
        Call(operator, (part.expr, TRUE if value else FALSE)),
        f"(({part.sql}) {OPERATORS[operator]} {to_oracle_literal(value, types.BOOLEAN)})",
    )


# --- Chosen at random -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A column that predicates test, and the values that it has; None if they are unknown."""

    path: Path
    type: pa.DataType
    seen: tuple[Any, ...] | None = None

    @cached_property
    def literals(self) -> tuple[Any, ...]:
        """The literals to compare with: values of the column, their neighbours, and other values of the type."""
        seen = self.seen or ()
        near = [each for value in seen for each in list_neighbours(value, self.type)]
        # Values of the column come up more often than the others.
        often = (*seen, *list_special_values(self.type)) * 3
        return (*often, *near, *list_values(self.type))

    @cached_property
    def is_extreme(self) -> bool:
        """Whether arithmetic on its values may overflow, which would be an error."""
        if not (pa.types.is_integer(self.type) or pa.types.is_timestamp(self.type)):
            return False
        if self.seen is None:
            return bool(pa.types.is_integer(self.type) and self.type.bit_width == 64)
        return any(is_extreme(value, self.type) for value in self.seen)


def draw_foreign_literal(choices: Choices, subject: Subject) -> tuple[Any, pa.DataType]:
    """Return a literal of another type: between two values of the column, outside them, or equal to one."""
    data_type = subject.type
    value = choices.one_of(subject.literals)
    if pa.types.is_integer(data_type):
        return choices.one_of(
            [
                (Decimal(value) + Decimal("0.5"), pa.decimal128(22, 1)),
                (Decimal(value), pa.decimal128(20, 0)),
                (float(value % 1000) + 0.5, types.DOUBLE),
                (choices.one_of([float("nan"), float("inf"), float("-inf")]), types.DOUBLE),
                (choices.one_of([-129, 128, 255, 256, 300, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63)]), types.LONG),
                (Decimal(2**64), pa.decimal128(20, 0)),
            ]
        )
    if pa.types.is_floating(data_type):
        return choices.one_of(
            [
                (0.1, types.DOUBLE),
                *([(each, types.DOUBLE) for each in list_neighbours(value, types.DOUBLE)] or [(value, types.DOUBLE)]),
                (Decimal("2.5"), pa.decimal128(2, 1)),
                (choices.one_of([0, 1, 3, -1, 2**53 + 1, 2**24 + 1]), types.LONG),
                (1e300, types.DOUBLE),
                (-1e300, types.DOUBLE),
            ]
        )
    if pa.types.is_decimal(data_type):
        if data_type.precision > 36:
            return choices.one_of([(1, types.LONG), (0.5, types.DOUBLE), (float("inf"), types.DOUBLE)])
        scale = data_type.scale
        half = Decimal((0, (5,), -scale - 1))
        return choices.one_of(
            [
                (value + half, pa.decimal128(data_type.precision + 2, scale + 1)),
                (value - half, pa.decimal128(data_type.precision + 2, scale + 1)),
                (choices.one_of([0, 1, -1, 10**10]), types.LONG),
                (choices.one_of([0.5, 1.0, 1.0009765625, float("nan"), float("-inf")]), types.DOUBLE),
            ]
        )
    if pa.types.is_date(data_type):
        unit = choices.one_of(["s", "us"])
        instant = value * DAY // NANOSECONDS[unit] + choices.one_of([0, 1, -1])
        return (instant, pa.timestamp(unit)) if abs(instant) < 2**62 else (value, data_type)
    if pa.types.is_timestamp(data_type):
        instant = value * NANOSECONDS[data_type.unit]
        other = choices.one_of(["ns", "us", "ms", "s"])
        count = instant // NANOSECONDS[other] + choices.one_of([0, 1, -1])
        if choices.flag(4):
            return max(-700_000, min(instant // DAY, 2_900_000)), types.DATE
        return (count, pa.timestamp(other, data_type.tz)) if abs(count) < 2**63 else (value, data_type)
    return value, data_type


def draw_literal(choices: Choices, subject: Subject) -> tuple[Any, pa.DataType]:
    if choices.flag(5):
        return draw_foreign_literal(choices, subject)
    return choices.one_of(subject.literals), subject.type


def draw_comparison(choices: Choices, subject: Subject) -> OraclePredicate:
    operator = choices.one_of(list(OPERATORS))
    value, literal_type = draw_literal(choices, subject)
    if choices.flag(25):
        value = None
    comparison = make_comparison(subject.path, subject.type, operator, value, literal_type)
    if choices.flag(4) and isinstance(comparison.expr, Call):
        return OraclePredicate(mirror(comparison.expr), comparison.sql)
    return comparison


def draw_list_test(choices: Choices, subject: Subject) -> OraclePredicate:
    items = [draw_literal(choices, subject) for _ in range(choices.number(1, 4))]
    if choices.flag(4):
        items.append((None, types.NULL))
    return make_list_test(subject.path, subject.type, items)


def draw_null_test(choices: Choices, subject: Subject) -> OraclePredicate:
    return make_null_test(subject.path, is_null=choices.flag())


def draw_bundle(choices: Choices, subject: Subject) -> OraclePredicate:
    """Return several comparisons of one column, which merge into ranges and lists, with few literals."""
    few = choices.some_of(subject.literals, 1, 2)
    parts = []
    for _ in range(choices.number(2, 4)):
        match choices.number(0, 3):
            case 0 | 1:
                parts.append(
                    make_comparison(subject.path, subject.type, choices.one_of(list(OPERATORS)), choices.one_of(few))
                )
            case 2:
                parts.append(draw_comparison(choices, subject))
            case _:
                parts.append(draw_list_test(choices, subject))
    return combine_predicates(choices.one_of(("and", "and", "or")), parts)


def draw_text_test(choices: Choices, subject: Subject) -> OraclePredicate:
    if types.is_bytes(subject.type):
        value = choices.one_of(subject.literals)
        return make_prefix_test(subject.path, value[: choices.number(0, 2)])
    match choices.number(0, 4):
        case 0 | 1:
            return make_prefix_test(subject.path, choices.one_of(subject.literals)[: choices.number(1, 3)])
        case 2:
            return make_like_test(subject.path, choices.one_of(PATTERNS))
        case 3:
            return make_like_test(subject.path, choices.one_of(["a!%", "a!_c", "a!%%", "%", "a%", "ab"]), "!")
        case _:
            fragment = choices.one_of(["a", "b", "", "é"])
            function, theirs = choices.one_of([("endswith", "ends_with"), ("contains", "contains")])
            return OraclePredicate(
                Call(function, (Name(subject.path), Literal(fragment, types.STRING))),
                f"{theirs}({to_sql_name(subject.path)}, {to_oracle_literal(fragment, types.STRING)})",
            )


def draw_column_comparison(choices: Choices, subject: Subject, subjects: Sequence[Subject]) -> OraclePredicate:
    """Compare two columns of one type, or of two integer types."""
    is_integer = pa.types.is_integer(subject.type)
    same = [each for each in subjects if each.type == subject.type or (is_integer and pa.types.is_integer(each.type))]
    other = choices.one_of(same)
    return make_column_comparison(subject.path, choices.one_of(list(OPERATORS)), other.path, whole_numbers=is_integer)


def draw_function(choices: Choices, subject: Subject) -> OraclePredicate:
    """Compare a function of a column, monotone or not, with a literal."""
    data_type = subject.type
    if subject.is_extreme or pa.types.is_uint64(data_type):
        return draw_comparison(choices, subject)
    if pa.types.is_boolean(data_type):
        return OraclePredicate(Name(subject.path), to_sql_name(subject.path))
    for holds, make in _FUNCTIONS:
        if holds(data_type):
            return make(choices, subject, choices.one_of(list(OPERATORS)))
    return draw_comparison(choices, subject)


def _draw_integer_function(choices: Choices, subject: Subject, operator: str) -> OraclePredicate:
    column, name = Name(subject.path), f"{to_sql_name(subject.path)}::HUGEINT"
    number = choices.number(-3, 3)
    constant = Literal(number, types.LONG)
    made: list[tuple[Unbound, str]] = [
        (Call("+", (column, constant)), f"{name} + {number}"),
        (Call("-", (column, constant)), f"{name} - {number}"),
        (Call("-", (constant, column)), f"{number} - {name}"),
        (Call("*", (column, constant)), f"{name} * {number}"),
        (Call("negate", (column,)), f"-({name})"),
        (Call("abs", (column,)), f"abs({name})"),
        (
            Call("case", (Call(">", (column, constant)), constant, Literal(7, types.LONG))),
            f"CASE WHEN {name} > {number} THEN {number} ELSE 7 END",
        ),
        (Call("cast", (column, Literal("double", types.STRING))), f"({name})::DOUBLE"),
        (Call("coalesce", (column, Literal(abs(number), subject.type))), f"coalesce({name}, {abs(number)})"),
    ]
    expr, sql = choices.one_of(made)
    near = [each + step for each in subject.seen or () for step in (0, number, -number)]
    value = choices.one_of([*near, *range(-10, 21)])
    return OraclePredicate(Call(operator, (expr, Literal(value, types.LONG))), f"({sql}) {OPERATORS[operator]} {value}")


def _draw_float_function(choices: Choices, subject: Subject, operator: str) -> OraclePredicate:
    column, name = Name(subject.path), to_sql_name(subject.path)
    number = choices.one_of([0.5, -2.0, 3.0, -0.0])
    constant, theirs = Literal(number, types.DOUBLE), f"CAST('{number}' AS DOUBLE)"
    made: list[tuple[Unbound, str]] = [
        (Call("+", (column, constant)), f"{name} + {theirs}"),
        (Call("-", (constant, column)), f"{theirs} - {name}"),
        (Call("*", (column, constant)), f"{name} * {theirs}"),
        (Call("negate", (column,)), f"-({name})"),
    ]
    expr, sql = choices.one_of(made)
    value = choices.one_of(list_values(types.DOUBLE))
    return OraclePredicate(
        Call(operator, (expr, Literal(value, types.DOUBLE))),
        f"({sql}) {OPERATORS[operator]} {to_oracle_literal(value, types.DOUBLE)}",
    )


def _draw_date_function(choices: Choices, subject: Subject, operator: str) -> OraclePredicate:
    column, name = Name(subject.path), to_sql_name(subject.path)
    if choices.flag():
        unit = choices.one_of(["year", "quarter", "month", "week"])
        moved = choices.one_of([0, 1, -31])
        day = choices.one_of(subject.literals)
        truncated = Call("trunc", (Call("+", (column, Literal(moved, types.LONG))), Literal(unit, types.STRING)))
        return OraclePredicate(
            Call(operator, (truncated, Literal(day, types.DATE))),
            f"CAST(date_trunc('{unit}', {name} + {moved}) AS DATE) "
            f"{OPERATORS[operator]} {to_oracle_literal(day, types.DATE)}",
        )
    return _compare_calendar_part(choices, [(part, column, name) for part in ("year", "month", "day")], operator)


def _draw_timestamp_function(choices: Choices, subject: Subject, operator: str) -> OraclePredicate:
    column, name = Name(subject.path), to_sql_name(subject.path)
    if choices.flag():
        days, sign = choices.one_of([0, 1, -3]), choices.one_of(["+", "-"])
        interval = Literal((0, days, 3_600 * 10**9), types.INTERVAL)
        step = (days * DAY + 3_600 * 10**9) * (1 if sign == "+" else -1)
        value = choices.one_of(subject.literals)
        return OraclePredicate(
            Call(operator, (Call(sign, (column, interval)), Literal(value, subject.type))),
            f"({name} + {step}) {OPERATORS[operator]} {to_oracle_literal(value, subject.type)}",
        )
    count = f"CAST({name} AS HUGEINT)"
    date = f"(DATE '1970-01-01' + CAST(({count} - ((({count} % {DAY}) + {DAY}) % {DAY})) // {DAY} AS INTEGER))"
    as_date = Call("cast", (column, Literal("date", types.STRING)))
    of_month = Call("date_trunc", (Literal("month", types.STRING), column))
    parts = [("year", column, date), ("month", column, date), ("year", as_date, date), ("year", of_month, date)]
    return _compare_calendar_part(choices, parts, operator)


def _compare_calendar_part(choices: Choices, parts: list[tuple[str, Unbound, str]], operator: str) -> OraclePredicate:
    part, value, date = choices.one_of(parts)
    number = choices.one_of([1968, 1969, 1970, 1971, 2024, 1, 2, 12, 31])
    return OraclePredicate(
        Call(operator, (Call(part, (value,)), Literal(number, types.LONG))),
        f"{part}({date}) {OPERATORS[operator]} {number}",
    )


def _draw_text_function(choices: Choices, subject: Subject, operator: str) -> OraclePredicate:
    column, name = Name(subject.path), to_sql_name(subject.path)
    length = choices.number(0, 3)
    made: list[tuple[Unbound, str]] = [
        (
            Call("substring", (column, Literal(1, types.LONG), Literal(length, types.LONG))),
            f"substring({name}, 1, {length})",
        ),
        (Call("lower", (column,)), f"lower({name})"),
    ]
    expr, sql = choices.one_of(made)
    text = choices.one_of(TEXTS)
    return OraclePredicate(
        Call(operator, (expr, Literal(text, types.STRING))),
        f"({sql}) {OPERATORS[operator]} {to_oracle_literal(text, types.STRING)}",
    )


_FUNCTIONS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Choices, Subject, str], OraclePredicate]], ...] = (
    (pa.types.is_integer, _draw_integer_function),
    (pa.types.is_floating, _draw_float_function),
    (pa.types.is_date, _draw_date_function),
    (pa.types.is_timestamp, _draw_timestamp_function),
    (types.is_text, _draw_text_function),
)


def draw_leaf(choices: Choices, subjects: Sequence[Subject]) -> OraclePredicate:
    subject = choices.one_of(subjects)
    match choices.number(0, 15):
        case 0 | 1 | 2 | 3 | 4:
            return draw_comparison(choices, subject)
        case 5 | 6:
            return draw_list_test(choices, subject)
        case 7:
            return draw_null_test(choices, subject)
        case 8 | 9:
            return draw_bundle(choices, subject)
        case 10 | 11:
            return draw_column_comparison(choices, subject, subjects)
        case 12 | 13 if types.is_text(subject.type) or types.is_bytes(subject.type):
            return draw_text_test(choices, subject)
        case 14 if choices.flag(4):
            return choices.one_of(CONSTANTS)
        case _:
            return draw_function(choices, subject)


def draw_predicate(choices: Choices, subjects: Sequence[Subject], depth: int = 5) -> OraclePredicate:
    """Return a tree of AND, OR, NOT, IS NULL and comparisons with TRUE and FALSE, at most `depth` deep."""
    if depth == 0 or not choices.flag():
        return draw_leaf(choices, subjects)
    match choices.number(0, 7):
        case 0 | 1 | 2 | 3:
            parts = [draw_predicate(choices, subjects, depth - 1) for _ in range(choices.number(2, 3))]
            return combine_predicates(choices.one_of(("and", "or")), parts)
        case 4:
            return make_unknown_test(draw_predicate(choices, subjects, depth - 1))
        case 5:
            return make_known_test(draw_predicate(choices, subjects, depth - 1))
        case 6:
            part = draw_predicate(choices, subjects, depth - 1)
            return compare_with_boolean(part, choices.one_of(["=", "<>", "<=>"]), choices.flag())
        case _:
            return negate_predicate(draw_predicate(choices, subjects, depth - 1))


# --- As strategies --------------------------------------------------------------------------------------------------


@cache
def values(data_type: pa.DataType) -> st.SearchStrategy[Any]:
    """Values on which no function of a predicate overflows, for columns whose values are unknown."""
    is_timestamp = pa.types.is_timestamp(data_type)
    return st.sampled_from(
        [each for each in list_values(data_type) if not (is_timestamp and is_extreme(each, data_type))]
    )


@st.composite
def predicates(draw: st.DrawFn, columns: dict[Path, pa.DataType], depth: int = 5) -> OraclePredicate:
    return draw_predicate(Choices(draw), [Subject(path, each) for path, each in columns.items()], depth)
