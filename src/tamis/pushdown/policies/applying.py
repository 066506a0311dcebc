"""Policies put into plans, below everything that the user asked for.

    TableScan(protects) ─▶ Filter(protects): which rows ─▶ Project(protects): what in place of columns

Row filters see raw values; masks are one projection after them, and see raw values too, so that no mask depends on
another. What is wrong with a policy is not told to whoever queries, since that could tell what it hides: it denies.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tamis.errors import AccessDenied, TamisError
from tamis.expr.bind import bind
from tamis.expr.builder import col
from tamis.expr.clock import stop_clocks
from tamis.expr.functions import type_of
from tamis.expr.literals import cast_literal
from tamis.expr.names import resolve
from tamis.expr.nodes import NULL, TRUE, Call, Column, Expr, Literal, and_, transform
from tamis.expr.normalise import normalise
from tamis.pushdown.connector import Connector
from tamis.pushdown.nodes import Filter, Named, Node, Project, TableScan
from tamis.pushdown.policies.model import Policies, TablePolicy
from tamis.pushdown.sql_trees import ABOUT_THE_PRINCIPAL
from tamis.pushdown.symbols import Symbols, is_deterministic, substitute
from tamis.types import STRING, is_bytes, is_text, type_from_name, type_name, without_views

logger = logging.getLogger("tamis")
"""Told is why a policy denies: to whoever runs the session, not to whoever queries."""


@dataclass(frozen=True)
class BoundPolicy:
    """A policy over the columns of a table: bound, and of the types that the columns have."""

    rows: Expr = TRUE
    masks: Mapping[str, Expr] = field(default_factory=dict)
    """By the names of columns as the table spells them."""

    @property
    def restricts(self) -> bool:
        return self.rows != TRUE or bool(self.masks)


def apply_policies(
    scan: TableScan,
    policies: Policies | None,
    principal: str | None,
    connector: Connector,
    names: Sequence[str],
    doubles: Sequence[Sequence[str]] = (),
) -> Node:
    """A scan with the policies of its table right above it.

    `names` are those that the table is known by, first the one for messages, `doubles` those that it has in databases
    that are the same one. A table that the principal may read as it is stays as it is; one that he may not read raises
    AccessDenied.
    """
    table = names[0]
    found = None if policies is None else policies.policy_of(names, principal, doubles)
    own = _of_connector(connector, scan, principal, table)
    policy = bind_policy(own if found is None else found & own, connector.columns(scan.handle), table, principal)
    return protected_scan(scan, policy, connector.columns(scan.handle)) if policy.restricts else scan


def protected_scan(scan: TableScan, policy: BoundPolicy, schema: pa.Schema) -> Node:
    """A scan with a policy that is bound to the columns of its handle."""
    visible = dict(zip(schema.names, (output.name for output in scan.columns), strict=True))
    # A column of the table may be called like that.
    symbols_of_plan = Symbols(visible.values())
    raw = {
        name: symbols_of_plan.fresh(f"{symbol} (raw)") if name in policy.masks else symbol
        for name, symbol in visible.items()
    }
    symbols: dict[str, Expr] = {name: Column((raw[name],), type=schema.field(name).type) for name in schema.names}
    columns = tuple(replace(output, name=raw[name]) for name, output in zip(schema.names, scan.columns, strict=True))
    node: Node = replace(scan, columns=columns, protects=True)
    if policy.rows != TRUE:
        node = Filter(node, substitute(policy.rows, symbols), protects=True)
    if policy.masks:
        outputs = (
            Named(visible[name], substitute(policy.masks.get(name, Column((name,))), symbols)) for name in schema.names
        )
        node = Project(node, tuple(outputs), protects=True)
    return node


def _of_connector(connector: Connector, scan: TableScan, principal: str | None, table: str) -> TablePolicy:
    try:
        rows = connector.additional_filter(scan.handle, principal)
        return TablePolicy(TRUE if rows is None else rows, dict(connector.masks(scan.handle, principal)))
    except AccessDenied:
        raise
    except TamisError:
        raise AccessDenied(f"the policy of {table} could not be had from its connector") from None


# --- Binding --------------------------------------------------------------------------------------------------------


def bind_policy(policy: TablePolicy, schema: pa.Schema, table: str, principal: str | None) -> BoundPolicy:
    """A policy bound to the columns of a table; AccessDenied where it does not fit them."""
    try:
        rows = _bound(policy.rows, schema, principal)
        masks = {}
        for name, mask in policy.masks.items():
            column = resolve(_column(name, schema), schema, table)
            if len(column.path) > 1:
                raise _denied(table, f"it masks a field of {column.path[0]!r}, where it can mask only the whole of it")
            if column.path[0] in masks:
                raise _denied(table, "it masks one column twice")
            masks[column.path[0]] = _of_type(_bound(mask, schema, principal), column.type, table)
    except AccessDenied:
        raise
    except TamisError as error:
        logger.info("the policy of %s does not fit its columns: %s", table, error)
        raise _denied(table, "it does not fit the columns of the table") from None
    row_type = type_of(rows)
    if row_type is not None and not pa.types.is_boolean(row_type) and not pa.types.is_null(row_type):
        raise _denied(table, "its row filter is no condition")
    if not is_deterministic(and_(rows, *masks.values())):
        raise _denied(table, "it asks for random values")
    # Rows are let through that the filter is TRUE of: one that is NULL lets none through.
    return BoundPolicy(normalise(rows) if rows != NULL else Literal(False, TRUE.type), masks)


def _column(name: str, schema: pa.Schema) -> Column:
    """The column that a policy names: as it is spelled, since fields have no masks, or with back-ticks."""
    if name.casefold() in map(str.casefold, schema.names):
        return Column((name,))
    node = col(name).node
    assert isinstance(node, Column)
    return node


def _bound(expr: Expr, schema: pa.Schema, principal: str | None) -> Expr:
    def named(node: Expr) -> Expr:
        if isinstance(node, Call) and not node.args and node.function in ABOUT_THE_PRINCIPAL:
            return Literal(principal, STRING)
        return node

    return bind(stop_clocks(transform(expr, named)), schema)


def _of_type(mask: Expr, wanted: pa.DataType | None, table: str) -> Expr:
    """A mask of the type of its column, so that a query means the same to everybody."""
    assert wanted is not None
    target = _plain(wanted)
    if type_of(mask) == target:
        return mask
    if isinstance(mask, Literal):
        if (converted := cast_literal(mask, target)) is not None:
            return converted
    elif not pa.types.is_nested(target):
        name = type_name(target)
        if type_from_name(name) == target:
            return Call("cast", (mask, Literal(name, STRING)))
    raise _denied(table, "a mask is not of the type of its column")


def _plain(data_type: pa.DataType) -> pa.DataType:
    """The type that values of a column have once they are computed."""
    if pa.types.is_dictionary(data_type):
        return _plain(data_type.value_type)
    if is_text(data_type):
        return STRING
    return pa.binary() if is_bytes(data_type) else without_views(data_type)


def _denied(table: str, reason: str) -> AccessDenied:
    return AccessDenied(f"the policy of {table} cannot be applied: {reason}. Whoever wrote it can correct it")
