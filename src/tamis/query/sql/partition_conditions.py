"""Conditions on the texts of partition values: `WHERE partition_text('year') = '2024'`.

Only the scan of a table knows these texts, so such a condition, which may have columns of this table too, becomes a
part of its table, as a version does:

    SELECT … FROM sales WHERE partition_text('year') = '2024' AND id > 7
    SELECT … FROM `sales WHERE partition_text('year') = '2024'` AS sales WHERE id > 7
"""

from __future__ import annotations

from typing import Protocol

from sqlglot import exp

from tamis.errors import ExpressionError, format_position
from tamis.expr.nodes import Unbound
from tamis.expr.sql.parse import to_expression
from tamis.expr.sql.refusals import find_position
from tamis.expr.sql.syntax import to_sql_text
from tamis.query.sql.scopes import get_name_parts
from tamis.query.sql.table_versions import rename_table
from tamis.query.sql.trees import find_filterable_tables, split_conjuncts

_ADVICE = (
    "it is tested while the files of a table are listed, so write it as a condition of its own in the WHERE of the "
    "SELECT that reads the table, as in SELECT … FROM sales WHERE partition_text('year') = '2024'"
)


class PartitionedTables(Protocol):
    """The tables of a query that can be filtered by the texts of their partition values."""

    def has_partition(self, name: tuple[str, ...], partition: str) -> bool:
        """Return whether a table has a partition column, or a partition field, of a name."""

    def add_partition_filter(self, name: tuple[str, ...], filtered: tuple[str, ...], where: Unbound) -> None:
        """Add a table of the name `filtered`: the rows of another table whose partitions satisfy `where`."""


def move_partition_conditions_into_tables(tree: exp.Expr, tables: PartitionedTables) -> None:
    """Move each condition on the texts of partition values from WHERE into its table, in place."""
    if not any(map(_is_partition_text, tree.find_all(exp.Anonymous))):
        return
    for select in list(tree.find_all(exp.Select)):
        where = select.args.get("where")
        if where is None or select.args.get("from_") is None:
            continue
        others: list[exp.Expr] = []
        found: dict[int, tuple[exp.Table, list[exp.Expr]]] = {}
        for conjunct in split_conjuncts(where.this):
            partitions = _list_partitions(conjunct)
            if not partitions or conjunct.find(exp.Query) is not None:
                others.append(conjunct)
                continue
            table = _find_table(select, conjunct, partitions, tables)
            found.setdefault(id(table), (table, []))[1].append(conjunct)
        for table, conditions in found.values():
            condition = exp.and_(*(_strip_qualifiers(each, table) for each in conditions))
            name = get_name_parts(table)
            filtered = f"{name[-1]} WHERE {to_sql_text(condition)}"
            tables.add_partition_filter(name, (*name[:-1], filtered), to_expression(condition))
            rename_table(table, filtered)
        if found:
            select.set("where", exp.Where(this=exp.and_(*others)) if others else None)
    for call in filter(_is_partition_text, tree.find_all(exp.Anonymous)):
        raise _make_error(f"{to_sql_text(call)} is not in a place where it can be tested", call, _ADVICE)


def _find_table(select: exp.Select, conjunct: exp.Expr, partitions: list[str], tables: PartitionedTables) -> exp.Table:
    """Return the table of a SELECT that a condition is about."""
    text = to_sql_text(conjunct)
    own = [
        table
        for table in find_filterable_tables(select)
        if isinstance(table.this, exp.Identifier) and not _is_common(table)
    ]
    columns = list(conjunct.find_all(exp.Column))
    if columns and len(find_tables(select)) > 1:
        own = [table for table in own if all(_is_qualified(column, table) for column in columns)]
        if not own:
            raise _make_error(
                f"{text} combines the texts of partition values with columns of several tables", conjunct,
                "write the condition in a subquery over one of them, as in FROM (SELECT * FROM sales WHERE …)",
            )  # fmt: skip
    named = [each for each in own if all(tables.has_partition(get_name_parts(each), name) for name in partitions)]
    if len(named) > 1:
        raise _make_error(
            f"{text} may be about {' or '.join(each.alias_or_name for each in named)}", conjunct,
            "write the condition in a subquery over one of them, as in "
            f"FROM (SELECT * FROM {named[0].name} WHERE {text})",
        )  # fmt: skip
    if named:
        return named[0]
    if len(own) == 1 and len(find_tables(select)) == 1:
        # The table reports that it has no such partition.
        return own[0]
    raise _make_error(f"no table that {text} could filter is in this FROM", conjunct, _ADVICE)


def _is_qualified(column: exp.Column, table: exp.Table) -> bool:
    """Return whether a column is written with the name of a table before it."""
    parts = column.parts
    return len(parts) > 1 and parts[0].name.casefold() == table.alias_or_name.casefold()


def _strip_qualifiers(condition: exp.Expr, table: exp.Table) -> exp.Expr:
    """Return a copy of a condition whose columns are written without the name of their table."""

    def strip(node: exp.Expr) -> exp.Expr:
        if not (isinstance(node, exp.Column) and _is_qualified(node, table)):
            return node
        names = [part.copy() for part in node.parts[1:]]
        return exp.Column(**dict(zip(("this", "table", "db"), reversed(names), strict=False)))

    return condition.copy().transform(strip)


def find_tables(select: exp.Select) -> list[exp.Expr]:
    """Return the sources of a FROM."""
    return [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]


def _is_common(table: exp.Table) -> bool:
    """Return whether a name is that of a common table expression around it."""
    if table.args.get("db") is not None:
        return False
    query = table.find_ancestor(exp.Query)
    while query is not None:
        clause = query.args.get("with_")
        if clause is not None and any(each.alias.casefold() == table.name.casefold() for each in clause.expressions):
            return True
        query = query.find_ancestor(exp.Query)
    return False


def _list_partitions(tree: exp.Expr) -> list[str]:
    """Return the names of the partitions whose texts a condition reads."""
    calls = filter(_is_partition_text, tree.find_all(exp.Anonymous))
    return [call.expressions[0].name if len(call.expressions) == 1 else "" for call in calls]


def _is_partition_text(call: exp.Expr) -> bool:
    return call.name.lower() == "partition_text"


def _make_error(what: str, tree: exp.Expr, advice: str) -> ExpressionError:
    position = find_position(tree)
    where = "" if position is None else f" (at: query, {format_position(position)})"
    return ExpressionError(f"{what}{where}: {advice}")
