"""Policies in plans, below everything that the user asked for.

    TableScan(protects) ─▶ Filter(protects): the rows ─▶ Project(protects): the masks

Row filters see raw values. Masks are one projection above them and see raw values too, so that no mask depends on
another. A policy that cannot be applied denies, and the error does not reveal what the policy hides.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tamis.errors import AccessDenied, TamisError
from tamis.expr.bind import bind
from tamis.expr.builder import col
from tamis.expr.functions.table import type_of
from tamis.expr.literals import cast_literal
from tamis.expr.names import resolve
from tamis.expr.nodes import NULL, TRUE, Call, Column, Expr, Literal, and_, transform
from tamis.expr.normalise import freeze_current_time, normalise
from tamis.query.connectors.connector import Connector
from tamis.query.plan.column_ids import ColumnIds, is_deterministic, substitute
from tamis.query.plan.nodes import Filter, Named, Node, Project, TableScan
from tamis.query.policies.model import Policies, TablePolicy
from tamis.query.sql.trees import PRINCIPAL_FUNCTIONS
from tamis.types import STRING, is_bytes, is_text, replace_view_types, type_from_name, type_name

logger = logging.getLogger("tamis")
"""Logs why a policy denies: for the owner of the session, not for the user who queries."""


@dataclass(frozen=True)
class BoundPolicy:
    """A policy bound to the columns of a table, with masks of the columns' types."""

    rows: Expr = TRUE
    masks: Mapping[str, Expr] = field(default_factory=dict)
    """By the names of columns as the table spells them."""

    @property
    def restricts(self) -> bool:
        """Whether it hides anything."""
        return self.rows != TRUE or bool(self.masks)


def apply_policies(
    scan: TableScan,
    policies: Policies | None,
    principal: str | None,
    connector: Connector,
    names: Sequence[str],
    doubles: Sequence[Sequence[str]] = (),
) -> Node:
    """Return a scan with the policies of its table directly above it.

    `names` are the table's names, first the one for messages; `doubles` are its names in databases that are the same
    database. The scan is returned unchanged if the principal may read the whole table. Raise AccessDenied if the
    principal may not read it.
    """
    table = names[0]
    found = None if policies is None else policies.find_policy(names, principal, doubles)
    own = _read_policy_from_connector(connector, scan, principal, table)
    policy = bind_policy(own if found is None else found & own, connector.columns(scan.handle), table, principal)
    return protect_scan(scan, policy, connector.columns(scan.handle)) if policy.restricts else scan


def protect_scan(scan: TableScan, policy: BoundPolicy, schema: pa.Schema) -> Node:
    """Return a scan with a policy that is bound to the columns of its handle."""
    visible = dict(zip(schema.names, (output.name for output in scan.columns), strict=True))
    # Names for raw columns that no column of the table has.
    column_ids = ColumnIds(visible.values())
    raw = {
        name: column_ids.allocate(f"{column_id} (raw)") if name in policy.masks else column_id
        for name, column_id in visible.items()
    }
    raw_columns: dict[str, Expr] = {name: Column((raw[name],), type=schema.field(name).type) for name in schema.names}
    columns = tuple(replace(output, name=raw[name]) for name, output in zip(schema.names, scan.columns, strict=True))
    node: Node = replace(scan, columns=columns, is_protected=True)
    if policy.rows != TRUE:
        node = Filter(node, substitute(policy.rows, raw_columns), protects=True)
    if policy.masks:
        outputs = (
            Named(visible[name], substitute(policy.masks.get(name, Column((name,))), raw_columns))
            for name in schema.names
        )
        node = Project(node, tuple(outputs), protects=True)
    return node


def _read_policy_from_connector(
    connector: Connector, scan: TableScan, principal: str | None, table: str
) -> TablePolicy:
    try:
        rows = connector.additional_filter(scan.handle, principal)
        return TablePolicy(TRUE if rows is None else rows, dict(connector.masks(scan.handle, principal)))
    except AccessDenied:
        raise
    except TamisError:
        raise AccessDenied(f"the connector of {table} could not return its policy") from None


# --- Binding --------------------------------------------------------------------------------------------------------


def bind_policy(policy: TablePolicy, schema: pa.Schema, table: str, principal: str | None) -> BoundPolicy:
    """Bind a policy to the columns of a table. Raise AccessDenied if the policy is not valid for the columns."""
    try:
        rows = _bind(policy.rows, schema, principal)
        masks = {}
        for name, mask in policy.masks.items():
            column = resolve(_parse_column(name, schema), schema, table)
            if len(column.path) > 1:
                raise _make_policy_error(
                    table, f"it masks a field of {column.path[0]!r}, and only whole columns can be masked"
                )
            if column.path[0] in masks:
                raise _make_policy_error(table, "it masks one column twice")
            masks[column.path[0]] = _cast_mask(_bind(mask, schema, principal), column.type, table)
    except AccessDenied:
        raise
    except TamisError as error:
        logger.info("the policy of %s is not valid for its columns: %s", table, error)
        raise _make_policy_error(table, "it is not valid for the columns of the table") from None
    row_type = type_of(rows)
    if row_type is not None and not pa.types.is_boolean(row_type) and not pa.types.is_null(row_type):
        raise _make_policy_error(table, "its row filter is not a condition")
    if not is_deterministic(and_(rows, *masks.values())):
        raise _make_policy_error(table, "it is not deterministic")
    # Only rows for which the filter is TRUE are visible: a filter that is NULL hides all.
    return BoundPolicy(normalise(rows) if rows != NULL else Literal(False, TRUE.type), masks)


def _parse_column(name: str, schema: pa.Schema) -> Column:
    """Return the column that a policy names, with or without back-ticks. A dot is part of the name if the table has
    such a column, because a mask cannot apply to a struct field."""
    if name.casefold() in map(str.casefold, schema.names):
        return Column((name,))
    node = col(name).node
    assert isinstance(node, Column)
    return node


def _bind(expr: Expr, schema: pa.Schema, principal: str | None) -> Expr:
    def insert_principal(node: Expr) -> Expr:
        if isinstance(node, Call) and not node.args and node.function in PRINCIPAL_FUNCTIONS:
            return Literal(principal, STRING)
        return node

    return bind(freeze_current_time(transform(expr, insert_principal)), schema)


def _cast_mask(mask: Expr, wanted: pa.DataType | None, table: str) -> Expr:
    """Cast a mask to the type of its column, so that a query means the same for every principal."""
    assert wanted is not None
    target = _get_computed_type(wanted)
    if type_of(mask) == target:
        return mask
    if isinstance(mask, Literal):
        if (converted := cast_literal(mask, target)) is not None:
            return converted
    elif not pa.types.is_nested(target):
        name = type_name(target)
        if type_from_name(name) == target:
            return Call("cast", (mask, Literal(name, STRING)))
    raise _make_policy_error(table, "a mask is not of the type of its column")


def _get_computed_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type that computed values of a column have."""
    if pa.types.is_dictionary(data_type):
        return _get_computed_type(data_type.value_type)
    if is_text(data_type):
        return STRING
    return pa.binary() if is_bytes(data_type) else replace_view_types(data_type)


def _make_policy_error(table: str, reason: str) -> AccessDenied:
    return AccessDenied(f"the policy of {table} cannot be applied: {reason}. Its author can correct it")
