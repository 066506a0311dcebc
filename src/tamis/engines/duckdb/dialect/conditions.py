"""Predicate pushdown for DuckDB queries: the conditions that a scan evaluates as DuckDB does.

They are copied into the scan and stay in the query. So a weaker condition than the written one is still correct, while
a stronger one would lose rows. The following are pushed down:

| condition                                             | if                                                          |
|-------------------------------------------------------|-------------------------------------------------------------|
| `=`, `<>`, `<`, `<=`, `>`, `>=`, `IS [NOT] DISTINCT`, | a plain column is compared with constants of its own family:|
| `BETWEEN`, `IN (…)`                                   | integers, decimals, doubles that no cast rounds, strings,   |
|                                                       | booleans, dates and timestamps in ISO form                  |
| `LIKE`, `^@`, `starts_with`                           | a string column and a pattern without a backslash           |
| `IS NULL`, `IS NOT NULL`, a boolean column            | always                                                      |
| `AND`, `OR`, `NOT`                                    | their operands are; NOT only if its operand is exact        |

Everything else (casts and functions of columns, strings against numbers, collations, NULL in a list) stays in the query
alone. In a scan as in DuckDB, NaN is above all numbers and equal to itself, and -0.0 equals 0.0.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tamis.engines.duckdb.dialect.syntax import Block, Json, Reference, fold_name
from tamis.errors import ExpressionError
from tamis.expr.bind import bind
from tamis.expr.functions.table import may_fail, mirror
from tamis.expr.literals import literal
from tamis.expr.nodes import Call, Column, Expr, Literal, and_, not_, or_
from tamis.query.sql.scopes import Field

_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_NOT_DISTINCT_FROM": "<=>",
}


@dataclass(frozen=True, slots=True)
class _Pushed:
    """The part of a condition that is pushed down. Each row that satisfies the condition satisfies `expr`."""

    expr: Expr
    is_exact: bool
    """Whether `expr` is TRUE, FALSE and NULL for the same rows as the condition."""


def find_pushable_conditions(
    block: Block, fields_of: Callable[[Reference], Sequence[Field] | None], parameters: Mapping[str, Any]
) -> dict[Reference, Expr]:
    """Return for each table of a SELECT the predicate that its rows must satisfy, from conditions on that table alone.

    `fields_of` returns the columns of a table, and None for other sources.
    """
    known = {reference: fields_of(reference) for reference in block.references}
    found: dict[Reference, list[Expr]] = {}
    for condition in block.conditions:
        converter = _Converter(block, known, parameters)
        try:
            pushed = converter.convert(condition)
            (owner,) = converter.owners
            predicate = bind(pushed.expr, _make_schema(known[owner] or ()))
        except (NotPushable, ExpressionError, RecursionError, ValueError):
            # ValueError: the condition refers to no table, or to several.
            continue
        if owner in block.filtered and not may_fail(predicate):
            found.setdefault(owner, []).append(predicate)
    return {reference: and_(*each) for reference, each in found.items()}


def _make_schema(fields: Sequence[Field]) -> pa.Schema:
    columns = ((_as_column(each), each.type) for each in fields)
    return pa.schema([(column.path[0], data_type) for column, data_type in columns if column is not None])


def _as_column(field: Field) -> Column | None:
    """Return the plan column of a field; None if it is not a plain column of a known type."""
    value = field.value
    is_plain = isinstance(value, Column) and len(value.path) == 1 and field.type is not None
    return Column(value.path, type=field.type, exact=True) if is_plain and isinstance(value, Column) else None


class _Converter:
    def __init__(
        self, block: Block, known: Mapping[Reference, Sequence[Field] | None], parameters: Mapping[str, Any]
    ) -> None:
        self._block = block
        self._known = known
        self._parameters = parameters
        self.owners: set[Reference] = set()

    def convert(self, node: Json) -> _Pushed:
        match node.get("type"):
            case "CONJUNCTION_AND":
                return self._convert_all(node["children"])
            case "CONJUNCTION_OR":
                parts = [self.convert(each) for each in node["children"]]
                return _Pushed(or_(*(each.expr for each in parts)), all(each.is_exact for each in parts))
            case "OPERATOR_NOT":
                (inner,) = map(self.convert, node["children"])
                if not inner.is_exact:
                    raise NotPushable
                return _Pushed(not_(inner.expr), is_exact=True)
            case "OPERATOR_IS_NULL" | "OPERATOR_IS_NOT_NULL" as kind:
                function = "is_null" if kind == "OPERATOR_IS_NULL" else "is_not_null"
                return _Pushed(Call(function, (self._find_column(node["children"][0]),)), is_exact=True)
            case "COLUMN_REF":
                column = self._find_column(node)
                if column.type is None or not pa.types.is_boolean(column.type):
                    raise NotPushable
                return _Pushed(column, is_exact=True)
            case "COMPARE_DISTINCT_FROM":
                return _Pushed(not_(self._convert_comparison("<=>", node["left"], node["right"])), is_exact=True)
            case str() as kind if kind in _COMPARISONS:
                return _Pushed(self._convert_comparison(_COMPARISONS[kind], node["left"], node["right"]), is_exact=True)
            case "COMPARE_BETWEEN":
                return self._convert_between(node)
            case "COMPARE_IN" | "COMPARE_NOT_IN" as kind:
                value, *items = node["children"]
                column = self._find_column(value)
                found = Call("in", (column, *(self._convert_constant(column, each) for each in items)))
                return _Pushed(found if kind == "COMPARE_IN" else not_(found), is_exact=True)
            case "FUNCTION":
                return self._convert_function(node)
            case _:
                raise NotPushable

    def _convert_all(self, nodes: Sequence[Json]) -> _Pushed:
        """Convert a conjunction: the conjuncts that are supported."""
        found: list[_Pushed] = []
        for node in nodes:
            before = set(self.owners)
            try:
                found.append(self.convert(node))
            except NotPushable:
                self.owners = before
        if not found:
            raise NotPushable
        is_exact = len(found) == len(nodes) and all(each.is_exact for each in found)
        return _Pushed(and_(*(each.expr for each in found)), is_exact)

    def _convert_between(self, node: Json) -> _Pushed:
        """Convert both bounds, or only one if its result does not depend on the other's type. DuckDB casts all three
        values to a common type."""
        column = self._find_column(node["input"])
        found: list[Expr] = []
        is_safe = True
        for sign, bound in ((">=", node["lower"]), ("<=", node["upper"])):
            try:
                value = self._convert_constant(column, bound)
            except NotPushable:
                continue
            found.append(Call(sign, (column, value)))
            is_safe = is_safe and is_cast_independent(column.type, value)
        if not found or (len(found) == 1 and not is_safe):
            raise NotPushable
        return _Pushed(and_(*found), is_exact=len(found) == 2)

    def _convert_comparison(self, sign: str, left: Json, right: Json) -> Expr:
        if left.get("type") == "COLUMN_REF":
            column = self._find_column(left)
            return Call(sign, (column, self._convert_constant(column, right)))
        column = self._find_column(right)
        return mirror(Call(sign, (self._convert_constant(column, left), column)))

    def _convert_function(self, node: Json) -> _Pushed:
        name, arguments = node.get("function_name"), [each["expression"] for each in node.get("arguments", ())]
        is_scalar = not (node.get("filter") or node.get("distinct") or node.get("schema") or node.get("catalog"))
        if name not in ("~~", "!~~", "^@", "starts_with") or len(arguments) != 2 or not is_scalar:
            raise NotPushable
        column = self._find_column(arguments[0])
        if not is_text(column.type):
            raise NotPushable
        pattern = self._convert_constant(column, arguments[1])
        if "\\" in pattern.value:
            # A backslash escapes the next character in Spark's patterns, but is an ordinary one in DuckDB's.
            raise NotPushable
        call = Call("like" if name in ("~~", "!~~") else "startswith", (column, pattern))
        return _Pushed(not_(call) if name == "!~~" else call, is_exact=True)

    # --- Columns ------------------------------------------------------------------------------------------------------

    def _find_column(self, node: Json) -> Column:
        if node.get("type") != "COLUMN_REF":
            raise NotPushable
        *source, name = map(fold_name, node["column_names"])
        if source:
            meant = [each for each in self._block.references if _is_called(each, source)]
            is_doubtful = source[-1] in self._block.other_sources or self._has_struct(source[0])
        else:
            meant = [each for each in self._block.references if self._find_fields(each, name)]
            is_doubtful = name in self._block.merged or name in self._block.aliases
        # If another kind of source has the name too, DuckDB reports it as ambiguous.
        if len(meant) != 1 or is_doubtful:
            raise NotPushable
        (owner,) = meant
        found = self._find_fields(owner, name)
        column = _as_column(found[0]) if len(found) == 1 else None
        if column is None:
            raise NotPushable
        self.owners.add(owner)
        return column

    def _find_fields(self, reference: Reference, name: str) -> list[Field]:
        return [each for each in self._known[reference] or () if fold_name(each.name) == name]

    def _has_struct(self, name: str) -> bool:
        """Return whether `name.field` may be a field of a column."""
        return any(self._find_fields(each, name) for each in self._block.references)

    # --- Constants ----------------------------------------------------------------------------------------------------

    def _convert_constant(self, column: Column, node: Json) -> Literal:
        given = self._read_constant(node)
        value = to_comparable_value(given, column.type)
        if value is None:
            raise NotPushable
        return literal(value)

    def _read_constant(self, node: Json) -> Constant:
        match node:
            case {"class": "CONSTANT", "literal": {"kind": str() as kind, "text": str() as text}}:
                return read_literal(kind, text)
            case {"class": "PARAMETER", "identifier": str() as name} if name in self._parameters:
                return Constant(self._parameters[name], is_typed=True)
            case {"class": "CAST", "try_cast": False, "child": {"class": "CONSTANT"} as child}:
                return cast_constant(self._read_constant(child), read_cast_type(node))
            case _:
                raise NotPushable


def _is_called(reference: Reference, source: Sequence[str]) -> bool:
    called = tuple(map(fold_name, reference.qualifier))
    return called[-len(source) :] == tuple(source)


# --- Constants of a DuckDB query, and the values that columns of each type are compared with --------------------------
#
# A constant has a value only if DuckDB and a scan always agree: no cast of the column, no rounding of the constant, no
# string that is parsed as a number.

_EXACT_DIGITS = 15
"""An integer of this many digits is an exact double, and divided by a power of ten gives the nearest double."""
_EXACT_INTEGER = 2**53
_DECIMAL_DIGITS = 18

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant, and whether it has a type in DuckDB: a string without one is cast to the type of the column."""

    value: Any
    is_typed: bool


class NotPushable(Exception):
    """A condition that is not pushed down."""


def read_literal(kind: str, text: str) -> Constant:
    """Read a constant as DuckDB serialises it."""
    match kind:
        case "STRING":
            return Constant(text, is_typed=False)
        case "INTEGER":
            return Constant(int(text), is_typed=True)
        case "NUMERIC":
            is_double = not re.fullmatch(r"[+-]?\d*\.?\d*", text, re.ASCII)
            return Constant(float(text) if is_double else Decimal(text), is_typed=True)
        case "BOOLEAN" if text in ("true", "false"):
            return Constant(text == "true", is_typed=True)
        case _:
            raise NotPushable


def read_cast_type(node: Json) -> str:
    """Return the name of the type that a constant is cast to."""
    match node:
        case {"type_expr": {"type_name": str() as name, "children": []}}:
            return name.upper()
        case _:
            raise NotPushable


def cast_constant(given: Constant, target: str) -> Constant:
    """Cast a string to a type, if its format is unambiguous."""
    text = given.value
    if not isinstance(text, str) or given.is_typed:
        raise NotPushable
    match target:
        case "DATE" if _DATE.fullmatch(text):
            return Constant(date.fromisoformat(text), is_typed=True)
        case "TIMESTAMP" if _TIMESTAMP.fullmatch(text):
            return Constant(datetime.fromisoformat(text), is_typed=True)
        case "TIMESTAMPTZ" | "TIMESTAMP WITH TIME ZONE" if _TIMESTAMP.fullmatch(text):
            # The engine's time zone is UTC.
            return Constant(datetime.fromisoformat(text).replace(tzinfo=UTC), is_typed=True)
        case "BOOLEAN" if text in ("t", "f"):
            return Constant(text == "t", is_typed=True)
        case _:
            raise NotPushable


# --- Families of types ------------------------------------------------------------------------------------------------


def to_comparable_value(given: Constant, data_type: pa.DataType | None) -> Any:
    """Return the value that a column of a type is compared with; None if DuckDB and a scan might disagree."""
    value = given.value
    if data_type is None:
        return None
    if pa.types.is_boolean(data_type):
        return value if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if is_text(data_type):
        return value if isinstance(value, str) else None
    if pa.types.is_date32(data_type):
        return _as_date(given)
    if pa.types.is_timestamp(data_type):
        return _as_timestamp(given, data_type)
    if pa.types.is_integer(data_type):
        return _as_number(value)
    if pa.types.is_decimal128(data_type):
        number = _as_number(value)
        return number if number is None or _get_scale(number) <= data_type.scale else None
    if pa.types.is_float64(data_type):
        return _as_double(value)
    if pa.types.is_float32(data_type):
        double = _as_double(value)
        return double if double is not None and _is_exact_float(double) else None
    return None


def _is_exact_float(double: float) -> bool:
    """Return whether a double is exactly a float, so that comparing either type gives the same result."""
    return abs(double) < 1e30 and bool(struct.unpack("f", struct.pack("f", double))[0] == double)


def is_cast_independent(data_type: pa.DataType | None, value: Literal) -> bool:
    """Return whether a comparison with a value has the same result in any type that DuckDB may cast the column to."""
    if data_type is None:
        return False
    if pa.types.is_integer(data_type):
        return isinstance(value.value, int) and abs(value.value) <= _EXACT_INTEGER
    return bool(pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type) or pa.types.is_floating(data_type))


def is_text(data_type: pa.DataType | None) -> bool:
    return data_type is not None and (pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _as_number(value: Any) -> int | Decimal | None:
    match value:
        case int() if -(2**63) <= value < 2**63:
            return value
        case Decimal() if value.is_finite() and _count_digits(value) <= _DECIMAL_DIGITS:
            return value
        case _:
            return None


def _count_digits(value: Decimal) -> int:
    found = value.as_tuple()
    assert isinstance(found.exponent, int)
    return max(len(found.digits), -found.exponent) if found.exponent <= 0 else len(found.digits) + found.exponent


def _get_scale(value: int | Decimal) -> int:
    exponent = Decimal(value).as_tuple().exponent
    assert isinstance(exponent, int)
    return max(0, -exponent)


def _as_double(value: Any) -> float | None:
    match value:
        case float() if math.isfinite(value):
            return value
        case int() if abs(value) <= _EXACT_INTEGER:
            return float(value)
        case Decimal() if value.is_finite() and _count_digits(value) <= _EXACT_DIGITS:
            return float(value)
        case _:
            return None


def _as_date(given: Constant) -> date | None:
    match given.value:
        case str() as text if not given.is_typed and _DATE.fullmatch(text):
            return date.fromisoformat(text)
        case datetime():
            return None
        case date() as value:
            return value
        case _:
            return None


def _as_timestamp(given: Constant, data_type: pa.DataType) -> datetime | None:
    if data_type.unit != "us":
        # DuckDB has a type for each unit, and casts between them.
        return None
    value = given.value
    if isinstance(value, str) and not given.is_typed and _TIMESTAMP.fullmatch(value):
        value = datetime.fromisoformat(value)
        return value if data_type.tz is None else value.replace(tzinfo=UTC)
    if isinstance(value, date) and not isinstance(value, datetime) and data_type.tz is None:
        return datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime) or (value.tzinfo is None) != (data_type.tz is None):
        return None
    return value
