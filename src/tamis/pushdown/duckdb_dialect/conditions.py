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
alone. In both, NaN is above all numbers and equal to itself, and -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tamis.errors import ExpressionError
from tamis.expr.bind import bind
from tamis.expr.evaluate import may_fail
from tamis.expr.literals import literal
from tamis.expr.nodes import Call, Column, Expr, Literal, and_, not_, or_
from tamis.pushdown.duckdb_dialect.constants import (
    Constant,
    NotPushable,
    cast_constant,
    is_cast_independent,
    is_text,
    read_cast_type,
    read_literal,
    read_stored_value,
    to_comparable_value,
)
from tamis.pushdown.duckdb_dialect.syntax import Block, Json, Reference, fold_name
from tamis.pushdown.scopes import Field

_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_NOT_DISTINCT_FROM": "<=>",
}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}


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

    `infer_interval_fields` returns the columns of a table, and None for other sources.
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
        self,
        block: Block,
        known: Mapping[Reference, Sequence[Field] | None],
        parameters: Mapping[str, Any],
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
        return Call(_MIRRORED[sign], (column, self._convert_constant(column, left)))

    def _convert_function(self, node: Json) -> _Pushed:
        name, arguments = node.get("function_name"), _get_arguments(node)
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
            case {"class": "CONSTANT", "value": {"is_null": False, "type": {"id": str() as kind} as given} as found}:
                return read_stored_value(kind, found.get("value"), given.get("type_info"))
            case {"class": "PARAMETER", "identifier": str() as name} if name in self._parameters:
                return Constant(self._parameters[name], is_typed=True)
            case {"class": "CAST", "try_cast": False, "child": {"class": "CONSTANT"} as child}:
                return cast_constant(self._read_constant(child), read_cast_type(node))
            case _:
                raise NotPushable


def _is_called(reference: Reference, source: Sequence[str]) -> bool:
    called = tuple(map(fold_name, reference.qualifier))
    return called[-len(source) :] == tuple(source)


def _get_arguments(node: Json) -> list[Json]:
    if "arguments" in node:
        return [each["expression"] for each in node["arguments"]]
    return list(node.get("children", ()))
