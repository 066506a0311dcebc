"""Conditions of a DuckDB query that a scan may test as well, because both mean the same by them.

They are copied into the scan and stay in the query. So a condition that is weaker than the written one is still right,
and one that is stronger would lose rows. What is taken over:

| condition                                             | where both agree                                            |
|-------------------------------------------------------|-------------------------------------------------------------|
| `=`, `<>`, `<`, `<=`, `>`, `>=`, `IS [NOT] DISTINCT`, | a plain column, and constants of its own family: whole      |
| `BETWEEN`, `IN (…)`                                   | numbers, decimals, doubles that no cast rounds, texts,      |
|                                                       | booleans, dates and timestamps in ISO form                  |
| `LIKE`, `^@`, `starts_with`                           | a text column, and a pattern without a backslash            |
| `IS NULL`, `IS NOT NULL`, a boolean column            | always                                                      |
| `AND`, `OR`, `NOT`                                    | as far as their operands; NOT only of what is taken whole   |

Everything else (casts and functions of columns, texts against numbers, collations, NULL in a list) stays in the query
alone. NaN is above all numbers and equal to itself, and -0.0 equals 0.0, in both.
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
    Unknown,
    cast_constant,
    is_text,
    keeps_order,
    literal_value,
    stored_value,
    type_of_cast,
    value_of_family,
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
class _Taken:
    """What is known of a condition. Each row that satisfies the condition satisfies `expr`."""

    expr: Expr
    is_whole: bool
    """Whether `expr` is TRUE, FALSE and NULL for the same rows as the condition."""


def conditions_of(
    block: Block, fields_of: Callable[[Reference], Sequence[Field] | None], parameters: Mapping[str, Any]
) -> dict[Reference, Expr]:
    """What the rows of tables in a SELECT must satisfy, so far as that is about one table alone.

    `fields_of` has the columns of a table, and None for what is no table.
    """
    known = {reference: fields_of(reference) for reference in block.references}
    found: dict[Reference, list[Expr]] = {}
    for condition in block.conditions:
        reader = _Reader(block, known, parameters)
        try:
            taken = reader.take(condition)
            (owner,) = reader.owners
            predicate = bind(taken.expr, _schema_of(known[owner] or ()))
        except (Unknown, ExpressionError, RecursionError, ValueError):
            # ValueError: it is about no table, or about several.
            continue
        if owner in block.filtered and not may_fail(predicate):
            found.setdefault(owner, []).append(predicate)
    return {reference: and_(*each) for reference, each in found.items()}


def _schema_of(fields: Sequence[Field]) -> pa.Schema:
    columns = ((_column_of(each), each.type) for each in fields)
    return pa.schema([(column.path[0], data_type) for column, data_type in columns if column is not None])


def _column_of(field: Field) -> Column | None:
    """The column of a plan that a field is, where its type is known."""
    value = field.value
    is_plain = isinstance(value, Column) and len(value.path) == 1 and field.type is not None
    return Column(value.path, type=field.type, exact=True) if is_plain and isinstance(value, Column) else None


class _Reader:
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

    def take(self, node: Json) -> _Taken:
        match node.get("type"):
            case "CONJUNCTION_AND":
                return self._all(node["children"])
            case "CONJUNCTION_OR":
                parts = [self.take(each) for each in node["children"]]
                return _Taken(or_(*(each.expr for each in parts)), all(each.is_whole for each in parts))
            case "OPERATOR_NOT":
                (inner,) = map(self.take, node["children"])
                if not inner.is_whole:
                    raise Unknown
                return _Taken(not_(inner.expr), is_whole=True)
            case "OPERATOR_IS_NULL" | "OPERATOR_IS_NOT_NULL" as kind:
                function = "is_null" if kind == "OPERATOR_IS_NULL" else "is_not_null"
                return _Taken(Call(function, (self._column(node["children"][0]),)), is_whole=True)
            case "COLUMN_REF":
                column = self._column(node)
                if column.type is None or not pa.types.is_boolean(column.type):
                    raise Unknown
                return _Taken(column, is_whole=True)
            case "COMPARE_DISTINCT_FROM":
                return _Taken(not_(self._compared("<=>", node["left"], node["right"])), is_whole=True)
            case str() as kind if kind in _COMPARISONS:
                return _Taken(self._compared(_COMPARISONS[kind], node["left"], node["right"]), is_whole=True)
            case "COMPARE_BETWEEN":
                return self._between(node)
            case "COMPARE_IN" | "COMPARE_NOT_IN" as kind:
                value, *items = node["children"]
                column = self._column(value)
                found = Call("in", (column, *(self._constant(column, each) for each in items)))
                return _Taken(found if kind == "COMPARE_IN" else not_(found), is_whole=True)
            case "FUNCTION":
                return self._function(node)
            case _:
                raise Unknown

    def _all(self, nodes: Sequence[Json]) -> _Taken:
        """A conjunction, of those parts that are understood."""
        found: list[_Taken] = []
        for node in nodes:
            before = set(self.owners)
            try:
                found.append(self.take(node))
            except Unknown:
                self.owners = before
        if not found:
            raise Unknown
        is_whole = len(found) == len(nodes) and all(each.is_whole for each in found)
        return _Taken(and_(*(each.expr for each in found)), is_whole)

    def _between(self, node: Json) -> _Taken:
        """Both bounds, or one where the type of the other, which DuckDB casts all three to, changes no answer."""
        column = self._column(node["input"])
        found: list[Expr] = []
        is_safe = True
        for sign, bound in ((">=", node["lower"]), ("<=", node["upper"])):
            try:
                value = self._constant(column, bound)
            except Unknown:
                continue
            found.append(Call(sign, (column, value)))
            is_safe = is_safe and keeps_order(column.type, value)
        if not found or (len(found) == 1 and not is_safe):
            raise Unknown
        return _Taken(and_(*found), is_whole=len(found) == 2)

    def _compared(self, sign: str, left: Json, right: Json) -> Expr:
        if left.get("type") == "COLUMN_REF":
            column = self._column(left)
            return Call(sign, (column, self._constant(column, right)))
        column = self._column(right)
        return Call(_MIRRORED[sign], (column, self._constant(column, left)))

    def _function(self, node: Json) -> _Taken:
        name, arguments = node.get("function_name"), _arguments(node)
        is_scalar = not (node.get("filter") or node.get("distinct") or node.get("schema") or node.get("catalog"))
        if name not in ("~~", "!~~", "^@", "starts_with") or len(arguments) != 2 or not is_scalar:
            raise Unknown
        column = self._column(arguments[0])
        if not is_text(column.type):
            raise Unknown
        pattern = self._constant(column, arguments[1])
        if "\\" in pattern.value:
            # It escapes what follows in Spark's patterns, and is a sign like others in DuckDB's.
            raise Unknown
        call = Call("like" if name in ("~~", "!~~") else "startswith", (column, pattern))
        return _Taken(not_(call) if name == "!~~" else call, is_whole=True)

    # --- Columns ------------------------------------------------------------------------------------------------------

    def _column(self, node: Json) -> Column:
        if node.get("type") != "COLUMN_REF":
            raise Unknown
        *source, name = map(fold_name, node["column_names"])
        if source:
            meant = [each for each in self._block.references if _is_called(each, source)]
            is_doubtful = source[-1] in self._block.other_sources or self._has_struct(source[0])
        else:
            meant = [each for each in self._block.references if self._find(each, name)]
            is_doubtful = name in self._block.merged or name in self._block.aliases
        # A source that is no table may have the name too: then DuckDB finds it ambiguous.
        if len(meant) != 1 or is_doubtful:
            raise Unknown
        (owner,) = meant
        found = self._find(owner, name)
        column = _column_of(found[0]) if len(found) == 1 else None
        if column is None:
            raise Unknown
        self.owners.add(owner)
        return column

    def _find(self, reference: Reference, name: str) -> list[Field]:
        return [each for each in self._known[reference] or () if fold_name(each.name) == name]

    def _has_struct(self, name: str) -> bool:
        """Whether `name.field` may be inside of a column."""
        return any(self._find(each, name) for each in self._block.references)

    # --- Constants ----------------------------------------------------------------------------------------------------

    def _constant(self, column: Column, node: Json) -> Literal:
        given = self._value(node)
        value = value_of_family(given, column.type)
        if value is None:
            raise Unknown
        return literal(value)

    def _value(self, node: Json) -> Constant:
        match node:
            case {"class": "CONSTANT", "literal": {"kind": str() as kind, "text": str() as text}}:
                return literal_value(kind, text)
            case {"class": "CONSTANT", "value": {"is_null": False, "type": {"id": str() as kind} as given} as found}:
                return stored_value(kind, found.get("value"), given.get("type_info"))
            case {"class": "PARAMETER", "identifier": str() as name} if name in self._parameters:
                return Constant(self._parameters[name], is_typed=True)
            case {"class": "CAST", "try_cast": False, "child": {"class": "CONSTANT"} as child}:
                return cast_constant(self._value(child), type_of_cast(node))
            case _:
                raise Unknown


def _is_called(reference: Reference, source: Sequence[str]) -> bool:
    called = tuple(map(fold_name, reference.called))
    return called[-len(source) :] == tuple(source)


def _arguments(node: Json) -> list[Json]:
    if "arguments" in node:
        return [each["expression"] for each in node["arguments"]]
    return list(node.get("children", ()))
