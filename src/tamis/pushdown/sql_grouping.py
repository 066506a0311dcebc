"""Aggregation in a query: grouping keys, aggregate calls, and expressions over both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from tamis import types
from tamis.errors import TypeMismatch
from tamis.expr.functions import type_of
from tamis.expr.nodes import Column, Expr, find_columns, fold, get_operands, replace_args
from tamis.pushdown.nodes import AggregateCall, Named
from tamis.pushdown.scopes import Field, QueryTime, Scope, UnsupportedSql, make_column_tree, make_hidden_name
from tamis.pushdown.sql_functions import is_aggregate
from tamis.pushdown.symbols import ColumnIds, is_deterministic
from tamis.types import is_number


def has_aggregates(tree: exp.Select) -> bool:
    """Return whether a SELECT aggregates."""
    if tree.args.get("group") is not None or tree.args.get("having") is not None:
        return True
    order = tree.args.get("order")
    parts = [*tree.expressions, *(order.expressions if order is not None else ())]
    return any(_find_calls(part) for part in parts)


def _find_calls(tree: exp.Expr) -> list[exp.Expr]:
    """Return the aggregate calls in a tree, each with its FILTER."""
    found: list[exp.Expr] = []
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Query):
            continue
        is_filtered = isinstance(node, exp.Filter) and isinstance(node.this, exp.Anonymous)
        if is_filtered or (isinstance(node, exp.Anonymous) and is_aggregate(node.name)):
            found.append(node)
            continue
        stack += reversed(list(node.iter_expressions()))
    return found


class Grouping:
    """Collects the keys and calls of an Aggregate node while the expressions above it are resolved."""

    def __init__(self, scope: Scope, column_ids: ColumnIds, now: QueryTime) -> None:
        self._scope = scope
        self._column_ids = column_ids
        self._now = now
        self.keys: list[Named] = []
        self.calls: list[AggregateCall] = []
        self._key_columns: dict[Expr, Column] = {}
        self._beside: list[Field] = []

    def add_joined_values(self, fields: Sequence[Field]) -> None:
        """Add values that are joined to each group: those of scalar subqueries."""
        self._beside += fields

    def add_key(self, value: Expr, label: str) -> None:
        if value in self._key_columns:
            return
        if not find_columns(value) or not is_deterministic(value):
            raise UnsupportedSql("a grouping key that is constant or not deterministic")
        data_type = type_of(value)
        match value:
            case Column((column_id,)):
                pass
            case _:
                column_id = self._column_ids.allocate(label)
        self.keys.append(Named(column_id, value))
        self._key_columns[value] = Column((column_id,), type=data_type)

    def resolve(self, tree: exp.Expr, aliases: Sequence[Field]) -> Expr:
        """Return an expression over the groups."""
        root = exp.Paren(this=tree.copy())
        for call in _find_calls(root):
            call.replace(make_column_tree(make_hidden_name(self._add_call(call))))
        scope = self._scope.with_fields([*self._make_fields(), *self._beside]).with_aliases(aliases)
        return self.rewrite_over_groups(scope.resolve_expression(root.this, self._now))

    def _make_fields(self) -> list[Field]:
        """Return the columns of the groups under internal names."""
        keys = [(key.name, type_of(key.expr)) for key in self.keys]
        calls = [(call.name, call.type) for call in self.calls]
        return [Field.of(make_hidden_name(name), name, data_type) for name, data_type in (*keys, *calls)]

    def rewrite_over_groups(self, value: Expr) -> Expr:
        """Rewrite a value over the columns of the sources to one over the groups."""

        def combine(node: Expr, args: tuple[Expr, ...]) -> Expr:
            return self._key_columns.get(node) or replace_args(node, args)

        found = fold(value, combine, lambda node: () if node in self._key_columns else get_operands(node))
        known = {*(key.name for key in self.keys), *(call.name for call in self.calls)}
        known |= {field.value.path[0] for field in self._beside if isinstance(field.value, Column)}
        for column in find_columns(found):
            if column.path[0] not in known:
                raise UnsupportedSql(f"{column.name} is neither a key nor inside of an aggregate function")
        return found

    def _add_call(self, tree: exp.Expr) -> str:
        """Return the column id of a call, adding the call if it is new."""
        kept = None
        if isinstance(tree, exp.Filter):
            kept = self._scope.resolve_expression(tree.expression.this, self._now)
            tree = tree.this
        if not isinstance(tree, exp.Anonymous) or not is_aggregate(tree.name):
            raise UnsupportedSql("a FILTER of a function that is not an aggregate")
        function = tree.name.lower()
        given = tree.expressions
        distinct = len(given) == 1 and isinstance(given[0], exp.Distinct)
        if distinct:
            if given[0].args.get("on"):
                raise UnsupportedSql("DISTINCT ON")
            given = given[0].expressions
        if function == "count" and len(given) == 1 and isinstance(given[0], exp.Star) and not distinct:
            given = []
        if function == "count" and len(given) > 1:
            raise UnsupportedSql("a count of several columns")
        args = tuple(self._scope.resolve_expression(each, self._now) for each in given)
        wanted = AggregateCall("", function, args, distinct, kept, _infer_type(function, args))
        for known in self.calls:
            if replace(known, name="") == wanted:
                return known.name
        name = self._column_ids.allocate(function)
        self.calls.append(replace(wanted, name=name))
        return name


def has_map(data_type: pa.DataType | None) -> bool:
    """Return whether a type is a map or contains one."""
    if data_type is None:
        return False
    if pa.types.is_map(data_type):
        return True
    return any(has_map(data_type.field(index).type) for index in range(data_type.num_fields))


def refuse_maps(data_types: Sequence[pa.DataType | None], reason: str) -> None:
    """Raise if values that are compared contain a map, which has no order and no equality."""
    if any(map(has_map, data_types)):
        raise TypeMismatch(f"{reason}, and maps cannot be compared. Compare map_entries(m), or drop the column")


def _infer_type(function: str, args: Sequence[Expr]) -> pa.DataType | None:
    """Return the type that the embedded engine gives to an aggregate, if it is known."""
    first = type_of(args[0]) if args else None
    match function:
        case "count" | "count_if":
            return types.LONG
        case "min" | "max" | "any_value" | "first" | "last":
            return first
        case "sum" | "avg" if first is not None and pa.types.is_floating(first):
            return types.DOUBLE
        case "sum" if first is not None and pa.types.is_integer(first):
            return pa.decimal128(38, 0)
        case "sum" if first is not None and pa.types.is_decimal(first):
            return pa.decimal128(min(38, first.precision + 10), first.scale)
        case "avg" if first is not None and is_number(first):
            return types.DOUBLE
        case _:
            return None
