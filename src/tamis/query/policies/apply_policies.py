"""Policies in plans, below everything that the user asked for.

    TableScan(protects) ─▶ Filter(protects): the rows ─▶ Project(protects): the masks

Row filters see raw values. Masks are one projection above them and see raw values too, so that no mask depends on
another. A policy that cannot be applied denies, and the error does not reveal what the policy hides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tamis.errors import AccessDenied, InvalidArgument, TamisError
from tamis.expr.bind import bind
from tamis.expr.builder import to_name
from tamis.expr.functions.table import type_of
from tamis.expr.literals import cast_literal
from tamis.expr.names import resolve
from tamis.expr.nodes import (
    NULL,
    TRUE,
    AnyExpr,
    Call,
    Column,
    Expr,
    Literal,
    Name,
    Unbound,
    and_,
    find_columns,
    split_conjuncts,
    transform,
)
from tamis.expr.normalise import freeze_current_time, normalise
from tamis.expr.sql.printer import to_display_sql
from tamis.expr.wire.partition_filter import resolve_column
from tamis.formats.source import HasPartitionFields, TableSource, make_table_predicate
from tamis.query.connectors.connector import Connector
from tamis.query.connectors.lake_handle import LakeHandle
from tamis.query.plan.column_ids import ColumnIds, is_deterministic, substitute
from tamis.query.plan.nodes import Filter, Named, Node, Project, TableScan
from tamis.query.policies.leakproof import is_leakproof, policy_may_fail
from tamis.query.policies.model import Policies, TablePolicy
from tamis.query.sql.trees import PRINCIPAL_FUNCTIONS
from tamis.skipping.predicate import is_partition_text, make_predicate, reads_partition_text
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
        """Return whether it hides anything."""
        return self.rows != TRUE or bool(self.masks)


def apply_policies(
    scan: TableScan,
    policies: Policies | None,
    principal: str | None,
    connector: Connector,
    names: Sequence[str],
    doubles: Sequence[Sequence[str]] = (),
    where: Unbound = TRUE,
) -> Node:
    """Return a scan with the policies of its table directly above it.

    `names` are the table's names, first the one for messages; `doubles` are its names in databases that are the same
    database. `where` is the user's condition on the texts of partition values. Without it, the scan is returned
    unchanged if the principal may read the whole table. Raise AccessDenied if the principal may not read it.
    """
    table = names[0]
    schema = connector.columns(scan.handle)
    source = scan.handle.source if isinstance(scan.handle, LakeHandle) else None
    found = None if policies is None else policies.find_policy(names, principal, doubles)
    own = _read_policy_from_connector(connector, scan, principal, table)
    partitions = () if source is None else source.partition_texts
    policy = bind_policy(own if found is None else found & own, schema, table, principal, partitions)
    if where != TRUE:
        _check_partition_condition(where, source, policy, table)
        bound = bind(freeze_current_time(where), schema, table, get_text=_make_text_getter(partitions, table))
        filtered = _push_into_scan(connector, scan.handle, bound)
        if filtered is None:
            raise InvalidArgument(
                f"{table} cannot test {to_display_sql(where)} while its files are listed: compare the text of a "
                "partition value with other texts, or write the condition over the partition column"
            )
        scan = replace(scan, handle=filtered)
    if not policy.restricts:
        return scan
    # Only the scan knows the texts of partition values.
    texts = [each for each in split_conjuncts(policy.rows) if reads_partition_text(each)]
    if texts:
        handle = _push_into_scan(connector, scan.handle, and_(*texts))
        if handle is None:
            raise _make_policy_error(table, "its condition on partition values cannot be tested")
        others = [each for each in split_conjuncts(policy.rows) if each not in texts]
        scan, policy = replace(scan, handle=handle), replace(policy, rows=and_(*others))
    return protect_scan(scan, policy, schema)


def _push_into_scan(connector: Connector, handle: object, predicate: Expr) -> object | None:
    """Return a handle of the rows for which a predicate is TRUE; None if the connector cannot test it."""
    pushed = connector.push_filter(handle, predicate)
    return None if pushed is None or pushed.remaining != TRUE else pushed.handle


def _check_partition_condition(where: Unbound, source: TableSource | None, policy: BoundPolicy, table: str) -> None:
    """Raise if a table cannot test the user's condition on the texts of its partition values."""
    if source is None:
        raise InvalidArgument(f"{to_display_sql(where)} reads partition values, and {table} has no partitions")
    if not policy.restricts:
        make_table_predicate(where, source)
        return
    bound = make_predicate(where, source.schema, table, partition_texts=list_visible_texts(source, policy)).expr
    # A column may be masked, and the scan tests its values.
    has_columns = any(not is_partition_text(column.path[0]) for column in find_columns(bound))
    if has_columns or not is_leakproof(bound) or any(map(policy_may_fail, (policy.rows, *policy.masks.values()))):
        raise InvalidArgument(
            f"{table} is under a policy, below which {to_display_sql(where)} cannot be tested without telling what it "
            "hides: compare the partition column itself"
        )


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
            Named(visible[name], substitute(policy.masks[name], raw_columns) if name in policy.masks else column)
            for name, column in raw_columns.items()
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


def list_visible_texts(source: TableSource, policy: BoundPolicy) -> list[str]:
    """Return the partitions whose texts do not tell the values of masked columns."""
    if not isinstance(source, HasPartitionFields):
        return [name for name in source.partition_texts if name not in policy.masks]
    sources = {name: source.find_text_sources(name) for name in source.partition_texts}
    return [name for name, columns in sources.items() if columns is not None and not policy.masks.keys() & columns]


def _make_text_getter(partitions: Collection[str], table: str) -> Callable[[str], Expr]:
    """Return what binds `partition_text('name')` such that the scan of a table binds it again."""
    return lambda name: Call("partition_text", (Literal(resolve_column(name, partitions, table), STRING),))


# --- Binding --------------------------------------------------------------------------------------------------------


def bind_policy(
    policy: TablePolicy, schema: pa.Schema, table: str, principal: str | None, partitions: Collection[str] = ()
) -> BoundPolicy:
    """Bind a policy to the columns of a table. Raise AccessDenied if the policy is not valid for the columns.

    `partitions` are the names that `partition_text` takes in its row filter, for the scan of the table to bind.
    """
    try:
        rows = _bind(policy.rows, schema, principal, _make_text_getter(partitions, table))
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


def _parse_column(name: str, schema: pa.Schema) -> Name:
    """Return the column that a policy names, with or without back-ticks. A dot is part of the name if the table has
    such a column, because a mask cannot apply to a struct field."""
    if name.casefold() in map(str.casefold, schema.names):
        return Name((name,))
    return to_name(name)


def _bind(
    expr: AnyExpr, schema: pa.Schema, principal: str | None, get_text: Callable[[str], Expr] | None = None
) -> Expr:
    def insert_principal(node: AnyExpr) -> AnyExpr:
        if isinstance(node, Call) and not node.args and node.function in PRINCIPAL_FUNCTIONS:
            return Literal(principal, STRING)
        return node

    return bind(freeze_current_time(transform(expr, insert_principal)), schema, get_text=get_text)


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
